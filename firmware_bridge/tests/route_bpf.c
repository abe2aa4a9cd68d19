/* SPDX-License-Identifier: Apache-2.0
 *
 * The lookup as an eBPF program compiles it: hash a key, find its owner. Nothing loads it; that it compiles, calls nothing
 * and takes no libc header is what is tested.
 */
#include "dpf/route.h"

typedef struct context {
    uint64_t generation;
    uint32_t nbytes;
    uint32_t pad;
    unsigned char key[DPF_ROUTE_KEY_MOST + 4];
    uint16_t table[2][1 << DPF_ROUTE_BITS];
} context;

__attribute__((section("cgroup/connect4"), used)) int route(const context *with) {
    uint32_t nbytes = with->nbytes & 255u;
    dpf_route_view view = {.generation = &with->generation, .table = {with->table[0], with->table[1]}, .bits = DPF_ROUTE_BITS};
    dpf_route_word generation;
    return (int)dpf_route_owner(&view, dpf_xxh64(with->key, nbytes, DPF_ROUTE_KEY_SEED), &generation);
}
