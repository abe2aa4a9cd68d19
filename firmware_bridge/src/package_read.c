/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checked package says: sections, assets, targets, graphs and ports, one at a time.
 */
#include "package_parts.h"

static dpf_text root_text(const dpf_package *package, const char *name) {
    const char *const names[] = {name};
    uint32_t at;
    dpf_find(package, 0, names, 1, &at);
    return dpf_text_at(package, at == 0 ? package->manifest_bytes : at);
}

dpf_text dpf_package_name(const dpf_package *package) {
    return root_text(package, "name");
}

dpf_text dpf_package_version(const dpf_package *package) {
    return root_text(package, "version");
}

static uint64_t number_at(const dpf_package *package, uint32_t at) {
    item i = dpf_cbor_item(package, at);
    return i.kind == UNSIGNED ? i.value : 0;
}

/* `nbytes` bytes of a byte string, or NULL. */
static const unsigned char *bytes_at(const dpf_package *package, uint32_t at, uint64_t nbytes) {
    item i = dpf_cbor_item(package, at);
    return i.kind == BYTES && i.value == nbytes ? package->manifest + i.body : NULL;
}

bool dpf_package_section(const dpf_package *package, uint32_t index, dpf_section *section) {
    enum { NAME, KIND, OFFSET, SIZE, XXH3, SHA256, CRITICAL, COUNT };
    static const char *const NAMES[COUNT] = {"name", "kind", "offset", "size", "xxh3", "sha256", "critical"};
    uint32_t at[COUNT];
    if (index >= package->section_count) return false;
    dpf_find(package, package->sections[index], NAMES, COUNT, at);
    section->name = dpf_text_at(package, at[NAME]), section->kind = dpf_text_at(package, at[KIND]);
    section->offset = number_at(package, at[OFFSET]), section->size = number_at(package, at[SIZE]);
    section->xxh3 = bytes_at(package, at[XXH3], DPF_XXH3_BYTES);
    section->sha256 = bytes_at(package, at[SHA256], DPF_SHA256_BYTES);
    section->index = index;
    section->critical = dpf_cbor_item(package, at[CRITICAL]).kind == TRUE;
    return section->xxh3 != NULL && section->sha256 != NULL;
}

bool dpf_package_find(const dpf_package *package, const char *name, uint32_t nbytes, dpf_section *section) {
    return dpf_package_section(package, dpf_section_index(package, (dpf_text){name, nbytes}), section);
}

uint32_t dpf_value_of(const dpf_package *package, uint32_t map, dpf_text key) {
    item i = dpf_cbor_item(package, map);
    uint32_t at = i.body;
    for (uint64_t left = i.kind == MAP ? i.value : 0; left != 0 && at < package->manifest_bytes; left--) {
        uint32_t value = dpf_cbor_skip(package, at);
        if (dpf_same(dpf_text_at(package, at), key)) return value;
        at = dpf_cbor_skip(package, value);
    }
    return 0;
}

static bool section_named(const dpf_package *package, uint32_t at, dpf_section *section) {
    dpf_text name = dpf_text_at(package, at);
    return at != 0 && dpf_package_find(package, name.bytes, name.nbytes, section);
}

bool dpf_package_asset(const dpf_package *package, dpf_text model, dpf_text asset, dpf_section *section) {
    static const char *const NAMES[] = {"assets"};
    uint32_t place = dpf_search(package, package->models, package->model_count, model), assets;
    if (place == package->model_count) return false;
    dpf_find(package, dpf_cbor_skip(package, package->models[place]), NAMES, 1, &assets);
    return assets != 0 && section_named(package, dpf_value_of(package, assets, asset), section);
}

bool dpf_package_target(const dpf_package *package, uint32_t index, dpf_target *target) {
    enum { ID, BACKEND, ABI, MEMORY, WHITELIST, MODELS, COUNT };
    static const char *const NAMES[COUNT] = {"id", "backend", "backend_abi", "memory_bytes", "whitelist", "models"};
    uint32_t at[COUNT];
    if (index >= package->target_count) return false;
    dpf_find(package, package->targets[index], NAMES, COUNT, at);
    target->id = dpf_text_at(package, at[ID]), target->backend = dpf_text_at(package, at[BACKEND]);
    target->backend_abi = (uint32_t)number_at(package, at[ABI]);
    target->memory_bytes = number_at(package, at[MEMORY]);
    target->whitelist = at[WHITELIST], target->models = at[MODELS], target->index = index;
    return true;
}

