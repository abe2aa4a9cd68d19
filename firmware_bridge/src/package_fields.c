/* SPDX-License-Identifier: Apache-2.0
 *
 * Typed, bounded access to the values of a manifest, and sorted texts.
 */
#include "package_parts.h"

rule dpf_refuse(check *c, rule broken, const field *f, uint64_t found, uint64_t allowed) {
    uint64_t at = f->at != 0 ? f->at : f->parent;
    *c->why = (dpf_package_refusal){.rule = broken, .missing = f->at == 0 && f->name != NULL, .field = f->name,
                                    .found = found, .allowed = allowed};
    c->why->byte = c->package->header.manifest_offset + at;
    return broken;
}

/* The field's item; an absent field, and null, have the kind NOTHING. */
static item item_of(const dpf_package *package, const field *f) {
    if (f->at == 0 && f->name != NULL) return (item){.body = package->manifest_bytes, .kind = NOTHING};
    return dpf_cbor_item(package, f->at);
}

bool dpf_absent(const dpf_package *package, const field *f) {
    return item_of(package, f).kind == NOTHING;
}

dpf_text dpf_text_at(const dpf_package *package, uint32_t at) {
    item i = dpf_cbor_item(package, at);
    if (i.kind != TEXT) return (dpf_text){"", 0};
    return (dpf_text){(const char *)package->manifest + i.body, (uint32_t)i.value};
}

int dpf_order(dpf_text a, dpf_text b) {
    if (a.nbytes != b.nbytes) return a.nbytes < b.nbytes ? -1 : 1;
    for (uint32_t i = 0; i < a.nbytes; i++) {
        if (a.bytes[i] != b.bytes[i]) return (unsigned char)a.bytes[i] < (unsigned char)b.bytes[i] ? -1 : 1;
    }
    return 0;
}

bool dpf_same(dpf_text a, dpf_text b) {
    return dpf_order(a, b) == 0;
}

bool dpf_is(dpf_text text, const char *word) {
    for (uint32_t i = 0; i < text.nbytes; i++) {
        if (word[i] == 0 || word[i] != text.bytes[i]) return false;
    }
    return word[text.nbytes] == 0;
}

uint32_t dpf_word(dpf_text text, const char *const words[], uint32_t count) {
    uint32_t place = 0;
    while (place < count && !dpf_is(text, words[place])) place++;
    return place;
}

void dpf_find(const dpf_package *package, uint32_t map, const char *const names[], uint32_t count, uint32_t found[]) {
    item i = dpf_cbor_item(package, map);
    for (uint32_t k = 0; k < count; k++) found[k] = 0;
    if (i.kind != MAP) return;
    uint32_t at = i.body;
    for (uint64_t left = i.value; left != 0 && at < package->manifest_bytes; left--) {
        uint32_t value = dpf_cbor_skip(package, at), place = dpf_word(dpf_text_at(package, at), names, count);
        if (place < count && value < package->manifest_bytes) found[place] = value;
        at = dpf_cbor_skip(package, value);
    }
}

rule dpf_fields(check *c, const field *map, const char *const names[], uint32_t count, field found[]) {
    uint32_t at[16];
    if (item_of(c->package, map).kind != MAP) return dpf_refuse(c, DPF_PACKAGE_TYPE, map, 0, 0);
    dpf_find(c->package, map->at, names, count, at);
    for (uint32_t i = 0; i < count; i++) found[i] = (field){.name = names[i], .at = at[i], .parent = map->at};
    return DPF_PACKAGE_OK;
}

static rule open_series(check *c, const field *f, uint32_t kind, uint64_t most, series *list) {
    item i = item_of(c->package, f);
    *list = (series){.from = *f};
    if (i.kind == NOTHING) return DPF_PACKAGE_OK;
    if (i.kind != kind) return dpf_refuse(c, DPF_PACKAGE_TYPE, f, 0, 0);
    if (i.value > most) return dpf_refuse(c, DPF_PACKAGE_MANY, f, i.value, most);
    list->at = i.body, list->left = (uint32_t)i.value;
    return DPF_PACKAGE_OK;
}

