/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/table.h - makes the routing table: weighted rendezvous, one winner for each table slot.
 *
 * Instances with weights in, 2^bits owners out. The caller owns all memory; nothing is allocated, divided or rounded, and
 * there is no floating point. The table depends on names and weights only, not on history: after any row of changes it is
 * the one that a full build makes, and a change moves no table slot between instances it does not name.
 *
 * An index outlives its instance: give it to another one a second after weight 0 at the earliest (a reader may still hold
 * it), by dpf_table_put, which takes the old one out first.
 */
#ifndef DPF_TABLE_H
#define DPF_TABLE_H

#include "dpf/route.h"

#define DPF_TABLE_NAME_SEED UINT64_C(0x31534E4954554F52) /* "ROUTINS1" */

enum { DPF_TABLE_LOGS = 1025, DPF_TABLE_WEIGHT_MOST = 65535, DPF_TABLE_INSTANCES_MOST = 65535 };

typedef struct dpf_table_instance {
    uint64_t seed;
    uint32_t weight; /* 0: takes no part */
    uint32_t used;   /* 0: no instance has this index */
} dpf_table_instance;

/* `slots`: 2^bits owners. `heirs`: NULL, or for each slot the best of the others, who gets it when its owner leaves;
 * DPF_ROUTE_NONE: not known. `instances`: room for `most`, of which the first `count` are in use or were. `logs`: from
 * dpf_table_logs, shared by all tables. */
typedef struct dpf_table {
    uint16_t *slots;
    uint16_t *heirs;
    dpf_table_instance *instances;
    const uint64_t *logs;
    uint32_t bits;
    uint32_t count;
    uint32_t most;
    uint32_t stale; /* the instance whose smaller weight the heirs do not know of yet; DPF_ROUTE_NONE: none */
} dpf_table;

#ifdef __cplusplus
extern "C" {
#endif

/* floor(2^40 · log2(1 + i/1024)) for i in 0 .. 1024: DPF_TABLE_LOGS words. */
void dpf_table_logs(uint64_t *logs);

/* −log2(hash / 2^64) with 40 bits of fraction: 1 .. 2^46, and smaller for larger hashes. */
uint64_t dpf_table_cost(const uint64_t *logs, uint64_t hash);

/* The seed of an instance: all that the table knows of its name. */
uint64_t dpf_table_seed(const void *name, uint32_t nbytes);

/* The hash of an instance at a table slot. */
static inline uint64_t dpf_table_hash(uint64_t seed, uint32_t slot) {
    return dpf_xxh64_of(slot, seed);
}

/* An empty table over the caller's memory; false when `bits` or `most` is out of range. Nobody serves any slot. */
bool dpf_table_init(dpf_table *table, uint32_t bits, uint16_t *slots, dpf_table_instance *instances, uint32_t most,
                    const uint64_t *logs);

/* Gives a table the memory for 2^bits heirs, none of them known yet. An instance that leaves then costs one look at each
 * slot; without them each of its slots is decided anew over all instances. */
void dpf_table_use_heirs(dpf_table *table, uint16_t *heirs);

/* Finds the heirs of the slots [from, until) that a change made unknown: after its publication, which need not wait for it.
 * No owner changes. How many it found. Nothing without dpf_table_use_heirs. */
uint32_t dpf_table_find_heirs(dpf_table *table, uint32_t from, uint32_t until);

/* The index of the instance with that seed, or DPF_ROUTE_NONE. */
uint32_t dpf_table_index(const dpf_table *table, uint64_t seed);

/* Notes an instance without touching the slots, for a dpf_table_build after the last one. False when the index or the
 * weight is out of range, or when another index has that seed. */
bool dpf_table_note(dpf_table *table, uint32_t index, uint64_t seed, uint32_t weight);

/* Decides every table slot. */
void dpf_table_build(dpf_table *table);

/* Decides the slots [from, until): a build in parts, for those who may not stop for long. */
void dpf_table_build_part(dpf_table *table, uint32_t from, uint32_t until);

/* Gives an instance a weight and changes the table slots it gains or loses, no other. How many it were goes to `moved`.
 * False when the index is unused or the weight out of range: nothing was changed. */
bool dpf_table_weigh(dpf_table *table, uint32_t index, uint32_t weight, uint32_t *moved);

/* Makes `index` the instance of that seed and weight, whatever it was before. As dpf_table_note, the slots follow. */
bool dpf_table_put(dpf_table *table, uint32_t index, uint64_t seed, uint32_t weight, uint32_t *moved);

/* XXH64 of the owners as u16, lowest byte first, seed 0: what two tables are compared by. */
uint64_t dpf_table_digest(const uint16_t *slots, uint32_t bits);

#ifdef __cplusplus
}
#endif

#endif
