/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/bell.h - the word a stage sleeps on, one per stage, shared by every link that ends there.
 *
 * A bell only counts: it says "something changed, look again", never what. The sleeper reads `value` first, looks at
 * its links second, and sleeps only while `value` is still the one it read: nothing rung in between can be lost.
 *
 *     seen = dpf_bell_value(bell);
 *     while (no work) { dpf_bell_wait(bell, seen, ...); seen = dpf_bell_value(bell); }      (dpf/posix.h)
 *
 * `waiters` is epoch:16 | count:16. A ringer skips the system call when the count is 0. A sleeper killed in its sleep
 * leaves a count behind, which costs a system call per ring and nothing else; reclaim starts a new epoch, which
 * forgets all counts, and wakes everyone unconditionally: the living count themselves again. Who overwrites `waiters` on
 * purpose can leave a count behind, too: disarm and reset give up after DPF_TRIES.
 * A ringer that dies (or is stopped) between the increment and the wake leaves the sleeper counted, so the next ringer
 * wakes it; when none comes, reclaim does.
 */
#ifndef DPF_BELL_H
#define DPF_BELL_H

#include "dpf/base.h"

DPF_LITTLE_ENDIAN_ONLY;

typedef struct dpf_bell {
    DPF_ATOMIC(uint32_t) value;
    DPF_ATOMIC(uint32_t) waiters;
    uint8_t reserved[56];
    char name[DPF_NAME_BYTES]; /* the stage */
} dpf_bell;

DPF_ASSERT(sizeof(dpf_bell) == 128, "bell layout");
DPF_ASSERT(offsetof(dpf_bell, waiters) == 4 && offsetof(dpf_bell, name) == 64, "bell layout");

#ifndef __cplusplus

/* The count of rings so far, modulo 2^32. */
static inline uint32_t dpf_bell_value(dpf_bell *bell) {
    return atomic_load_explicit(&bell->value, memory_order_seq_cst);
}

/* Counts a ring; true when somebody sleeps and the caller must wake it (FUTEX_WAKE, an interrupt, a doorbell). */
static inline bool dpf_bell_ring(dpf_bell *bell) {
    atomic_fetch_add_explicit(&bell->value, 1, memory_order_seq_cst);
    return (atomic_load_explicit(&bell->waiters, memory_order_seq_cst) & 0xFFFFu) != 0;
}

/* Announces a sleeper; returns the epoch that dpf_bell_disarm wants back. */
static inline uint32_t dpf_bell_arm(dpf_bell *bell) {
    return atomic_fetch_add_explicit(&bell->waiters, 1, memory_order_seq_cst) >> 16;
}

/* Ends a sleep; does nothing when a reclaim forgot this sleeper meanwhile. */
static inline void dpf_bell_disarm(dpf_bell *bell, uint32_t epoch) {
    uint32_t now = atomic_load_explicit(&bell->waiters, memory_order_relaxed);
    bool left = false;
    for (uint32_t i = 0; i < DPF_TRIES && !left && now >> 16 == epoch && (now & 0xFFFFu) != 0; i++) {
        left = atomic_compare_exchange_weak_explicit(&bell->waiters, &now, now - 1, memory_order_seq_cst, memory_order_relaxed);
    }
}

/* Forgets every sleeper and rings; the caller must wake all of them whatever the count was. */
static inline void dpf_bell_reset(dpf_bell *bell) {
    uint32_t now = atomic_load_explicit(&bell->waiters, memory_order_relaxed);
    bool forgotten = false;
    for (uint32_t i = 0; i < DPF_TRIES && !forgotten; i++) {
        forgotten = atomic_compare_exchange_weak_explicit(&bell->waiters, &now, ((now >> 16) + 1) << 16, memory_order_seq_cst,
                                                          memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&bell->value, 1, memory_order_seq_cst);
}

#endif
#endif
