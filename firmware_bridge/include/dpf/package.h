/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/package.h - reads `.dpfbin` packages: bytes in, checked places and names out, or the rule that they break.
 *
 * Written from dpfedge/package/FORMAT.md; it refuses what the Python reader refuses, for the same rule at the same
 * place (tests/fuzz compares the two). It allocates nothing, calls nothing and copies no section; a compiler may add
 * calls of memset and memcpy, which every freestanding environment has. One `dpf_package` is 50 KiB of the caller's
 * memory; the deepest call needs under 4 KiB of stack and no call recurses.
 *
 * Time. Each CBOR item, of which a manifest has at most 2^20, is stepped over some 60 times; names are looked up among
 * sorted ones; values of golden records, at most 16 384, are compared once for each target. A manifest of 20 KB takes
 * half a millisecond on a server's core, one of 16 MiB made to be slow some seconds. Digests come on top.
 *
 * A file mapped as a whole:
 *
 *     static dpf_package package;
 *     dpf_package_refusal why;
 *     if (dpf_package_open(file, nbytes, &package, &why) != DPF_PACKAGE_OK) return report(&package, &why);
 *     dpf_section section;
 *     if (dpf_package_find(&package, "asset/tokenizer", 15, &section)) use(file + section.offset, section.size);
 *
 * A file in flash, read piece by piece: read its first 128 bytes, then header_bytes of them, into a buffer and call
 * dpf_package_read_header; read `manifest_bytes` at `manifest_offset` into memory that stays while the package is used
 * and call dpf_package_read_manifest. Sections are read, and checked with dpf_package_check_section, when needed.
 *
 * Checks. dpf_package_open and dpf_package_read_manifest are the fast check of FORMAT.md: no byte of a section is read,
 * so the content of sections is not vouched for. dpf_package_check is the rest of the full check: both digests of every
 * section, zero padding. Of the signature area only the place is checked. Ed25519 is not verified here: a firmware that
 * wants to know who made the package verifies a COSE_Sign1 over the manifest with its own library, before all else.
 *
 * Refusals. Every function that checks answers DPF_PACKAGE_OK or the rule that is broken, and fills in the refusal:
 * where (an offset in the file), which field, what was found and what is allowed. dpf_package_rule_text names the rule,
 * dpf_package_where writes the path (`manifest.targets[0].backend`). After a refusal the package must not be used for
 * anything but dpf_package_where.
 *
 * A hostile file can claim anything about itself: names, versions, licences, free-form maps are what its maker wrote.
 * It cannot make these functions read outside the bytes they were given, loop beyond the bound above, or return an
 * offset, size, count, dtype, dimension or name that breaks FORMAT.md. Texts are UTF-8 without control characters but
 * not NUL-terminated; names hold `A-Z a-z 0-9 . _ + @ - /` only, and no segment of one begins with a dot. If the
 * bytes change while or after they are checked (a mapped file that somebody writes), answers may be wrong, but nothing
 * outside the manifest's bytes is read: each length is checked again at every use.
 */
#ifndef DPF_PACKAGE_H
#define DPF_PACKAGE_H

#include "dpf/digest.h"

enum {
    DPF_PACKAGE_MAJOR = 1,
    DPF_PACKAGE_HEADER_BYTES = 128, /* of version 1.0; a later minor version may have more */
    DPF_PACKAGE_ALIGN = 65536,      /* of sections, and the largest header */
    DPF_PACKAGE_TAIL_ALIGN = 64,    /* of manifest and signature area */
    DPF_MANIFEST_MAX_BYTES = 16 << 20,
    DPF_MANIFEST_MAX_ITEMS = 1 << 20,
    DPF_MANIFEST_MAX_DEPTH = 16,
    DPF_SIGNATURE_MAX_BYTES = 1 << 20,
    DPF_SECTIONS_MAX = 4096,
    DPF_MODELS_MAX = 1024,
    DPF_TARGETS_MAX = 256,
    DPF_GRAPHS_MAX = 1024, /* of one model in one target */
    DPF_PORTS_MAX = 1024,  /* inputs, or outputs, of one graph */
    DPF_GOLDEN_MAX = 1024,
    DPF_GOLDEN_TENSORS_MAX = 16384, /* of all records */
    DPF_GOLDEN_TENSOR_MAX_BYTES = 1 << 30,
    DPF_PREFIX_TOKENS_MAX = 131072,
    DPF_PREFIX_KEY_MAX_BYTES = 1024,
    DPF_TOKEN_MAX = 0x7FFFFFFF,
    DPF_WHITELIST_MAX_TERMS = 256,
    DPF_WHITELIST_MAX_DEPTH = 8,
    DPF_WHITELIST_MAX_OPERATORS = 1024,
    DPF_NAME_MAX_BYTES = 128,
    DPF_TEXT_MAX_BYTES = 65536,
    DPF_TENSOR_MAX_RANK = 8
};
#define DPF_TENSOR_MAX_DIM 0x7FFFFFFFu
#define DPF_PACKAGE_MAX_BYTES (1ull << 38)
#define DPF_MEMORY_MAX_BYTES (1ull << 50)

