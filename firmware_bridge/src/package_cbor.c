/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict deterministic CBOR (RFC 8949 §4.2.1): the walk that accepts or refuses all bytes of a manifest once, and
 * the reading of single items afterwards.
 */
#include "package_parts.h"

/* The state of the walk; `left` counts the items still to come in the innermost container. */
typedef struct walk {
    const unsigned char *data;
    uint32_t size, at;
    uint64_t found, allowed;
} walk;

typedef struct level {
    uint64_t left;
    uint32_t key, key_bytes; /* the last key of a map */
    bool map;
} level;

static uint64_t big(const unsigned char *bytes, uint32_t count) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < count; i++) value = value << 8 | bytes[i];
    return value;
}

static bool low_bits_zero(uint64_t word, int bits) {
    return (word & (((uint64_t)1 << bits) - 1)) == 0;
}

/* Whether a finite single is exact as a half. */
static bool fits_half(uint64_t bits) {
    int exponent = (int)(bits >> 23 & 255) - 127;
    uint64_t fraction = bits & 0x7FFFFF;
    if (exponent == -127) return fraction == 0;
    if (exponent > 15 || exponent < -24) return false;
    return low_bits_zero(fraction | 1 << 23, exponent >= -14 ? 13 : -1 - exponent);
}

/* Whether a finite double is exact as a single. */
static bool fits_single(uint64_t bits) {
    int exponent = (int)(bits >> 52 & 2047) - 1023;
    uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
    if (exponent == -1023) return fraction == 0;
    if (exponent > 127 || exponent < -149) return false;
    return low_bits_zero(fraction | (uint64_t)1 << 52, exponent >= -126 ? 29 : -97 - exponent);
}

static rule check_float(uint32_t info, uint64_t bits) {
    static const uint64_t INFINITE[3] = {0x7C00, 0x7F800000, 0x7FF0000000000000};
    if ((bits & INFINITE[info - 25]) == INFINITE[info - 25]) return DPF_PACKAGE_NOT_FINITE;
    if (info == 26 && fits_half(bits)) return DPF_PACKAGE_NOT_SHORTEST;
    if (info == 27 && fits_single(bits)) return DPF_PACKAGE_NOT_SHORTEST;
    return DPF_PACKAGE_OK;
}

static rule cut(walk *w, uint64_t found, uint64_t allowed) {
    w->found = found, w->allowed = allowed;
    return DPF_PACKAGE_VALUE_CUT;
}

static rule read_head(walk *w, uint32_t *major, uint64_t *argument, uint32_t *body) {
    uint32_t left = w->size - w->at;
    if (left == 0) return cut(w, 0, 1);
    uint32_t initial = w->data[w->at], info = initial & 31, size = info < 24 ? 0 : 1u << (info & 3);
    *major = initial >> 5, *argument = info;
    if (*major == 6) return DPF_PACKAGE_TAG;
    if (info == 31) return DPF_PACKAGE_INDEFINITE;
    if (*major == 7 ? (info < 20 || info > 22) && (info < 25 || info > 27) : info > 27) {
        w->found = info;
        return *major == 7 ? DPF_PACKAGE_SIMPLE : DPF_PACKAGE_RESERVED;
    }
    if (left - 1 < size) return cut(w, left - 1, size);
    *body = w->at + 1 + size;
    if (size == 0) return DPF_PACKAGE_OK;
    *argument = big(w->data + w->at + 1, size);
    if (*major == 7) return check_float(info, *argument);
    w->found = *argument;
    if (*argument < (size == 1 ? 24 : (uint64_t)1 << 4 * size)) return DPF_PACKAGE_NOT_SHORTEST;
    return *major <= NEGATIVE && *argument > INT64_MAX ? DPF_PACKAGE_INTEGER_WIDE : DPF_PACKAGE_OK;
}