rule dpf_items(check *c, const field *f, uint64_t most, series *list) {
    return open_series(c, f, ARRAY, most, list);
}

rule dpf_entries(check *c, const field *f, uint64_t most, series *list) {
    return open_series(c, f, MAP, most, list);
}

bool dpf_next_item(check *c, series *list, field *element) {
    if (list->left == 0 || list->at >= c->package->manifest_bytes) return false;
    *element = (field){.name = list->from.name, .at = list->at, .parent = list->from.at};
    list->at = dpf_cbor_skip(c->package, list->at);
    list->left--;
    return true;
}

static bool is_word_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_name(dpf_text text) {
    bool inside = false; /* of a segment */
    if (text.nbytes == 0 || text.nbytes > DPF_NAME_MAX_BYTES) return false;
    for (uint32_t i = 0; i < text.nbytes; i++) {
        char c = text.bytes[i];
        if (is_word_character(c)) {
            inside = true;
        } else if (c == '/' && inside) {
            inside = false;
        } else if (!inside || (c != '.' && c != '+' && c != '@' && c != '-')) {
            return false;
        }
    }
    return inside;
}

/* Whether a control character of FORMAT.md begins here; texts are UTF-8 by now. */
static bool is_control(const unsigned char *at, uint32_t left) {
    if (at[0] < 0x20) return at[0] != '\n' && at[0] != '\t';
    if (at[0] == 0x7F) return true;
    if (left >= 2 && at[0] == 0xC2) return at[1] < 0xA0;
    if (left >= 2 && at[0] == 0xD8) return at[1] == 0x9C;
    if (left < 3 || at[0] != 0xE2) return false;
    if (at[1] == 0x80) return at[2] == 0x8E || at[2] == 0x8F || (at[2] >= 0xA8 && at[2] <= 0xAE);
    return at[1] == 0x81 && at[2] >= 0xA6 && at[2] <= 0xA9;
}

static rule check_text(check *c, item i, uint64_t most, const field *f) {
    if (i.kind != TEXT) return dpf_refuse(c, DPF_PACKAGE_TYPE, f, 0, 0);
    if (i.value > most) return dpf_refuse(c, DPF_PACKAGE_TEXT_LONG, f, i.value, most);
    const unsigned char *text = c->package->manifest + i.body;
    for (uint32_t k = 0; k < i.value; k++) {
        if (is_control(text + k, (uint32_t)i.value - k)) return dpf_refuse(c, DPF_PACKAGE_TEXT_CONTROL, f, k, 0);
    }
    return DPF_PACKAGE_OK;
}

static void take_entry(check *c, series *list, field *value) {
    *value = (field){.name = list->from.name, .parent = list->from.at, .at = dpf_cbor_skip(c->package, list->at)};
    list->at = dpf_cbor_skip(c->package, value->at);
    list->left--;
}

bool dpf_next_entry(check *c, series *list, field *value, rule *broken) {
    *broken = DPF_PACKAGE_OK;
    if (list->left == 0 || list->at >= c->package->manifest_bytes) return false;
    if (!is_name(dpf_text_at(c->package, list->at))) {
        *broken = dpf_refuse(c, DPF_PACKAGE_NAME, &list->from, 0, 0);
        return false;
    }
    take_entry(c, list, value);
    return true;
}

bool dpf_next_port(check *c, series *list, field *value, rule *broken) {
    const field blamed = {.name = "name", .parent = list->from.at};
    *broken = DPF_PACKAGE_OK;
    if (list->left == 0 || list->at >= c->package->manifest_bytes) return false;
    *broken = check_text(c, dpf_cbor_item(c->package, list->at), DPF_NAME_MAX_BYTES, &blamed);
    if (*broken != DPF_PACKAGE_OK) return false;
    take_entry(c, list, value);
    return true;
}

