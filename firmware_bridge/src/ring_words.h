/* SPDX-License-Identifier: Apache-2.0
 *
 * The two-half words of dpf/ring.h and the memory order they need.
 *
 * Everything the protocol reads or writes is sequentially consistent: a released slot and a starved producer are a
 * store-load pair on both sides, which weaker orders lose. On x86-64 the loads are plain moves either way.
 */
#ifndef DPF_RING_WORDS_H
#define DPF_RING_WORDS_H

#include "dpf/base.h"

static inline uint64_t pack(uint32_t owner, uint32_t upper) {
    return (uint64_t)upper << 32 | owner;
}

static inline uint32_t low(uint64_t word) {
    return (uint32_t)word;
}

static inline uint32_t high(uint64_t word) {
    return (uint32_t)(word >> 32);
}

static inline uint64_t load(const DPF_ATOMIC(uint64_t) *word) {
    return atomic_load_explicit((DPF_ATOMIC(uint64_t) *)word, memory_order_seq_cst);
}

static inline uint32_t load32(const DPF_ATOMIC(uint32_t) *word) {
    return atomic_load_explicit((DPF_ATOMIC(uint32_t) *)word, memory_order_seq_cst);
}

static inline void store(DPF_ATOMIC(uint64_t) *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_release);
}

static inline bool swap(DPF_ATOMIC(uint64_t) *word, uint64_t *expected, uint64_t value) {
    return atomic_compare_exchange_strong_explicit(word, expected, value, memory_order_seq_cst, memory_order_seq_cst);
}

static inline bool swap32(DPF_ATOMIC(uint32_t) *word, uint32_t *expected, uint32_t value) {
    return atomic_compare_exchange_strong_explicit(word, expected, value, memory_order_seq_cst, memory_order_seq_cst);
}

/* A counter with one writer. */
static inline void add(DPF_ATOMIC(uint64_t) *counter, uint64_t value) {
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + value, memory_order_relaxed);
}

#endif
