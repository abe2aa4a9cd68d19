/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden records against the rest of the manifest: ranges in their sections, names of graphs and ports, types.
 */
#include "package_parts.h"

enum { MODEL, GRAPH, TARGET, SECTION, INPUTS, OUTPUTS, COUNT };
static const char *const NAMES[COUNT] = {"model", "graph", "target", "section", "inputs", "outputs"};

/* Size of the section that a checked reference names. */
static uint64_t section_bytes(const dpf_package *package, uint32_t name) {
    dpf_section section;
    uint32_t index = dpf_section_index(package, dpf_text_at(package, name));
    return dpf_package_section(package, index, &section) ? section.size : 0;
}

rule dpf_check_inside(check *c, const field *map, const field *section) {
    static const char *const PLACE[] = {"offset", "size"};
    uint64_t offset, size, room = section_bytes(c->package, section->at);
    series list;
    field one, f[2];
    rule broken;
    TRY(dpf_entries(c, map, DPF_PORTS_MAX, &list));
    while (dpf_next_port(c, &list, &one, &broken)) {
        TRY(dpf_fields(c, &one, PLACE, 2, f));
        TRY(dpf_integer(c, &f[0], 0, DPF_PACKAGE_MAX_BYTES, &offset));
        TRY(dpf_integer(c, &f[1], 0, DPF_PACKAGE_MAX_BYTES, &size));
        if (offset + size > room) return dpf_refuse(c, DPF_PACKAGE_VALUES_BEHIND, &one, offset + size, room);
    }
    return broken;
}

/* Fills scratch with the keys of a map, which are in the order dpf_search wants. */
static uint32_t list_keys(check *c, const field *map, uint32_t *keys) {
    uint32_t count = 0;
    series list;
    field one;
    rule broken;
    if (dpf_entries(c, map, DPF_PORTS_MAX, &list) != DPF_PACKAGE_OK) return 0;
    for (uint32_t key = list.at; dpf_next_port(c, &list, &one, &broken); key = list.at) keys[count++] = key;
    return count;
}

/* What a model says of the sizes of its outputs binds nobody. */
static bool fits(const values *v, const dpf_port *port, bool sizes_bind) {
    if (v->dtype != port->dtype) return false;
    if (!sizes_bind) return true;
    if (v->rank != port->rank) return false;
    for (uint32_t i = 0; i < v->rank; i++) {
        if (port->dynamic[i].bytes == NULL && port->dim[i] != v->dims[i]) return false;
    }
    return true;
}

/* Walks the ports once: `found` gets the place of each key's port, 0 for none. */
static void match_ports(check *c, uint32_t ports, uint32_t count, const uint32_t *keys, uint32_t *found) {
    static const char *const NAME[] = {"name"};
    const field array = {.name = "ports", .at = ports};
    series list;
    field port;
    uint32_t name;
    for (uint32_t i = 0; i < count; i++) found[i] = 0;
    if (ports == 0 || dpf_items(c, &array, DPF_PORTS_MAX, &list) != DPF_PACKAGE_OK) return;
    while (dpf_next_item(c, &list, &port)) {
        dpf_find(c->package, port.at, NAME, 1, &name);
        uint32_t place = dpf_search(c->package, keys, count, dpf_text_at(c->package, name));
        if (place < count) found[place] = port.at;
    }
}

static rule check_ports(check *c, const field *map, uint32_t ports, bool sizes_bind) {
    uint32_t *keys = c->package->scratch, *found = keys + DPF_PORTS_MAX;
    uint32_t count = list_keys(c, map, keys);
    match_ports(c, ports, count, keys, found);
    for (uint32_t i = 0; i < count; i++) {
        const field one = {.name = map->name, .parent = map->at, .at = dpf_cbor_skip(c->package, keys[i])};
        values v;
        dpf_port port;
        if (found[i] == 0) return dpf_refuse(c, DPF_PACKAGE_PORT_UNKNOWN, map, 0, 0);
        TRY(dpf_read_values(c, &one, &v));
        bool same = dpf_read_port(c->package, found[i], &port) && fits(&v, &port, sizes_bind);
        if (!same) return dpf_refuse(c, DPF_PACKAGE_PORT_DIFFERS, &one, 0, 0);
    }
    return DPF_PACKAGE_OK;
}

