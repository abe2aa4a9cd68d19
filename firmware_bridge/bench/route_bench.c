/* SPDX-License-Identifier: Apache-2.0
 *
 * Lookups, failures and changes of the routing table beside Maglev, jump and ketama: `route_bench [ROUNDS] [INSTANCES]`, one
 * line `name figure unit` each. Lookups wait for each other, so a figure is how long one takes. All hash the same keys of
 * 43 bytes with XXH64; the rounds are interleaved and the median counts.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>

#include "dpf/table.h"
#include "route_peers.h"

enum { KEYS = 4096, KEY_BYTES = 43, BITS = 16, SLOTS = 1 << BITS, MOST = 1024, PRIME = 65537, ROUNDS_MOST = 1001, MOVES = 1 << 20 };
enum { WIDE = 20, MANY = 1 << 20, LARGE = 655373 }; /* the larger of the two sizes that Maglev's paper measures */

static unsigned char keys[KEYS][48];
static uint64_t names[MOST], logs[DPF_TABLE_LOGS];
static uint16_t wide_slots[1 << WIDE], wide_heirs[1 << WIDE], heirs[SLOTS];
static uint16_t ids[MOST], slots[SLOTS], before[SLOTS], maglev_before[PRIME], maglev_slots[PRIME];
static ketama_point points[MOST * KETAMA_POINTS], points_before[MOST * KETAMA_POINTS];
static dpf_table_instance instances[MOST], wide_instances[MOST];
static dpf_table table, wide;
static dpf_route_view view, wide_view;
static uint16_t large_slots[LARGE], large_before[LARGE];
static maglev peer = {PRIME, maglev_slots}, large = {LARGE, large_slots};
static ketama ring = {0, points};
static uint32_t count;

/* Of this thread: what others do on the machine does not count. */
static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t hash_of(uint32_t i) {
    return dpf_xxh64(keys[i], KEY_BYTES, DPF_ROUTE_KEY_SEED);
}

static uint32_t by_table(uint32_t i) {
    return slots[dpf_route_slot(hash_of(i), BITS)];
}

static uint32_t by_published(uint32_t i) {
    dpf_route_word generation;
    return dpf_route_owner(&view, hash_of(i), &generation);
}

static uint32_t by_wide(uint32_t i) {
    dpf_route_word generation;
    return dpf_route_owner(&wide_view, hash_of(i), &generation);
}

/* Of so many sessions that the table's memory is seen: no two lookups are of one table slot for long. */
static uint64_t hash_of_many(uint32_t i) {
    unsigned char key[DPF_ROUTE_KEY_MOST];
    const unsigned char *at = keys[i % KEYS];
    return dpf_xxh64(key, dpf_route_key(key, at, 10, at + 10, 21, i), DPF_ROUTE_KEY_SEED);
}

static uint32_t many_by_table(uint32_t i) {
    dpf_route_word generation;
    return dpf_route_owner(&view, hash_of_many(i), &generation);
}

static uint32_t many_by_wide(uint32_t i) {
    dpf_route_word generation;
    return dpf_route_owner(&wide_view, hash_of_many(i), &generation);
}

static uint32_t many_by_maglev(uint32_t i) {
    return maglev_find(&peer, hash_of_many(i));
}

static uint32_t many_by_large_maglev(uint32_t i) {
    return maglev_find(&large, hash_of_many(i));
}

static uint32_t by_fields(uint32_t i) {
    unsigned char key[DPF_ROUTE_KEY_MOST];
    dpf_route_word generation;
    uint32_t nbytes = dpf_route_key(key, keys[i], 10, keys[i] + 10, 21, i);
    return dpf_route_owner(&view, dpf_xxh64(key, nbytes, DPF_ROUTE_KEY_SEED), &generation);
}

static uint32_t by_maglev(uint32_t i) {
    return maglev_find(&peer, hash_of(i));
}

static uint32_t by_jump(uint32_t i) {
    return jump_find(hash_of(i), count);
}

static uint32_t by_ketama(uint32_t i) {
    return ketama_find(&ring, hash_of(i));
}

static uint32_t by_hash(uint32_t i) {
    return (uint32_t)(hash_of(i) >> 48);
}

/* The next key depends on the last answer, in a way that changes nothing: no lookup begins before the last one ended. */
#define MEASURE(find, keys)                                                                  \
    static double measure_##find(void) {                                                    \
        static uint32_t at = 0;                                                             \
        uint64_t start = now_ns();                                                          \
        for (uint32_t i = 0; i < 8 * KEYS; i++) {                                           \
            uint32_t owner = find(at);                                                      \
            __asm__ volatile("" : "+r"(owner)); /* the compiler must not know that it is small */ \
            at = (at + 1 + (owner >> 20)) % (keys);                                         \
        }                                                                                   \
        uint64_t spent = now_ns() - start;                                                  \
        return (double)spent / (8 * KEYS);                                                  \
    }
