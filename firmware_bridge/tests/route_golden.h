/* SPDX-License-Identifier: Apache-2.0
 *
 * The golden vectors of dpfedge/routing/ROUTING.md, and the check of them without a libc: for the C tests, for emulated
 * machines and for bare firmware. tests/unit/routing compares the numbers here with those of the document.
 */
#ifndef DPF_ROUTE_GOLDEN_H
#define DPF_ROUTE_GOLDEN_H

#include "dpf/table.h"

#define T0 UINT64_C(1735689600000)
#define TEXT(text) text, (uint32_t)(sizeof(text) - 1)
#define TEN(c) c c c c c c c c c c
#define MANY(c) TEN(c) TEN(c) TEN(c) TEN(c) TEN(c) TEN(c) TEN(c) TEN(c) TEN(c) TEN(c) TEN(c)

typedef struct golden_key {
    const char *model;
    uint32_t model_bytes;
    const char *user;
    uint32_t user_bytes;
    uint64_t ts_ms, hash;
} golden_key;

static const golden_key GOLDEN_KEYS[] = {
    {TEXT(""), TEXT(""), 0, UINT64_C(0xd696ddd1bd49eed8)},
    {TEXT(""), TEXT(""), UINT64_MAX, UINT64_C(0xa514f264a579473b)},
    {TEXT("m"), TEXT(""), 0, UINT64_C(0x4520094093cae581)},
    {TEXT(""), TEXT("m"), 0, UINT64_C(0xc307e227a921ae77)},
    {TEXT("ab"), TEXT("c"), 1, UINT64_C(0x34527a92107c4475)},
    {TEXT("a"), TEXT("bc"), 1, UINT64_C(0x43407e399789c8a9)},
    {TEXT("llama-3-8b"), TEXT("alice"), T0, UINT64_C(0xf20ef91535a05037)},
    {TEXT("llama-3-8b"), TEXT("alice"), T0 + 1, UINT64_C(0xab8a66b07ae05f25)},
    {TEXT("llama-3-8b"), TEXT("bob"), T0, UINT64_C(0x904d37564d916e57)},
    {TEXT("llama-3-70b"), TEXT("alice"), T0, UINT64_C(0x468f84d6de687904)},
    {TEXT("mod\xc3\xa8le-\xc3\xa9"), TEXT("\xe7\x94\xa8\xe6\x88\xb7-42"), T0, UINT64_C(0x43f43800dd2e4e80)},
    {TEXT("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"), TEXT("\xff\x00\xfe"), 7,
     UINT64_C(0x17ef9a252132497d)},
    {TEXT(MANY("m") TEN("m")), TEXT(MANY("u") TEN("u")), UINT64_C(1) << 63, UINT64_C(0xd2c0c42256b8236f)},
    {TEXT(MANY("m") TEN("m")), TEXT(MANY("u") "uuuuuuuuu"), UINT64_C(1) << 63, UINT64_C(0x4c00d643397acee8)},
    {TEXT(MANY("\0") TEN("\0")), TEXT(MANY("\0") TEN("\0")), 0, UINT64_C(0x69caabb63bae959b)},
};

/* i = 1 .. 33: model "model-<i mod 3>", user "u" × i, ts_ms T0 + 1000 i. */
static const uint64_t GOLDEN_ROW[33] = {
    UINT64_C(0xba3f831809094e89), UINT64_C(0x7778456ae2a7cbd0), UINT64_C(0x8193398d446d3ddc), UINT64_C(0x9a667bd17456c3fa),
    UINT64_C(0xe69d48a9521b2249), UINT64_C(0x435a729ae3c99829), UINT64_C(0xe6ba0dd502b78d03), UINT64_C(0x7feaca2917963998),
    UINT64_C(0x160c5f9bc8e72b96), UINT64_C(0x72850e459defbbe6), UINT64_C(0xdbb47e4fe5df46fc), UINT64_C(0x0e743d3bacbc3b1f),
    UINT64_C(0x9a72cd3ccf5d396b), UINT64_C(0x94242ec35c653716), UINT64_C(0xde98e07108db3134), UINT64_C(0x6b5b0792eb2c06d3),
    UINT64_C(0xd6ea0585914b32e9), UINT64_C(0x23f9858a35f7b2db), UINT64_C(0x006f2b4d43cb6e88), UINT64_C(0xf449df8170233751),
    UINT64_C(0xe89a0f495e7e1f0b), UINT64_C(0x4b2a63643cc3309a), UINT64_C(0x76585992eaadd7b9), UINT64_C(0x208b498f7dd383af),
    UINT64_C(0x695ae22e2ce7a2d7), UINT64_C(0xe16d026e18e65393), UINT64_C(0x370e2a9b8178232b), UINT64_C(0x1aadb3900f7f6bc1),
    UINT64_C(0x87dc12e1cb6ea2d5), UINT64_C(0x71e6ee073f8e4f71), UINT64_C(0x38b393dd03312f9b), UINT64_C(0x00e4da5034121398),
    UINT64_C(0x5d09a45b10e0d041),
};

