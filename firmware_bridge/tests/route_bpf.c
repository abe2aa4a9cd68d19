/* SPDX-License-Identifier: Apache-2.0
 *
 * The lookup as an eBPF program: hash the key of a map, find its owner in the table of the generation. `tests/targets.sh`
 * compiles it, and where it may, has the kernel verify and run it; without a table it answers the table slot.
 */
#include "dpf/route.h"

#define SECTION(name) __attribute__((section(name), used))

enum { BPF_MAP_TYPE_ARRAY = 2 };

typedef struct session {
    uint64_t nbytes;
    unsigned char key[DPF_ROUTE_KEY_MOST + 4];
} session;

typedef struct slots {
    uint16_t owner[1 << DPF_ROUTE_BITS];
} slots;

struct {
    int (*type)[BPF_MAP_TYPE_ARRAY];
    int (*max_entries)[1];
    uint32_t *key;
    session *value;
} sessions SECTION(".maps");

struct {
    int (*type)[BPF_MAP_TYPE_ARRAY];
    int (*max_entries)[2];
    uint32_t *key;
    slots *value;
} rh_table SECTION(".maps");

struct {
    int (*type)[BPF_MAP_TYPE_ARRAY];
    int (*max_entries)[1];
    uint32_t *key;
    uint64_t *value;
} rh_gen SECTION(".maps");

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;

SECTION("socket") uint32_t route(void *with);
uint32_t route(void *with) {
    uint32_t zero = 0u, buffer;
    const session *one = bpf_map_lookup_elem(&sessions, &zero);
    const uint64_t *generation = bpf_map_lookup_elem(&rh_gen, &zero);
    (void)with;
    if ((one == 0) || (generation == 0) || (one->nbytes > (uint64_t)DPF_ROUTE_KEY_MOST)) return 0u;
    uint64_t hash = dpf_xxh64(one->key, one->nbytes, DPF_ROUTE_KEY_SEED);
    uint32_t slot = dpf_route_slot(hash, (uint32_t)DPF_ROUTE_BITS);
    if (*generation == 0u) return slot;
    buffer = (uint32_t)*generation & 1u;
    const slots *table = bpf_map_lookup_elem(&rh_table, &buffer);
    return (table == 0) ? 0u : dpf_route_read(&table->owner[slot]);
}

char licence[] SECTION("license") = "Dual BSD/GPL";