MEASURE(by_hash, KEYS)
MEASURE(by_table, KEYS)
MEASURE(by_published, KEYS)
MEASURE(by_fields, KEYS)
MEASURE(by_maglev, KEYS)
MEASURE(by_jump, KEYS)
MEASURE(by_ketama, KEYS)
MEASURE(by_wide, KEYS)
MEASURE(many_by_table, MANY)
MEASURE(many_by_wide, MANY)
MEASURE(many_by_maglev, MANY)
MEASURE(many_by_large_maglev, MANY)

static const struct {
    const char *name;
    double (*measure)(void);
} RUNS[] = {
    {"hash alone", measure_by_hash},           {"table", measure_by_table},   {"maglev", measure_by_maglev},
    {"jump", measure_by_jump},                 {"ketama", measure_by_ketama}, {"published table", measure_by_published},
    {"published table, with the key", measure_by_fields},
    {"published table, 2^20 slots", measure_by_wide},
    {"a million sessions, published table", measure_many_by_table},
    {"a million sessions, published table, 2^20 slots", measure_many_by_wide},
    {"a million sessions, maglev", measure_many_by_maglev},
    {"a million sessions, maglev of 655373 slots", measure_many_by_large_maglev},
};
enum { KINDS = sizeof RUNS / sizeof *RUNS };

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle(double *values, uint32_t rounds) {
    qsort(values, rounds, sizeof *values, order);
    return values[rounds / 2];
}

static void lookups(uint32_t rounds) {
    static double spent[KINDS][ROUNDS_MOST];
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t kind = 0; kind < KINDS; kind++) spent[kind][round] = RUNS[kind].measure();
    }
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        printf("lookup: %s\t%.1f\tns\n", RUNS[kind].name, middle(spent[kind], rounds));
    }
}

static void moved(const char *name, uint32_t all, uint32_t other, uint32_t of) {
    printf("one fails, keys that move: %s\t%.3f\t%%\n", name, 100.0 * all / of);
    printf("one fails, of these between instances that did not: %s\t%.3f\t%%\n", name, 100.0 * other / of);
}

/* What of the table moves when one fails: its own slots, for each instance in turn. */
static void shares(void) {
    static uint32_t owned[MOST];
    uint32_t largest = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++) owned[slots[slot]]++;
    for (uint32_t i = 0; i < count; i++) largest = owned[i] > largest ? owned[i] : largest;
    printf("one fails, keys that move: table, mean of all instances\t%.3f\t%%\n", 100.0 / count);
    printf("one fails, keys that move: table, largest instance\t%.3f\t%%\n", 100.0 * largest / SLOTS);
}

/* Instance `out` fails; `was` and `is` name the owner of each of MOVES hashes. */
#define MOVED(name, out, was, is)                                     \
    do {                                                             \
        uint32_t all = 0, other = 0;                                 \
        for (uint64_t h = 0; h < MOVES; h++) {                       \
            uint64_t hash = dpf_xxh64_of(h, 5);                      \
            uint32_t from = was, to = is;                            \
            all += from != to;                                       \
            other += from != to && from != (out);                    \
        }                                                            \
        moved(name, all, other, MOVES);                              \
    } while (0)

static void failures(void) {
    uint32_t out = count * 77 / 128, changed;
    uint16_t left[MOST];
    uint64_t left_names[MOST];
    memcpy(before, slots, sizeof slots);
    memcpy(maglev_before, maglev_slots, sizeof maglev_slots);
    memcpy(large_before, large_slots, sizeof large_slots);
    memcpy(points_before, points, sizeof points);
    uint32_t k = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i != out) left[k] = ids[i], left_names[k++] = names[i];
    }
    (void)dpf_table_weigh(&table, out, 0, &changed);
    maglev_build(&peer, left_names, left, count - 1);
    maglev_build(&large, left_names, left, count - 1);
    ketama full = {ring.count, points_before};
    ketama_build(&ring, left_names, left, count - 1);
    MOVED("table", out, before[hash >> 48], slots[hash >> 48]);
    MOVED("maglev", out, maglev_before[hash % PRIME], maglev_slots[hash % PRIME]);
    MOVED("maglev of 655373 slots", out, large_before[hash % LARGE], large_slots[hash % LARGE]);
    MOVED("jump", out, jump_find(hash, count), (jump_find(hash, count - 1) == out ? count - 1 : jump_find(hash, count - 1)));
    MOVED("ketama", out, ketama_find(&full, hash), ketama_find(&ring, hash));
    (void)dpf_table_weigh(&table, out, 1, &changed);
}

