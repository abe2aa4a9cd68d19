/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the package reader share: CBOR items of a manifest, and fields with their refusals.
 *
 * Every reader of items checks lengths again, also after dpf_cbor_walk accepted the bytes: memory that changes in the
 * meantime gives wrong answers, but no access outside.
 */
#ifndef DPF_PACKAGE_PARTS_H
#define DPF_PACKAGE_PARTS_H

#include "dpf/package.h"

typedef dpf_package_rule rule;

/* Kinds of a CBOR item; the first six are its major types. */
enum { DPF_DTYPES_KNOWN = 14 };
#define DPF_CREATED_MAX (1ull << 40)

enum { UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY, MAP, NUMBER, FALSE, TRUE, NOTHING };

/* One item: `value` is its number, length or count of elements; `body` the offset behind its head. */
typedef struct item {
    uint64_t value;
    uint32_t at, body, kind;
} item;

/* Accepts exactly one value in the strict encoding; else `place` is the offset of what breaks the rule. */
rule dpf_cbor_walk(const unsigned char *data, uint32_t nbytes, uint32_t *place, uint64_t *found, uint64_t *allowed);

/* The item at an offset of the manifest; NOTHING for null and behind the end. */
item dpf_cbor_item(const dpf_package *package, uint32_t at);

/* The offset behind an item and all that is in it. */
uint32_t dpf_cbor_skip(const dpf_package *package, uint32_t at);

/* A value with the name it is known by; `at` is 0 for an absent one, `parent` the map or array it is looked for in. */
typedef struct field {
    const char *name;
    uint32_t at, parent;
} field;

/* The package being checked and the refusal to be filled in. */
typedef struct check {
    dpf_package *package;
    dpf_package_refusal *why;
} check;

rule dpf_refuse(check *c, rule broken, const field *f, uint64_t found, uint64_t allowed);

/* Finds the values of `count` names in a map; refuses anything but a map. */
rule dpf_fields(check *c, const field *map, const char *const names[], uint32_t count, field found[]);

/* The same without a refusal, for a map that was checked before; `found` are offsets, 0 for absent ones. */
void dpf_find(const dpf_package *package, uint32_t map, const char *const names[], uint32_t count, uint32_t found[]);

/* Elements of an array, or entries of a map; absent and null read as empty. */
typedef struct series {
    uint32_t at, left;
    field from;
} series;

rule dpf_items(check *c, const field *f, uint64_t most, series *list);
rule dpf_entries(check *c, const field *f, uint64_t most, series *list);
bool dpf_next_item(check *c, series *list, field *element);

/* The next entry: its key is a name, its value follows it. Answers false at the end, and when `*broken` is set. */
bool dpf_next_entry(check *c, series *list, field *value, rule *broken);

/* The same where the key is the name of a port: text of at most 128 bytes. */
bool dpf_next_port(check *c, series *list, field *value, rule *broken);

rule dpf_integer(check *c, const field *f, uint64_t least, uint64_t most, uint64_t *value);
rule dpf_boolean(check *c, const field *f, bool *value);
rule dpf_digest(check *c, const field *f, uint64_t nbytes);
rule dpf_words(check *c, const field *f, uint64_t most); /* text without control characters */
rule dpf_named(check *c, const field *f);
rule dpf_free(check *c, const field *f); /* a map, or absent */

/* Absent or null. */
bool dpf_absent(const dpf_package *package, const field *f);

dpf_text dpf_text_at(const dpf_package *package, uint32_t at);
bool dpf_same(dpf_text a, dpf_text b);
bool dpf_is(dpf_text text, const char *word);

/* Negative, 0 or positive: shorter texts first, then by bytes. */
int dpf_order(dpf_text a, dpf_text b);

/* Sorts offsets in some order, equal ones by offset. */
typedef int (*dpf_compare)(const dpf_package *package, uint32_t a, uint32_t b);
void dpf_sort(const dpf_package *package, dpf_compare compare, uint32_t *items, uint32_t count);
void dpf_sort_texts(const dpf_package *package, uint32_t *texts, uint32_t count);

/* The place of a text among sorted ones, or `count`. */
uint32_t dpf_search(const dpf_package *package, const uint32_t *texts, uint32_t count, dpf_text text);

/* The place of a text in a list of words, or the list's length. */
uint32_t dpf_word(dpf_text text, const char *const words[], uint32_t count);

/* The value of a key of a map, or 0. */
uint32_t dpf_value_of(const dpf_package *package, uint32_t map, dpf_text key);

/* Index of the name's section, or section_count. */
uint32_t dpf_section_index(const dpf_package *package, dpf_text name);

/* Index of a dtype's name; DPF_DTYPES_KNOWN for none. */
uint32_t dpf_dtype_index(dpf_text name);

/* One of the dtypes; a text of more than `most` bytes is too long. */
rule dpf_check_dtype(check *c, const field *dtype, uint64_t most);

/* An array of sizes; `rank` gets their number. */
rule dpf_sizes(check *c, const field *f, uint32_t *rank, uint32_t dims[DPF_TENSOR_MAX_RANK]);

/* Bytes of a tensor; UINT64_MAX when it is larger than that. */
uint64_t dpf_tensor_bytes(uint32_t dtype, uint32_t rank, const uint32_t dims[]);

/* Values of a golden record, or of a part of a tensor with these dims. */
typedef struct values {
    uint64_t offset, size;
    uint32_t dtype, rank, dims[DPF_TENSOR_MAX_RANK];
} values;

rule dpf_read_values(check *c, const field *f, values *v);
bool dpf_read_port(const dpf_package *package, uint32_t at, dpf_port *port);

/* Each value of a map lies inside the section that is named. */
rule dpf_check_inside(check *c, const field *map, const field *section);

rule dpf_check_golden_fields(check *c, const field *golden);
rule dpf_check_prefix(check *c, const field *prefix);
rule dpf_check_seal(check *c, const field *seal);
rule dpf_check_expression(check *c, const field *f);
rule dpf_check_fields(check *c);
rule dpf_check_places(check *c);
rule dpf_check_references(check *c);
rule dpf_check_golden(check *c);

#define TRY(call)                                  \
    do {                                           \
        rule broken_ = (call);                     \
        if (broken_ != DPF_PACKAGE_OK) return broken_; \
    } while (0)

#endif
