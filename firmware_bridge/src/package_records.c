/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of golden records, baked prefixes and seals: types and bounds. Whether they fit their sections and graphs
 * is checked in package_golden.c and package_places.c.
 */
#include "package_parts.h"

static const uint8_t ELEMENT_BYTES[DPF_DTYPES_KNOWN] = {1, 4, 2, 2, 8, 1, 1, 2, 2, 4, 4, 8, 8, 1};
enum { DTYPE_BYTES = 0, DTYPE_BF16 = 3 };

uint64_t dpf_tensor_bytes(uint32_t dtype, uint32_t rank, const uint32_t dims[]) {
    uint64_t total = dtype < DPF_DTYPES_KNOWN ? ELEMENT_BYTES[dtype] : 0;
    /* Zero first: a later dimension must not hide that the ones before it are beyond all bounds. */
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] == 0) return 0;
    }
    for (uint32_t i = 0; i < rank; i++) {
        if (total > UINT64_MAX / dims[i]) return UINT64_MAX;
        total *= dims[i];
    }
    return total;
}

rule dpf_sizes(check *c, const field *f, uint32_t *rank, uint32_t dims[DPF_TENSOR_MAX_RANK]) {
    series list;
    field size;
    uint64_t number;
    *rank = 0;
    TRY(dpf_items(c, f, DPF_TENSOR_MAX_RANK, &list));
    while (dpf_next_item(c, &list, &size) && *rank < DPF_TENSOR_MAX_RANK) {
        TRY(dpf_integer(c, &size, 0, DPF_TENSOR_MAX_DIM, &number));
        dims[(*rank)++] = (uint32_t)number;
    }
    return DPF_PACKAGE_OK;
}

/* A number that is at least 0, or absent. */
static rule check_tolerance(check *c, const field *f) {
    if (dpf_absent(c->package, f)) return DPF_PACKAGE_OK;
    item i = dpf_cbor_item(c->package, f->at);
    if (i.kind != UNSIGNED && i.kind != NEGATIVE && i.kind != NUMBER) return dpf_refuse(c, DPF_PACKAGE_TYPE, f, 0, 0);
    uint32_t bits = 8 * (i.body - i.at - 1);
    uint64_t sign = i.kind == NUMBER ? (uint64_t)1 << (bits - 1) : 0; /* a float of this many bits; -0 is 0 */
    bool below = i.kind == NEGATIVE || ((i.value & sign) != 0 && i.value != sign);
    return below ? dpf_refuse(c, DPF_PACKAGE_RANGE, f, 0, 0) : DPF_PACKAGE_OK;
}

/* The dtype of values: any, or one that golden records may have. */
static rule check_stored_dtype(check *c, const field *f, bool golden, uint32_t *dtype) {
    *dtype = dpf_dtype_index(dpf_text_at(c->package, f->at));
    bool known = *dtype < DPF_DTYPES_KNOWN && !(golden && (*dtype == DTYPE_BYTES || *dtype == DTYPE_BF16));
    return known ? DPF_PACKAGE_OK : dpf_refuse(c, DPF_PACKAGE_DTYPE, f, 0, 0);
}

rule dpf_read_values(check *c, const field *f, values *v) {
    enum { DTYPE, DIMS, OFFSET, SIZE, AT, WHOLE, MAX_ABS, REL_L2, COUNT };
    static const char *const NAMES[COUNT] = {"dtype", "dims", "offset", "size", "at", "whole", "max_abs", "rel_l2"};
    field g[COUNT];
    uint32_t at[DPF_TENSOR_MAX_RANK] = {0}, dims[DPF_TENSOR_MAX_RANK], rank, at_rank;
    TRY(dpf_fields(c, f, NAMES, COUNT, g));
    TRY(dpf_words(c, &g[DTYPE], DPF_NAME_MAX_BYTES));
    TRY(dpf_sizes(c, &g[DIMS], &rank, dims));
    TRY(check_stored_dtype(c, &g[DTYPE], true, &v->dtype));
    TRY(dpf_integer(c, &g[OFFSET], 0, DPF_PACKAGE_MAX_BYTES, &v->offset));
    TRY(dpf_integer(c, &g[SIZE], 0, DPF_GOLDEN_TENSOR_MAX_BYTES, &v->size));
    at_rank = v->rank = rank;
    for (uint32_t i = 0; i < rank; i++) v->dims[i] = dims[i];
    if (!dpf_absent(c->package, &g[AT])) TRY(dpf_sizes(c, &g[AT], &at_rank, at));
    if (!dpf_absent(c->package, &g[WHOLE])) TRY(dpf_sizes(c, &g[WHOLE], &v->rank, v->dims));
    TRY(check_tolerance(c, &g[MAX_ABS]));
    TRY(check_tolerance(c, &g[REL_L2]));
    uint64_t wanted = dpf_tensor_bytes(v->dtype, rank, dims), element = ELEMENT_BYTES[v->dtype];
    if (v->size != wanted) return dpf_refuse(c, DPF_PACKAGE_VALUES_SIZE, &g[SIZE], v->size, wanted);
    if (v->offset % element != 0) return dpf_refuse(c, DPF_PACKAGE_VALUES_ALIGN, &g[OFFSET], v->offset, element);
    wanted = dpf_tensor_bytes(v->dtype, v->rank, v->dims);
    if (wanted > DPF_GOLDEN_TENSOR_MAX_BYTES) {
        return dpf_refuse(c, DPF_PACKAGE_TENSOR_LARGE, &g[WHOLE], wanted, DPF_GOLDEN_TENSOR_MAX_BYTES);
    }
    bool fits = at_rank == rank && rank == v->rank;
    for (uint32_t i = 0; fits && i < rank; i++) fits = (uint64_t)at[i] + dims[i] <= v->dims[i];
    return fits ? DPF_PACKAGE_OK : dpf_refuse(c, DPF_PACKAGE_VALUES_OUTSIDE, &g[AT], 0, 0);
}

