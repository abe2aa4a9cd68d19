/* SPDX-License-Identifier: Apache-2.0
 *
 * The algorithms that routing is measured beside, for benches only: Maglev, jump and a ketama ring, each from its paper, all
 * with the same hash as ours. Equal weights.
 */
#ifndef DPF_ROUTE_PEERS_H
#define DPF_ROUTE_PEERS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dpf/xxh64.h"

/* Maglev: Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, section 3.4. The table's
 * size is a prime and, as in its users, a number known at run time. */
typedef struct maglev {
    uint32_t size;
    uint16_t *slots;
} maglev;

static inline void maglev_build(maglev *table, const uint64_t *names, const uint16_t *ids, uint32_t count) {
    uint64_t *next = malloc(count * sizeof *next), *skip = malloc(count * sizeof *skip);
    for (uint32_t i = 0; i < count; i++) {
        next[i] = dpf_xxh64_of(names[i], 1) % table->size;
        skip[i] = dpf_xxh64_of(names[i], 2) % (table->size - 1) + 1;
    }
    memset(table->slots, 0xFF, table->size * sizeof *table->slots);
    for (uint32_t filled = 0;;) {
        for (uint32_t i = 0; i < count; i++) {
            while (table->slots[next[i]] != 0xFFFF) next[i] = (next[i] + skip[i]) % table->size;
            table->slots[next[i]] = ids[i];
            if (++filled == table->size) {
                free(next);
                free(skip);
                return;
            }
        }
    }
}

static inline uint32_t maglev_find(const maglev *table, uint64_t hash) {
    return table->slots[hash % table->size];
}

/* Jump: Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014, figure 1. It knows numbers only: who
 * fails is replaced by the last one. */
static inline uint32_t jump_find(uint64_t hash, uint32_t buckets) {
    int64_t bucket = -1, next = 0;
    while (next < (int64_t)buckets) {
        bucket = next;
        hash = hash * UINT64_C(2862933555777941757) + 1;
        next = (int64_t)((double)(bucket + 1) * ((double)(INT64_C(1) << 31) / (double)((hash >> 33) + 1)));
    }
    return (uint32_t)bucket;
}

/* Ketama: the ring of libketama (Jones, 2007), 160 points for each instance, the next point at or after the hash. */
enum { KETAMA_POINTS = 160 };

typedef struct ketama_point {
    uint64_t at;
    uint32_t id;
} ketama_point;

typedef struct ketama {
    uint32_t count;
    ketama_point *points;
} ketama;

static inline int ketama_order(const void *a, const void *b) {
    uint64_t x = ((const ketama_point *)a)->at, y = ((const ketama_point *)b)->at;
    return (x > y) - (x < y);
}

static inline void ketama_build(ketama *ring, const uint64_t *names, const uint16_t *ids, uint32_t count) {
    ring->count = count * KETAMA_POINTS;
    for (uint32_t i = 0; i < ring->count; i++) {
        ring->points[i] = (ketama_point){dpf_xxh64_of(names[i / KETAMA_POINTS], i % KETAMA_POINTS), ids[i / KETAMA_POINTS]};
    }
    qsort(ring->points, ring->count, sizeof *ring->points, ketama_order);
}

static inline uint32_t ketama_find(const ketama *ring, uint64_t hash) {
    uint32_t low = 0, high = ring->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (ring->points[middle].at < hash) low = middle + 1;
        else high = middle;
    }
    return ring->points[low == ring->count ? 0 : low].id;
}

#endif
