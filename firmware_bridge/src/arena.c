/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout and checks of dpf/arena.h.
 */
#include "dpf/arena.h"
#include "ring_words.h"
#include "step.h"

/* Offsets stay far below this, so sums of a few of them cannot wrap. */
#define ARENA_MAX ((uint64_t)1 << 46)

static uint64_t align(uint64_t value, uint64_t to) {
    return (value + to - 1) & ~(to - 1);
}

static bool power_of_two(uint64_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

static bool named(const char *name) {
    for (uint32_t i = 0; i < DPF_NAME_BYTES; i++) {
        if (name[i] == 0) return i != 0;
    }
    return false;
}

static void copy_name(char *to, const char *from) {
    for (uint32_t i = 0; i < DPF_NAME_BYTES; i++) to[i] = 0;
    for (uint32_t i = 0; i < DPF_NAME_BYTES - 1 && from[i] != 0; i++) to[i] = from[i];
}

/* Room for 4 descriptors a slot; never so few that a growing slot, shown every 30 ms, fills them within seconds. */
static uint32_t capacity_for(uint32_t slots) {
    uint32_t capacity = 256;
    while (capacity < 4 * slots) capacity *= 2;
    return capacity;
}

/* Whether each place has a stage of its own. */
static bool places_valid(const uint32_t *consumer, uint32_t places, uint32_t stages) {
    if (places < 1 || places > DPF_PLACES) return false;
    for (uint32_t i = 0; i < places; i++) {
        if (consumer[i] >= stages) return false;
        for (uint32_t j = 0; j < i; j++) {
            if (consumer[j] == consumer[i]) return false;
        }
    }
    return true;
}

static bool link_valid(const dpf_link_spec *link, uint32_t stages) {
    return named(link->name) && link->producer < stages && places_valid(link->consumer, link->places, stages) && link->slots >= 1 &&
           link->slots <= DPF_SLOTS_MAX && link->slot_bytes >= 1 && link->slot_bytes <= UINT32_MAX &&
           link->policy <= DPF_POLICY_NEWEST;
}

static bool spec_valid(const dpf_arena_spec *spec) {
    if (!named(spec->name) || !power_of_two(spec->page) || spec->page < DPF_LINE) return false;
    if (spec->stage_count < 1 || spec->stage_count > DPF_BELLS_MAX) return false;
    if (spec->link_count < 1 || spec->link_count > DPF_RINGS_MAX) return false;
    if (spec->requests < 1 || spec->requests > DPF_REQUESTS_MAX) return false;
    for (uint32_t i = 0; i < spec->stage_count; i++) {
        if (!named(spec->stages[i])) return false;
    }
    for (uint32_t i = 0; i < spec->link_count; i++) {
        if (!link_valid(&spec->links[i], spec->stage_count)) return false;
    }
    return true;
}

static dpf_arena_header header_for(const dpf_arena_spec *spec) {
    dpf_arena_header header = {
        .magic = DPF_ARENA_MAGIC,
        .version = DPF_ARENA_VERSION,
        .header_bytes = sizeof(dpf_arena_header),
        .page = spec->page,
        .bells = spec->stage_count,
        .rings = spec->link_count,
        .requests = spec->requests,
        .bells_at = sizeof(dpf_arena_header),
    };
    header.rings_at = header.bells_at + spec->stage_count * sizeof(dpf_bell);
    header.requests_at = header.rings_at + spec->link_count * sizeof(dpf_ring_header);
    return header;
}

/* Lays one ring out behind `*end` and moves `*end` behind it. */
static dpf_ring_header ring_for(const dpf_link_spec *link, uint32_t page, uint64_t *end) {
    uint64_t unit = link->slot_bytes > page ? page : DPF_LINE;
    dpf_ring_header header = {
        .producer = link->producer,
        .places = link->places,
        .slots = link->slots,
        .capacity = capacity_for(link->slots),
        .policy = link->policy,
        .slot_bytes = link->slot_bytes,
        .stride = align(link->slot_bytes, unit),
        .block_ns = link->block_ns,
        .control_at = align(*end, DPF_LINE),
    };
    for (uint32_t i = 0; i < link->places; i++) header.consumer[i] = link->consumer[i];
    header.entries_at = header.control_at + sizeof(dpf_control);
    header.states_at = header.entries_at + header.capacity * sizeof(dpf_entry);
    header.slots_at = align(header.states_at + header.slots * sizeof(dpf_slot_state), unit);
    *end = header.slots_at + header.slots * header.stride;
    return header;
}

static uint64_t first_ring_at(const dpf_arena_header *header) {
    return header->requests_at + header->requests * sizeof(dpf_request);
}

dpf_result dpf_arena_plan(const dpf_arena_spec *spec, uint64_t *nbytes) {
    if (!spec_valid(spec)) return DPF_BAD;
    dpf_arena_header header = header_for(spec);
    uint64_t end = first_ring_at(&header);
    for (uint32_t i = 0; i < spec->link_count; i++) {
        (void)ring_for(&spec->links[i], spec->page, &end);
        if (end > ARENA_MAX) return DPF_BAD;
    }
    *nbytes = align(end, spec->page);
    return DPF_OK;
}

dpf_result dpf_arena_format(const dpf_arena_spec *spec, void *base, uint64_t nbytes) {
    uint64_t needed;
    dpf_result result = dpf_arena_plan(spec, &needed);
    if (result != DPF_OK || needed > nbytes || (uintptr_t)base % DPF_LINE != 0) return DPF_BAD;
    unsigned char *bytes = base;
    dpf_arena_header *header = base;
    *header = header_for(spec);
    header->nbytes = nbytes;
    copy_name(header->name, spec->name);
    dpf_bell *bells = (dpf_bell *)(bytes + header->bells_at);
    for (uint32_t i = 0; i < spec->stage_count; i++) copy_name(bells[i].name, spec->stages[i]);
    dpf_ring_header *rings = (dpf_ring_header *)(bytes + header->rings_at);
    uint64_t end = first_ring_at(header);
    for (uint32_t i = 0; i < spec->link_count; i++) {
        rings[i] = ring_for(&spec->links[i], spec->page, &end);
        copy_name(rings[i].name, spec->links[i].name);
    }
    return DPF_OK;
}

/* Whether `count` things of `size` bytes fit at `at`, on a line. */
static bool fits(uint64_t at, uint64_t count, uint64_t size, uint64_t nbytes) {
    if (at % DPF_LINE != 0 || at > nbytes || size == 0 || size > ARENA_MAX) return false;
    return count <= (nbytes - at) / size;
}

dpf_result dpf_arena_open(void *base, uint64_t nbytes, dpf_arena *arena) {
    if (base == NULL || (uintptr_t)base % DPF_LINE != 0 || nbytes > ARENA_MAX) return DPF_BAD;
    if (nbytes < sizeof(dpf_arena_header)) return DPF_CORRUPT;
    dpf_arena_header header = *(const volatile dpf_arena_header *)base;
    if (header.magic != DPF_ARENA_MAGIC || header.version != DPF_ARENA_VERSION) return DPF_CORRUPT;
    if (header.header_bytes != sizeof(header) || header.nbytes != nbytes) return DPF_CORRUPT;
    if (header.bells < 1 || header.bells > DPF_BELLS_MAX || header.rings < 1 || header.rings > DPF_RINGS_MAX ||
        header.requests < 1 || header.requests > DPF_REQUESTS_MAX) {
        return DPF_CORRUPT;
    }
    if (!fits(header.bells_at, header.bells, sizeof(dpf_bell), nbytes) ||
        !fits(header.rings_at, header.rings, sizeof(dpf_ring_header), nbytes) ||
        !fits(header.requests_at, header.requests, sizeof(dpf_request), nbytes)) {
        return DPF_CORRUPT;
    }
    unsigned char *bytes = base;
    *arena = (dpf_arena){
        .base = bytes,
        .nbytes = nbytes,
        .bells = (dpf_bell *)(bytes + header.bells_at),
        .rings = (const dpf_ring_header *)(bytes + header.rings_at),
        .requests = {.entry = (dpf_request *)(bytes + header.requests_at), .count = header.requests},
        .bell_count = header.bells,
        .ring_count = header.rings,
    };
    return DPF_OK;
}

static bool ring_valid(const dpf_arena *arena, const dpf_ring_header *header) {
    return named(header->name) && header->producer < arena->bell_count &&
           places_valid(header->consumer, header->places, arena->bell_count) &&
           header->slots >= 1 && header->slots <= DPF_SLOTS_MAX && power_of_two(header->capacity) &&
           header->capacity >= 4 * header->slots && header->policy <= DPF_POLICY_NEWEST &&
           header->slot_bytes >= 1 && header->slot_bytes <= UINT32_MAX && header->stride >= header->slot_bytes &&
           fits(header->control_at, 1, sizeof(dpf_control), arena->nbytes) &&
           fits(header->entries_at, header->capacity, sizeof(dpf_entry), arena->nbytes) &&
           fits(header->states_at, header->slots, sizeof(dpf_slot_state), arena->nbytes) &&
           fits(header->slots_at, header->slots, header->stride, arena->nbytes) && header->stride % DPF_LINE == 0;
}

dpf_result dpf_arena_ring(const dpf_arena *arena, uint32_t index, dpf_ring *ring) {
    if (index >= arena->ring_count) return DPF_BAD;
    dpf_ring_header header = *(const volatile dpf_ring_header *)&arena->rings[index];
    if (!ring_valid(arena, &header)) return DPF_CORRUPT;
    *ring = (dpf_ring){
        .control = (dpf_control *)(arena->base + header.control_at),
        .entries = (dpf_entry *)(arena->base + header.entries_at),
        .states = (dpf_slot_state *)(arena->base + header.states_at),
        .slots = arena->base + header.slots_at,
        .producer_bell = &arena->bells[header.producer],
        .slot_bytes = header.slot_bytes,
        .stride = header.stride,
        .block_ns = header.block_ns,
        .count = header.slots,
        .capacity = header.capacity,
        .policy = header.policy,
        .places = header.places,
    };
    for (uint32_t i = 0; i < header.places; i++) ring->consumer_bell[i] = &arena->bells[header.consumer[i]];
    copy_name(ring->name, header.name);
    return DPF_OK;
}

dpf_result dpf_arena_reclaim(const dpf_arena *arena, uint32_t owner, uint32_t *freed) {
    dpf_result result = DPF_OK;
    if (owner == 0) return DPF_BAD;
    for (uint32_t i = 0; i < arena->ring_count; i++) {
        dpf_ring ring;
        uint32_t count = 0;
        if (dpf_arena_ring(arena, i, &ring) == DPF_OK) {
            count = dpf_ring_reclaim(&ring, owner);
        } else {
            result = DPF_CORRUPT;
        }
        if (freed != NULL) freed[i] = count;
    }
    for (uint32_t i = 0; i < arena->bell_count; i++) {
        dpf_bell_reset(&arena->bells[i]);
        DPF_STEP();
    }
    return result;
}
