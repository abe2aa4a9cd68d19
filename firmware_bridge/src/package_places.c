/* SPDX-License-Identifier: Apache-2.0
 *
 * What needs more than one field of a manifest: places of sections in the file, names that lead to sections and models.
 */
#include "package_parts.h"

static uint64_t align_up(uint64_t offset, uint64_t to) {
    return (offset + to - 1) / to * to;
}

static uint32_t index_of(const dpf_package *package, uint32_t name) {
    uint32_t low = 0, high = package->section_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (package->sections[middle] <= name) low = middle;
        else high = middle;
    }
    return low;
}

uint32_t dpf_section_index(const dpf_package *package, dpf_text name) {
    uint32_t place = dpf_search(package, package->section_names, package->section_count, name);
    return place == package->section_count ? place : index_of(package, package->section_names[place]);
}

/* Index of the first section that repeats the name of an earlier one, or section_count. */
static uint32_t first_repeated(const dpf_package *package) {
    const uint32_t *names = package->section_names;
    uint32_t first = package->section_count;
    for (uint32_t i = 1; i < package->section_count; i++) {
        if (!dpf_same(dpf_text_at(package, names[i - 1]), dpf_text_at(package, names[i]))) continue;
        uint32_t index = index_of(package, names[i]);
        if (index < first) first = index;
    }
    return first;
}

static rule check_place(check *c, uint32_t index, uint64_t *end) {
    static const char *const NAMES[] = {"offset", "size"};
    field section = {.name = "sections", .at = c->package->sections[index]}, f[2];
    uint64_t offset, size, last = c->package->header.manifest_offset;
    TRY(dpf_fields(c, &section, NAMES, 2, f));
    TRY(dpf_integer(c, &f[0], 0, DPF_PACKAGE_MAX_BYTES, &offset));
    TRY(dpf_integer(c, &f[1], 0, DPF_PACKAGE_MAX_BYTES, &size));
    if (offset % DPF_PACKAGE_ALIGN != 0) {
        return dpf_refuse(c, DPF_PACKAGE_SECTION_ALIGN, &f[0], offset, DPF_PACKAGE_ALIGN);
    }
    if (offset < *end) return dpf_refuse(c, DPF_PACKAGE_SECTION_OVERLAP, &f[0], offset, *end);
    *end = offset + size;
    return *end > last ? dpf_refuse(c, DPF_PACKAGE_SECTION_END, &f[1], *end, last) : DPF_PACKAGE_OK;
}

rule dpf_check_places(check *c) {
    dpf_package *package = c->package;
    dpf_sort_texts(package, package->section_names, package->section_count);
    uint32_t repeated = first_repeated(package);
    uint64_t end = align_up(package->header.header_bytes, DPF_PACKAGE_ALIGN);
    for (uint32_t i = 0; i < package->section_count; i++) {
        const field section = {.name = "sections", .at = package->sections[i]};
        if (i == repeated) return dpf_refuse(c, DPF_PACKAGE_SECTION_TWICE, &section, 0, 0);
        TRY(check_place(c, i, &end));
    }
    if (package->section_count == 0) end = package->header.header_bytes;
    end = align_up(end, DPF_PACKAGE_TAIL_ALIGN);
    if (package->header.manifest_offset == end) return DPF_PACKAGE_OK;
    *c->why = (dpf_package_refusal){.rule = DPF_PACKAGE_MANIFEST_PLACE, .byte = 24, .allowed = end,
                                    .found = package->header.manifest_offset};
    return DPF_PACKAGE_MANIFEST_PLACE;
}

/* The field names a section of the kind. */
static rule refers(check *c, const field *f, const char *kind) {
    static const char *const NAMES[] = {"kind"};
    uint32_t found = 0, index = c->package->section_count;
    if (f->at != 0 && dpf_cbor_item(c->package, f->at).kind == TEXT) {
        index = dpf_section_index(c->package, dpf_text_at(c->package, f->at));
    }
    if (index < c->package->section_count) dpf_find(c->package, c->package->sections[index], NAMES, 1, &found);
    bool right = found != 0 && dpf_is(dpf_text_at(c->package, found), kind);
    return right ? DPF_PACKAGE_OK : dpf_refuse(c, DPF_PACKAGE_REFERENCE, f, 0, 0);
}