static rule check_value_map(check *c, const field *f, uint32_t *count) {
    series list;
    field one;
    values v;
    rule broken;
    TRY(dpf_entries(c, f, DPF_PORTS_MAX, &list));
    *count += list.left;
    while (dpf_next_port(c, &list, &one, &broken)) TRY(dpf_read_values(c, &one, &v));
    return broken;
}

static rule check_pairs(check *c, const field *pairs) {
    series list, pair;
    field one, part;
    TRY(dpf_items(c, pairs, DPF_PORTS_MAX, &list));
    while (dpf_next_item(c, &list, &one)) {
        TRY(dpf_items(c, &one, 2, &pair));
        if (pair.left != 2) return dpf_refuse(c, DPF_PACKAGE_LENGTH, &one, pair.left, 2);
        while (dpf_next_item(c, &pair, &part)) TRY(dpf_words(c, &part, DPF_NAME_MAX_BYTES));
    }
    return DPF_PACKAGE_OK;
}

rule dpf_check_golden_fields(check *c, const field *golden) {
    enum { MODEL, GRAPH, TARGET, SECTION, INPUTS, OUTPUTS, IN_PLACE, COUNT };
    static const char *const NAMES[COUNT] = {"model", "graph", "target", "section", "inputs", "outputs", "in_place"};
    series list;
    field record, f[COUNT];
    uint32_t tensors = 0;
    TRY(dpf_items(c, golden, DPF_GOLDEN_MAX, &list));
    while (dpf_next_item(c, &list, &record)) {
        TRY(dpf_fields(c, &record, NAMES, COUNT, f));
        if (dpf_absent(c->package, &f[GRAPH])) continue; /* a note */
        TRY(dpf_named(c, &f[MODEL]));
        TRY(dpf_named(c, &f[GRAPH]));
        if (!dpf_absent(c->package, &f[TARGET])) TRY(dpf_named(c, &f[TARGET]));
        TRY(dpf_named(c, &f[SECTION]));
        TRY(check_value_map(c, &f[INPUTS], &tensors));
        TRY(check_value_map(c, &f[OUTPUTS], &tensors));
        TRY(check_pairs(c, &f[IN_PLACE]));
        c->package->golden[c->package->golden_count++] = record.at;
    }
    if (tensors <= DPF_GOLDEN_TENSORS_MAX) return DPF_PACKAGE_OK;
    return dpf_refuse(c, DPF_PACKAGE_TENSORS_MANY, golden, tensors, DPF_GOLDEN_TENSORS_MAX);
}

static rule check_text_map(check *c, const field *f) {
    series list;
    field one;
    rule broken;
    TRY(dpf_entries(c, f, DPF_MANIFEST_MAX_ITEMS, &list));
    while (dpf_next_entry(c, &list, &one, &broken)) TRY(dpf_words(c, &one, DPF_PREFIX_KEY_MAX_BYTES));
    return broken;
}