/* `count` instances; instance i weighs weights[i mod cycle], but `out` weighs 0. */
typedef struct golden_table {
    uint32_t count, cycle;
    uint32_t weights[3];
    uint32_t out;
    bool reversed;
    uint64_t digest;
    uint16_t owners[5]; /* of slots 0, 1, 12345, 32768, 65535 */
} golden_table;

enum { NOBODY = 0xFFFF, GOLDEN_MOST = 1024, GOLDEN_SLOTS = 65536 };

static const golden_table GOLDEN_TABLES[] = {
    {1, 1, {1}, NOBODY, false, UINT64_C(0xe12ecc387a955073), {0, 0, 0, 0, 0}},
    {2, 1, {0}, NOBODY, false, UINT64_C(0xada08b142a6d2550), {NOBODY, NOBODY, NOBODY, NOBODY, NOBODY}},
    {2, 1, {1}, NOBODY, false, UINT64_C(0xdc81b043fd87249a), {1, 1, 1, 0, 1}},
    {2, 1, {1}, NOBODY, true, UINT64_C(0x36705d23e93ef157), {0, 0, 0, 1, 0}},
    {2, 2, {9, 1}, NOBODY, false, UINT64_C(0x0215fcdeb25714bf), {0, 0, 0, 0, 0}},
    {8, 1, {1}, NOBODY, false, UINT64_C(0x45fcdbc70424e18f), {4, 2, 5, 7, 2}},
    {8, 1, {100}, NOBODY, false, UINT64_C(0x45fcdbc70424e18f), {4, 2, 5, 7, 2}},
    {8, 3, {1, 2, 4}, NOBODY, false, UINT64_C(0x02922e433d851df0), {4, 2, 5, 5, 2}},
    {8, 1, {1}, 3, false, UINT64_C(0x0e9aa961ace494ba), {4, 2, 5, 7, 2}},
    {128, 1, {1}, NOBODY, false, UINT64_C(0xaa8435599b33aa3b), {54, 31, 71, 29, 34}},
    {128, 1, {1}, 77, false, UINT64_C(0xa2279abd10b6be88), {54, 31, 71, 29, 34}},
    {1024, 1, {1}, NOBODY, false, UINT64_C(0xecfe17afc358a1a1), {611, 810, 540, 468, 1020}},
};

typedef struct golden_memory {
    uint64_t logs[DPF_TABLE_LOGS];
    dpf_table_instance instances[GOLDEN_MOST];
    uint16_t slots[GOLDEN_SLOTS], heirs[GOLDEN_SLOTS];
} golden_memory;

/* Small numbers only; a bare 32-bit machine has no division without a library. */
static inline uint32_t golden_divide(uint32_t number, uint32_t by, uint32_t *rest) {
    uint32_t times = 0;
    for (; number >= by; number -= by) times++;
    *rest = number;
    return times;
}

static inline uint32_t golden_decimal(char *at, uint32_t number) {
    uint32_t digit, tens = golden_divide(number, 10, &digit), place = (tens != 0) ? golden_decimal(at, tens) : 0;
    at[place] = (char)('0' + digit);
    return place + 1;
}

/* "10.0.<i div 250>.<i mod 250 + 1>:8000" */
static inline uint32_t golden_name(char name[32], uint32_t i) {
    static const char front[] = "10.0.", back[] = ":8000";
    uint32_t at = 0, rest, block = golden_divide(i, 250, &rest);
    for (uint32_t k = 0; k < sizeof front - 1; k++) name[at++] = front[k];
    at += golden_decimal(name + at, block);
    name[at++] = '.';
    at += golden_decimal(name + at, rest + 1);
    for (uint32_t k = 0; k < sizeof back - 1; k++) name[at++] = back[k];
    return at;
}

static inline uint64_t golden_hash(const golden_key *one) {
    unsigned char key[DPF_ROUTE_KEY_MOST];
    return dpf_xxh64(key, dpf_route_key(key, one->model, one->model_bytes, one->user, one->user_bytes, one->ts_ms),
                     DPF_ROUTE_KEY_SEED);
}

/* Each check has a number; the answer is that of the first one that fails, 0 when none does. */
static inline int golden_keys(void) {
    static char user[33], model[] = "model-0";
    for (uint32_t i = 0; i < sizeof GOLDEN_KEYS / sizeof *GOLDEN_KEYS; i++) {
        if (golden_hash(&GOLDEN_KEYS[i]) != GOLDEN_KEYS[i].hash) return 10 + (int)i;
    }
    for (uint32_t i = 1; i <= 33; i++) {
        uint32_t rest;
        user[i - 1] = 'u';
        (void)golden_divide(i, 3, &rest);
        model[6] = (char)('0' + rest);
        if (golden_hash(&(golden_key){model, 7, user, i, T0 + 1000 * i, 0}) != GOLDEN_ROW[i - 1]) return 30 + (int)i;
    }
    return 0;
}

