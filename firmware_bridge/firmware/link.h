/* SPDX-License-Identifier: Apache-2.0
 *
 * link.h - one session with `dpfedge serve`, as the core uses it; the protocol is dpfedge/serve/native/NATIVE.md.
 *
 * link_ring.c is this over the arena's own rings: cores that share memory coherently with Linux and have 64-bit atomics (Cortex-A,
 * Cortex-R). link_rpmsg.c is the same over frames of descriptors (rpmsg.h): every other core, Cortex-M too. A build has one of
 * them: DPF_FW_RPMSG chooses. Samples lie in the arena's slots either way and are never carried.
 */
#ifndef DPF_FW_LINK_H
#define DPF_FW_LINK_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds of what goes up; the numbers are NATIVE.md's. */
enum { DPF_FW_SAMPLES = 1, DPF_FW_COMMIT = 2, DPF_FW_CLEAR = 3 };

/* A piece of the answer, read in place until dpf_fw_link_sound_done. */
typedef struct dpf_fw_sound {
    const int16_t *samples;
    uint32_t count;
    uint32_t answer;
    uint32_t epoch; /* below the bound: stopped, not to be played */
    uint32_t slot;
    bool last; /* of its answer */
} dpf_fw_sound;

/* What an event says; its text stays unread. */
typedef struct dpf_fw_event {
    uint32_t kind;
    uint32_t number;
} dpf_fw_event;

#ifdef DPF_FW_RPMSG
#include "link_rpmsg.h"
#else
#include "link_ring.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Sound of an epoch below it is stopped; it only rises. */
uint32_t dpf_fw_link_bound(const dpf_fw_link *link);

/* Raises the bound by one and says how much of the answer was heard; the new bound, also when nobody can be told of it. */
uint32_t dpf_fw_link_stop(dpf_fw_link *link, uint32_t heard_ms);

/* Where the next samples may be written, and how many; NULL when there is no room. The same place until it is sent. */
int16_t *dpf_fw_link_place(dpf_fw_link *link, uint32_t *room);

/* Sends the first `count` samples of the place. */
void dpf_fw_link_samples(dpf_fw_link *link, uint32_t count, uint64_t captured_ns);

/* Sends DPF_FW_COMMIT or DPF_FW_CLEAR; false when there is no room now. Nothing may be in the place. */
bool dpf_fw_link_command(dpf_fw_link *link, uint8_t kind);

/* Takes the next piece of sound; false when there is none. What makes no sense is given back and counted. */
bool dpf_fw_link_sound(dpf_fw_link *link, dpf_fw_sound *sound);
void dpf_fw_link_sound_done(dpf_fw_link *link, const dpf_fw_sound *sound);

/* Takes and gives back the next event; false when there is none. */
bool dpf_fw_link_event(dpf_fw_link *link, dpf_fw_event *event);

/* Whether the other side has to look since this was asked last. */
bool dpf_fw_link_due(dpf_fw_link *link);

#ifdef __cplusplus
}
#endif

#endif