static rule model_refers(check *c, uint32_t model) {
    static const char *const NAMES[] = {"assets"};
    field value = {.name = "models", .at = dpf_cbor_skip(c->package, model)}, assets, asset;
    series list;
    rule broken;
    TRY(dpf_fields(c, &value, NAMES, 1, &assets));
    TRY(dpf_entries(c, &assets, DPF_MANIFEST_MAX_ITEMS, &list));
    while (dpf_next_entry(c, &list, &asset, &broken)) TRY(refers(c, &asset, "asset"));
    return broken;
}

static rule graph_refers(check *c, const field *graph) {
    static const char *const NAMES[] = {"section", "weights"};
    field f[2], weight;
    series list;
    TRY(dpf_fields(c, graph, NAMES, 2, f));
    TRY(refers(c, &f[0], "graph"));
    TRY(dpf_items(c, &f[1], DPF_SECTIONS_MAX, &list));
    while (dpf_next_item(c, &list, &weight)) TRY(refers(c, &weight, "weights"));
    return DPF_PACKAGE_OK;
}

static rule prefix_refers(check *c, const field *prefix) {
    static const char *const SECTION[] = {"section"};
    field section;
    TRY(dpf_fields(c, prefix, SECTION, 1, &section));
    return refers(c, &section, "prefix");
}

/* The memory of a prefix lies inside its section. */
static rule prefix_inside(check *c, const field *prefix) {
    static const char *const PARTS[] = {"memory", "section"};
    field f[2];
    TRY(dpf_fields(c, prefix, PARTS, 2, f));
    return dpf_check_inside(c, &f[0], &f[1]);
}

static rule target_refers(check *c, uint32_t target) {
    static const char *const MODELS[] = {"models"}, *const PARTS[] = {"graphs", "prefix"};
    field value = {.name = "targets", .at = target}, models, model, parts[2], graph;
    series list, inner;
    rule broken;
    TRY(dpf_fields(c, &value, MODELS, 1, &models));
    TRY(dpf_entries(c, &models, DPF_MANIFEST_MAX_ITEMS, &list));
    while (dpf_next_entry(c, &list, &model, &broken)) {
        TRY(dpf_fields(c, &model, PARTS, 2, parts));
        TRY(dpf_entries(c, &parts[0], DPF_GRAPHS_MAX, &inner));
        while (dpf_next_entry(c, &inner, &graph, &broken)) TRY(graph_refers(c, &graph));
        TRY(broken);
        if (!dpf_absent(c->package, &parts[1])) TRY(prefix_refers(c, &parts[1]));
    }
    return broken;
}

/* `section` of each record of an array that has the field `condition`. */
static rule records_refer(check *c, const field *records, const char *condition, const char *kind) {
    const char *const names[] = {condition}, *const section[] = {"section"};
    field record, f, g;
    series list;
    TRY(dpf_items(c, records, DPF_MANIFEST_MAX_ITEMS, &list));
    while (dpf_next_item(c, &list, &record)) {
        TRY(dpf_fields(c, &record, names, 1, &f));
        TRY(dpf_fields(c, &record, section, 1, &g));
        if (!dpf_absent(c->package, &f)) TRY(refers(c, &g, kind));
    }
    return DPF_PACKAGE_OK;
}

/* Models of a target are models of the package; their prefixes lie inside their sections. */
static rule models_known(check *c, uint32_t target) {
    static const char *const NAMES[] = {"models"}, *const PREFIX[] = {"prefix"};
    field value = {.name = "targets", .at = target}, models, model, prefix;
    series list;
    rule broken;
    TRY(dpf_fields(c, &value, NAMES, 1, &models));
    TRY(dpf_entries(c, &models, DPF_MANIFEST_MAX_ITEMS, &list));
    for (uint32_t key = list.at; dpf_next_entry(c, &list, &model, &broken); key = list.at) {
        uint32_t count = c->package->model_count;
        bool known = dpf_search(c->package, c->package->models, count, dpf_text_at(c->package, key)) < count;
        if (!known) return dpf_refuse(c, DPF_PACKAGE_MODEL_UNKNOWN, &models, 0, 0);
        TRY(dpf_fields(c, &model, PREFIX, 1, &prefix));
        if (!dpf_absent(c->package, &prefix)) TRY(prefix_inside(c, &prefix));
    }
    return broken;
}