/* Bytes of the UTF-8 character at `text`, of which `left` bytes are there; 0 when it is none. */
static uint32_t utf8_bytes(const unsigned char *text, uint32_t left) {
    uint32_t first = text[0], count = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if ((first >= 0x80 && first < 0xC2) || first > 0xF4 || count > left) return 0;
    for (uint32_t i = 1; i < count; i++) {
        if ((text[i] & 0xC0) != 0x80) return 0;
    }
    if (count < 3) return count;
    uint32_t second = text[1]; /* overlong forms, surrogates, beyond U+10FFFF */
    bool bad = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
               (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
    return bad ? 0 : count;
}

static rule check_text(walk *w, uint32_t start, uint32_t end) {
    for (uint32_t at = start; at < end;) {
        uint32_t count = utf8_bytes(w->data + at, end - at);
        if (count == 0) {
            w->at = at;
            return DPF_PACKAGE_UTF8;
        }
        at += count;
    }
    return DPF_PACKAGE_OK;
}

static int compare(const unsigned char *a, uint32_t a_bytes, const unsigned char *b, uint32_t b_bytes) {
    for (uint32_t i = 0; i < a_bytes && i < b_bytes; i++) {
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    }
    return a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

/* A string that lies behind its head; the key of a map must follow the one before. */
static rule walk_string(walk *w, level *in, bool key, uint32_t major, uint64_t length, uint32_t body) {
    uint32_t start = w->at;
    if (length > w->size - body) return cut(w, w->size - body, length);
    uint32_t end = body + (uint32_t)length;
    if (major == TEXT) TRY(check_text(w, body, end));
    if (key) {
        int order = in->key_bytes == 0 ? 1 : compare(w->data + start, end - start, w->data + in->key, in->key_bytes);
        if (order <= 0) return order == 0 ? DPF_PACKAGE_KEY_TWICE : DPF_PACKAGE_KEY_ORDER;
        in->key = start, in->key_bytes = end - start;
    }
    w->at = end;
    return DPF_PACKAGE_OK;
}

static rule open_container(walk *w, level *inner, uint32_t major, uint64_t count, uint32_t body, uint32_t items) {
    uint64_t left = w->size - body;
    w->found = count, w->allowed = left;
    if (count > left || (major == MAP && 2 * count > left)) return DPF_PACKAGE_COUNT;
    *inner = (level){.left = major == MAP ? 2 * count : count, .map = major == MAP};
    if (items + inner->left > DPF_MANIFEST_MAX_ITEMS) {
        w->found = items + inner->left, w->allowed = DPF_MANIFEST_MAX_ITEMS;
        return DPF_PACKAGE_ITEMS;
    }
    w->at = body;
    return DPF_PACKAGE_OK;
}

static rule walk_all(walk *w) {
    level levels[DPF_MANIFEST_MAX_DEPTH + 1];
    uint32_t depth = 0;
    levels[0] = (level){.left = 1};
    for (uint32_t items = 1;; items++) {
        while (levels[depth].left == 0) {
            if (depth == 0) {
                w->found = w->size - w->at;
                return w->at == w->size ? DPF_PACKAGE_OK : DPF_PACKAGE_TRAILING;
            }
            depth--;
        }
        level *in = &levels[depth];
        uint32_t major, body;
        uint64_t argument;
        in->left--;
        bool key = in->map && (in->left & 1) != 0;
        TRY(read_head(w, &major, &argument, &body));
        if (key && major != TEXT) return DPF_PACKAGE_KEY_TYPE;
        if (major == BYTES || major == TEXT) {
            TRY(walk_string(w, in, key, major, argument, body));
        } else if (major == ARRAY || major == MAP) {
            if (depth == DPF_MANIFEST_MAX_DEPTH) {
                w->found = depth + 1, w->allowed = depth;
                return DPF_PACKAGE_DEPTH;
            }
            TRY(open_container(w, &levels[++depth], major, argument, body, items));
        } else {
            w->at = body;
        }
    }
}

rule dpf_cbor_walk(const unsigned char *data, uint32_t nbytes, uint32_t *place, uint64_t *found, uint64_t *allowed) {
    walk w = {.data = data, .size = nbytes};
    rule broken = walk_all(&w);
    *place = w.at, *found = w.found, *allowed = w.allowed;
    return broken;
}

item dpf_cbor_item(const dpf_package *package, uint32_t at) {
    item end = {.at = at, .body = package->manifest_bytes, .kind = NOTHING};
    if (at >= package->manifest_bytes) return end;
    uint32_t left = package->manifest_bytes - at, initial = package->manifest[at], info = initial & 31;
    uint32_t size = info < 24 ? 0 : 1u << (info & 3), major = initial >> 5;
    if (left - 1 < size) return end;
    item i = {.at = at, .body = at + 1 + size, .kind = major};
    i.value = size == 0 ? info : big(package->manifest + at + 1, size);
    if (major == 7) i.kind = size != 0 ? NUMBER : info == 20 ? FALSE : info == 21 ? TRUE : NOTHING;
    if (major < BYTES || major > MAP) return i;
    uint64_t room = package->manifest_bytes - i.body;
    return i.value > (major == MAP ? room / 2 : room) ? end : i;
}

uint32_t dpf_cbor_skip(const dpf_package *package, uint32_t at) {
    for (uint64_t left = 1; left != 0 && at < package->manifest_bytes; left--) {
        item i = dpf_cbor_item(package, at);
        at = i.body;
        if (i.kind == BYTES || i.kind == TEXT) at += (uint32_t)i.value;
        if (i.kind == ARRAY) left += i.value;
        if (i.kind == MAP) left += 2 * i.value;
    }
    return at;
}