/* The rules of FORMAT.md. Numbers stay as they are; new rules get new ones. */
typedef enum dpf_package_rule {
    DPF_PACKAGE_OK = 0,
    /* header: `byte` is the offset of the field */
    DPF_PACKAGE_CUT_HEADER = 1, /* the header is cut; found: bytes there are, allowed: bytes it needs */
    DPF_PACKAGE_MAGIC = 2,
    DPF_PACKAGE_MAJOR_UNKNOWN = 3, /* found: the major version */
    DPF_PACKAGE_HEADER_LENGTH = 4,
    DPF_PACKAGE_HEADER_HASH = 5, /* found, allowed: computed and recorded XXH3-64 */
    DPF_PACKAGE_FILE_CUT = 6,    /* found: the real length, allowed: the header's */
    DPF_PACKAGE_FILE_LONG = 7,
    DPF_PACKAGE_MANIFEST_ALIGN = 8,
    DPF_PACKAGE_SIGNATURE_ALIGN = 9,
    DPF_PACKAGE_FILE_SIZE = 10,
    DPF_PACKAGE_MANIFEST_OFFSET = 11,
    DPF_PACKAGE_MANIFEST_SIZE = 12,
    DPF_PACKAGE_SIGNATURE_OFFSET = 13,
    DPF_PACKAGE_SIGNATURE_SIZE = 14,
    DPF_PACKAGE_FILE_END = 15,
    DPF_PACKAGE_MANIFEST_DIGEST = 16, /* `byte` is the manifest's offset */
    DPF_PACKAGE_HEADER_RESERVED = 17, /* reserved bytes of a version 1.0 header are not zero */
    DPF_PACKAGE_MANIFEST_PLACE = 18,  /* the manifest does not follow the last section */
    /* encoding: `byte` is the offset of the CBOR item, or of the bad byte of a text */
    DPF_PACKAGE_VALUE_CUT = 20,
    DPF_PACKAGE_TRAILING = 21,
    DPF_PACKAGE_KEY_TYPE = 22,
    DPF_PACKAGE_KEY_TWICE = 23,
    DPF_PACKAGE_KEY_ORDER = 24,
    DPF_PACKAGE_NOT_FINITE = 25,
    DPF_PACKAGE_NOT_SHORTEST = 26,
    DPF_PACKAGE_INTEGER_WIDE = 27,
    DPF_PACKAGE_RESERVED = 28,
    DPF_PACKAGE_INDEFINITE = 29,
    DPF_PACKAGE_TAG = 30, /* any tag: shared values (28) and references to them (29), big numbers, dates */
    DPF_PACKAGE_SIMPLE = 31,
    DPF_PACKAGE_UTF8 = 32,
    DPF_PACKAGE_DEPTH = 33,
    DPF_PACKAGE_COUNT = 34, /* more elements than bytes left */
    DPF_PACKAGE_ITEMS = 35,
    /* fields: `byte` is the offset of the value, or of the map that lacks it (`missing`) */
    DPF_PACKAGE_TYPE = 40, /* wrong type, or missing */
    DPF_PACKAGE_LENGTH = 41,
    DPF_PACKAGE_MANY = 42,
    DPF_PACKAGE_RANGE = 43,
    DPF_PACKAGE_DIGEST_LENGTH = 44,
    DPF_PACKAGE_TEXT_LONG = 45,
    DPF_PACKAGE_TEXT_CONTROL = 46,
    DPF_PACKAGE_NAME = 47,
    DPF_PACKAGE_KIND = 48, /* a critical section of a kind this reader does not know */
    DPF_PACKAGE_DTYPE = 49,
    DPF_PACKAGE_PORT_TWICE = 50,
    DPF_PACKAGE_EXPRESSION_EMPTY = 51,
    DPF_PACKAGE_OPERATOR = 52,
    DPF_PACKAGE_ARGUMENTS = 53,
    DPF_PACKAGE_VERSION = 54, /* `format` differs from the header */
    DPF_PACKAGE_EXPRESSION_DEPTH = 55,
    DPF_PACKAGE_EXPRESSION_SIZE = 56,
    DPF_PACKAGE_BOUND = 57, /* not a bound of a driver's version */
    DPF_PACKAGE_VALUES_SIZE = 58,
    DPF_PACKAGE_VALUES_ALIGN = 59,
    DPF_PACKAGE_TENSOR_LARGE = 70,
    DPF_PACKAGE_VALUES_OUTSIDE = 71, /* a part of a tensor that is not inside it */
    DPF_PACKAGE_PREFIX_EMPTY = 72,
    DPF_PACKAGE_TENSORS_MANY = 77,
    /* places and names */
    DPF_PACKAGE_SECTION_TWICE = 60,
    DPF_PACKAGE_SECTION_ALIGN = 61,
    DPF_PACKAGE_SECTION_OVERLAP = 62, /* or out of order; allowed: the least offset */
    DPF_PACKAGE_SECTION_END = 63,
    DPF_PACKAGE_REFERENCE = 64, /* names no section, or one of the wrong kind */
    DPF_PACKAGE_TARGET_TWICE = 65,
    DPF_PACKAGE_MODEL_UNKNOWN = 66,
    DPF_PACKAGE_VALUES_BEHIND = 67, /* values end behind their section */
    DPF_PACKAGE_GRAPH_UNKNOWN = 73,
    DPF_PACKAGE_PORT_UNKNOWN = 74,
    DPF_PACKAGE_PORT_DIFFERS = 75,
    DPF_PACKAGE_INPUT_SIZELESS = 76,
    /* content: `byte` is the offset of the section or of the padding byte */
    DPF_PACKAGE_SECTION_XXH3 = 80,
    DPF_PACKAGE_SECTION_SHA256 = 81,
    DPF_PACKAGE_PADDING = 82
} dpf_package_rule;

