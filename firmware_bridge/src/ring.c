/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring protocol of dpf/ring.h: loan, send, receive, release. Death and counters are in ring_reclaim.c.
 */
#include "dpf/ring.h"
#include "ring_words.h"
#include "step.h"

/* Losing this often to a producer that drops is not chance: it moves our head on purpose. */
enum { RECEIVE_TRIES = 1024 };

static const uint8_t DTYPE_BYTES[DPF_DTYPES] = {1, 4, 2, 2, 8, 1, 1, 2, 2, 4, 4, 8, 8, 1};

uint32_t dpf_dtype_bytes(uint32_t dtype) {
    return dtype < DPF_DTYPES ? DTYPE_BYTES[dtype] : 0;
}

bool dpf_descriptor_bytes(const dpf_descriptor *descriptor, uint32_t *nbytes) {
    uint32_t rank = descriptor->rank_urgency & 15u;
    uint64_t total = dpf_dtype_bytes(descriptor->dtype);
    if (rank > DPF_RANK_MAX || total == 0) return false;
    /* Zero first: a later dimension must not hide an overflow of the ones before it. */
    for (uint32_t i = 0; i < rank; i++) {
        if (descriptor->shape[i] == 0) {
            *nbytes = 0;
            return true;
        }
    }
    for (uint32_t i = 0; i < rank; i++) {
        total *= descriptor->shape[i];
        if (total > UINT32_MAX) return false;
    }
    *nbytes = (uint32_t)total;
    return true;
}

/* Whether the payload lies in a slot and holds the elements it claims. */
static bool payload_fits(const dpf_ring *ring, const dpf_descriptor *descriptor) {
    uint32_t nbytes;
    if ((uint64_t)descriptor->offset + descriptor->nbytes > ring->slot_bytes) return false;
    if (descriptor->flags > DPF_FLAGS || !dpf_descriptor_bytes(descriptor, &nbytes)) return false;
    bool plain = descriptor->dtype == 0 && (descriptor->rank_urgency & 15u) == 0;
    return plain || nbytes <= descriptor->nbytes;
}

unsigned char *dpf_ring_slot(const dpf_ring *ring, uint32_t slot) {
    return slot < ring->count ? ring->slots + slot * ring->stride : NULL;
}

static bool slot_free(const dpf_ring *ring, const dpf_slot_state *state, uint64_t *hold) {
    *hold = load(&state->hold);
    if (low(*hold) != 0) return false;
    /* `last` beyond `tail`: the producer died before it published that descriptor; an earlier one may still wait. */
    uint64_t last = load(&state->last), tail = load(&ring->control->tail);
    for (uint32_t i = 0; i < ring->places; i++) {
        if ((last < tail ? last : tail) > load(&ring->control->place[i].head)) return false;
    }
    for (uint32_t i = 0; i < ring->places; i++) {
        if (load(&state->lease[i]) != 0) return false;
    }
    return true;
}

static bool take_free_slot(dpf_ring *ring, uint32_t owner, uint32_t *slot, uint32_t *generation) {
    for (uint32_t i = 0; i < ring->count; i++) {
        uint32_t at = ring->hint + i < ring->count ? ring->hint + i : ring->hint + i - ring->count;
        dpf_slot_state *state = &ring->states[at];
        uint64_t hold;
        if (!slot_free(ring, state, &hold)) continue;
        uint32_t next = high(hold) + 1;
        if (!swap(&state->hold, &hold, pack(owner, next))) continue;
        DPF_STEP();
        ring->hint = at + 1 < ring->count ? at + 1 : 0;
        *slot = at;
        *generation = next;
        return true;
    }
    return false;
}

/* Asks for a ring of the producer's bell at the next thing freed; the caller looks once more after it. */
static void starve(dpf_ring *ring) {
    atomic_store_explicit(&ring->control->starved, 1, memory_order_seq_cst);
    DPF_STEP();
}

/* The most descriptors that any place has not read; a place whose position makes no sense counts as more than capacity. */
static uint64_t unread(const dpf_ring *ring, uint64_t tail) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < ring->places; i++) {
        uint64_t depth = tail - load(&ring->control->place[i].head);
        if (depth > most) most = depth;
    }
    return most;
}

/* Drops the oldest unread message for every consumer that has not read it; false when there is none. */
static bool drop_oldest(dpf_ring *ring) {
    uint64_t tail = load(&ring->control->tail), depth = unread(ring, tail);
    if (depth == 0 || depth > ring->capacity) return false;
    for (uint32_t i = 0; i < ring->places; i++) {
        uint64_t head = tail - depth;
        if (swap(&ring->control->place[i].head, &head, head + 1)) {
            DPF_STEP();
            add(&ring->control->dropped, 1);
        }
    }
    return true;
}

