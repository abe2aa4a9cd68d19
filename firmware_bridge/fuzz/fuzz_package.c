/* SPDX-License-Identifier: Apache-2.0
 *
 * One input for the package reader, for libFuzzer and for replays. The first byte says what the rest is:
 *   0       a whole file
 *   1       a whole file whose lengths and digests are put right first, so that what is behind them is reached
 *   2 + n   a manifest behind n sections of which the last is short, or wherever its sections end; the header is made
 * A reader that accepts must give values that FORMAT.md allows; one that refuses must say why.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpf/package.h"

#define CHECK(condition)                                                            \
    do {                                                                           \
        if (!(condition)) {                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                               \
        }                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static dpf_package package;

static void put(unsigned char *at, uint64_t value, unsigned count) {
    for (unsigned i = 0; i < count; i++) at[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get(const unsigned char *at) {
    uint64_t value = 0;
    for (unsigned i = 8; i-- > 0;) value = value << 8 | at[i];
    return value;
}

static void digest_of(const void *bytes, uint64_t nbytes, unsigned char digest[DPF_SHA256_BYTES]) {
    dpf_sha256 sha256;
    dpf_sha256_begin(&sha256);
    dpf_sha256_add(&sha256, bytes, nbytes);
    dpf_sha256_end(&sha256, digest);
}

static void repair(unsigned char *file, uint64_t nbytes) {
    if (nbytes < DPF_PACKAGE_HEADER_BYTES) return;
    uint64_t offset = get(file + 24), size = get(file + 32);
    memcpy(file, "\x89" "DPF\r\n\x1a\n\x01\0\0\0\x80\0\0", 16);
    put(file + 16, nbytes, 8);
    memset(file + 88, 0, 32);
    if (offset <= nbytes && size <= nbytes - offset) digest_of(file + offset, size, file + 56);
    put(file + 120, dpf_xxh3_64(file, 120), 8);
}

static void check_text(dpf_text text) {
    static volatile char seen;
    for (uint32_t i = 0; i < text.nbytes; i++) seen = text.bytes[i];
    (void)seen;
}

static void check_section(const dpf_section *section) {
    dpf_section found;
    CHECK(section->name.nbytes >= 1 && section->name.nbytes <= DPF_NAME_MAX_BYTES);
    CHECK(section->offset % DPF_PACKAGE_ALIGN == 0);
    CHECK(section->offset >= package.header.header_bytes);
    CHECK(section->offset + section->size <= package.header.manifest_offset);
    CHECK(dpf_package_find(&package, section->name.bytes, section->name.nbytes, &found));
    CHECK(found.index == section->index);
    check_text(section->kind);
    check_text((dpf_text){(const char *)section->xxh3, DPF_XXH3_BYTES});
    check_text((dpf_text){(const char *)section->sha256, DPF_SHA256_BYTES});
}

static void check_port(const dpf_port *port) {
    CHECK(port->rank <= DPF_TENSOR_MAX_RANK && port->dtype < 14);
    check_text(port->name);
    for (uint32_t i = 0; i < port->rank; i++) {
        CHECK(port->dim[i] <= DPF_TENSOR_MAX_DIM);
        check_text(port->dynamic[i]);
    }
}

static void read_graph(const dpf_graph *graph) {
    dpf_section section;
    dpf_port port;
    CHECK(graph->inputs <= DPF_PORTS_MAX && graph->outputs <= DPF_PORTS_MAX && graph->weights <= DPF_SECTIONS_MAX);
    check_text(graph->model);
    check_text(graph->name);
    check_section(&graph->section);
    for (uint32_t i = 0; i < graph->inputs && i < 8; i++) {
        CHECK(dpf_package_input(&package, graph, i, &port));
        check_port(&port);
    }
    for (uint32_t i = 0; i < graph->outputs && i < 8; i++) {
        CHECK(dpf_package_output(&package, graph, i, &port));
        check_port(&port);
    }
    for (uint32_t i = 0; i < graph->weights && i < 8; i++) {
        CHECK(dpf_package_weight(&package, graph, i, &section));
        check_section(&section);
    }
    CHECK(!dpf_package_input(&package, graph, graph->inputs, &port));
}

static void read_all(void) {
    dpf_section section;
    dpf_target target;
    dpf_graph graph;
    uint64_t end = 0;
    check_text(dpf_package_name(&package));
    check_text(dpf_package_version(&package));
    for (uint32_t i = 0; dpf_package_section(&package, i, &section); i++) {
        CHECK(section.offset >= end);
        end = section.offset + section.size;
        check_section(&section);
    }
    for (uint32_t i = 0; dpf_package_target(&package, i, &target); i++) {
        dpf_graph_cursor cursor = {0};
        CHECK(target.backend_abi >= 1 && target.backend_abi <= 65535 && target.memory_bytes <= DPF_MEMORY_MAX_BYTES);
        check_text(target.id);
        while (dpf_package_next_graph(&package, &target, &cursor, &graph)) read_graph(&graph);
        CHECK(cursor.models_left == 0 && cursor.graphs_left == 0);
    }
    (void)dpf_package_asset(&package, (dpf_text){"llm", 3}, (dpf_text){"tokenizer.json", 14}, &section);
}

static void explain(const dpf_package_refusal *why, dpf_package_rule rule) {
    char text[64];
    CHECK(why->rule == rule && dpf_package_rule_text(rule)[0] != 0);
    uint64_t length = dpf_package_where(&package, why, text, sizeof text);
    CHECK(length > 0 && strlen(text) == (length < sizeof text ? length : sizeof text - 1));
}

static void try_file(const unsigned char *file, uint64_t nbytes) {
    dpf_package_refusal why;
    dpf_package_rule rule = dpf_package_open(file, nbytes, &package, &why);
    if (rule == DPF_PACKAGE_OK) {
        read_all();
        rule = dpf_package_check(&package, file, &why);
    }
    if (rule != DPF_PACKAGE_OK) explain(&why, rule);
}

static void try_manifest(const unsigned char *manifest, uint64_t nbytes, uint64_t sections) {
    dpf_package_header header = {.header_bytes = DPF_PACKAGE_HEADER_BYTES, .major = 1, .manifest_bytes = nbytes};
    dpf_package_refusal why;
    header.manifest_offset = sections == 0 ? 128 : sections * DPF_PACKAGE_ALIGN + DPF_PACKAGE_TAIL_ALIGN;
    digest_of(manifest, nbytes, header.manifest_sha256);
    dpf_package_rule rule = dpf_package_read_manifest(&header, manifest, &package, &why);
    if (rule == DPF_PACKAGE_SECTION_END) {
        header.manifest_offset = DPF_PACKAGE_MAX_BYTES / 2;
        rule = dpf_package_read_manifest(&header, manifest, &package, &why);
    }
    if (rule == DPF_PACKAGE_MANIFEST_PLACE) { /* now the place is known where the sections end */
        header.manifest_offset = why.allowed;
        rule = dpf_package_read_manifest(&header, manifest, &package, &why);
    }
    if (rule == DPF_PACKAGE_OK) read_all();
    else explain(&why, rule);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
    if (nbytes < 2) return 0;
    size_t size = nbytes - 1;
    unsigned char *copy = malloc(size); /* of its own, so that a sanitizer sees every step outside it */
    CHECK(copy != NULL);
    memcpy(copy, data + 1, size);
    if (data[0] == 1) repair(copy, size);
    if (data[0] <= 1) try_file(copy, size);
    else try_manifest(copy, size, data[0] - 2u);
    free(copy);
    return 0;
}