static uint32_t count_of(const dpf_package *package, uint32_t at, uint32_t kind) {
    item i = dpf_cbor_item(package, at);
    return at != 0 && i.kind == kind ? (uint32_t)i.value : 0;
}

/* Goes to the next model of the target that has graphs. */
static bool next_model(const dpf_package *package, dpf_graph_cursor *cursor) {
    static const char *const NAMES[] = {"graphs"};
    while (cursor->graphs_left == 0) {
        uint32_t value, graphs;
        if (cursor->models_left == 0 || cursor->model >= package->manifest_bytes) return false;
        cursor->models_left--;
        cursor->model_name = cursor->model;
        value = dpf_cbor_skip(package, cursor->model);
        cursor->model = dpf_cbor_skip(package, value);
        dpf_find(package, value, NAMES, 1, &graphs);
        cursor->graphs_left = count_of(package, graphs, MAP);
        cursor->graph = dpf_cbor_item(package, graphs).body;
    }
    return cursor->graph < package->manifest_bytes;
}

bool dpf_package_next_graph(const dpf_package *package, const dpf_target *target, dpf_graph_cursor *cursor,
                            dpf_graph *graph) {
    enum { INPUTS, OUTPUTS, WEIGHTS, SECTION, COUNT };
    static const char *const NAMES[COUNT] = {"inputs", "outputs", "weights", "section"};
    if (!cursor->begun) {
        cursor->models_left = count_of(package, target->models, MAP);
        cursor->model = dpf_cbor_item(package, target->models).body;
        cursor->begun = true;
    }
    if (!next_model(package, cursor)) return false;
    uint32_t value = dpf_cbor_skip(package, cursor->graph);
    graph->model = dpf_text_at(package, cursor->model_name), graph->name = dpf_text_at(package, cursor->graph);
    cursor->graph = dpf_cbor_skip(package, value);
    cursor->graphs_left--;
    dpf_find(package, value, NAMES, COUNT, graph->place);
    graph->inputs = count_of(package, graph->place[INPUTS], ARRAY);
    graph->outputs = count_of(package, graph->place[OUTPUTS], ARRAY);
    graph->weights = count_of(package, graph->place[WEIGHTS], ARRAY);
    return section_named(package, graph->place[SECTION], &graph->section);
}

/* The element of an array, or 0. */
static uint32_t element(const dpf_package *package, uint32_t array, uint32_t index) {
    if (index >= count_of(package, array, ARRAY)) return 0;
    uint32_t at = dpf_cbor_item(package, array).body;
    while (index-- != 0 && at < package->manifest_bytes) at = dpf_cbor_skip(package, at);
    return at < package->manifest_bytes ? at : 0;
}

bool dpf_read_port(const dpf_package *package, uint32_t at, dpf_port *port) {
    enum { NAME, DTYPE, DIMS, COUNT };
    static const char *const NAMES[COUNT] = {"name", "dtype", "dims"};
    uint32_t found[COUNT];
    if (at == 0) return false;
    dpf_find(package, at, NAMES, COUNT, found);
    port->name = dpf_text_at(package, found[NAME]);
    port->dtype = dpf_dtype_index(dpf_text_at(package, found[DTYPE]));
    port->rank = count_of(package, found[DIMS], ARRAY);
    if (port->rank > DPF_TENSOR_MAX_RANK || port->dtype >= DPF_DTYPES_KNOWN) return false;
    for (uint32_t i = 0; i < port->rank; i++) {
        uint32_t dim = element(package, found[DIMS], i);
        item value = dpf_cbor_item(package, dim);
        port->dynamic[i] = value.kind == TEXT ? dpf_text_at(package, dim) : (dpf_text){NULL, 0};
        port->dim[i] = value.kind == UNSIGNED && value.value <= DPF_TENSOR_MAX_DIM ? (uint32_t)value.value : 0;
    }
    return true;
}

bool dpf_package_input(const dpf_package *package, const dpf_graph *graph, uint32_t index, dpf_port *port) {
    return dpf_read_port(package, element(package, graph->place[0], index), port);
}

bool dpf_package_output(const dpf_package *package, const dpf_graph *graph, uint32_t index, dpf_port *port) {
    return dpf_read_port(package, element(package, graph->place[1], index), port);
}

bool dpf_package_weight(const dpf_package *package, const dpf_graph *graph, uint32_t index, dpf_section *section) {
    return section_named(package, element(package, graph->place[2], index), section);
}
