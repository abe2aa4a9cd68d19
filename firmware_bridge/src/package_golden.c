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

/* An input that cannot read as zero: it has no size, or an absurd one. */
static bool is_needed(const dpf_port *port) {
    for (uint32_t i = 0; i < port->rank; i++) {
        if (port->dynamic[i].bytes != NULL) return true;
    }
    return dpf_tensor_bytes(port->dtype, port->rank, port->dim) > DPF_GOLDEN_TENSOR_MAX_BYTES;
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

/* Model and graph of a record, then nothing: how records are sorted. */
static int by_graph(const dpf_package *package, uint32_t a, uint32_t b) {
    uint32_t f[2], g[2];
    dpf_find(package, a, NAMES, 2, f);
    dpf_find(package, b, NAMES, 2, g);
    int way = dpf_order(dpf_text_at(package, f[MODEL]), dpf_text_at(package, g[MODEL]));
    return way != 0 ? way : dpf_order(dpf_text_at(package, f[GRAPH]), dpf_text_at(package, g[GRAPH]));
}

/* The first record that is not before this model and graph. */
static uint32_t first_record(const dpf_package *package, dpf_text model, dpf_text graph) {
    uint32_t low = 0, high = package->golden_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2, f[2];
        dpf_find(package, package->golden[middle], NAMES, 2, f);
        int way = dpf_order(dpf_text_at(package, f[MODEL]), model);
        if (way == 0) way = dpf_order(dpf_text_at(package, f[GRAPH]), graph);
        if (way < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* A graph of one target, while records are compared with it. */
typedef struct meeting {
    uint32_t model, graph, value, target; /* offsets: two names, the graph's map, the target's id */
    uint32_t first, end;                  /* records of this model and graph, sorted */
} meeting;

/* What was found so far: the earliest record that is refused, and the graph it does not fit. */
typedef struct findings {
    uint32_t worst, graph;
    uint32_t met[DPF_GOLDEN_MAX / 32]; /* a bit for each record that has a graph */
} findings;

static bool is_meant(const dpf_package *package, uint32_t record, const meeting *m) {
    uint32_t f[TARGET + 1];
    dpf_find(package, record, NAMES, TARGET + 1, f);
    bool any = f[TARGET] == 0 || dpf_cbor_item(package, f[TARGET]).kind == NOTHING;
    return any || dpf_same(dpf_text_at(package, f[TARGET]), dpf_text_at(package, m->target));
}

/* Lists names, sorted, and maps of an array of ports in scratch; answers their number. */
static uint32_t list_ports(dpf_package *package, uint32_t ports, uint32_t *needed) {
    static const char *const NAME[] = {"name"};
    item array = dpf_cbor_item(package, ports);
    uint32_t count = 0, at = array.body, *names = package->scratch, *maps = names + DPF_PORTS_MAX;
    dpf_port port;
    *needed = 0;
    if (ports == 0 || array.kind != ARRAY) return 0;
    for (; count < array.value && count < DPF_PORTS_MAX && at < package->manifest_bytes; count++) {
        dpf_find(package, at, NAME, 1, &names[count]);
        maps[count] = at;
        if (dpf_read_port(package, at, &port) && is_needed(&port)) ++*needed;
        at = dpf_cbor_skip(package, at);
    }
    dpf_sort_texts(package, names, count);
    return count;
}

/* The last of ascending offsets that is not behind `at`. */
static uint32_t last_before(const uint32_t *offsets, uint32_t count, uint32_t at) {
    uint32_t low = 0;
    while (count - low > 1) {
        uint32_t middle = low + (count - low) / 2;
        if (offsets[middle] <= at) low = middle;
        else count = middle;
    }
    return offsets[low];
}

/* dtype and whole size of values that were checked before. */
static void read_whole(const dpf_package *package, uint32_t at, values *v) {
    static const char *const PARTS[] = {"dtype", "dims", "whole"};
    uint32_t f[3];
    dpf_find(package, at, PARTS, 3, f);
    bool part = f[2] != 0 && dpf_cbor_item(package, f[2]).kind != NOTHING;
    item dims = dpf_cbor_item(package, f[part ? 2 : 1]);
    v->dtype = dpf_dtype_index(dpf_text_at(package, f[0]));
    v->rank = f[part ? 2 : 1] != 0 && dims.kind == ARRAY ? (uint32_t)dims.value : 0;
    uint32_t place = dims.body;
    for (uint32_t i = 0; i < v->rank && i < DPF_TENSOR_MAX_RANK; i++) {
        v->dims[i] = (uint32_t)dpf_cbor_item(package, place).value;
        place = dpf_cbor_skip(package, place);
    }
}

/* Whether all values of a map fit the listed ports, and the ports that need values have them. */
static bool all_fit(const dpf_package *package, uint32_t map, uint32_t count, uint32_t needed, bool sizes_bind) {
    const uint32_t *names = package->scratch, *maps = names + DPF_PORTS_MAX;
    item entries = dpf_cbor_item(package, map);
    uint32_t at = entries.body;
    values v;
    dpf_port port;
    for (uint64_t left = map != 0 && entries.kind == MAP ? entries.value : 0; left != 0; left--) {
        uint32_t value = dpf_cbor_skip(package, at);
        uint32_t place = dpf_search(package, names, count, dpf_text_at(package, at));
        if (place == count || value >= package->manifest_bytes) return false;
        read_whole(package, value, &v);
        if (!dpf_read_port(package, last_before(maps, count, names[place]), &port)) return false;
        if (!fits(&v, &port, sizes_bind)) return false;
        if (is_needed(&port)) needed--;
        at = dpf_cbor_skip(package, value);
    }
    return !sizes_bind || needed == 0;
}

/* Compares one side of a graph with all records that are about it and may still be the earliest refused. */
static void meet_side(check *c, const meeting *m, uint32_t side, findings *found) {
    static const char *const PORTS[] = {"inputs", "outputs"};
    uint32_t ports, needed, values_at;
    dpf_find(c->package, m->value, &PORTS[side], 1, &ports);
    uint32_t count = list_ports(c->package, ports, &needed);
    for (uint32_t i = m->first; i < m->end; i++) {
        uint32_t record = c->package->golden[i];
        if (record >= found->worst || !is_meant(c->package, record, m)) continue;
        found->met[i / 32] |= (uint32_t)1 << i % 32;
        dpf_find(c->package, record, &NAMES[INPUTS + side], 1, &values_at);
        if (!all_fit(c->package, values_at, count, needed, side == 0)) found->worst = record, found->graph = m->value;
    }
}

static void meet_graph(check *c, meeting *m, findings *found) {
    dpf_package *package = c->package;
    dpf_text model = dpf_text_at(package, m->model), graph = dpf_text_at(package, m->graph);
    uint32_t f[2];
    m->first = m->end = first_record(package, model, graph);
    for (; m->end < package->golden_count; m->end++) {
        dpf_find(package, package->golden[m->end], NAMES, 2, f);
        bool same = dpf_same(dpf_text_at(package, f[MODEL]), model) && dpf_same(dpf_text_at(package, f[GRAPH]), graph);
        if (!same) break;
    }
    if (m->first == m->end) return;
    meet_side(c, m, 0, found);
    meet_side(c, m, 1, found);
}

static rule meet_target(check *c, uint32_t target, findings *found) {
    static const char *const PARTS[] = {"id", "models"}, *const GRAPHS[] = {"graphs"};
    const field value = {.name = "targets", .at = target};
    field f[2], model, graphs, graph;
    series models, list;
    meeting m;
    rule broken;
    TRY(dpf_fields(c, &value, PARTS, 2, f));
    TRY(dpf_entries(c, &f[1], DPF_MANIFEST_MAX_ITEMS, &models));
    m.target = f[0].at, m.model = models.at;
    for (; dpf_next_entry(c, &models, &model, &broken); m.model = models.at) {
        TRY(dpf_fields(c, &model, GRAPHS, 1, &graphs));
        TRY(dpf_entries(c, &graphs, DPF_GRAPHS_MAX, &list));
        m.graph = list.at;
        for (; dpf_next_entry(c, &list, &graph, &broken); m.graph = list.at) {
            m.value = graph.at;
            meet_graph(c, &m, found);
        }
        TRY(broken);
    }
    return broken;
}

/* Refuses the record for what it is refused for; 0 for a graph means that its values leave their section. */
static rule explain(check *c, uint32_t record, uint32_t graph) {
    static const char *const PORTS[] = {"inputs", "outputs"};
    const field value = {.name = "golden", .at = record};
    field f[COUNT];
    uint32_t ports[2];
    TRY(dpf_fields(c, &value, NAMES, COUNT, f));
    TRY(dpf_check_inside(c, &f[INPUTS], &f[SECTION]));
    TRY(dpf_check_inside(c, &f[OUTPUTS], &f[SECTION]));
    if (graph == 0) return dpf_refuse(c, DPF_PACKAGE_GRAPH_UNKNOWN, &f[GRAPH], 0, 0);
    dpf_find(c->package, graph, PORTS, 2, ports);
    TRY(check_ports(c, &f[INPUTS], ports[0], true));
    TRY(check_ports(c, &f[OUTPUTS], ports[1], false));
    TRY(check_rest(c, &f[INPUTS], ports[0]));
    return dpf_refuse(c, DPF_PACKAGE_PORT_DIFFERS, &value, 0, 0); /* only if the bytes have changed meanwhile */
}

/* The first record whose values leave their section, or the manifest's end. */
static uint32_t first_outside(check *c) {
    dpf_package_refusal *kept = c->why, ignored;
    uint32_t first = c->package->manifest_bytes;
    c->why = &ignored;
    for (uint32_t i = 0; i < c->package->golden_count && first == c->package->manifest_bytes; i++) {
        field value = {.name = "golden", .at = c->package->golden[i]}, f[COUNT];
        bool inside = dpf_fields(c, &value, NAMES, COUNT, f) == DPF_PACKAGE_OK &&
                      dpf_check_inside(c, &f[INPUTS], &f[SECTION]) == DPF_PACKAGE_OK &&
                      dpf_check_inside(c, &f[OUTPUTS], &f[SECTION]) == DPF_PACKAGE_OK;
        if (!inside) first = value.at;
    }
    c->why = kept;
    return first;
}

/* Graph by graph, not record by record: so many records about graphs with many ports stay cheap. The refusal is that of
 * the earliest record all the same. */
rule dpf_check_golden(check *c) {
    dpf_package *package = c->package;
    findings found = {.worst = 0};
    found.worst = first_outside(c);
    dpf_sort(package, by_graph, package->golden, package->golden_count);
    for (uint32_t i = 0; i < package->target_count && package->golden_count != 0; i++) {
        TRY(meet_target(c, package->targets[i], &found));
    }
    for (uint32_t i = 0; i < package->golden_count; i++) {
        bool met = (found.met[i / 32] >> i % 32 & 1) != 0;
        if (!met && package->golden[i] < found.worst) found.worst = package->golden[i], found.graph = 0;
    }
    return found.worst == package->manifest_bytes ? DPF_PACKAGE_OK : explain(c, found.worst, found.graph);
}