/* One port's memory in a prefix section. */
static rule check_memory(check *c, const field *f) {
    enum { DTYPE, DIMS, OFFSET, SIZE, COUNT, ALIGN = 64 };
    static const char *const NAMES[COUNT] = {"dtype", "dims", "offset", "size"};
    field g[COUNT];
    uint32_t dims[DPF_TENSOR_MAX_RANK], rank, dtype;
    uint64_t offset, size;
    TRY(dpf_fields(c, f, NAMES, COUNT, g));
    TRY(dpf_words(c, &g[DTYPE], DPF_NAME_MAX_BYTES));
    TRY(check_stored_dtype(c, &g[DTYPE], false, &dtype));
    TRY(dpf_sizes(c, &g[DIMS], &rank, dims));
    TRY(dpf_integer(c, &g[OFFSET], 0, DPF_PACKAGE_MAX_BYTES, &offset));
    TRY(dpf_integer(c, &g[SIZE], 0, DPF_PACKAGE_MAX_BYTES, &size));
    uint64_t wanted = dpf_tensor_bytes(dtype, rank, dims);
    if (size != wanted) return dpf_refuse(c, DPF_PACKAGE_VALUES_SIZE, &g[SIZE], size, wanted);
    return offset % ALIGN == 0 ? DPF_PACKAGE_OK : dpf_refuse(c, DPF_PACKAGE_VALUES_ALIGN, &g[OFFSET], offset, ALIGN);
}

rule dpf_check_prefix(check *c, const field *prefix) {
    enum { TOKENS, MEMORY, SECTION, KEY, COUNT };
    static const char *const NAMES[COUNT] = {"tokens", "memory", "section", "key"};
    series tokens, memory, list;
    field f[COUNT], one;
    uint64_t number;
    rule broken;
    if (dpf_absent(c->package, prefix)) return DPF_PACKAGE_OK;
    TRY(dpf_fields(c, prefix, NAMES, COUNT, f));
    TRY(dpf_items(c, &f[TOKENS], DPF_PREFIX_TOKENS_MAX, &tokens));
    uint32_t count = tokens.left;
    while (dpf_next_item(c, &tokens, &one)) TRY(dpf_integer(c, &one, 0, DPF_TOKEN_MAX, &number));
    if (count == 0) return dpf_refuse(c, DPF_PACKAGE_PREFIX_EMPTY, &f[TOKENS], 0, 0);
    TRY(dpf_entries(c, &f[MEMORY], DPF_PORTS_MAX, &memory));
    for (list = memory; dpf_next_entry(c, &list, &one, &broken);) continue;
    TRY(broken);
    if (memory.left == 0) return dpf_refuse(c, DPF_PACKAGE_PREFIX_EMPTY, &f[MEMORY], 0, 0);
    TRY(dpf_named(c, &f[SECTION]));
    TRY(check_text_map(c, &f[KEY]));
    while (dpf_next_entry(c, &memory, &one, &broken)) TRY(check_memory(c, &one));
    return broken;
}

static rule check_built(check *c, const field *built) {
    static const char *const NAMES[] = {"model", "graph", "name", "section"};
    series list;
    field one, f[4];
    TRY(dpf_items(c, built, DPF_SECTIONS_MAX, &list));
    while (dpf_next_item(c, &list, &one)) {
        TRY(dpf_fields(c, &one, NAMES, 4, f));
        for (uint32_t i = 0; i < 4; i++) TRY(dpf_named(c, &f[i]));
    }
    return DPF_PACKAGE_OK;
}

static rule check_prefixes(check *c, const field *prefixes) {
    series list;
    field prefix;
    rule broken;
    TRY(dpf_entries(c, prefixes, DPF_MANIFEST_MAX_ITEMS, &list));
    while (dpf_next_entry(c, &list, &prefix, &broken)) {
        if (dpf_absent(c->package, &prefix)) return dpf_refuse(c, DPF_PACKAGE_TYPE, &prefix, 0, 0);
        TRY(dpf_check_prefix(c, &prefix));
    }
    return broken;
}

rule dpf_check_seal(check *c, const field *seal) {
    enum { PACKAGE, TARGET, BACKEND, DEVICE, DRIVER, LIBRARIES, BUILT, PREFIXES, COUNT };
    static const char *const NAMES[COUNT] = {"package", "target", "backend", "device",
                                             "driver", "libraries", "built", "prefixes"};
    field f[COUNT];
    if (dpf_absent(c->package, seal)) return DPF_PACKAGE_OK;
    TRY(dpf_fields(c, seal, NAMES, COUNT, f));
    TRY(dpf_digest(c, &f[PACKAGE], DPF_SHA256_BYTES));
    TRY(dpf_named(c, &f[TARGET]));
    TRY(dpf_named(c, &f[BACKEND]));
    TRY(check_text_map(c, &f[DEVICE]));
    TRY(dpf_words(c, &f[DRIVER], DPF_PREFIX_KEY_MAX_BYTES));
    TRY(check_text_map(c, &f[LIBRARIES]));
    TRY(check_built(c, &f[BUILT]));
    return check_prefixes(c, &f[PREFIXES]);
}