/* What was refused, and where. */
typedef struct dpf_package_refusal {
    dpf_package_rule rule;
    bool missing;      /* the field is absent or null; `byte` is then the offset of the map, or of the null */
    uint64_t byte;     /* offset in the file */
    const char *field; /* name of the field, or of the array the value is in; NULL for rules of the encoding */
    uint64_t found;    /* numbers and counts; 0 where the rule has none */
    uint64_t allowed;
} dpf_package_refusal;

typedef struct dpf_package_header {
    uint64_t file_bytes, manifest_offset, manifest_bytes, signature_offset, signature_bytes;
    uint32_t header_bytes;
    uint16_t major, minor;
    unsigned char manifest_sha256[DPF_SHA256_BYTES];
} dpf_package_header;

/* Text inside the manifest; not NUL-terminated. */
typedef struct dpf_text {
    const char *bytes;
    uint32_t nbytes;
} dpf_text;

typedef struct dpf_section {
    dpf_text name, kind;
    uint64_t offset, size; /* in the file */
    const unsigned char *xxh3, *sha256;
    uint32_t index;
    bool critical; /* false for all kinds a reader may ignore */
} dpf_section;

/* One compiled form of the package's models. `whitelist` is the offset of the expression in the manifest. */
typedef struct dpf_target {
    dpf_text id, backend;
    uint64_t memory_bytes;
    uint32_t backend_abi, whitelist, models, index;
} dpf_target;

/* One lowered graph; `inputs`, `outputs` and `weights` are counts, `place` is for the functions below. */
typedef struct dpf_graph {
    dpf_text model, name;
    dpf_section section;
    uint32_t inputs, outputs, weights;
    uint32_t place[4];
} dpf_graph;

