/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of a manifest: types, names and bounds, in the order of FORMAT.md. Places and references come after it.
 */
#include "package_parts.h"

static const char *const KINDS[] = {"weights", "graph", "asset", "prefix", "sealed", "golden", "licence"};
enum { KINDS_KNOWN = sizeof KINDS / sizeof *KINDS };
static const char *const DTYPES[DPF_DTYPES_KNOWN] = {"bytes", "f32", "f16", "bf16", "f64", "i8", "u8",
                                                     "i16", "u16", "i32", "u32", "i64", "u64", "bool"};

uint32_t dpf_dtype_index(dpf_text name) {
    return dpf_word(name, DTYPES, DPF_DTYPES_KNOWN);
}

static rule check_section(check *c, const field *section) {
    enum { NAME, KIND, OFFSET, SIZE, XXH3, SHA256, CRITICAL, COUNT };
    static const char *const NAMES[COUNT] = {"name", "kind", "offset", "size", "xxh3", "sha256", "critical"};
    field f[COUNT];
    uint64_t number;
    bool critical;
    TRY(dpf_fields(c, section, NAMES, COUNT, f));
    TRY(dpf_boolean(c, &f[CRITICAL], &critical));
    if (critical) {
        TRY(dpf_named(c, &f[KIND]));
        bool known = dpf_word(dpf_text_at(c->package, f[KIND].at), KINDS, KINDS_KNOWN) < KINDS_KNOWN;
        if (!known) return dpf_refuse(c, DPF_PACKAGE_KIND, &f[KIND], 0, 0);
    }
    TRY(dpf_named(c, &f[NAME]));
    TRY(dpf_named(c, &f[KIND]));
    TRY(dpf_integer(c, &f[OFFSET], 0, DPF_PACKAGE_MAX_BYTES, &number));
    TRY(dpf_integer(c, &f[SIZE], 0, DPF_PACKAGE_MAX_BYTES, &number));
    TRY(dpf_digest(c, &f[XXH3], DPF_XXH3_BYTES));
    TRY(dpf_digest(c, &f[SHA256], DPF_SHA256_BYTES));
    c->package->section_names[c->package->section_count] = f[NAME].at;
    c->package->sections[c->package->section_count++] = section->at;
    return DPF_PACKAGE_OK;
}

static rule check_sections(check *c, const field *sections) {
    series list;
    field section;
    TRY(dpf_items(c, sections, DPF_SECTIONS_MAX, &list));
    while (dpf_next_item(c, &list, &section)) TRY(check_section(c, &section));
    return DPF_PACKAGE_OK;
}

static rule check_assets(check *c, const field *assets) {
    series list;
    field asset;
    rule broken;
    TRY(dpf_entries(c, assets, DPF_MANIFEST_MAX_ITEMS, &list));
    while (dpf_next_entry(c, &list, &asset, &broken)) TRY(dpf_named(c, &asset));
    return broken;
}

static rule check_model(check *c, const field *model) {
    enum { FAMILY, LICENCE, SOURCE, CONFIG, ASSETS, COUNT };
    static const char *const NAMES[COUNT] = {"family", "licence", "source", "config", "assets"};
    field f[COUNT];
    TRY(dpf_fields(c, model, NAMES, COUNT, f));
    TRY(dpf_named(c, &f[FAMILY]));
    TRY(dpf_words(c, &f[LICENCE], DPF_TEXT_MAX_BYTES));
    TRY(dpf_words(c, &f[SOURCE], DPF_TEXT_MAX_BYTES));
    TRY(dpf_free(c, &f[CONFIG]));
    return check_assets(c, &f[ASSETS]);
}

static rule check_models(check *c, const field *models) {
    series list;
    field model;
    rule broken;
    TRY(dpf_entries(c, models, DPF_MODELS_MAX, &list));
    for (uint32_t key = list.at; dpf_next_entry(c, &list, &model, &broken); key = list.at) {
        c->package->models[c->package->model_count++] = key;
        TRY(check_model(c, &model));
    }
    return broken;
}

static rule check_dims(check *c, const field *dims) {
    series list;
    field dim;
    uint64_t number;
    TRY(dpf_items(c, dims, DPF_TENSOR_MAX_RANK, &list));
    while (dpf_next_item(c, &list, &dim)) {
        if (dpf_cbor_item(c->package, dim.at).kind == TEXT) TRY(dpf_words(c, &dim, DPF_NAME_MAX_BYTES));
        else TRY(dpf_integer(c, &dim, 0, DPF_TENSOR_MAX_DIM, &number));
    }
    return DPF_PACKAGE_OK;
}

