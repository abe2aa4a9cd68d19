/* SPDX-License-Identifier: Apache-2.0
 *
 * Somebody overwrites a word between every look at it and the swap, for ever: each call gives up after DPF_TRIES, says so,
 * and works again when that ends. The core is compiled into this file with swaps that can be made to lose.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

static bool losing;
static uint64_t flip; /* what the other one changes: bits that leave the word one that a swap is tried on */
static uint32_t tries;

static bool try64(_Atomic uint64_t *word, uint64_t *expected, uint64_t value) {
    if (!losing) return atomic_compare_exchange_strong(word, expected, value);
    tries++;
    *expected = atomic_fetch_xor(word, flip) ^ flip;
    return false;
}

static bool try32(_Atomic uint32_t *word, uint32_t *expected, uint32_t value) {
    if (!losing) return atomic_compare_exchange_strong(word, expected, value);
    tries++;
    *expected = atomic_fetch_xor(word, (uint32_t)flip) ^ (uint32_t)flip;
    return false;
}

#define TRY(word, expected, value) _Generic((word), _Atomic uint64_t *: try64, _Atomic uint32_t *: try32)(word, expected, value)
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit
#define atomic_compare_exchange_strong_explicit(word, expected, value, success, failure) TRY(word, expected, value)
#define atomic_compare_exchange_weak_explicit(word, expected, value, success, failure) TRY(word, expected, value)

#include "check.h"

#include "../src/arena.c"
#include "../src/requests.c"
#include "../src/ring.c"
#include "../src/ring_reclaim.c"

enum { PRODUCER = 1, CONSUMER = 2 };

static dpf_arena arena;
static dpf_ring ring;
static void *base;

static void start(void) {
    dpf_link_spec link = link_of(1, 64, DPF_POLICY_FAIL);
    dpf_arena_spec spec = spec_of(&link);
    uint64_t nbytes;
    losing = false;
    free(base);
    base = new_arena(&spec, &nbytes);
    CHECK(dpf_arena_open(base, nbytes, &arena) == DPF_OK && dpf_arena_ring(&arena, 0, &ring) == DPF_OK);
    CHECK(dpf_ring_attach_producer(&ring, PRODUCER) == DPF_OK && dpf_ring_attach_consumer(&ring, 0, CONSUMER) == DPF_OK);
}

static void lose(uint64_t bits) {
    losing = true;
    flip = bits;
    tries = 0;
}

static void send_one(void) {
    dpf_descriptor d = {.nbytes = 8};
    CHECK(dpf_ring_loan(&ring, PRODUCER, &d.slot, &d.generation) == DPF_OK);
    CHECK(dpf_ring_send(&ring, PRODUCER, &d, false) == DPF_OK);
}

static void test_requests(void) {
    uint64_t key;
    start();
    CHECK(dpf_requests_open(&arena.requests, 3, 1, &key) == DPF_OK);
    lose(1); /* the bound goes to and fro below the one that is asked for */
    CHECK(dpf_requests_cancel(&arena.requests, key, 5) == DPF_CORRUPT && tries == DPF_TRIES);
    lose(1);
    CHECK(dpf_requests_close(&arena.requests, key) == DPF_CORRUPT && tries == DPF_TRIES);
    losing = false;
    CHECK(dpf_requests_cancel(&arena.requests, key, 5) == DPF_OK && dpf_requests_cancelled(&arena.requests, key, 4));
    CHECK(dpf_requests_close(&arena.requests, key) == DPF_OK);
}

static void test_receive(void) {
    dpf_descriptor got;
    start();
    send_one();
    lose(1ull << 32); /* leases of nobody come and go */
    CHECK(dpf_ring_receive(&ring, CONSUMER, &got) == DPF_CORRUPT && tries == DPF_TRIES + 1); /* one to pass over the message */
}

static void test_release(void) {
    dpf_descriptor got;
    start();
    send_one();
    CHECK(dpf_ring_receive(&ring, CONSUMER, &got) == DPF_OK);
    lose(2ull << 32); /* one lease, three leases */
    CHECK(dpf_ring_release(&ring, CONSUMER, got.slot) == DPF_CORRUPT && tries == DPF_TRIES);
    losing = false;
    CHECK(dpf_ring_release(&ring, CONSUMER, got.slot) == DPF_OK);
    send_one();
}

static void test_reclaim(void) {
    uint32_t slot, generation;
    start();
    CHECK(dpf_ring_loan(&ring, PRODUCER, &slot, &generation) == DPF_OK);
    lose(2ull << 32); /* another generation */
    CHECK(dpf_ring_reclaim(&ring, PRODUCER) == 0 && tries == DPF_TRIES + 2); /* one for each port */
    losing = false;
    CHECK(dpf_ring_reclaim(&ring, PRODUCER) == 1);
}

static void test_bell(void) {
    start();
    dpf_bell *bell = &arena.bells[1];
    uint32_t epoch = dpf_bell_arm(bell);
    lose(2); /* one sleeper, three sleepers */
    dpf_bell_disarm(bell, epoch);
    CHECK(tries == DPF_TRIES);
    lose(2);
    uint32_t seen = dpf_bell_value(bell);
    dpf_bell_reset(bell);
    CHECK(tries == DPF_TRIES && dpf_bell_value(bell) == seen + 1);
    losing = false;
    dpf_bell_reset(bell);
    CHECK(!dpf_bell_ring(bell)); /* nobody is counted any more */
}

int main(void) {
    test_requests();
    test_receive();
    test_release();
    test_reclaim();
    test_bell();
    free(base);
    puts("bounds: ok");
    return 0;
}
