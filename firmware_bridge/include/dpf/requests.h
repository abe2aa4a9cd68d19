/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/requests.h - the table of live requests: who is live, what is cancelled, how urgent it is.
 *
 * A key is generation << 16 | index, never 0. The whole truth about a place is one 64-bit word, so asking costs one
 * read and every change is one compare-and-swap: no process can die while it holds something here.
 *
 *     word = generation (31 bits) << 33 | live << 32 | cancel_before (32 bits)
 *
 * A closed key is stale for ever (until its place was opened 2^31 times more), and stale counts as cancelled. Any process
 * may call any function; a hostile one can cancel or close every request, and keep others from cancelling and closing, nothing
 * else: who overwrites a word on purpose makes a call answer DPF_CORRUPT after DPF_TRIES tries.
 */
#ifndef DPF_REQUESTS_H
#define DPF_REQUESTS_H

#include "dpf/base.h"

DPF_LITTLE_ENDIAN_ONLY;

enum { DPF_REQUESTS_MAX = 65535 };
#define DPF_ALL_TURNS 0xFFFFFFFFu

typedef struct dpf_request {
    DPF_ATOMIC(uint64_t) word;
    DPF_ATOMIC(uint64_t) started_ns; /* informative, like urgency: written after the place was taken */
    DPF_ATOMIC(uint32_t) urgency;
    uint32_t reserved[11];
} dpf_request;

DPF_ASSERT(sizeof(dpf_request) == DPF_LINE, "request layout");
DPF_ASSERT(offsetof(dpf_request, started_ns) == 8 && offsetof(dpf_request, urgency) == 16, "request layout");

/* A private view of the table. */
typedef struct dpf_requests {
    dpf_request *entry;
    uint32_t count;
} dpf_requests;

DPF_BEGIN_C

/* Takes a free place: DPF_OK and its key, or DPF_FULL. */
dpf_result dpf_requests_open(dpf_requests *table, uint32_t urgency, uint64_t now_ns, uint64_t *key);

/* Frees the place; DPF_STALE when the key is not live; DPF_CORRUPT. */
dpf_result dpf_requests_close(dpf_requests *table, uint64_t key);

/* Cancels every turn below `before_turn` (DPF_ALL_TURNS: every turn there is). The bound only ever rises.
 * DPF_STALE when the key is not live, DPF_CORRUPT. */
dpf_result dpf_requests_cancel(dpf_requests *table, uint64_t key, uint32_t before_turn);

/* Whether the turn was cancelled, or the key is not live. */
bool dpf_requests_cancelled(const dpf_requests *table, uint64_t key, uint32_t turn);

/* The key of a live place, or 0. */
uint64_t dpf_requests_key(const dpf_requests *table, uint32_t index);

/* Whether the key is live; if so and wanted, its urgency and start. */
bool dpf_requests_live(const dpf_requests *table, uint64_t key, uint32_t *urgency, uint64_t *started_ns);

DPF_END_C

#endif