/* A dimension is a number, or has a name when it is dynamic. */
typedef struct dpf_port {
    dpf_text name;
    uint32_t rank, dtype; /* dtype: index into dpfedge.tensors.DTYPES, as in dpf/ring.h */
    uint32_t dim[DPF_TENSOR_MAX_RANK];
    dpf_text dynamic[DPF_TENSOR_MAX_RANK]; /* nbytes and bytes are 0 for a number */
} dpf_port;

/* Where an enumeration of graphs stands; zero it to begin. */
typedef struct dpf_graph_cursor {
    uint32_t model, graph, models_left, graphs_left, model_name;
    bool begun;
} dpf_graph_cursor;

/* A checked package. Read its fields through the functions below; the tables hold offsets in the manifest. */
typedef struct dpf_package {
    const unsigned char *manifest;
    uint32_t manifest_bytes, section_count, model_count, target_count, golden_count;
    dpf_package_header header;
    uint32_t sections[DPF_SECTIONS_MAX];
    uint32_t section_names[DPF_SECTIONS_MAX]; /* sorted by name */
    uint32_t models[DPF_MODELS_MAX];          /* names, in their order: shorter first, then by bytes */
    uint32_t targets[DPF_TARGETS_MAX];
    uint32_t golden[DPF_GOLDEN_MAX]; /* records sorted by model and graph */
    uint32_t scratch[2 * DPF_PORTS_MAX];
} dpf_package;

DPF_BEGIN_C

/* Checks the header. `bytes` holds the first `nbytes` bytes of the file, at least its header (65 536 always suffice);
 * `file_bytes` is the real length of the file. */
dpf_package_rule dpf_package_read_header(const void *bytes, uint64_t nbytes, uint64_t file_bytes,
                                         dpf_package_header *header, dpf_package_refusal *refusal);

/* Checks the manifest, of which `manifest` holds header->manifest_bytes bytes; they must stay while it is used. */
dpf_package_rule dpf_package_read_manifest(const dpf_package_header *header, const void *manifest, dpf_package *package,
                                           dpf_package_refusal *refusal);

/* The fast check of a whole file in memory. */
dpf_package_rule dpf_package_open(const void *file, uint64_t nbytes, dpf_package *package,
                                  dpf_package_refusal *refusal);

/* What the full check adds: digests of all sections and padding, in the order of the file. */
dpf_package_rule dpf_package_check(const dpf_package *package, const void *file, dpf_package_refusal *refusal);

/* Compares the bytes of one section with its two digests. */
dpf_package_rule dpf_package_check_section(const dpf_section *section, const void *bytes, dpf_package_refusal *refusal);

/* What the rule says, as the Python reader words it; "" for a number that is no rule. */
const char *dpf_package_rule_text(dpf_package_rule rule);

/* Writes the place of a refusal, NUL-terminated and cut to `size` bytes; answers its whole length. */
uint64_t dpf_package_where(const dpf_package *package, const dpf_package_refusal *refusal, char *text, uint64_t size);

/* Name and version of the package; free of anything but the characters of names. */
dpf_text dpf_package_name(const dpf_package *package);
dpf_text dpf_package_version(const dpf_package *package);

/* Sections in the order of the file; false when there is no such one. */
bool dpf_package_section(const dpf_package *package, uint32_t index, dpf_section *section);
bool dpf_package_find(const dpf_package *package, const char *name, uint32_t nbytes, dpf_section *section);

/* The section of an asset of a model (`tokenizer.json` of `llm`). */
bool dpf_package_asset(const dpf_package *package, dpf_text model, dpf_text asset, dpf_section *section);

/* Targets in the order of preference. */
bool dpf_package_target(const dpf_package *package, uint32_t index, dpf_target *target);

/* The next graph of a target, model by model; false behind the last one. */
bool dpf_package_next_graph(const dpf_package *package, const dpf_target *target, dpf_graph_cursor *cursor,
                            dpf_graph *graph);

bool dpf_package_input(const dpf_package *package, const dpf_graph *graph, uint32_t index, dpf_port *port);
bool dpf_package_output(const dpf_package *package, const dpf_graph *graph, uint32_t index, dpf_port *port);
bool dpf_package_weight(const dpf_package *package, const dpf_graph *graph, uint32_t index, dpf_section *section);

DPF_END_C

#endif
