/* SPDX-License-Identifier: Apache-2.0
 *
 * Routing: golden vectors, changes against full builds, and the published table under readers and hostile bytes.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

#include "check.h"
#include "route_golden.h"

enum { FEW = 12, SMALL = 8, LARGE = 12, UPDATES = 1000, READERS = 2 };

static golden_memory memory;

static void golden(void) {
    int wrong = golden_all(&memory);
    if (wrong != 0) fprintf(stderr, "golden vector %d\n", wrong);
    CHECK(wrong == 0);
}

/* Every length of both fields, from buffers of exactly that size: a sanitizer sees each byte too many. */
static void lengths(void) {
    unsigned char key[DPF_ROUTE_KEY_MOST];
    for (uint32_t nbytes = 0; nbytes <= DPF_ROUTE_FIELD_MOST + 1; nbytes++) {
        unsigned char *field = malloc(nbytes ? nbytes : 1);
        CHECK(field != NULL);
        for (uint32_t i = 0; i < nbytes; i++) field[i] = (unsigned char)(i * 7 + 1);
        uint32_t made = dpf_route_key(key, field, nbytes, field, nbytes, 5);
        CHECK(made == (nbytes > DPF_ROUTE_FIELD_MOST ? 0 : 12 + 2 * nbytes));
        if (made) {
            CHECK(key[0] == nbytes && key[1] == 0 && memcmp(key + 2, field, nbytes) == 0);
            CHECK(key[2 + nbytes] == nbytes && memcmp(key + 4 + nbytes, field, nbytes) == 0 && key[4 + 2 * nbytes] == 5);
        }
        free(field);
    }
    CHECK(dpf_route_key(key, NULL, 0, NULL, 0, 0) == DPF_ROUTE_KEY_LEAST);
}

static void hashes(void) {
    unsigned char bytes[80];
    for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)i;
    CHECK(dpf_xxh64(NULL, 0, 0) == UINT64_C(0xEF46DB3751D8E999)); /* of the specification's own test */
    for (uint64_t word = 1; word != 0; word *= 3) {
        uint64_t little = dpf_little64(word);
        CHECK(dpf_xxh64_of(word, word ^ 9) == dpf_xxh64(&little, 8, word ^ 9));
        if (word > UINT64_MAX / 3) break;
    }
    for (unsigned start = 0; start < 8; start++) {
        unsigned char moved[88];
        memcpy(moved + start, bytes, sizeof bytes);
        for (unsigned n = 0; n <= sizeof bytes; n++) CHECK(dpf_xxh64(moved + start, n, 3) == dpf_xxh64(bytes, n, 3));
    }
    CHECK(dpf_route_mark(UINT64_C(0x1234567800000000)) == UINT32_C(0x12345679));
    CHECK(dpf_route_slot(UINT64_C(0xABCD000000000000), 16) == 0xABCD && dpf_route_slot(UINT64_MAX, 4) == 15);
}

static uint64_t seed_of(uint32_t i) {
    char name[32];
    return dpf_table_seed(name, golden_name(name, i));
}

/* Whoever is said to be an heir owns the slot in the table that a full build makes without its owner. */
static void check_heirs(const dpf_table *table, dpf_table *whole) {
    for (uint32_t out = 0; out < table->count; out++) {
        for (uint32_t k = 0; k < table->count; k++) {
            if (table->instances[k].used) {
                CHECK(dpf_table_note(whole, k, table->instances[k].seed, k == out ? 0 : table->instances[k].weight));
            }
        }
        dpf_table_build(whole);
        for (uint32_t s = 0; s < 1 << SMALL; s++) {
            if (table->slots[s] == out && table->heirs[s] != DPF_ROUTE_NONE && table->heirs[s] != table->stale) CHECK(table->heirs[s] == whole->slots[s]);
        }
    }
}

static uint32_t unknown(const dpf_table *table) {
    uint32_t found = 0;
    for (uint32_t s = 0; s < 1 << SMALL; s++) found += table->heirs[s] == DPF_ROUTE_NONE;
    return found;
}

/* Random changes with heirs that are found now and then: each is the right one at every moment, and the table the same as
 * without them. */
