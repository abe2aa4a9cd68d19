/* SPDX-License-Identifier: Apache-2.0
 *
 * The request table of dpf/requests.h.
 */
#include "dpf/requests.h"
#include "ring_words.h"
#include "step.h"

enum { LIVE_SHIFT = 32, GENERATION_SHIFT = 33, INDEX_BITS = 16 };
#define LIVE (1ull << LIVE_SHIFT)

static uint64_t live_word(uint64_t key) {
    return key >> INDEX_BITS << GENERATION_SHIFT | LIVE;
}

/* The place of a key, or NULL when no key can look like this. */
static dpf_request *place_of(const dpf_requests *table, uint64_t key) {
    uint32_t index = key & 0xFFFFu;
    return index < table->count && key >> (INDEX_BITS + 31) == 0 ? &table->entry[index] : NULL;
}

static bool is_live(uint64_t word, uint64_t key) {
    return (word & ~(uint64_t)UINT32_MAX) == live_word(key);
}

static uint64_t next_generation(uint64_t word) {
    uint64_t generation = (word >> GENERATION_SHIFT) + 1;
    return generation >> 31 ? 1 : generation; /* 0 would make key 0 possible */
}

dpf_result dpf_requests_open(dpf_requests *table, uint32_t urgency, uint64_t now_ns, uint64_t *key) {
    for (uint32_t index = 0; index < table->count; index++) {
        dpf_request *place = &table->entry[index];
        uint64_t word = load(&place->word);
        if (word & LIVE) continue;
        uint64_t candidate = next_generation(word) << INDEX_BITS | index;
        if (!swap(&place->word, &word, live_word(candidate))) continue;
        DPF_STEP();
        store(&place->started_ns, now_ns);
        atomic_store_explicit(&place->urgency, urgency, memory_order_release);
        *key = candidate;
        return DPF_OK;
    }
    return DPF_FULL;
}

dpf_result dpf_requests_close(dpf_requests *table, uint64_t key) {
    dpf_request *place = place_of(table, key);
    if (place == NULL) return DPF_STALE;
    uint64_t word = load(&place->word);
    for (uint32_t i = 0; i < DPF_TRIES; i++) {
        if (!is_live(word, key)) return DPF_STALE;
        if (swap(&place->word, &word, live_word(key) & ~LIVE)) return DPF_OK;
    }
    return DPF_CORRUPT;
}

dpf_result dpf_requests_cancel(dpf_requests *table, uint64_t key, uint32_t before_turn) {
    dpf_request *place = place_of(table, key);
    if (place == NULL) return DPF_STALE;
    uint64_t word = load(&place->word);
    for (uint32_t i = 0; i < DPF_TRIES; i++) {
        if (!is_live(word, key)) return DPF_STALE;
        if (before_turn <= low(word)) return DPF_OK;
        if (swap(&place->word, &word, live_word(key) | before_turn)) return DPF_OK;
    }
    return DPF_CORRUPT;
}

bool dpf_requests_cancelled(const dpf_requests *table, uint64_t key, uint32_t turn) {
    const dpf_request *place = place_of(table, key);
    if (place == NULL) return true;
    uint64_t word = load(&place->word);
    return !is_live(word, key) || turn < low(word) || low(word) == DPF_ALL_TURNS;
}

uint64_t dpf_requests_key(const dpf_requests *table, uint32_t index) {
    if (index >= table->count) return 0;
    uint64_t word = load(&table->entry[index].word);
    return word & LIVE ? word >> GENERATION_SHIFT << INDEX_BITS | index : 0;
}

bool dpf_requests_live(const dpf_requests *table, uint64_t key, uint32_t *urgency, uint64_t *started_ns) {
    const dpf_request *place = place_of(table, key);
    if (place == NULL || !is_live(load(&place->word), key)) return false;
    if (urgency != NULL) *urgency = load32(&place->urgency);
    if (started_ns != NULL) *started_ns = load(&place->started_ns);
    return true;
}