static void changes(uint32_t rounds, dpf_table *of, const char *what) {
    static double leave[ROUNDS_MOST], join[ROUNDS_MOST], publish[ROUNDS_MOST], find[ROUNDS_MOST];
    uint64_t nbytes = dpf_route_map_bytes(of->bits, MOST);
    static dpf_route_entry entries[MOST];
    dpf_route_view here;
    void *base = aligned_alloc(4096, nbytes);
    memset(base, 0, nbytes);
    (void)dpf_route_map_format(base, nbytes, of->bits, MOST, 0);
    (void)dpf_route_map_open(base, nbytes, &here);
    uint64_t start = now_ns();
    dpf_table_build(of);
    uint64_t built = now_ns();
    (void)dpf_table_find_heirs(of, 0, UINT32_C(1) << of->bits);
    printf("change: build%s\t%.2f\tms\n", what, (double)(built - start) / 1e6);
    printf("change: all heirs%s\t%.2f\tms\n", what, (double)(now_ns() - built) / 1e6);
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t changed, who = round % count;
        uint64_t t0 = now_ns();
        (void)dpf_table_weigh(of, who, 0, &changed);
        uint64_t t1 = now_ns();
        (void)dpf_route_map_publish(base, &here, of->slots, entries, count, t1);
        uint64_t t2 = now_ns();
        (void)dpf_table_find_heirs(of, 0, UINT32_C(1) << of->bits);
        uint64_t t3 = now_ns();
        (void)dpf_table_weigh(of, who, 1, &changed);
        uint64_t t4 = now_ns();
        (void)dpf_table_find_heirs(of, 0, UINT32_C(1) << of->bits);
        leave[round] = (double)(t1 - t0), publish[round] = (double)(t2 - t1);
        find[round] = (double)(t3 - t2), join[round] = (double)(t4 - t3);
    }
    printf("change: leave%s\t%.1f\tus\n", what, middle(leave, rounds) / 1e3);
    printf("change: publish%s\t%.1f\tus\n", what, middle(publish, rounds) / 1e3);
    printf("change: heirs after it%s\t%.1f\tus\n", what, middle(find, rounds) / 1e3);
    printf("change: join%s\t%.1f\tus\n", what, middle(join, rounds) / 1e3);
    free(base);
}

int main(int argc, char **argv) {
    uint32_t rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : 101;
    count = argc > 2 ? (uint32_t)atoi(argv[2]) : 128;
    if (rounds < 1 || rounds > ROUNDS_MOST || count < 2 || count > MOST) return 2;
    dpf_table_logs(logs);
    (void)dpf_table_init(&table, BITS, slots, instances, MOST, logs);
    (void)dpf_table_init(&wide, WIDE, wide_slots, wide_instances, MOST, logs);
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        int nbytes = snprintf(name, sizeof name, "10.0.%u.%u:8000", i / 250, i % 250 + 1);
        ids[i] = (uint16_t)i, names[i] = dpf_table_seed(name, (uint32_t)nbytes);
        (void)dpf_table_note(&table, i, names[i], 1);
        (void)dpf_table_note(&wide, i, names[i], 1);
    }
    dpf_table_build(&table);
    dpf_table_build(&wide);
    maglev_build(&peer, names, ids, count);
    maglev_build(&large, names, ids, count);
    ketama_build(&ring, names, ids, count);
    for (uint32_t i = 0; i < KEYS; i++) {
        for (uint32_t k = 0; k < 6; k++) {
            uint64_t word = dpf_xxh64_of(i * 6 + k, 9);
            memcpy(keys[i] + 8 * k, &word, 8);
        }
    }
    static const uint64_t generation = 0;
    view = (dpf_route_view){.generation = &generation, .table = {slots, slots}, .bits = BITS, .key_seed = DPF_ROUTE_KEY_SEED};
    wide_view = (dpf_route_view){.generation = &generation, .table = {wide_slots, wide_slots}, .bits = WIDE, .key_seed = DPF_ROUTE_KEY_SEED};
    lookups(rounds);
    shares();
    failures();
    dpf_table_use_heirs(&table, heirs);
    dpf_table_use_heirs(&wide, wide_heirs);
    changes(rounds, &table, "");
    changes(rounds, &wide, ", 2^20 slots");
    return 0;
}
