/* SPDX-License-Identifier: Apache-2.0
 *
 * core.h - the firmware: what a tick of the sound converter does. No heap, no libc, no waiting, no floating point.
 *
 * A tick comes every 10 ms with 160 samples of the microphone and takes 160 for the loudspeaker (16 kHz). It runs a fixed
 * list of tasks to their ends, in this order:
 *
 *     echo        takes what was played out of what was captured, where no DSP does
 *     ear         the stop lane: is that a stop phrase? Then the answer is silent in this very tick
 *     loudspeaker plays what the voice sends
 *     microphone  sends what was captured, 40 ms at a time
 *     events      reads and drops what the server tells (every 2nd tick)
 *     route       which instance serves the session, by the host's published table (every 10th tick)
 *
 * The ear needs nothing of the other side: no message, no room, nobody who runs. A server that hangs, or is dead, or writes
 * nonsense into the shared memory, changes nothing of it.
 *
 * The loudspeaker is heard by the microphone. What the answer itself says is known, so a second ear listens to it, and a
 * phrase that the answer has just said is not taken for a person's.
 */
#ifndef DPF_FW_CORE_H
#define DPF_FW_CORE_H

#include "dpf/route.h"
#include "echo.h"
#include "keyword.h"
#include "link.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DPF_FW_BLOCK = DPF_FW_HOP, /* samples of a tick */
    DPF_FW_SESSIONS = 4        /* instances that a firmware may talk to */
};

/* One instance: a session with it is open. `name` is what the routing table calls it. */
typedef struct dpf_fw_instance {
    dpf_fw_link link;
    const char *name;
    uint32_t name_bytes;
} dpf_fw_instance;

typedef struct dpf_fw_counters {
    uint64_t ticks;
    uint64_t sent;       /* samples, to the server */
    uint64_t unsent;     /* samples that there was no room for */
    uint64_t played;     /* samples of answers */
    uint64_t stopped;    /* samples that a stop kept from being played */
    uint64_t starved;    /* ticks in the middle of an answer without a sample for the loudspeaker */
    uint32_t events;
    uint32_t answers;    /* whose sound ended */
    uint32_t stops;
    uint32_t own;        /* phrases that the answer said itself */
    uint32_t heard;      /* the phrase of the last stop */
    uint32_t moves;      /* to another instance */
    uint64_t stop_tick;  /* of the last stop */
} dpf_fw_counters;

typedef struct dpf_fw_core {
    dpf_fw_instance instances[DPF_FW_SESSIONS];
    uint32_t instance_count;
    uint32_t chosen; /* UINT32_MAX: none */
    dpf_route_view view;
    bool routed; /* by `view`; else the first instance serves */
    uint64_t hash;

    dpf_fw_echo echo;
    bool cancels;
    int16_t last[DPF_FW_BLOCK];     /* what was played while the samples were captured */
    int16_t cleaned[DPF_FW_BLOCK]; /* what is left of them */

    dpf_fw_features ear, own_ear;
    dpf_fw_keyword keyword, own_keyword;
    uint32_t own_since; /* ticks since the answer said a phrase */

    dpf_fw_sound sound;
    bool playing; /* `sound` is being played */
    bool inside;  /* an answer has begun and not ended */
    uint32_t at;  /* in `sound` */
    uint32_t floor; /* sound of an epoch below it was stopped here */
    uint32_t answer;
    uint32_t answer_samples; /* of it, played */
    int32_t level; /* the last sample played: silence begins from it */

    const int16_t *place; /* of the microphone's next message */
    uint32_t filled;      /* samples in it */
    uint64_t captured_ns;
    uint32_t muted;            /* ticks in which the server is sent silence */
    bool committing, clearing; /* asked for, not sent */

    dpf_fw_counters counters;
} dpf_fw_core;

/* What the board says, once. Everything in it must live as long as the core. */
typedef struct dpf_fw_config {
    const dpf_fw_phrases *phrases;
    bool cancel_echo;  /* nothing before the core does */
    const void *route; /* the published table; NULL: the first instance serves */
    uint64_t route_bytes;
    const char *model, *user; /* of the routing key */
    uint32_t model_bytes, user_bytes;
    uint64_t session_ms;
} dpf_fw_config;

/* Makes `core` (zeroed memory) ready; then open the link of each instance, name it, and raise instance_count.
 * False: the phrases, the table or an id are impossible. */
bool dpf_fw_core_init(dpf_fw_core *core, const dpf_fw_config *config);

/* One tick. Both blocks have DPF_FW_BLOCK samples. */
void dpf_fw_tick(dpf_fw_core *core, const int16_t *captured, int16_t *playback);

/* The button that ends an utterance: what is held is sent, then a commit, in the next ticks. Clear drops it instead. */
void dpf_fw_flush(dpf_fw_core *core);
void dpf_fw_clear(dpf_fw_core *core);

/* The button that silences: as the phrase does. */
void dpf_fw_stop(dpf_fw_core *core);

#ifdef __cplusplus
}
#endif

#endif