static void heirs(void) {
    static const uint32_t weights[] = {0, 0, 1, 1, 1, 1, 2, 7, 100, 65535};
    uint16_t slots[1 << SMALL], next[1 << SMALL], plain[1 << SMALL], full[1 << SMALL];
    dpf_table_instance instances[FEW], others[FEW], all[FEW];
    dpf_table table, without, whole;
    uint64_t state = 88172645463325252u;
    uint32_t moved, expected, kept = 0;
    CHECK(dpf_table_init(&table, SMALL, slots, instances, FEW, memory.logs));
    CHECK(dpf_table_init(&without, SMALL, plain, others, FEW, memory.logs));
    CHECK(dpf_table_find_heirs(&without, 0, 1 << SMALL) == 0);
    dpf_table_use_heirs(&table, next);
    CHECK(unknown(&table) == 1 << SMALL);
    for (uint32_t round = 0; round < 4000; round++) {
        uint32_t i = (uint32_t)(next_random(&state) % FEW), weight = weights[next_random(&state) % 10];
        uint64_t seed = seed_of(next_random(&state) % 16 == 0 ? i + FEW : i);
        bool put = dpf_table_put(&table, i, seed, weight, &moved);
        CHECK(put == dpf_table_put(&without, i, seed, weight, &expected) && moved == expected);
        CHECK(memcmp(slots, plain, sizeof slots) == 0);
        CHECK(dpf_table_init(&whole, SMALL, full, all, FEW, memory.logs));
        check_heirs(&table, &whole);
        kept += (1 << SMALL) - unknown(&table);
        if (next_random(&state) % 3 == 0) {
            CHECK(dpf_table_find_heirs(&table, 0, 0) == 0 && table.stale == DPF_ROUTE_NONE);
            uint32_t before = unknown(&table), found = dpf_table_find_heirs(&table, 0, 1 << SMALL);
            CHECK(unknown(&table) == before - found && memcmp(slots, plain, sizeof slots) == 0);
        }
    }
    CHECK(kept > 200000); /* not just because none was ever known */
    dpf_table_build(&table);
    CHECK(unknown(&table) == 1 << SMALL);
}

/* Random weights, joins, leaves and renames: always the table of a full build, and nothing moves between the others. */
static void changes(void) {
    static const uint32_t weights[] = {0, 1, 1, 1, 2, 7, 100, 65535};
    uint16_t slots[1 << SMALL], full[1 << SMALL], before[1 << SMALL];
    dpf_table_instance instances[FEW], others[FEW];
    dpf_table table, whole;
    uint64_t state = 88172645463325252u;
    uint32_t moved, counted;
    CHECK(dpf_table_init(&table, SMALL, slots, instances, FEW, memory.logs));
    for (uint32_t round = 0; round < 20000; round++) {
        uint32_t i = (uint32_t)(next_random(&state) % FEW), weight = weights[next_random(&state) % 8];
        uint64_t seed = seed_of(next_random(&state) % 16 == 0 ? i + FEW : i); /* now and then another name */
        memcpy(before, slots, sizeof slots);
        if (!dpf_table_put(&table, i, seed, weight, &moved)) continue;
        CHECK(dpf_table_init(&whole, SMALL, full, others, FEW, memory.logs));
        for (uint32_t k = 0; k < table.count; k++) {
            if (instances[k].used) CHECK(dpf_table_note(&whole, k, instances[k].seed, instances[k].weight));
        }
        dpf_table_build(&whole);
        CHECK(memcmp(slots, full, sizeof slots) == 0);
        counted = 0;
        for (uint32_t s = 0; s < 1 << SMALL; s++) {
            CHECK(slots[s] == before[s] || slots[s] == i || before[s] == i);
            counted += slots[s] != before[s];
        }
        CHECK(moved >= counted);
    }
}

