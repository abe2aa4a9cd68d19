/* SPDX-License-Identifier: Apache-2.0
 *
 * A firmware core with sessions in ordinary memory, and the server's ends of them, for tests of firmware/. With DPF_FW_RPMSG
 * the core is behind a bridge, and every frame passes a wire of two buffers, as rpmsg has few.
 */
#ifndef DPF_FIRMWARE_RIG_H
#define DPF_FIRMWARE_RIG_H

#include "check.h"
#include "client_wire.h"
#include "core.h"

enum { RIG_SESSIONS = 2, RIG_PHRASE_MS = 600 };

typedef struct rig_session {
    void *base;
    uint64_t nbytes, key;
    dpf_arena arena;
    dpf_ring rings[DPF_WIRE_RINGS];
    uint32_t rung;
} rig_session;

typedef struct rig {
    dpf_fw_core core;
    rig_session sessions[RIG_SESSIONS];
    int16_t played[DPF_FW_BLOCK]; /* of the last tick */
} rig;

extern rig the_rig;

/* A phrase of tones that no test says by chance, taught from its own sound. */
extern const dpf_fw_phrases RIG_PHRASES;
int16_t rig_phrase(uint32_t sample);

/* Makes `count` sessions and a core that has them, named "a" and "b"; `route` may be NULL. */
void rig_start(uint32_t count, const void *route, uint64_t route_bytes);
void rig_end(void);

/* An empty routing table of 2^8 table slots and 4 instances for `rig_start`; free it. */
uint64_t *rig_table(uint64_t *nbytes);

/* One tick with a block of samples; NULL: silence. */
void rig_tick(const int16_t *captured);

/* Says the phrase, and silence until it is heard; how many ticks that took. */
uint32_t rig_say_phrase(void);

/* The server's side. */
bool rig_sound(uint32_t session, uint32_t epoch, uint32_t answer, int16_t first, uint32_t count, bool last);
bool rig_receive(uint32_t session, uint32_t ring, dpf_descriptor *message, const unsigned char **payload);
void rig_release(uint32_t session, uint32_t ring, const dpf_descriptor *message);

/* The words of a session's arena, to be written over. */
void rig_scribble(uint64_t *state, uint32_t session);

#endif