rule dpf_check_dtype(check *c, const field *dtype, uint64_t most) {
    bool there = !dpf_absent(c->package, dtype);
    if (there && dpf_dtype_index(dpf_text_at(c->package, dtype->at)) < DPF_DTYPES_KNOWN) return DPF_PACKAGE_OK;
    TRY(dpf_words(c, dtype, most));
    return dpf_refuse(c, DPF_PACKAGE_DTYPE, dtype, 0, 0);
}

static rule check_ports(check *c, const field *ports) {
    enum { NAME, DTYPE, DIMS, COUNT };
    static const char *const NAMES[COUNT] = {"name", "dtype", "dims"};
    uint32_t count = 0, *names = c->package->scratch;
    series list;
    field port, f[COUNT];
    TRY(dpf_items(c, ports, DPF_PORTS_MAX, &list));
    while (dpf_next_item(c, &list, &port)) {
        TRY(dpf_fields(c, &port, NAMES, COUNT, f));
        TRY(dpf_check_dtype(c, &f[DTYPE], DPF_TEXT_MAX_BYTES));
        TRY(dpf_words(c, &f[NAME], DPF_NAME_MAX_BYTES));
        TRY(check_dims(c, &f[DIMS]));
        names[count++] = f[NAME].at;
    }
    dpf_sort_texts(c->package, names, count);
    for (uint32_t i = 1; i < count; i++) {
        bool twice = dpf_same(dpf_text_at(c->package, names[i - 1]), dpf_text_at(c->package, names[i]));
        if (twice) return dpf_refuse(c, DPF_PACKAGE_PORT_TWICE, ports, 0, 0);
    }
    return DPF_PACKAGE_OK;
}

static rule check_graph(check *c, const field *graph) {
    enum { SECTION, INPUTS, OUTPUTS, WEIGHTS, OPTIONS, COUNT };
    static const char *const NAMES[COUNT] = {"section", "inputs", "outputs", "weights", "options"};
    field f[COUNT], weight;
    series list;
    TRY(dpf_fields(c, graph, NAMES, COUNT, f));
    TRY(dpf_named(c, &f[SECTION]));
    TRY(check_ports(c, &f[INPUTS]));
    TRY(check_ports(c, &f[OUTPUTS]));
    TRY(dpf_items(c, &f[WEIGHTS], DPF_SECTIONS_MAX, &list));
    while (dpf_next_item(c, &list, &weight)) TRY(dpf_named(c, &weight));
    return dpf_free(c, &f[OPTIONS]);
}

static rule check_target_model(check *c, const field *model) {
    static const char *const NAMES[] = {"graphs", "prefix"};
    field f[2], graph;
    series list;
    rule broken;
    TRY(dpf_fields(c, model, NAMES, 2, f));
    TRY(dpf_entries(c, &f[0], DPF_GRAPHS_MAX, &list));
    while (dpf_next_entry(c, &list, &graph, &broken)) TRY(check_graph(c, &graph));
    TRY(broken);
    return dpf_check_prefix(c, &f[1]);
}

static rule check_decisions(check *c, const field *decisions) {
    series list, pair;
    field decision, part;
    TRY(dpf_items(c, decisions, DPF_MANIFEST_MAX_ITEMS, &list));
    while (dpf_next_item(c, &list, &decision)) {
        TRY(dpf_items(c, &decision, 2, &pair));
        if (pair.left != 2) return dpf_refuse(c, DPF_PACKAGE_LENGTH, &decision, pair.left, 2);
        while (dpf_next_item(c, &pair, &part)) TRY(dpf_words(c, &part, DPF_TEXT_MAX_BYTES));
    }
    return DPF_PACKAGE_OK;
}