/* Each instance out and back in tables of every size up to some chunks: owners are found wherever in it they stand. */
static void sizes(void) {
    static uint16_t slots[1 << LARGE], next[1 << LARGE], full[1 << LARGE];
    dpf_table_instance instances[FEW], others[FEW];
    dpf_table table, whole;
    uint32_t moved;
    for (uint32_t bits = DPF_ROUTE_BITS_LEAST; bits <= LARGE; bits++) {
        uint64_t nbytes = sizeof *slots << bits;
        CHECK(dpf_table_init(&table, bits, slots, instances, FEW, memory.logs));
        dpf_table_use_heirs(&table, next);
        for (uint32_t i = 0; i < FEW; i++) CHECK(dpf_table_put(&table, i, seed_of(i), i == 1 ? 40 : 1, &moved));
        for (uint32_t out = 0; out < 2 * FEW; out++) { /* the second time with heirs that are known; instance 1 has most slots */
            CHECK(dpf_table_init(&whole, bits, full, others, FEW, memory.logs));
            for (uint32_t i = 0; i < FEW; i++) CHECK(dpf_table_note(&whole, i, seed_of(i), i == out % FEW ? 0 : instances[i].weight));
            dpf_table_build(&whole);
            uint32_t weight = instances[out % FEW].weight;
            CHECK(dpf_table_weigh(&table, out % FEW, 0, &moved) && memcmp(slots, full, nbytes) == 0);
            if (out >= FEW) (void)dpf_table_find_heirs(&table, 0, UINT32_C(1) << bits);
            CHECK(dpf_table_weigh(&table, out % FEW, weight, &moved));
            if (out >= FEW - 1) (void)dpf_table_find_heirs(&table, 0, UINT32_C(1) << bits);
        }
    }
}

static void refusals(void) {
    uint16_t slots[1 << SMALL];
    dpf_table_instance instances[FEW];
    dpf_table table;
    uint32_t moved = 9;
    CHECK(!dpf_table_init(&table, 3, slots, instances, FEW, memory.logs));
    CHECK(!dpf_table_init(&table, 23, slots, instances, FEW, memory.logs));
    CHECK(dpf_table_init(&table, SMALL, slots, instances, FEW, memory.logs));
    CHECK(slots[0] == DPF_ROUTE_NONE && slots[(1 << SMALL) - 1] == DPF_ROUTE_NONE);
    CHECK(dpf_table_put(&table, 0, 5, 1, &moved) && moved == 1 << SMALL);
    CHECK(!dpf_table_put(&table, 1, 5, 1, &moved) && moved == 0); /* two instances of one name */
    CHECK(!dpf_table_put(&table, FEW, 6, 1, &moved));
    CHECK(!dpf_table_put(&table, 1, 6, 65536, &moved));
    CHECK(!dpf_table_weigh(&table, 1, 1, &moved) && !dpf_table_weigh(&table, 0, 65536, &moved));
    CHECK(dpf_table_weigh(&table, 0, 0, &moved) && moved == 1 << SMALL && slots[7] == DPF_ROUTE_NONE);
    CHECK(dpf_table_index(&table, 5) == 0 && dpf_table_index(&table, 6) == DPF_ROUTE_NONE);
}

/* ---- the published table ---- */

static void *new_map(uint32_t capacity, dpf_route_view *view) {
    uint64_t nbytes = dpf_route_map_bytes(SMALL, capacity);
    void *base = aligned_alloc(4096, nbytes);
    CHECK(base != NULL);
    memset(base, 0, nbytes);
    CHECK(dpf_route_map_format(base, nbytes, SMALL, capacity, 77));
    CHECK(dpf_route_map_open(base, nbytes, view) == DPF_ROUTE_OK);
    return base;
}

