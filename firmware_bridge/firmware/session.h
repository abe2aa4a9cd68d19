/* SPDX-License-Identifier: Apache-2.0
 *
 * session.h - the client's side of a session's arena (NATIVE.md), for whoever works on its rings: link_ring.c and bridge.c.
 *
 * Nothing here waits, allocates or calls libc. Every value of the arena is checked by dpf/ring.h.
 */
#ifndef DPF_FW_SESSION_H
#define DPF_FW_SESSION_H

#include "dpf/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dpf_fw_session {
    dpf_arena arena;
    dpf_ring microphone;
    dpf_ring stops;
    dpf_ring events;
    dpf_ring sound;
    uint64_t key;
    bool due;         /* the server has to look: ring its doorbell */
    uint32_t corrupt; /* messages that made no sense */
    uint32_t full;    /* times that there was no room */
} dpf_fw_session;

/* Takes the client's ports. DPF_CORRUPT, DPF_BAD, DPF_STALE or DPF_TAKEN when it is no session's, or one of enormous rings. */
dpf_result dpf_fw_session_open(dpf_fw_session *session, void *base, uint64_t nbytes, uint64_t key);

/* Sound of an epoch below it is stopped. */
uint32_t dpf_fw_session_bound(const dpf_fw_session *session);

/* Raises the bound to `before`, if it is lower, and then says how much was heard where there is room for that. */
void dpf_fw_session_stop(dpf_fw_session *session, uint32_t before, uint32_t heard_ms, uint64_t now_ns);

/* Borrows a slot of the microphone's ring; false when there is none. */
bool dpf_fw_session_loan(dpf_fw_session *session, uint32_t *slot, uint32_t *generation);

/* Sends a borrowed slot: `count` samples, or, when that is 0, a command. */
void dpf_fw_session_send(dpf_fw_session *session, uint32_t slot, uint32_t generation, uint8_t kind, uint32_t count,
                         uint64_t captured_ns);

/* The oldest message of the events' or the sound's ring, leased; false when there is none. What is corrupt is passed over and
 * counted, a few at most. */
bool dpf_fw_session_take(dpf_fw_session *session, dpf_ring *ring, dpf_descriptor *message);

/* Whether a piece of sound may be read as samples. */
bool dpf_fw_session_aligned(const dpf_descriptor *message);

/* Ends a lease; false when there was none. */
bool dpf_fw_session_give_back(dpf_fw_session *session, dpf_ring *ring, uint32_t slot);

#ifdef __cplusplus
}
#endif

#endif
