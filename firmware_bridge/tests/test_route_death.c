/* SPDX-License-Identifier: Apache-2.0
 *
 * A publisher that dies between any two of its writes (src/step.h), one write later each time, and one that publishes over
 * what it left: readers have all of the old generation or all of the new one, never some of each.
 */
#include <setjmp.h>
#include <stddef.h>

#include "check.h"
#include "dpf/table.h"

enum { BITS = 7, CAPACITY = 5, FEW = 4, CHANGES = 3000, NEVER = 1 << 30 };

static jmp_buf death;
static int steps_left = NEVER;

void dpf_step_hook(void) {
    if (steps_left-- == 0) longjmp(death, 1);
}

typedef struct published { /* what a publication is made of, and what its readers have to find */
    uint16_t slots[1 << BITS];
    dpf_route_entry entries[CAPACITY];
    uint32_t count;
} published;

static void *new_map(dpf_route_view *view) {
    uint64_t nbytes = dpf_route_map_bytes(BITS, CAPACITY);
    void *base = aligned_alloc(4096, nbytes);
    CHECK(base != NULL);
    memset(base, 0, nbytes);
    CHECK(dpf_route_map_format(base, nbytes, BITS, CAPACITY, 77));
    CHECK(dpf_route_map_open(base, nbytes, view) == DPF_ROUTE_OK);
    return base;
}

/* Every byte of it is random: nothing is right by chance. */
static void draw(published *one, uint64_t *state, uint32_t count) {
    for (size_t i = 0; i < sizeof one->slots / sizeof *one->slots; i++) one->slots[i] = (uint16_t)(next_random(state) % count);
    for (size_t i = 0; i < sizeof one->entries; i++) ((unsigned char *)one->entries)[i] = (unsigned char)next_random(state);
    for (uint32_t i = 0; i < count; i++) one->entries[i].flags |= DPF_ROUTE_USED;
    one->count = count;
}

static uint64_t publish(void *base, const dpf_route_view *view, const published *one) {
    return dpf_route_map_publish(base, view, one->slots, one->entries, one->count, 9);
}

/* What a reader finds is all of `one`, of that generation; as `dpf_route_find` sees it, slot by slot, and entry by entry. */
static void check_is(const dpf_route_view *view, const published *one, uint64_t generation) {
    dpf_route_word seen;
    dpf_route_entry entry;
    for (uint64_t slot = 0; slot < 1 << BITS; slot++) {
        uint32_t owner = dpf_route_find(view, slot << (64 - BITS), &entry, &seen);
        CHECK(seen == (dpf_route_word)generation && owner == one->slots[slot]);
        CHECK(memcmp(&entry, &one->entries[owner], sizeof entry) == 0);
    }
    for (uint32_t i = one->count; i < CAPACITY; i++) CHECK((view->entries[generation & 1][i].flags & DPF_ROUTE_USED) == 0);
}

/* Publishes, and dies after `steps` writes if there are so many; whether it died. */
static bool dies(void *base, const dpf_route_view *view, const published *one, int steps) {
    bool died = setjmp(death) != 0;
    if (!died) {
        steps_left = steps;
        (void)publish(base, view, one);
    }
    steps_left = NEVER;
    return died;
}

/* Two publications, then one that dies after `steps` writes, and its successor, who opens the memory as it is. */
static bool death_after(int steps, uint64_t *state) {
    dpf_route_view view, again;
    static published made[4]; /* static: a jump leaves it as it is */
    void *base = new_map(&view);
    for (uint32_t i = 0; i < 4; i++) draw(&made[i], state, i == 2 ? FEW - 1 : FEW);
    CHECK(publish(base, &view, &made[0]) == 1 && publish(base, &view, &made[1]) == 2);
    bool died = dies(base, &view, &made[2], steps);
    uint64_t now = died ? 2 : 3;
    check_is(&view, &made[died ? 1 : 2], now);
    CHECK(dpf_route_map_open(base, dpf_route_map_bytes(BITS, CAPACITY), &again) == DPF_ROUTE_OK);
    CHECK(publish(base, &again, &made[3]) == now + 1);
    check_is(&view, &made[3], now + 1);
    free(base);
    return died;
}

static void deaths(void) {
    uint64_t state = 88172645463325252u;
    int steps = 0;
    while (death_after(steps, &state)) steps++;
    /* words of the table and of the entries, one write for each entry that is none, the time, the generation */
    int words = (int)((sizeof(uint16_t) << BITS) + (FEW - 1) * sizeof(dpf_route_entry)) / (int)sizeof(dpf_route_word);
    CHECK(steps >= words + CAPACITY - (FEW - 1) + 2);
    printf("route death: a publisher died after each of %d writes, no reader saw it\n", steps);
}

static uint64_t seed_of(uint64_t i) {
    return dpf_xxh64_of(i, 5);
}

/* Random joins, leaves, weights and renames, with heirs and without, each published, now and then by a writer that died half
 * way before: both buffers are copies of the whole table, this one and the one before. */
static void changes(void) {
    static const uint32_t weights[] = {0, 0, 1, 1, 1, 2, 7, 65535};
    static uint16_t slots[1 << BITS], heirs[1 << BITS], before[1 << BITS];
    static uint64_t logs[DPF_TABLE_LOGS];
    static dpf_table_instance instances[FEW];
    static published one, dead;
    dpf_route_view view;
    dpf_table table;
    uint64_t state = 88172645463325252u;
    uint32_t moved, deaths_of = 0;
    void *base = new_map(&view);
    dpf_table_logs(logs);
    CHECK(dpf_table_init(&table, BITS, slots, instances, FEW, logs));
    dpf_table_use_heirs(&table, heirs);
    memset(before, 0xFF, sizeof before);
    for (uint64_t generation = 1; generation <= CHANGES; generation++) {
        uint64_t who = next_random(&state) % FEW, name = who + FEW * (next_random(&state) % 8 == 0);
        CHECK(dpf_table_put(&table, (uint32_t)who, seed_of(name), weights[next_random(&state) % 8], &moved));
        if (next_random(&state) % 2 == 0) (void)dpf_table_find_heirs(&table, 0, 1 << BITS);
        draw(&one, &state, 1 + (uint32_t)(next_random(&state) % CAPACITY));
        memcpy(one.slots, slots, sizeof slots);
        if (next_random(&state) % 4 == 0) {
            draw(&dead, &state, CAPACITY);
            CHECK(dies(base, &view, &dead, (int)(next_random(&state) % 150)));
            deaths_of++;
        }
        CHECK(publish(base, &view, &one) == generation);
        CHECK(memcmp(view.table[generation & 1], slots, sizeof slots) == 0);
        CHECK(memcmp(view.entries[generation & 1], one.entries, one.count * sizeof *one.entries) == 0);
        CHECK(memcmp(view.table[(generation + 1) & 1], before, sizeof before) == 0);
        memcpy(before, slots, sizeof slots);
    }
    printf("route death: %d changes and %u deaths, every buffer a whole table\n", CHANGES, (unsigned)deaths_of);
    free(base);
}

int main(void) {
    deaths();
    changes();
    return 0;
}