static void maps(void) {
    dpf_route_view view;
    dpf_route_word generation;
    dpf_route_entry entry;
    uint16_t slots[1 << SMALL];
    dpf_route_entry entries[2] = {{.seed = 1, .flags = DPF_ROUTE_USED, .name = "a"}, {.seed = 2, .flags = DPF_ROUTE_USED}};
    CHECK(dpf_route_map_bytes(3, 1) == 0 && dpf_route_map_bytes(23, 1) == 0 && dpf_route_map_bytes(16, 0) == 0);
    CHECK(dpf_route_map_bytes(16, 65536) == 0);
    void *base = new_map(4, &view);
    uint64_t nbytes = dpf_route_map_bytes(SMALL, 4);
    dpf_route_header *header = base, good = *header;
    CHECK(dpf_route_find(&view, 12345, &entry, &generation) == DPF_ROUTE_NONE && generation == 0 && view.key_seed == 77);
    for (uint32_t i = 0; i < 1 << SMALL; i++) slots[i] = (uint16_t)(i & 1);
    CHECK(dpf_route_map_publish(base, &view, slots, entries, 2, 42) == 1 && header->published_ns == 42);
    CHECK(dpf_route_find(&view, UINT64_C(0x0100000000000000), &entry, &generation) == 1 && generation == 1 && entry.seed == 2);
    CHECK(dpf_route_find(&view, 0, &entry, &generation) == 0 && entry.name[0] == 'a');
    memset(slots, 0x77, sizeof slots); /* an index beyond the entries */
    CHECK(dpf_route_map_publish(base, &view, slots, entries, 1, 43) == 2);
    CHECK(dpf_route_find(&view, 0, &entry, &generation) == DPF_ROUTE_NONE && view.entries[0][1].flags == 0);
    memset(slots, 0, sizeof slots);
    CHECK(dpf_route_map_publish(base, &view, slots, entries, 1, 44) == 3 && dpf_route_owner(&view, 0, &generation) == 0);
    dpf_route_map_end(base);
    CHECK(dpf_route_owner(&view, 0, &generation) == DPF_ROUTE_NONE && generation == DPF_ROUTE_ENDED);
    CHECK(dpf_route_find(&view, 0, &entry, &generation) == DPF_ROUTE_NONE && generation == DPF_ROUTE_ENDED);

    CHECK(dpf_route_map_open(base, nbytes - 4096, &view) == DPF_ROUTE_BAD_SIZE);
    CHECK(dpf_route_map_open(base, 100, &view) == DPF_ROUTE_BAD_SIZE);
    header->version++;
    CHECK(dpf_route_map_open(base, nbytes, &view) == DPF_ROUTE_BAD_VERSION);
    *header = good, header->magic = __builtin_bswap64(header->magic);
    CHECK(dpf_route_map_open(base, nbytes, &view) == DPF_ROUTE_BAD_MAGIC);
    for (uint32_t i = 0; i < 64; i++) { /* any word of the header may be anything */
        *header = good;
        ((uint32_t *)(void *)header)[2 + i % 4] ^= UINT32_C(1) << (i / 2);
        if (dpf_route_map_open(base, nbytes, &view) == DPF_ROUTE_OK) {
            CHECK(dpf_route_map_bytes(view.bits, view.capacity) == nbytes); /* a wrong number, but within the memory */
        }
    }
    free(base);
}

typedef struct shared {
    void *base;
    dpf_route_view view;
    atomic_bool done;
    atomic_ulong lookups;
} shared;

/* In generation g every slot's owner is g mod 3 and the owner's entry has seed g: anything else was torn. */
static void *reader(void *argument) {
    shared *with = argument;
    uint64_t state = (uint64_t)(size_t)&state | 1, last = 0;
    unsigned long count = 0;
    while (!atomic_load(&with->done) || count < 1000) {
        dpf_route_word generation;
        dpf_route_entry entry;
        uint64_t hash = next_random(&state);
        if (count & 1) {
            CHECK(dpf_route_owner(&with->view, hash, &generation) == generation % 3);
        } else {
            CHECK(dpf_route_find(&with->view, hash, &entry, &generation) == generation % 3);
            CHECK(entry.seed == generation && entry.weight == generation % 1000);
        }
        CHECK(generation >= last);
        last = generation;
        count++;
    }
    atomic_fetch_add(&with->lookups, count);
    return NULL;
}

static void publish_next(shared *with) {
    static uint16_t slots[1 << SMALL];
    dpf_route_entry entries[3];
    uint64_t next = *with->view.generation + 1;
    memset(entries, 0, sizeof entries);
    for (uint32_t i = 0; i < 1 << SMALL; i++) slots[i] = (uint16_t)(next % 3);
    for (uint32_t i = 0; i < 3; i++) entries[i].seed = next, entries[i].weight = (uint16_t)(next % 1000);
    CHECK(dpf_route_map_publish(with->base, &with->view, slots, entries, 3, next) == next);
}

static void readers(void) {
    pthread_t threads[READERS];
    shared with = {0};
    with.base = new_map(4, &with.view);
    publish_next(&with);
    for (int i = 0; i < READERS; i++) CHECK(pthread_create(&threads[i], NULL, reader, &with) == 0);
    for (int i = 0; i < UPDATES * 50; i++) {
        publish_next(&with);
        if (i % 50 == 0) sched_yield();
    }
    atomic_store(&with.done, true);
    for (int i = 0; i < READERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    printf("route: %lu lookups during %d updates, none torn\n", atomic_load(&with.lookups), UPDATES * 50);
    free(with.base);
}

int main(void) {
    golden();
    lengths();
    hashes();
    changes();
    heirs();
    sizes();
    refusals();
    maps();
    readers();
    puts("route: ok");
    return 0;
}
