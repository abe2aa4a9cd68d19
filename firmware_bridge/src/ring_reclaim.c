/* SPDX-License-Identifier: Apache-2.0
 *
 * Ports, death and counters of dpf/ring.h.
 */
#include "dpf/ring.h"
#include "ring_words.h"
#include "step.h"

static dpf_result attach(DPF_ATOMIC(uint32_t) *port, uint32_t owner) {
    uint32_t now = 0;
    if (owner == 0) return DPF_BAD;
    return swap32(port, &now, owner) || now == owner ? DPF_OK : DPF_TAKEN;
}

static void detach(DPF_ATOMIC(uint32_t) *port, uint32_t owner) {
    if (owner != 0) swap32(port, &owner, 0);
}

dpf_result dpf_ring_attach_producer(dpf_ring *ring, uint32_t owner) {
    return attach(&ring->control->owner, owner);
}

dpf_result dpf_ring_attach_consumer(dpf_ring *ring, uint32_t place, uint32_t owner) {
    if (place >= ring->places) return DPF_BAD;
    dpf_result result = attach(&ring->control->place[place].owner, owner);
    if (result == DPF_OK) ring->place = place;
    return result;
}

void dpf_ring_detach_producer(dpf_ring *ring, uint32_t owner) {
    detach(&ring->control->owner, owner);
}

void dpf_ring_detach_consumer(dpf_ring *ring, uint32_t place, uint32_t owner) {
    if (place < ring->places) detach(&ring->control->place[place].owner, owner);
}

/* Clears a word of the dead owner; the low half alone decides, so a repeated reclaim finds what is left. */
static uint32_t clear(DPF_ATOMIC(uint64_t) *word, uint32_t owner, bool keep_high) {
    uint64_t now = load(word);
    for (uint32_t i = 0; i < DPF_TRIES && low(now) == owner; i++) {
        uint32_t freed = keep_high ? 1 : high(now);
        if (swap(word, &now, keep_high ? pack(0, high(now)) : 0)) {
            DPF_STEP();
            return freed;
        }
    }
    return 0;
}

uint32_t dpf_ring_reclaim(dpf_ring *ring, uint32_t owner) {
    uint32_t freed = 0;
    if (owner == 0) return 0;
    for (uint32_t slot = 0; slot < ring->count; slot++) {
        dpf_slot_state *state = &ring->states[slot];
        /* Dead between `last` and `tail`: that position was never sent, but an earlier message of a growing slot may
         * wait, so the slot is free when everything now queued was received. */
        uint64_t last = load(&state->last), tail = load(&ring->control->tail);
        if (low(load(&state->hold)) == owner && last > tail) {
            swap(&state->last, &last, tail);
            DPF_STEP();
        }
        freed += clear(&state->hold, owner, true);
        for (uint32_t i = 0; i < ring->places; i++) freed += clear(&state->lease[i], owner, false);
    }
    /* Ports last: a successor cannot attach before the slots are free. */
    dpf_ring_detach_producer(ring, owner);
    for (uint32_t i = 0; i < ring->places; i++) {
        DPF_STEP();
        dpf_ring_detach_consumer(ring, i, owner);
    }
    return freed;
}

void dpf_ring_count_abandon(dpf_ring *ring) {
    add(&ring->control->abandoned, 1);
}

void dpf_ring_count_copy(dpf_ring *ring, uint64_t nbytes) {
    add(&ring->control->copies, 1);
    add(&ring->control->copied_bytes, nbytes);
}

uint32_t dpf_ring_depth(const dpf_ring *ring, uint32_t place) {
    if (place >= ring->places) return 0;
    uint64_t head = load(&ring->control->place[place].head);
    uint64_t depth = load(&ring->control->tail) - head;
    return depth <= ring->capacity ? (uint32_t)depth : 0;
}

uint32_t dpf_ring_backlog(const dpf_ring *ring) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < ring->places; i++) {
        uint32_t depth = dpf_ring_depth(ring, i);
        if (depth > most) most = depth;
    }
    return most;
}

static bool leased(const dpf_ring *ring, uint32_t slot) {
    for (uint32_t i = 0; i < ring->places; i++) {
        if (low(load(&ring->states[slot].lease[i])) != 0) return true;
    }
    return false;
}

void dpf_ring_read_stats(const dpf_ring *ring, dpf_ring_stats *stats) {
    const dpf_control *control = ring->control;
    *stats = (dpf_ring_stats){
        .sent = load(&control->sent),
        .dropped = load(&control->dropped),
        .refused = load(&control->refused),
        .abandoned = load(&control->abandoned),
        .copies = load(&control->copies),
        .copied_bytes = load(&control->copied_bytes),
        .depth = dpf_ring_backlog(ring),
    };
    for (uint32_t i = 0; i < ring->places; i++) {
        stats->received += load(&control->place[i].received);
        stats->corrupt += load(&control->place[i].corrupt);
    }
    for (uint32_t slot = 0; slot < ring->count; slot++) {
        stats->loaned += low(load(&ring->states[slot].hold)) != 0;
        stats->leased += leased(ring, slot);
    }
}
