/* SPDX-License-Identifier: Apache-2.0
 *
 * The routing headers in C++: a key's hash, a table, a published table and a health, linked with the C library.
 */
#include <cstdlib>

#include "dpf/health.h"
#include "dpf/table.h"

int main() {
    unsigned char key[DPF_ROUTE_KEY_MOST];
    uint32_t nbytes = dpf_route_key(key, "llama-3-8b", 10, "alice", 5, UINT64_C(1735689600000));
    if (dpf_xxh64(key, nbytes, DPF_ROUTE_KEY_SEED) != UINT64_C(0xf20ef91535a05037)) return 1;

    static uint64_t logs[DPF_TABLE_LOGS];
    static uint16_t slots[65536];
    dpf_table_instance instances[2];
    dpf_table table;
    uint32_t moved;
    dpf_table_logs(logs);
    if (!dpf_table_init(&table, 16, slots, instances, 2, logs)) return 2;
    if (!dpf_table_put(&table, 0, dpf_table_seed("10.0.0.1:8000", 13), 1, &moved)) return 3;
    if (!dpf_table_put(&table, 1, dpf_table_seed("10.0.0.2:8000", 13), 1, &moved)) return 4;
    if (dpf_table_digest(slots, 16) != UINT64_C(0xdc81b043fd87249a)) return 5;

    uint64_t size = dpf_route_map_bytes(16, 2);
    void *base = std::calloc(size, 1);
    static dpf_route_entry entries[2];
    dpf_route_entry entry;
    dpf_route_view view;
    dpf_route_word generation;
    if (!dpf_route_map_format(base, size, 16, 2, 0) || dpf_route_map_open(base, size, &view) != DPF_ROUTE_OK) return 6;
    if (dpf_route_map_publish(base, &view, slots, entries, 2, 0) != 1) return 7;
    if (dpf_route_find(&view, 0, &entry, &generation) != 1 || generation != 1) return 8;
    std::free(base);

    dpf_health_sample sample = {0, DPF_HEALTH_ONE, DPF_HEALTH_UNKNOWN_MC, 0, 0, 0};
    return dpf_health_score(&sample, &DPF_HEALTH_RULE) == DPF_HEALTH_ONE ? 0 : 9;
}
