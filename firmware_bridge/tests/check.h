/* SPDX-License-Identifier: Apache-2.0
 *
 * What the C tests share: an assertion that names its place, an arena in ordinary memory, a fast random generator.
 */
#ifndef DPF_CHECK_H
#define DPF_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpf/arena.h"

#define CHECK(condition)                                                               \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);    \
            abort();                                                                  \
        }                                                                             \
    } while (0)

static const char STAGES[4][DPF_NAME_BYTES] = {"left", "right", "second", "third"};

static inline dpf_link_spec link_of(uint32_t slots, uint64_t slot_bytes, dpf_policy policy) {
    return (dpf_link_spec){.name = "left.right", .producer = 0, .places = 1, .consumer = {1}, .slots = slots, .policy = policy,
                           .slot_bytes = slot_bytes, .block_ns = 1000000000};
}

/* The same link with a consumer for each of `places` stages behind the producer's. */
static inline dpf_link_spec fan_out(dpf_link_spec link, uint32_t places) {
    link.places = places;
    for (uint32_t i = 0; i < places; i++) link.consumer[i] = i + 1;
    return link;
}

static inline dpf_arena_spec spec_of(const dpf_link_spec *link) {
    return (dpf_arena_spec){.name = "test", .stages = STAGES, .links = link, .stage_count = link->places + 1, .link_count = 1,
                            .requests = 4, .page = 4096};
}

/* A formatted arena of exactly the planned size, so that a sanitizer sees every step outside it. */
static inline void *new_arena(const dpf_arena_spec *spec, uint64_t *nbytes) {
    CHECK(dpf_arena_plan(spec, nbytes) == DPF_OK);
    void *base = aligned_alloc(4096, *nbytes);
    CHECK(base != NULL);
    memset(base, 0, *nbytes);
    CHECK(dpf_arena_format(spec, base, *nbytes) == DPF_OK);
    return base;
}

static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
