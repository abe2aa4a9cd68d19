/* SPDX-License-Identifier: Apache-2.0
 *
 * A peer that writes nonsense anywhere in the arena, before a call and during it: nothing may read or write outside the
 * arena (the sanitizer watches), hang, or return a descriptor that does not fit.
 */
#include <pthread.h>

#include "check.h"

static uint64_t seed = 88172645463325252ull;
static dpf_arena arena;
static dpf_ring ring;
static void *base;
static uint64_t nbytes;
static atomic_bool stop;

static void start(uint32_t slots, dpf_policy policy) {
    dpf_link_spec link = link_of(slots, 200, policy);
    dpf_arena_spec spec = spec_of(&link);
    free(base);
    base = new_arena(&spec, &nbytes);
    CHECK(dpf_arena_open(base, nbytes, &arena) == DPF_OK && dpf_arena_ring(&arena, 0, &ring) == DPF_OK);
}

/* A value that is likely to hurt, in a word that is likely to matter. */
static void scribble(uint64_t *state, uint64_t words) {
    static const uint64_t bad[] = {0, 1, 2, UINT64_MAX, UINT32_MAX, 1ull << 63, 1ull << 32, 0x0000000100000002ull};
    uint64_t value = next_random(state) % 3 ? bad[next_random(state) % 8] : next_random(state);
    uint64_t at = next_random(state) % words;
    atomic_store_explicit((_Atomic uint64_t *)base + at, value, memory_order_relaxed);
}

static void check_descriptor(const dpf_descriptor *d) {
    uint32_t size;
    CHECK(d->slot < ring.count && (uint64_t)d->offset + d->nbytes <= ring.slot_bytes);
    CHECK((d->rank_urgency & 15) <= DPF_RANK_MAX && dpf_descriptor_bytes(d, &size));
    CHECK((d->dtype == 0 && (d->rank_urgency & 15) == 0) || size <= d->nbytes);
    volatile unsigned char sum = 0;
    for (uint32_t i = 0; i < d->nbytes; i++) sum ^= dpf_ring_slot(&ring, d->slot)[d->offset + i];
}

static void use_everything(uint64_t *state) {
    dpf_descriptor d = {.nbytes = 8};
    dpf_ring_stats stats;
    if (dpf_ring_loan(&ring, 1, &d.slot, &d.generation) == DPF_OK) {
        CHECK(d.slot < ring.count);
        memset(dpf_ring_slot(&ring, d.slot), 7, ring.slot_bytes);
        d.flags = next_random(state) % 4 ? 0 : DPF_PARTIAL;
        (void)dpf_ring_send(&ring, 1, &d, next_random(state) % 8 == 0);
    }
    if (dpf_ring_receive(&ring, 2, &d) == DPF_OK) {
        check_descriptor(&d);
        (void)dpf_ring_release(&ring, 2, d.slot);
    }
    uint64_t key;
    if (dpf_requests_open(&arena.requests, 3, 1, &key) == DPF_OK) {
        (void)dpf_requests_cancel(&arena.requests, key, 3);
        (void)dpf_requests_cancelled(&arena.requests, key, 2);
        (void)dpf_requests_close(&arena.requests, key);
    }
    if (next_random(state) % 16 == 0) (void)dpf_arena_reclaim(&arena, 1 + next_random(state) % 2, NULL);
    dpf_ring_read_stats(&ring, &stats);
}

static void test_between_calls(void) {
    for (int round = 0; round < 300; round++) {
        start(1 + round % 5, (dpf_policy)(round % 3));
        for (int i = 0; i < 200; i++) {
            for (uint64_t n = next_random(&seed) % 8; n > 0; n--) scribble(&seed, nbytes / 8);
            use_everything(&seed);
        }
    }
}

static void *scribbler(void *unused) {
    uint64_t state = 12345;
    (void)unused;
    while (!atomic_load(&stop)) scribble(&state, nbytes / 8);
    return NULL;
}

static void test_during_calls(void) {
    pthread_t thread;
    start(4, DPF_POLICY_NEWEST);
    CHECK(pthread_create(&thread, NULL, scribbler, NULL) == 0);
    for (int i = 0; i < 20000; i++) use_everything(&seed);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

/* After nonsense ends, the ring works again once its sides were reclaimed. */
static void test_recovers(void) {
    for (int round = 0; round < 500; round++) {
        dpf_descriptor d;
        start(3, DPF_POLICY_FAIL);
        ring.control->tail = next_random(&seed);
        ring.control->place[0].head = next_random(&seed);
        for (int i = 0; i < 2; i++) (void)dpf_ring_receive(&ring, 2, &d);
        CHECK(dpf_ring_receive(&ring, 2, &d) == DPF_EMPTY);
        for (uint32_t i = 0; i < 9; i++) {
            d = (dpf_descriptor){.nbytes = 8, .turn = i};
            CHECK(dpf_ring_loan(&ring, 1, &d.slot, &d.generation) == DPF_OK);
            CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_OK);
            CHECK(dpf_ring_receive(&ring, 2, &d) == DPF_OK && d.turn == i);
            CHECK(dpf_ring_release(&ring, 2, d.slot) == DPF_OK);
        }
    }
}

/* A directory with any bytes changed is refused, or describes a ring that stays inside the memory. */
static void test_directory(void) {
    for (int round = 0; round < 20000; round++) {
        if (round % 50 == 0) start(2, DPF_POLICY_FAIL);
        uint64_t directory = sizeof(dpf_arena_header) + 2 * sizeof(dpf_bell) + sizeof(dpf_ring_header);
        unsigned char saved[1024];
        memcpy(saved, base, directory);
        for (uint64_t n = 1 + next_random(&seed) % 3; n > 0; n--) {
            unsigned char value = (unsigned char)(next_random(&seed) % 2 ? 1u << next_random(&seed) % 8 : next_random(&seed));
            ((unsigned char *)base)[next_random(&seed) % directory] = value;
        }
        if (dpf_arena_open(base, nbytes, &arena) == DPF_OK && dpf_arena_ring(&arena, 0, &ring) == DPF_OK) {
            /* Parts may overlap after such a change: calls must only stay inside the memory. */
            uint64_t state = seed;
            for (int i = 0; i < 4; i++) use_everything(&state);
        }
        memcpy(base, saved, directory);
    }
}

int main(void) {
    test_between_calls();
    test_during_calls();
    test_recovers();
    test_directory();
    free(base);
    puts("hostile: ok");
    return 0;
}