static rule check_target(check *c, const field *target) {
    enum { ID, BACKEND, ABI, WHITELIST, MEMORY, DECISIONS, MODELS, COUNT };
    static const char *const NAMES[COUNT] = {"id", "backend", "backend_abi", "whitelist",
                                             "memory_bytes", "decisions", "models"};
    field f[COUNT], model;
    uint64_t number;
    series list;
    rule broken;
    TRY(dpf_fields(c, target, NAMES, COUNT, f));
    TRY(dpf_named(c, &f[ID]));
    TRY(dpf_named(c, &f[BACKEND]));
    TRY(dpf_integer(c, &f[ABI], 1, 0xFFFF, &number));
    TRY(dpf_check_expression(c, &f[WHITELIST]));
    TRY(dpf_integer(c, &f[MEMORY], 0, DPF_MEMORY_MAX_BYTES, &number));
    TRY(check_decisions(c, &f[DECISIONS]));
    TRY(dpf_entries(c, &f[MODELS], DPF_MANIFEST_MAX_ITEMS, &list));
    while (dpf_next_entry(c, &list, &model, &broken)) TRY(check_target_model(c, &model));
    return broken;
}

static rule check_targets(check *c, const field *targets) {
    series list;
    field target;
    TRY(dpf_items(c, targets, DPF_TARGETS_MAX, &list));
    while (dpf_next_item(c, &list, &target)) {
        c->package->targets[c->package->target_count++] = target.at;
        TRY(check_target(c, &target));
    }
    return DPF_PACKAGE_OK;
}

static rule check_licences(check *c, const field *licences) {
    enum { NAME, SPDX, SECTION, COUNT };
    static const char *const NAMES[COUNT] = {"name", "spdx", "section"};
    series list;
    field licence, f[COUNT];
    TRY(dpf_items(c, licences, DPF_MANIFEST_MAX_ITEMS, &list));
    while (dpf_next_item(c, &list, &licence)) {
        TRY(dpf_fields(c, &licence, NAMES, COUNT, f));
        TRY(dpf_words(c, &f[NAME], DPF_NAME_MAX_BYTES));
        TRY(dpf_words(c, &f[SPDX], DPF_NAME_MAX_BYTES));
        if (!dpf_absent(c->package, &f[SECTION])) TRY(dpf_named(c, &f[SECTION]));
    }
    return DPF_PACKAGE_OK;
}

/* The two numbers of `format`; their comparison with the header comes after all other fields. */
static rule check_format(check *c, const field *format, uint64_t version[2]) {
    series list;
    field number[2];
    TRY(dpf_items(c, format, 2, &list));
    if (list.left != 2) return dpf_refuse(c, DPF_PACKAGE_LENGTH, format, list.left, 2);
    for (uint32_t i = 0; i < 2 && dpf_next_item(c, &list, &number[i]); i++) {
        TRY(dpf_integer(c, &number[i], i == 0 ? 1 : 0, 0xFFFF, &version[i]));
    }
    return DPF_PACKAGE_OK;
}

rule dpf_check_fields(check *c) {
    enum { FORMAT, NAME, VERSION, COMPILER, CREATED, SECTIONS, MODELS, TARGETS, PIPELINE, LICENCES, GOLDEN, SEAL };
    enum { COUNT = SEAL + 1 };
    static const char *const NAMES[COUNT] = {"format", "name", "version", "compiler", "created", "sections",
                                             "models", "targets", "pipeline", "licences", "golden", "seal"};
    const field root = {.name = NULL};
    field f[COUNT];
    uint64_t version[2] = {0, 0}, created;
    TRY(dpf_fields(c, &root, NAMES, COUNT, f));
    TRY(check_format(c, &f[FORMAT], version));
    TRY(dpf_named(c, &f[NAME]));
    TRY(dpf_named(c, &f[VERSION]));
    TRY(dpf_free(c, &f[COMPILER]));
    if (!dpf_absent(c->package, &f[CREATED])) TRY(dpf_integer(c, &f[CREATED], 0, DPF_CREATED_MAX, &created));
    TRY(check_sections(c, &f[SECTIONS]));
    TRY(check_models(c, &f[MODELS]));
    TRY(check_targets(c, &f[TARGETS]));
    TRY(dpf_free(c, &f[PIPELINE]));
    TRY(check_licences(c, &f[LICENCES]));
    TRY(dpf_check_golden_fields(c, &f[GOLDEN]));
    TRY(dpf_check_seal(c, &f[SEAL]));
    if (version[0] == c->package->header.major && version[1] == c->package->header.minor) return DPF_PACKAGE_OK;
    return dpf_refuse(c, DPF_PACKAGE_VERSION, &f[FORMAT], version[0] << 16 | version[1],
                      (uint64_t)c->package->header.major << 16 | c->package->header.minor);
}
