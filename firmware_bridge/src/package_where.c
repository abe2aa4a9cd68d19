/* SPDX-License-Identifier: Apache-2.0
 *
 * Refusals in words: what the rule says, and the path of a value in the manifest.
 */
#include "package_parts.h"

const char *dpf_package_rule_text(dpf_package_rule which) {
    switch (which) {
    case DPF_PACKAGE_OK: return "accepted";
    case DPF_PACKAGE_CUT_HEADER: return "header is cut";
    case DPF_PACKAGE_MAGIC: return "not a dpfedge package";
    case DPF_PACKAGE_MAJOR_UNKNOWN: return "unknown format version";
    case DPF_PACKAGE_HEADER_LENGTH: return "bad header length";
    case DPF_PACKAGE_HEADER_HASH: return "header hash differs, the header is damaged";
    case DPF_PACKAGE_FILE_CUT: return "the file was cut";
    case DPF_PACKAGE_FILE_LONG: return "the file has bytes behind its end";
    case DPF_PACKAGE_MANIFEST_ALIGN: return "manifest not aligned";
    case DPF_PACKAGE_SIGNATURE_ALIGN: return "signature not aligned";
    case DPF_PACKAGE_FILE_SIZE: return "file size out of range";
    case DPF_PACKAGE_MANIFEST_OFFSET: return "manifest offset out of range";
    case DPF_PACKAGE_MANIFEST_SIZE: return "manifest size out of range";
    case DPF_PACKAGE_SIGNATURE_OFFSET: return "signature offset out of range";
    case DPF_PACKAGE_SIGNATURE_SIZE: return "signature size out of range";
    case DPF_PACKAGE_FILE_END: return "signature area does not end the file";
    case DPF_PACKAGE_MANIFEST_DIGEST: return "manifest is damaged, its SHA-256 differs";
    case DPF_PACKAGE_HEADER_RESERVED: return "reserved bytes are not zero";
    case DPF_PACKAGE_MANIFEST_PLACE: return "manifest does not follow the last section";
    case DPF_PACKAGE_VALUE_CUT: return "value is cut";
    case DPF_PACKAGE_TRAILING: return "bytes behind the value";
    case DPF_PACKAGE_KEY_TYPE: return "key is not text";
    case DPF_PACKAGE_KEY_TWICE: return "duplicate key";
    case DPF_PACKAGE_KEY_ORDER: return "keys are not sorted";
    case DPF_PACKAGE_NOT_FINITE: return "number is not finite";
    case DPF_PACKAGE_NOT_SHORTEST: return "number is not in its shortest form";
    case DPF_PACKAGE_INTEGER_WIDE: return "integer beyond 64 bits signed";
    case DPF_PACKAGE_RESERVED: return "reserved length form";
    case DPF_PACKAGE_INDEFINITE: return "indefinite length";
    case DPF_PACKAGE_TAG: return "tag or shared reference";
    case DPF_PACKAGE_SIMPLE: return "unknown simple value";
    case DPF_PACKAGE_UTF8: return "text is not UTF-8";
    case DPF_PACKAGE_DEPTH: return "nested too deep";
    case DPF_PACKAGE_COUNT: return "count is larger than the bytes left";
    case DPF_PACKAGE_ITEMS: return "too many items";
    case DPF_PACKAGE_TYPE: return "wrong type or missing";
    case DPF_PACKAGE_LENGTH: return "wrong length";
    case DPF_PACKAGE_MANY: return "too many elements";
    case DPF_PACKAGE_RANGE: return "number out of range";
    case DPF_PACKAGE_DIGEST_LENGTH: return "digest has a wrong length";
    case DPF_PACKAGE_TEXT_LONG: return "text is too long";
    case DPF_PACKAGE_TEXT_CONTROL: return "text holds a control character";
    case DPF_PACKAGE_NAME: return "bad name";
    case DPF_PACKAGE_KIND: return "unknown kind of a critical section";
    case DPF_PACKAGE_DTYPE: return "unknown dtype";
    case DPF_PACKAGE_PORT_TWICE: return "two ports have one name";
    case DPF_PACKAGE_EXPRESSION_EMPTY: return "empty expression";
    case DPF_PACKAGE_OPERATOR: return "unknown operator";
    case DPF_PACKAGE_ARGUMENTS: return "wrong number of arguments";
    case DPF_PACKAGE_VERSION: return "differs from the header";
    case DPF_PACKAGE_EXPRESSION_DEPTH: return "expression nested too deep";
    case DPF_PACKAGE_EXPRESSION_SIZE: return "too many operators in one expression";
    case DPF_PACKAGE_BOUND: return "bad bound of a driver's version";
    case DPF_PACKAGE_VALUES_SIZE: return "size differs from dtype and dims";
    case DPF_PACKAGE_VALUES_ALIGN: return "values are not aligned";
    case DPF_PACKAGE_TENSOR_LARGE: return "tensor is too large";
    case DPF_PACKAGE_VALUES_OUTSIDE: return "values lie outside the tensor";
    case DPF_PACKAGE_PREFIX_EMPTY: return "prefix holds nothing";
    case DPF_PACKAGE_TENSORS_MANY: return "too many tensors in all records";
    case DPF_PACKAGE_SECTION_TWICE: return "two sections have one name";
    case DPF_PACKAGE_SECTION_ALIGN: return "section is not aligned";
    case DPF_PACKAGE_SECTION_OVERLAP: return "section overlaps";
    case DPF_PACKAGE_SECTION_END: return "section ends behind the start of the manifest";
    case DPF_PACKAGE_REFERENCE: return "reference leads nowhere";
    case DPF_PACKAGE_TARGET_TWICE: return "two targets have one id";
    case DPF_PACKAGE_MODEL_UNKNOWN: return "unknown model";
    case DPF_PACKAGE_VALUES_BEHIND: return "values end behind their section";
    case DPF_PACKAGE_GRAPH_UNKNOWN: return "no such graph";
    case DPF_PACKAGE_PORT_UNKNOWN: return "no such port";
    case DPF_PACKAGE_PORT_DIFFERS: return "does not fit its port";
    case DPF_PACKAGE_INPUT_SIZELESS: return "input without values has no sizes";
    case DPF_PACKAGE_SECTION_XXH3: return "section is damaged, its XXH3-128 differs";
    case DPF_PACKAGE_SECTION_SHA256: return "section is damaged, its SHA-256 differs";
    case DPF_PACKAGE_PADDING: return "padding is not zero";
    }
    return "";
}