/* Places of the targets' ids, and the first one that repeats an earlier target's, or target_count. */
static uint32_t find_ids(dpf_package *package, uint32_t ids[DPF_TARGETS_MAX]) {
    static const char *const NAMES[] = {"id"};
    uint32_t first = package->target_count, *sorted = package->scratch;
    for (uint32_t i = 0; i < package->target_count; i++) {
        dpf_find(package, package->targets[i], NAMES, 1, &ids[i]);
        sorted[i] = ids[i];
    }
    dpf_sort_texts(package, sorted, package->target_count);
    for (uint32_t i = 1; i < package->target_count; i++) {
        if (!dpf_same(dpf_text_at(package, sorted[i - 1]), dpf_text_at(package, sorted[i]))) continue;
        for (uint32_t k = 0; k < first; k++) {
            if (ids[k] == sorted[i]) first = k;
        }
    }
    return first;
}

static rule seal_refers(check *c, const field *seal) {
    static const char *const PARTS[] = {"built", "prefixes"}, *const SECTION[] = {"section"};
    field f[2], one, section;
    series list;
    rule broken;
    if (dpf_absent(c->package, seal)) return DPF_PACKAGE_OK;
    TRY(dpf_fields(c, seal, PARTS, 2, f));
    TRY(dpf_items(c, &f[0], DPF_SECTIONS_MAX, &list));
    while (dpf_next_item(c, &list, &one)) {
        TRY(dpf_fields(c, &one, SECTION, 1, &section));
        TRY(refers(c, &section, "sealed"));
    }
    TRY(dpf_entries(c, &f[1], DPF_MANIFEST_MAX_ITEMS, &list));
    while (dpf_next_entry(c, &list, &one, &broken)) TRY(prefix_refers(c, &one));
    return broken;
}

static rule seal_inside(check *c, const field *seal) {
    static const char *const PREFIXES[] = {"prefixes"};
    field prefixes, one;
    series list;
    rule broken;
    if (dpf_absent(c->package, seal)) return DPF_PACKAGE_OK;
    TRY(dpf_fields(c, seal, PREFIXES, 1, &prefixes));
    TRY(dpf_entries(c, &prefixes, DPF_MANIFEST_MAX_ITEMS, &list));
    while (dpf_next_entry(c, &list, &one, &broken)) TRY(prefix_inside(c, &one));
    return broken;
}

rule dpf_check_references(check *c) {
    static const char *const NAMES[] = {"licences", "golden", "seal"};
    const field root = {.name = NULL};
    uint32_t ids[DPF_TARGETS_MAX];
    field f[3];
    for (uint32_t i = 0; i < c->package->model_count; i++) TRY(model_refers(c, c->package->models[i]));
    for (uint32_t i = 0; i < c->package->target_count; i++) TRY(target_refers(c, c->package->targets[i]));
    TRY(dpf_fields(c, &root, NAMES, 3, f));
    TRY(seal_refers(c, &f[2]));
    TRY(records_refer(c, &f[0], "section", "licence"));
    TRY(records_refer(c, &f[1], "graph", "golden"));
    uint32_t repeated = find_ids(c->package, ids);
    for (uint32_t i = 0; i < c->package->target_count; i++) {
        const field id = {.name = "id", .at = ids[i]};
        if (i == repeated) return dpf_refuse(c, DPF_PACKAGE_TARGET_TWICE, &id, 0, 0);
        TRY(models_known(c, c->package->targets[i]));
    }
    return seal_inside(c, &f[2]);
}