rule dpf_integer(check *c, const field *f, uint64_t least, uint64_t most, uint64_t *value) {
    item i = item_of(c->package, f);
    if (i.kind != UNSIGNED && i.kind != NEGATIVE) return dpf_refuse(c, DPF_PACKAGE_TYPE, f, 0, 0);
    if (i.kind == NEGATIVE || i.value < least || i.value > most) {
        return dpf_refuse(c, DPF_PACKAGE_RANGE, f, i.kind == NEGATIVE ? ~i.value : i.value, most);
    }
    *value = i.value;
    return DPF_PACKAGE_OK;
}

rule dpf_boolean(check *c, const field *f, bool *value) {
    item i = item_of(c->package, f);
    if (i.kind != FALSE && i.kind != TRUE) return dpf_refuse(c, DPF_PACKAGE_TYPE, f, 0, 0);
    *value = i.kind == TRUE;
    return DPF_PACKAGE_OK;
}

rule dpf_digest(check *c, const field *f, uint64_t nbytes) {
    item i = item_of(c->package, f);
    if (i.kind != BYTES) return dpf_refuse(c, DPF_PACKAGE_TYPE, f, 0, 0);
    return i.value == nbytes ? DPF_PACKAGE_OK : dpf_refuse(c, DPF_PACKAGE_DIGEST_LENGTH, f, i.value, nbytes);
}

rule dpf_words(check *c, const field *f, uint64_t most) {
    return check_text(c, item_of(c->package, f), most, f);
}

rule dpf_named(check *c, const field *f) {
    item i = item_of(c->package, f);
    if (i.kind != TEXT) return dpf_refuse(c, DPF_PACKAGE_TYPE, f, 0, 0);
    return is_name(dpf_text_at(c->package, f->at)) ? DPF_PACKAGE_OK : dpf_refuse(c, DPF_PACKAGE_NAME, f, 0, 0);
}

rule dpf_free(check *c, const field *f) {
    item i = item_of(c->package, f);
    return i.kind == MAP || i.kind == NOTHING ? DPF_PACKAGE_OK : dpf_refuse(c, DPF_PACKAGE_TYPE, f, 0, 0);
}

static int by_text(const dpf_package *package, uint32_t a, uint32_t b) {
    return dpf_order(dpf_text_at(package, a), dpf_text_at(package, b));
}

static bool before(const dpf_package *package, dpf_compare compare, uint32_t a, uint32_t b) {
    int way = compare(package, a, b);
    return way < 0 || (way == 0 && a < b);
}

static void sink(const dpf_package *package, dpf_compare compare, uint32_t *items, uint32_t place, uint32_t count) {
    for (uint32_t child; (child = 2 * place + 1) < count; place = child) {
        if (child + 1 < count && before(package, compare, items[child], items[child + 1])) child++;
        if (!before(package, compare, items[place], items[child])) return;
        uint32_t moved = items[place];
        items[place] = items[child], items[child] = moved;
    }
}

/* Heap sort: no memory, and no order of names makes it slow. */
void dpf_sort(const dpf_package *package, dpf_compare compare, uint32_t *items, uint32_t count) {
    for (uint32_t place = count / 2; place-- > 0;) sink(package, compare, items, place, count);
    while (count-- > 1) {
        uint32_t largest = items[0];
        items[0] = items[count], items[count] = largest;
        sink(package, compare, items, 0, count);
    }
}

void dpf_sort_texts(const dpf_package *package, uint32_t *texts, uint32_t count) {
    dpf_sort(package, by_text, texts, count);
}

uint32_t dpf_search(const dpf_package *package, const uint32_t *texts, uint32_t count, dpf_text text) {
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int way = dpf_order(dpf_text_at(package, texts[middle]), text);
        if (way == 0) return middle;
        if (way < 0) low = middle + 1;
        else high = middle;
    }
    return count;
}
