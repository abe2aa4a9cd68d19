/* SPDX-License-Identifier: Apache-2.0
 *
 * The closed grammar of whitelist expressions. It is checked, not evaluated: what the machine has, others know.
 */
#include "package_parts.h"

enum { OP_AND, OP_OR, OP_NOT, OP_BOARD, OP_CLASS, OP_ARCH, OP_FEATURE, OP_MEMORY, OP_DRIVER, OPERATORS };
static const char *const WORDS[OPERATORS] = {"and", "or", "not", "board", "class",
                                             "arch", "feature", "memory", "driver"};

enum { VERSION_NUMBERS = 8, VERSION_DIGITS = 9 };

/* 1 to 8 numbers of 1 to 9 digits, joined by dots. */
static bool is_version(const char *text, uint32_t nbytes) {
    uint32_t numbers = 1, digits = 0;
    for (uint32_t i = 0; i < nbytes; i++) {
        if (text[i] >= '0' && text[i] <= '9') {
            if (++digits > VERSION_DIGITS) return false;
        } else {
            if (text[i] != '.' || digits == 0 || ++numbers > VERSION_NUMBERS) return false;
            digits = 0;
        }
    }
    return digits != 0;
}

static bool is_bound(dpf_text text) {
    if (text.nbytes < 2) return false;
    uint32_t sign = text.bytes[0] == '<' ? 1 : 2;
    if (sign == 2 && ((text.bytes[0] != '>' && text.bytes[0] != '=') || text.bytes[1] != '=')) return false;
    return is_version(text.bytes + sign, text.nbytes - sign);
}

static rule check_leaf(check *c, series *terms, uint32_t operator) {
    field f;
    uint64_t bytes;
    for (uint32_t i = 0; dpf_next_item(c, terms, &f); i++) {
        if (operator == OP_MEMORY) {
            TRY(dpf_integer(c, &f, 0, DPF_MEMORY_MAX_BYTES, &bytes));
        } else if (operator == OP_DRIVER && i == 0) {
            TRY(dpf_named(c, &f));
        } else {
            TRY(dpf_words(c, &f, DPF_NAME_MAX_BYTES));
            bool fine = operator != OP_DRIVER || is_bound(dpf_text_at(c->package, f.at));
            if (!fine) return dpf_refuse(c, DPF_PACKAGE_BOUND, &f, 0, 0);
        }
    }
    return DPF_PACKAGE_OK;
}

/* Opens an operator: its word and the number of its arguments are right, `terms` stands at the first of them. */
static rule open_operator(check *c, const field *f, const field *whole, uint32_t depth, uint32_t *count, series *terms,
                          uint32_t *operator) {
    field word;
    TRY(dpf_items(c, f, DPF_WHITELIST_MAX_TERMS, terms));
    if (terms->left == 0) return dpf_refuse(c, DPF_PACKAGE_EXPRESSION_EMPTY, f, 0, 0);
    if (depth > DPF_WHITELIST_MAX_DEPTH) {
        return dpf_refuse(c, DPF_PACKAGE_EXPRESSION_DEPTH, f, depth, DPF_WHITELIST_MAX_DEPTH);
    }
    if (++*count > DPF_WHITELIST_MAX_OPERATORS) {
        return dpf_refuse(c, DPF_PACKAGE_EXPRESSION_SIZE, whole, *count, DPF_WHITELIST_MAX_OPERATORS);
    }
    if (!dpf_next_item(c, terms, &word)) return dpf_refuse(c, DPF_PACKAGE_EXPRESSION_EMPTY, f, 0, 0);
    TRY(dpf_words(c, &word, DPF_NAME_MAX_BYTES));
    *operator = dpf_word(dpf_text_at(c->package, word.at), WORDS, OPERATORS);
    if (*operator == OPERATORS) return dpf_refuse(c, DPF_PACKAGE_OPERATOR, &word, 0, 0);
    uint32_t least = *operator == OP_DRIVER ? 2 : 1;
    bool exact = *operator == OP_NOT || *operator == OP_MEMORY;
    if (terms->left < least || (exact && terms->left != least)) {
        return dpf_refuse(c, DPF_PACKAGE_ARGUMENTS, f, terms->left, least);
    }
    return DPF_PACKAGE_OK;
}

rule dpf_check_expression(check *c, const field *whole) {
    series open[DPF_WHITELIST_MAX_DEPTH]; /* operators whose arguments are being read */
    uint32_t depth = 0, count = 0, operator = 0;
    field next = *whole;
    for (;;) {
        series terms;
        TRY(open_operator(c, &next, whole, depth + 1, &count, &terms, &operator));
        if (operator <= OP_NOT) open[depth++] = terms;
        else TRY(check_leaf(c, &terms, operator));
        while (depth != 0 && !dpf_next_item(c, &open[depth - 1], &next)) depth--;
        if (depth == 0) return DPF_PACKAGE_OK;
    }
}
