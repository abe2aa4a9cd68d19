/* SPDX-License-Identifier: Apache-2.0
 *
 * The package reader: digests against published values, the golden files, and each thing it must refuse by name.
 * It is also the example: read_tiny shows how a firmware finds what it needs. Argument: the folder of the golden files.
 */
#include <inttypes.h>
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

static dpf_package package;

static unsigned char *read_file(const char *folder, const char *name, uint64_t *nbytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    CHECK(fseek(file, 0, SEEK_END) == 0);
    *nbytes = (uint64_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*nbytes);
    CHECK(bytes != NULL && fread(bytes, 1, *nbytes, file) == *nbytes);
    fclose(file);
    return bytes;
}

static void sha256_of(const void *bytes, uint64_t nbytes, unsigned char digest[DPF_SHA256_BYTES]) {
    dpf_sha256 sha256;
    dpf_sha256_begin(&sha256);
    dpf_sha256_add(&sha256, bytes, nbytes);
    dpf_sha256_end(&sha256, digest);
}

static void check_hex(const unsigned char *digest, uint32_t nbytes, const char *wanted) {
    char text[65];
    for (uint32_t i = 0; i < nbytes; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
    CHECK(strcmp(text, wanted) == 0);
}

/* FIPS 180-4 and NIST's example values. */
static void test_sha256(void) {
    static const struct {
        const char *text, *digest;
    } KNOWN[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
         "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    unsigned char digest[DPF_SHA256_BYTES];
    dpf_sha256 sha256;
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        sha256_of(KNOWN[i].text, strlen(KNOWN[i].text), digest);
        check_hex(digest, DPF_SHA256_BYTES, KNOWN[i].digest);
    }
    dpf_sha256_begin(&sha256);
    for (uint32_t left = 1000000, step = 1; left != 0; left -= step) { /* a million `a` in uneven pieces */
        static char many[4096];
        memset(many, 'a', sizeof many);
        step = (step * 7 + 3) % sizeof many;
        if (step > left) step = left;
        dpf_sha256_add(&sha256, many, step);
    }
    dpf_sha256_end(&sha256, digest);
    check_hex(digest, DPF_SHA256_BYTES, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* With instructions, alone and side by side, as without: lengths around every edge of a block, added in two pieces. */
static void test_sha256_lanes(void) {
    static unsigned char bytes[2][1024];
    for (uint32_t i = 0; i < sizeof bytes; i++) bytes[i / 1024][i % 1024] = (unsigned char)(i * 167 + i / 251);
    if (!dpf_sha256_has_lanes()) return;
    for (uint32_t nbytes = 0; nbytes <= 300; nbytes++) {
        for (uint32_t first = 0; first <= nbytes; first += nbytes < 64 ? 1 : 63) {
            unsigned char wanted[DPF_SHA256_BYTES], found[DPF_SHA256_BYTES];
            dpf_sha256 sha256;
            sha256_of(bytes[0], nbytes, wanted);
            dpf_sha256_begin(&sha256);
            dpf_sha256_add_lane(&sha256, bytes[0], first);
            dpf_sha256_add_lane(&sha256, bytes[0] + first, nbytes - first);
            dpf_sha256_end(&sha256, found);
            CHECK(memcmp(wanted, found, sizeof wanted) == 0);
        }
    }
    for (uint32_t nbytes = 0; nbytes + 64 <= 1024; nbytes++) {
        dpf_sha256 lane[2];
        for (uint32_t i = 0; i < 2; i++) {
            dpf_sha256_begin(&lane[i]);
            dpf_sha256_add_lane(&lane[i], bytes[i], 64 * i);
        }
        bool added = dpf_sha256_add_lanes(&lane[0], bytes[0], &lane[1], bytes[1] + 64, nbytes);
        CHECK(added == (nbytes % 64 == 0));
        for (uint32_t i = 0; added && i < 2; i++) {
            unsigned char wanted[DPF_SHA256_BYTES], found[DPF_SHA256_BYTES];
            sha256_of(bytes[i], 64 * i + nbytes, wanted);
            dpf_sha256_end(&lane[i], found);
            CHECK(memcmp(wanted, found, sizeof wanted) == 0);
        }
    }
    dpf_sha256 odd, even;
    dpf_sha256_begin(&odd);
    dpf_sha256_begin(&even);
    dpf_sha256_add_lane(&odd, bytes[0], 1);
    CHECK(!dpf_sha256_add_lanes(&odd, bytes[0], &even, bytes[1], 64) && odd.nbytes == 1 && even.nbytes == 0);
    CHECK(!dpf_sha256_add_lanes(&even, bytes[1], &odd, bytes[0], 64) && odd.nbytes == 1 && even.nbytes == 0);
}

/* Made with the reference implementation over bytes i * 167 + 13; every recipe at both of its ends. */
static void test_xxh3(void) {
    static const struct {
        uint64_t nbytes, hash, high, low;
    } KNOWN[] = {
        {0, 0x2d06800538d394c2, 0x99aa06d3014798d8, 0x6001c324468d497f},
        {1, 0x8a21d78b1538b1c0, 0x79d2c79e874f72cd, 0x8a21d78b1538b1c0},
        {3, 0x5f1fa6d2a3aa5a3b, 0x27056158676515d7, 0x5f1fa6d2a3aa5a3b},
        {4, 0xa8a9b82c81542a43, 0x18bec2df875b7d35, 0xcb8c01d87ee4bb85},
        {8, 0x67b8f67a80d308a6, 0x5ee08611acaf8270, 0x9987b0f6a787fcff},
        {9, 0x7df166798fe37670, 0xd7b1b30e3925aea8, 0xd5d74fb50dabf9a3},
        {16, 0xc0967fee676a5837, 0xaefc4c7b6b2355e8, 0xff22986fb4aba31b},
        {17, 0xbc307578d06e9d93, 0xf600c8a98b27cda2, 0x0dfdb8ed0de7262a},
        {32, 0xffdae7523dd0daec, 0x29f5d000b9c3a663, 0x587150f0fa952681},
        {33, 0x27b514591ef37d2d, 0x76d2a9372bd473ac, 0x90c6e66db31d5277},
        {128, 0xa45617bfe9bb88d6, 0x9b0e839b5061f424, 0x572dd69bd15cdb73},
        {129, 0x4ca31f6b2cfd9a3e, 0x485b2b823d90afa9, 0x5a753049f4b49d33},
        {160, 0x2fb4144dd1b5a99e, 0xb797836b62bae597, 0x2594c96fb22e2625},
        {240, 0x2817ed3cdf9547e7, 0x5d572fc255e19c13, 0xdfd310866e8ad632},
        {241, 0x02f838dd48200ee8, 0x7fb50ebce4e01178, 0x02f838dd48200ee8},
        {256, 0xc67d143ec3572269, 0x1a9ea0bf440f5eb2, 0xc67d143ec3572269},
        {1024, 0x4ecde09865c37511, 0x5d7a8fdab30b2c4f, 0x4ecde09865c37511},
        {1025, 0xa08b2694bf52957e, 0xd7c0800f443749bc, 0xa08b2694bf52957e},
        {1088, 0x523d9597bdae5bc1, 0x912653086c4c1951, 0x523d9597bdae5bc1},
        {1089, 0xd0512606aeb0d288, 0x3a735a133e228d41, 0xd0512606aeb0d288},
        {2048, 0x1d0f40a0ff717f3e, 0x9e56666710a26bd8, 0x1d0f40a0ff717f3e},
        {2049, 0xf24d7378a4afeffc, 0x21fa55ef02999041, 0xf24d7378a4afeffc},
        {3000, 0x3f23088320dc2a15, 0xf2403ef7d5479c30, 0x3f23088320dc2a15},
    };
    unsigned char bytes[3000], digest[DPF_XXH3_BYTES];
    char wanted[33];
    for (uint32_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 167 + 13);
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        CHECK(dpf_xxh3_64(bytes, KNOWN[i].nbytes) == KNOWN[i].hash);
        dpf_xxh3_128(bytes, KNOWN[i].nbytes, digest);
        snprintf(wanted, sizeof wanted, "%016" PRIx64 "%016" PRIx64, KNOWN[i].high, KNOWN[i].low);
        check_hex(digest, DPF_XXH3_BYTES, wanted);
    }
}

static dpf_text text(const char *word) {
    return (dpf_text){word, (uint32_t)strlen(word)};
}

static bool is(dpf_text found, const char *wanted) {
    return found.nbytes == strlen(wanted) && memcmp(found.bytes, wanted, found.nbytes) == 0;
}

/* From a name to the bytes a firmware would run. */
static void read_tiny(const unsigned char *file, uint64_t nbytes) {
    dpf_package_refusal why;
    dpf_section section;
    dpf_target target;
    dpf_graph graph;
    dpf_graph_cursor cursor = {0};
    dpf_port port;
    CHECK(dpf_package_open(file, nbytes, &package, &why) == DPF_PACKAGE_OK);
    CHECK(is(dpf_package_name(&package), "tiny") && is(dpf_package_version(&package), "1.0.0"));
    CHECK(dpf_package_find(&package, "licence/tiny-llm", 16, &section) && !section.critical && section.index == 3);
    CHECK(!dpf_package_find(&package, "licence/tiny", 12, &section) && !dpf_package_section(&package, 4, &section));
    CHECK(dpf_package_asset(&package, text("tiny-llm"), text("tokenizer.json"), &section) && is(section.kind, "asset"));
    CHECK(memcmp(file + section.offset, "{\"version\": \"1.0\"}", section.size) == 0);
    CHECK(dpf_package_check_section(&section, file + section.offset, &why) == DPF_PACKAGE_OK);
    CHECK(!dpf_package_asset(&package, text("tiny-llm"), text("template"), &section));
    CHECK(dpf_package_target(&package, 0, &target) && !dpf_package_target(&package, 1, &target));
    CHECK(is(target.id, "cpu.x86-64-v3") && is(target.backend, "cpu") && target.backend_abi == 1);
    CHECK(target.memory_bytes == 1 << 20);
    CHECK(dpf_package_next_graph(&package, &target, &cursor, &graph));
    CHECK(is(graph.model, "tiny-llm") && is(graph.name, "step") && is(graph.section.name, "graph/tiny-llm/step"));
    CHECK(graph.inputs == 1 && graph.outputs == 1 && graph.weights == 1);
    CHECK(dpf_package_input(&package, &graph, 0, &port) && is(port.name, "input_ids") && port.rank == 2);
    CHECK(port.dtype == 11 && port.dim[0] == 1 && is(port.dynamic[1], "tokens"));
    CHECK(dpf_package_output(&package, &graph, 0, &port) && port.rank == 3 && port.dim[2] == 32);
    CHECK(!dpf_package_output(&package, &graph, 1, &port));
    CHECK(dpf_package_weight(&package, &graph, 0, &section) && section.size == 8896);
    CHECK(file[section.offset + 6] == 6);
    CHECK(!dpf_package_next_graph(&package, &target, &cursor, &graph));
    CHECK(dpf_package_check(&package, file, &why) == DPF_PACKAGE_OK);
}

/* A signed package is read like any other: only the place of its signature area is looked at. */
static void test_signed(unsigned char *file, uint64_t nbytes) {
    dpf_package_refusal why;
    CHECK(dpf_package_open(file, nbytes, &package, &why) == DPF_PACKAGE_OK);
    CHECK(dpf_package_check(&package, file, &why) == DPF_PACKAGE_OK);
    CHECK(package.header.signature_bytes > 91 && file[package.header.signature_offset] > 0x80);
    file[nbytes - 1] ^= 1;
    CHECK(dpf_package_open(file, nbytes, &package, &why) == DPF_PACKAGE_OK);
    CHECK(dpf_package_open(file, nbytes - 1, &package, &why) == DPF_PACKAGE_FILE_CUT);
}

/* A copy that ends where the file ends, so that a sanitizer sees a step behind it. */
static dpf_package_rule open_copy(const unsigned char *file, uint64_t nbytes, dpf_package_refusal *why) {
    unsigned char *copy = malloc(nbytes == 0 ? 1 : nbytes);
    CHECK(copy != NULL);
    memcpy(copy, file, nbytes);
    dpf_package_rule rule = dpf_package_open(copy, nbytes, &package, why);
    CHECK(rule == DPF_PACKAGE_OK || (why->rule == rule && dpf_package_rule_text(rule)[0] != 0));
    free(copy);
    return rule;
}

static void test_cut(const unsigned char *file, uint64_t nbytes) {
    dpf_package_refusal why;
    for (uint64_t size = 0; size < nbytes; size += size < 256 || size + 256 > nbytes ? 1 : 3001) {
        dpf_package_rule rule = open_copy(file, size, &why);
        CHECK(rule == (size < 128 ? DPF_PACKAGE_CUT_HEADER : DPF_PACKAGE_FILE_CUT));
        CHECK(why.found == size);
    }
}

static void test_flip(unsigned char *file, uint64_t nbytes) {
    dpf_package_refusal why;
    CHECK(dpf_package_open(file, nbytes, &package, &why) == DPF_PACKAGE_OK);
    uint64_t start = package.header.manifest_offset, end = start + package.header.manifest_bytes;
    for (uint64_t at = 0; at < end; at = at == 127 ? start : at + 1) {
        for (int mask = 1; mask <= 255; mask = mask == 1 ? 0x20 : mask == 0x20 ? 0x80 : mask == 0x80 ? 0xFF : 256) {
            file[at] ^= (unsigned char)mask;
            dpf_package_rule rule = dpf_package_open(file, nbytes, &package, &why);
            CHECK(at < 128 ? rule >= DPF_PACKAGE_CUT_HEADER && rule <= DPF_PACKAGE_HEADER_HASH
                           : rule == DPF_PACKAGE_MANIFEST_DIGEST && why.byte == start);
            file[at] ^= (unsigned char)mask;
        }
    }
    CHECK(dpf_package_open(file, nbytes, &package, &why) == DPF_PACKAGE_OK);
    for (uint64_t at = 128; at < start; at += 997) {
        file[at] ^= 0x10;
        dpf_package_rule rule = dpf_package_check(&package, file, &why);
        CHECK(rule == DPF_PACKAGE_SECTION_XXH3 || (rule == DPF_PACKAGE_PADDING && why.byte == at));
        file[at] ^= 0x10;
    }
    CHECK(dpf_package_check(&package, file, &why) == DPF_PACKAGE_OK);
}

/* A manifest alone, with a header made to fit. */
static dpf_package_rule read_manifest(const void *bytes, uint64_t nbytes, uint64_t place, dpf_package_refusal *why) {
    dpf_package_header header = {.header_bytes = 128, .major = 1, .manifest_offset = place, .manifest_bytes = nbytes};
    unsigned char *copy = malloc(nbytes);
    CHECK(copy != NULL);
    memcpy(copy, bytes, nbytes);
    sha256_of(copy, nbytes, header.manifest_sha256);
    dpf_package_rule rule = dpf_package_read_manifest(&header, copy, &package, why);
    char where[256];
    CHECK(rule == DPF_PACKAGE_OK || dpf_package_where(&package, why, where, sizeof where) != 0);
    free(copy);
    return rule;
}

static void touch(dpf_text found) {
    static volatile char seen;
    for (uint32_t i = 0; i < found.nbytes; i++) seen = found.bytes[i];
    (void)seen;
}

/* Everything that can be asked of a package, whatever the answers. */
static void ask_all(const unsigned char *file) {
    dpf_package_refusal why;
    dpf_section section;
    dpf_target target;
    dpf_graph graph;
    dpf_port port;
    touch(dpf_package_name(&package));
    for (uint32_t i = 0; i < 5; i++) {
        if (dpf_package_section(&package, i, &section)) touch(section.name);
    }
    dpf_package_asset(&package, text("tiny-llm"), text("tokenizer.json"), &section);
    for (uint32_t i = 0; dpf_package_target(&package, i, &target); i++) {
        dpf_graph_cursor cursor = {0};
        while (dpf_package_next_graph(&package, &target, &cursor, &graph)) {
            for (uint32_t k = 0; k < 3; k++) {
                if (dpf_package_input(&package, &graph, k, &port)) touch(port.name);
                if (dpf_package_output(&package, &graph, k, &port)) touch(port.dynamic[0]);
                dpf_package_weight(&package, &graph, k, &section);
            }
        }
    }
    if (file != NULL) dpf_package_check(&package, file, &why);
}

/* A manifest that somebody writes over after it was accepted: nothing outside it is read, and everything ends. */
static void test_written_over(const unsigned char *file, uint64_t nbytes) {
    uint64_t dice = 88172645463325252u, place = 262208, size = 1314;
    unsigned char *manifest = malloc(size);
    dpf_package_refusal why;
    CHECK(manifest != NULL && place + size <= nbytes);
    CHECK(dpf_package_open(file, nbytes, &package, &why) == DPF_PACKAGE_OK);
    for (uint32_t round = 0; round < 20000; round++) {
        memcpy(manifest, file + place, size);
        package.manifest = manifest;
        for (uint32_t i = 0; i < 1 + round % 4; i++) {
            dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
            manifest[dice % size] = (unsigned char)(dice >> 32);
        }
        ask_all(round % 64 == 0 ? file : NULL);
    }
    free(manifest);
}

/* Encodings a manifest must not have; each is refused by its name, at its byte. */
static void test_encoding(void) {
    static const struct {
        const char *bytes;
        uint32_t nbytes, at;
        dpf_package_rule rule;
    } REFUSED[] = {
        {"\xa2\x61" "a\x00\x61" "a\x01", 7, 4, DPF_PACKAGE_KEY_TWICE},
        {"\xa2\x61" "b\x00\x61" "a\x01", 7, 4, DPF_PACKAGE_KEY_ORDER},
        {"\xa1\x01\x00", 3, 1, DPF_PACKAGE_KEY_TYPE},
        {"\x81\xf9\x7e\x00", 4, 1, DPF_PACKAGE_NOT_FINITE},
        {"\xfa\x7f\xc0\x00\x00", 5, 0, DPF_PACKAGE_NOT_FINITE},
        {"\xfb\x7f\xf8\x00\x00\x00\x00\x00\x00", 9, 0, DPF_PACKAGE_NOT_FINITE},
        {"\xf9\xfc\x00", 3, 0, DPF_PACKAGE_NOT_FINITE},
        {"\xfa\x3f\xc0\x00\x00", 5, 0, DPF_PACKAGE_NOT_SHORTEST},
        {"\xfb\x3f\xf8\x00\x00\x00\x00\x00\x00", 9, 0, DPF_PACKAGE_NOT_SHORTEST},
        {"\x18\x17", 2, 0, DPF_PACKAGE_NOT_SHORTEST},
        {"\x9f\xff", 2, 0, DPF_PACKAGE_INDEFINITE},
        {"\xbf\xff", 2, 0, DPF_PACKAGE_INDEFINITE},
        {"\x7f\x61" "a\xff", 4, 0, DPF_PACKAGE_INDEFINITE},
        {"\x81\xd8\x1c\x80", 4, 1, DPF_PACKAGE_TAG},     /* a value to be shared */
        {"\x82\x80\xd8\x1d\x00", 5, 2, DPF_PACKAGE_TAG}, /* a reference to it, which could be to itself */
        {"\xc2\x41\x01", 3, 0, DPF_PACKAGE_TAG},
        {"\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x00", 18, 16, DPF_PACKAGE_DEPTH},
        {"\x9b\x00\x00\xff\xff\xff\xff\xff\xff", 9, 0, DPF_PACKAGE_COUNT},
        {"\xbb\x80\x00\x00\x00\x00\x00\x00\x00", 9, 0, DPF_PACKAGE_COUNT},
        {"\x5b\x7f\xff\xff\xff\xff\xff\xff\xff\x00", 10, 0, DPF_PACKAGE_VALUE_CUT},
        {"\x1b\x80\x00\x00\x00\x00\x00\x00\x00", 9, 0, DPF_PACKAGE_INTEGER_WIDE},
        {"\x1c", 1, 0, DPF_PACKAGE_RESERVED},
        {"\xf7", 1, 0, DPF_PACKAGE_SIMPLE},
        {"\x62\xc3\x28", 3, 1, DPF_PACKAGE_UTF8},
        {"\x63\xed\xa0\x80", 4, 1, DPF_PACKAGE_UTF8},
        {"\x00\x00", 2, 1, DPF_PACKAGE_TRAILING},
        {"\x80", 1, 0, DPF_PACKAGE_TYPE},
    };
    dpf_package_refusal why;
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        CHECK(read_manifest(REFUSED[i].bytes, REFUSED[i].nbytes, 128, &why) == REFUSED[i].rule);
        CHECK(why.byte == 128 + REFUSED[i].at);
    }
}

static void test_items(void) {
    uint32_t nbytes = 5 + (1 << 20);
    unsigned char *many = calloc(nbytes, 1);
    dpf_package_refusal why;
    CHECK(many != NULL);
    memcpy(many, "\x9a\x00\x10\x00\x00", 5);
    CHECK(read_manifest(many, nbytes, 128, &why) == DPF_PACKAGE_ITEMS && why.found == (1 << 20) + 1);
    memcpy(many, "\x9a\x00\x0f\xff\xff", 5);
    CHECK(read_manifest(many, nbytes - 1, 128, &why) == DPF_PACKAGE_TYPE);
    free(many);
}

/* The manifest of tiny with one place changed. */
static void refuse_patched(const unsigned char *file, const char *from, const char *to, uint32_t nbytes, uint32_t which,
                           dpf_package_rule rule, const char *wanted) {
    dpf_package_refusal why;
    char where[256];
    uint64_t place = 262208, size = 1314;
    unsigned char *copy = malloc(size);
    CHECK(copy != NULL);
    memcpy(copy, file + place, size);
    unsigned char *at = copy;
    while (memcmp(at, from, nbytes) != 0 || which-- != 0) CHECK(++at + nbytes <= copy + size);
    memcpy(at, to, nbytes);
    dpf_package_header header = {.header_bytes = 128, .major = 1, .manifest_offset = place, .manifest_bytes = size};
    sha256_of(copy, size, header.manifest_sha256);
    CHECK(dpf_package_read_manifest(&header, copy, &package, &why) == rule);
    CHECK(dpf_package_where(&package, &why, where, sizeof where) == strlen(wanted) && strcmp(where, wanted) == 0);
    CHECK(dpf_package_where(&package, &why, where, 9) == strlen(wanted) && strncmp(where, wanted, 8) == 0 && !where[8]);
    free(copy);
}

static void test_fields(const unsigned char *file) {
    refuse_patched(file, "\x66offset\x1a\x00\x02\x00\x00", "\x66offset\x1a\x00\x01\x00\x00", 12, 0,
                   DPF_PACKAGE_SECTION_OVERLAP, "manifest.sections[1].offset");
    refuse_patched(file, "\x66offset\x1a\x00\x03\x00\x00", "\x66offset\x1a\x00\x03\x00\x01", 12, 0,
                   DPF_PACKAGE_SECTION_ALIGN, "manifest.sections[2].offset");
    refuse_patched(file, "\x66offset\x1a\x00\x04\x00\x00", "\x66offset\x1a\x00\x05\x00\x00", 12, 0,
                   DPF_PACKAGE_SECTION_END, "manifest.sections[3].size");
    refuse_patched(file, "\x66offset\x1a\x00\x04\x00\x00", "\x66offset\x1a\xff\xff\x00\x00", 12, 0,
                   DPF_PACKAGE_SECTION_END, "manifest.sections[3].size");
    refuse_patched(file, "\x64size\x18\x1c", "\x64size\x18\x41", 7, 0, DPF_PACKAGE_SECTION_END,
                   "manifest.sections[3].size");
    refuse_patched(file, "\x63" "and", "\x63" "xor", 4, 0, DPF_PACKAGE_OPERATOR, "manifest.targets[0].whitelist[0]");
    refuse_patched(file, "weights/tiny-llm", "weights/tiny-lla", 16, 0, DPF_PACKAGE_REFERENCE,
                   "manifest.targets[0].models.tiny-llm.graphs.step.weights[0]");
    refuse_patched(file, "\x66" "family", "\x66" "famila", 7, 0, DPF_PACKAGE_TYPE, "manifest.models.tiny-llm.family");
}

int main(int count, char **arguments) {
    uint64_t nbytes, smallest_bytes, signed_bytes;
    CHECK(count == 2);
    unsigned char *tiny = read_file(arguments[1], "tiny.dpfbin", &nbytes);
    unsigned char *smallest = read_file(arguments[1], "smallest.dpfbin", &smallest_bytes);
    unsigned char *with_signatures = read_file(arguments[1], "signed.dpfbin", &signed_bytes);
    test_sha256();
    test_sha256_lanes();
    test_xxh3();
    test_signed(with_signatures, signed_bytes);
    read_tiny(tiny, nbytes);
    test_cut(smallest, smallest_bytes);
    test_cut(tiny, nbytes);
    test_flip(smallest, smallest_bytes);
    test_flip(tiny, nbytes);
    test_written_over(tiny, nbytes);
    test_encoding();
    test_items();
    test_fields(tiny);
    free(tiny);
    free(smallest);
    free(with_signatures);
    printf("package: ok, dpf_package is %zu bytes\n", sizeof package);
    return 0;
}