dpf_result dpf_ring_loan(dpf_ring *ring, uint32_t owner, uint32_t *slot, uint32_t *generation) {
    if (owner == 0) return DPF_BAD;
    if (take_free_slot(ring, owner, slot, generation)) return DPF_OK;
    if (ring->policy == DPF_POLICY_NEWEST) {
        for (uint32_t i = 0; i < ring->capacity && drop_oldest(ring); i++) {
            if (take_free_slot(ring, owner, slot, generation)) return DPF_OK;
        }
    }
    starve(ring);
    if (take_free_slot(ring, owner, slot, generation)) return DPF_OK;
    add(&ring->control->refused, 1);
    return DPF_FULL;
}

/* Puts a place whose position makes no sense back to "nothing unread". */
static dpf_result resync(dpf_place *place, uint64_t head, uint64_t tail) {
    swap(&place->head, &head, tail);
    DPF_STEP();
    add(&place->corrupt, 1);
    return DPF_CORRUPT;
}

static void write_entry(dpf_entry *entry, const dpf_descriptor *descriptor, uint64_t position) {
    union {
        dpf_descriptor descriptor;
        uint64_t word[8];
    } copy = {.descriptor = *descriptor};
    copy.descriptor.sequence = (uint32_t)position;
    for (uint32_t i = 0; i < 8; i++) {
        atomic_store_explicit(&entry->word[i], copy.word[i], memory_order_relaxed);
        DPF_STEP();
    }
}

static void read_entry(const dpf_entry *entry, dpf_descriptor *descriptor) {
    union {
        uint64_t word[8];
        dpf_descriptor descriptor;
    } copy;
    for (uint32_t i = 0; i < 8; i++) {
        copy.word[i] = atomic_load_explicit((DPF_ATOMIC(uint64_t) *)&entry->word[i], memory_order_relaxed);
    }
    *descriptor = copy.descriptor;
}

/* Whether a descriptor more fits; partial ones leave room for a final one of every slot. */
static dpf_result room(dpf_ring *ring, bool partial, uint64_t tail) {
    uint64_t limit = partial ? ring->capacity - ring->count : ring->capacity;
    for (uint32_t i = 0; i < ring->places; i++) {
        uint64_t head = load(&ring->control->place[i].head);
        if (tail - head > ring->capacity) return resync(&ring->control->place[i], head, tail);
        if (tail - head >= limit) return DPF_FULL;
    }
    return DPF_OK;
}

dpf_result dpf_ring_send(dpf_ring *ring, uint32_t owner, const dpf_descriptor *descriptor, bool keep) {
    if (descriptor->slot >= ring->count || !payload_fits(ring, descriptor)) return DPF_BAD;
    dpf_slot_state *state = &ring->states[descriptor->slot];
    if (!dpf_ring_holds(ring, owner, descriptor->slot, descriptor->generation)) return DPF_STALE;

    bool partial = (descriptor->flags & DPF_PARTIAL) != 0;
    uint64_t tail = load(&ring->control->tail);
    dpf_result result = room(ring, partial, tail);
    if (result == DPF_FULL) {
        starve(ring);
        result = room(ring, partial, tail);
    }
    if (result != DPF_OK) return result;

    write_entry(&ring->entries[tail & (ring->capacity - 1)], descriptor, tail);
    store(&state->last, tail + 1);
    DPF_STEP();
    store(&ring->control->tail, tail + 1);
    DPF_STEP();
    add(&ring->control->sent, 1);
    if (!partial && !keep) {
        uint64_t held = pack(owner, descriptor->generation);
        swap(&state->hold, &held, pack(0, descriptor->generation));
        DPF_STEP();
    }
    for (uint32_t i = 0; i < ring->places; i++) {
        if (dpf_bell_ring(ring->consumer_bell[i])) ring->wake |= (uint32_t)DPF_WAKE_CONSUMER << i;
        DPF_STEP();
    }
    return DPF_OK;
}

/* Something was freed: rings the producer's bell if it asked. */
static void freed(dpf_ring *ring) {
    if (atomic_load_explicit(&ring->control->starved, memory_order_seq_cst) == 0) return;
    if (atomic_exchange_explicit(&ring->control->starved, 0, memory_order_seq_cst) == 0) return;
    DPF_STEP();
    if (dpf_bell_ring(ring->producer_bell)) ring->wake |= DPF_WAKE_PRODUCER;
    DPF_STEP();
}