static inline int golden_costs(const uint64_t *logs) {
    static const uint64_t pairs[][2] = {
        {UINT64_C(1) << 63, UINT64_C(1) << 40}, {UINT64_MAX, 1},
        {UINT64_C(0xC000000000000000), UINT64_C(456338556421)}, {UINT64_C(0x8010000000000000), UINT64_C(1098737464722)},
        {3, UINT64_C(68626059478533)}, {0, UINT64_C(1) << 46}, {1, UINT64_C(1) << 46},
    };
    uint64_t seed = dpf_table_seed("10.0.0.1:8000", 13);
    for (uint32_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (dpf_table_cost(logs, pairs[i][0]) != pairs[i][1]) return 70 + (int)i;
    }
    if (dpf_table_hash(seed, 0) != UINT64_C(0x027988a185dc781d)) return 80;
    if (dpf_table_hash(seed, 1) != UINT64_C(0x1489e6af7e78c462)) return 81;
    if (dpf_table_hash(seed, 65535) != UINT64_C(0x7ea5f61f57661431)) return 82;
    return 0;
}

static inline void golden_fill(golden_memory *memory, dpf_table *table, const golden_table *want, uint32_t out) {
    char name[32];
    (void)dpf_table_init(table, 16, memory->slots, memory->instances, GOLDEN_MOST, memory->logs);
    for (uint32_t i = 0; i < want->count; i++) {
        uint32_t rest, nbytes = golden_name(name, want->reversed ? want->count - 1 - i : i);
        (void)golden_divide(i, want->cycle, &rest);
        (void)dpf_table_note(table, i, dpf_table_seed(name, nbytes), i == out ? 0 : want->weights[rest]);
    }
    dpf_table_build(table);
}

static inline int golden_tables(golden_memory *memory) {
    static const uint32_t places[5] = {0, 1, 12345, 32768, 65535};
    dpf_table table;
    for (uint32_t i = 0; i < sizeof GOLDEN_TABLES / sizeof *GOLDEN_TABLES; i++) {
        golden_fill(memory, &table, &GOLDEN_TABLES[i], GOLDEN_TABLES[i].out);
        if (dpf_table_digest(memory->slots, 16) != GOLDEN_TABLES[i].digest) return 100 + (int)i;
        for (uint32_t k = 0; k < 5; k++) {
            if (memory->slots[places[k]] != GOLDEN_TABLES[i].owners[k]) return 120 + (int)i;
        }
    }
    return 0;
}

/* Tables without an instance, out of those with it: by its heirs, and by those that are found in two parts after it came back. */
static inline int golden_heirs(golden_memory *memory) {
    dpf_table table;
    uint32_t moved;
    for (uint32_t i = 0; i < sizeof GOLDEN_TABLES / sizeof *GOLDEN_TABLES; i++) {
        const golden_table *want = &GOLDEN_TABLES[i];
        if (want->out == NOBODY) continue;
        golden_fill(memory, &table, want, NOBODY);
        dpf_table_use_heirs(&table, memory->heirs);
        (void)dpf_table_find_heirs(&table, 0, GOLDEN_SLOTS);
        for (uint32_t turn = 0; turn < 2; turn++) {
            if (!dpf_table_weigh(&table, want->out, 0, &moved)) return 140 + (int)i;
            if (dpf_table_digest(memory->slots, 16) != want->digest) return 160 + (int)i;
            if (!dpf_table_weigh(&table, want->out, want->weights[0], &moved)) return 180 + (int)i;
            (void)dpf_table_find_heirs(&table, 0, GOLDEN_SLOTS / 2);
            (void)dpf_table_find_heirs(&table, GOLDEN_SLOTS / 2, GOLDEN_SLOTS);
        }
    }
    return 0;
}

/* The digest of T as little-endian words, which on a machine of the other order are turned first. */
static inline int golden_logs(uint64_t *logs) {
    dpf_table_logs(logs);
    uint64_t hash = 0;
    for (uint32_t i = 0; i < DPF_TABLE_LOGS; i++) logs[i] = dpf_little64(logs[i]);
    hash = dpf_xxh64(logs, DPF_TABLE_LOGS * sizeof *logs, 0);
    for (uint32_t i = 0; i < DPF_TABLE_LOGS; i++) logs[i] = dpf_little64(logs[i]);
    return hash == UINT64_C(0x448027254a9f9779) ? 0 : 1;
}

/* Everything; about 100 million hashes. */
static inline int golden_all(golden_memory *memory) {
    int wrong = golden_logs(memory->logs);
    if (wrong == 0) wrong = golden_keys();
    if (wrong == 0) wrong = golden_costs(memory->logs);
    if (wrong == 0) wrong = golden_tables(memory);
    if (wrong == 0) wrong = golden_heirs(memory);
    return wrong;
}

#endif