/* Inputs that read as zero have sizes, and not absurd ones. */
static rule check_rest(check *c, const field *map, uint32_t ports) {
    const field array = {.name = "inputs", .at = ports};
    uint32_t *keys = c->package->scratch, count = list_keys(c, map, keys);
    series list;
    field one;
    dpf_port port;
    if (ports == 0) return DPF_PACKAGE_OK;
    TRY(dpf_items(c, &array, DPF_PORTS_MAX, &list));
    while (dpf_next_item(c, &list, &one)) {
        if (!dpf_read_port(c->package, one.at, &port)) continue;
        if (dpf_search(c->package, keys, count, port.name) < count) continue;
        for (uint32_t i = 0; i < port.rank; i++) {
            if (port.dynamic[i].bytes != NULL) return dpf_refuse(c, DPF_PACKAGE_INPUT_SIZELESS, map, 0, 0);
        }
        uint64_t size = dpf_tensor_bytes(port.dtype, port.rank, port.dim);
        if (size > DPF_GOLDEN_TENSOR_MAX_BYTES) {
            return dpf_refuse(c, DPF_PACKAGE_TENSOR_LARGE, map, size, DPF_GOLDEN_TENSOR_MAX_BYTES);
        }
    }
    return DPF_PACKAGE_OK;
}

/* The record's graph in one target, or 0. */
static uint32_t graph_in(const dpf_package *package, uint32_t target, const field f[COUNT]) {
    enum { ID, MODELS, PARTS };
    static const char *const PART[PARTS] = {"id", "models"}, *const GRAPHS[] = {"graphs"};
    uint32_t at[PARTS], model, graphs;
    dpf_find(package, target, PART, PARTS, at);
    bool meant = dpf_absent(package, &f[TARGET]) ||
                 dpf_same(dpf_text_at(package, f[TARGET].at), dpf_text_at(package, at[ID]));
    if (!meant || at[MODELS] == 0) return 0;
    model = dpf_value_of(package, at[MODELS], dpf_text_at(package, f[MODEL].at));
    if (model == 0) return 0;
    dpf_find(package, model, GRAPHS, 1, &graphs);
    return graphs == 0 ? 0 : dpf_value_of(package, graphs, dpf_text_at(package, f[GRAPH].at));
}

static rule check_record(check *c, const field f[COUNT]) {
    static const char *const PORTS[] = {"inputs", "outputs"};
    uint32_t graphs = 0, ports[2];
    TRY(dpf_check_inside(c, &f[INPUTS], &f[SECTION]));
    TRY(dpf_check_inside(c, &f[OUTPUTS], &f[SECTION]));
    for (uint32_t i = 0; i < c->package->target_count; i++) {
        uint32_t graph = graph_in(c->package, c->package->targets[i], f);
        if (graph == 0) continue;
        graphs++;
        dpf_find(c->package, graph, PORTS, 2, ports);
        TRY(check_ports(c, &f[INPUTS], ports[0], true));
        TRY(check_ports(c, &f[OUTPUTS], ports[1], false));
        TRY(check_rest(c, &f[INPUTS], ports[0]));
    }
    return graphs != 0 ? DPF_PACKAGE_OK : dpf_refuse(c, DPF_PACKAGE_GRAPH_UNKNOWN, &f[GRAPH], 0, 0);
}

rule dpf_check_golden(check *c) {
    static const char *const GOLDEN[] = {"golden"};
    const field root = {.name = NULL};
    field golden, record, f[COUNT];
    series list;
    TRY(dpf_fields(c, &root, GOLDEN, 1, &golden));
    TRY(dpf_items(c, &golden, DPF_GOLDEN_MAX, &list));
    while (dpf_next_item(c, &list, &record)) {
        TRY(dpf_fields(c, &record, NAMES, COUNT, f));
        if (!dpf_absent(c->package, &f[GRAPH])) TRY(check_record(c, f));
    }
    return DPF_PACKAGE_OK;
}