dpf_result dpf_ring_abandon(dpf_ring *ring, uint32_t owner, uint32_t slot, uint32_t generation) {
    if (slot >= ring->count || owner == 0) return DPF_BAD;
    uint64_t held = pack(owner, generation);
    if (!swap(&ring->states[slot].hold, &held, pack(0, generation))) return DPF_STALE;
    DPF_STEP();
    freed(ring);
    return DPF_OK;
}

bool dpf_ring_holds(const dpf_ring *ring, uint32_t owner, uint32_t slot, uint32_t generation) {
    return owner != 0 && slot < ring->count && load(&ring->states[slot].hold) == pack(owner, generation);
}

bool dpf_ring_leases(const dpf_ring *ring, uint32_t owner, uint32_t slot, uint32_t generation) {
    if (owner == 0 || slot >= ring->count) return false;
    const dpf_slot_state *state = &ring->states[slot];
    return low(load(&state->lease[ring->place])) == owner && high(load(&state->hold)) == generation;
}

static bool take_lease(dpf_ring *ring, uint32_t owner, uint32_t slot) {
    DPF_ATOMIC(uint64_t) *lease = &ring->states[slot].lease[ring->place];
    uint64_t now = load(lease);
    for (uint32_t i = 0; i < DPF_TRIES; i++) {
        if ((low(now) != 0 && low(now) != owner) || high(now) == UINT32_MAX) return false;
        if (swap(lease, &now, pack(owner, high(now) + 1))) {
            DPF_STEP();
            return true;
        }
    }
    return false;
}

dpf_result dpf_ring_release(dpf_ring *ring, uint32_t owner, uint32_t slot) {
    if (slot >= ring->count || owner == 0) return DPF_BAD;
    DPF_ATOMIC(uint64_t) *lease = &ring->states[slot].lease[ring->place];
    uint64_t now = load(lease);
    for (uint32_t i = 0; i < DPF_TRIES; i++) {
        if (low(now) != owner || high(now) == 0) return DPF_STALE;
        if (swap(lease, &now, high(now) == 1 ? 0 : pack(owner, high(now) - 1))) {
            DPF_STEP();
            freed(ring);
            return DPF_OK;
        }
    }
    return DPF_CORRUPT;
}

/* Moves past a descriptor that cannot be used. */
static dpf_result skip(dpf_ring *ring, dpf_place *place, uint64_t head) {
    swap(&place->head, &head, head + 1);
    DPF_STEP();
    add(&place->corrupt, 1);
    freed(ring);
    return DPF_CORRUPT;
}

/* One try: DPF_FULL stands for "the producer dropped this message meanwhile, look again". */
static dpf_result receive_once(dpf_ring *ring, uint32_t owner, dpf_descriptor *descriptor) {
    dpf_place *place = &ring->control->place[ring->place];
    DPF_ATOMIC(uint64_t) *position = &place->head;
    uint64_t head = load(position), tail = load(&ring->control->tail);
    if (head == tail) return DPF_EMPTY;
    if (tail - head > ring->capacity) return load(position) == head ? resync(place, head, tail) : DPF_FULL;
    read_entry(&ring->entries[head & (ring->capacity - 1)], descriptor);
    if (descriptor->slot >= ring->count) return load(position) == head ? skip(ring, place, head) : DPF_FULL;
    /* Lease before moving on: a consumer that dies in between leaves the message for its successor. */
    if (!take_lease(ring, owner, descriptor->slot)) return load(position) == head ? skip(ring, place, head) : DPF_FULL;
    if (!swap(position, &head, head + 1)) {
        dpf_ring_release(ring, owner, descriptor->slot);
        return DPF_FULL;
    }
    DPF_STEP();
    if (high(load(&ring->states[descriptor->slot].hold)) == descriptor->generation && payload_fits(ring, descriptor)) {
        add(&place->received, 1);
        return DPF_OK;
    }
    add(&place->corrupt, 1);
    dpf_ring_release(ring, owner, descriptor->slot);
    return DPF_CORRUPT;
}

bool dpf_ring_ready(const dpf_ring *ring) {
    return load(&ring->control->tail) != load(&ring->control->place[ring->place].head);
}

dpf_result dpf_ring_receive(dpf_ring *ring, uint32_t owner, dpf_descriptor *descriptor) {
    if (owner == 0) return DPF_BAD;
    for (uint32_t i = 0; i < RECEIVE_TRIES; i++) {
        dpf_result result = receive_once(ring, owner, descriptor);
        if (result != DPF_FULL) return result;
    }
    add(&ring->control->place[ring->place].corrupt, 1);
    return DPF_CORRUPT;
}