/* Text being written; `length` counts also what did not fit. */
typedef struct writer {
    char *text;
    uint64_t size, length;
} writer;

static void put(writer *w, char c) {
    if (w->length + 1 < w->size) w->text[w->length] = c;
    w->length++;
}

static void put_text(writer *w, dpf_text text) {
    for (uint32_t i = 0; i < text.nbytes; i++) put(w, text.bytes[i]);
}

static void put_word(writer *w, const char *word) {
    while (*word != 0) put(w, *word++);
}

static void put_number(writer *w, uint64_t number) {
    char digits[20];
    uint32_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    while (count != 0) put(w, digits[--count]);
}

/* Writes the step from a container to its part that holds the offset; answers that part, or 0. */
static uint32_t put_step(writer *w, const dpf_package *package, item container, uint32_t wanted) {
    uint32_t at = container.body;
    for (uint64_t i = 0; i < container.value && at < package->manifest_bytes; i++) {
        uint32_t key = at, value = container.kind == MAP ? dpf_cbor_skip(package, at) : at;
        at = dpf_cbor_skip(package, value);
        if (wanted >= at) continue;
        if (wanted < value) return 0; /* a key: the map is the place */
        put(w, container.kind == MAP ? '.' : '[');
        if (container.kind == MAP) put_text(w, dpf_text_at(package, key));
        else put_number(w, i), put(w, ']');
        return value;
    }
    return 0;
}

static void put_path(writer *w, const dpf_package *package, uint32_t wanted) {
    uint32_t at = 0;
    for (uint32_t depth = 0; at != wanted && depth <= DPF_MANIFEST_MAX_DEPTH; depth++) {
        item container = dpf_cbor_item(package, at);
        if (container.kind != ARRAY && container.kind != MAP) return;
        at = put_step(w, package, container, wanted);
        if (at == 0) return;
    }
}

uint64_t dpf_package_where(const dpf_package *package, const dpf_package_refusal *refusal, char *text, uint64_t size) {
    writer w = {.text = text, .size = size};
    uint64_t start = package->header.manifest_offset;
    rule which = refusal->rule;
    if (which >= DPF_PACKAGE_TYPE && which < DPF_PACKAGE_SECTION_XXH3) {
        put_word(&w, "manifest");
        put_path(&w, package, (uint32_t)(refusal->byte - start));
        if (refusal->missing) put(&w, '.'), put_word(&w, refusal->field);
    } else {
        bool encoding = which >= DPF_PACKAGE_VALUE_CUT && which < DPF_PACKAGE_TYPE;
        put_word(&w, encoding ? "manifest byte " : which < DPF_PACKAGE_VALUE_CUT ? "header byte " : "byte ");
        put_number(&w, encoding ? refusal->byte - start : refusal->byte);
    }
    if (size != 0) text[w.length < size ? w.length : size - 1] = 0;
    return w.length;
}
