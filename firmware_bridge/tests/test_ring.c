/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring and the request table, one call at a time, in one thread.
 */
#include "check.h"

static dpf_ring ring;
static dpf_arena arena;
static void *base;

static void start(uint32_t slots, dpf_policy policy) {
    dpf_link_spec link = link_of(slots, 100, policy);
    dpf_arena_spec spec = spec_of(&link);
    uint64_t nbytes;
    free(base);
    base = new_arena(&spec, &nbytes);
    CHECK(dpf_arena_open(base, nbytes, &arena) == DPF_OK);
    CHECK(dpf_arena_ring(&arena, 0, &ring) == DPF_OK);
}

static dpf_descriptor loaned(uint32_t owner) {
    dpf_descriptor d = {.nbytes = 4, .rank_urgency = 3 << 4};
    CHECK(dpf_ring_loan(&ring, owner, &d.slot, &d.generation) == DPF_OK);
    return d;
}

static void test_order(void) {
    dpf_descriptor got;
    start(3, DPF_POLICY_FAIL);
    CHECK(dpf_ring_receive(&ring, 2, &got) == DPF_EMPTY);
    for (uint32_t round = 0; round < 1000; round++) {
        for (uint32_t i = 0; i < 3; i++) {
            dpf_descriptor d = loaned(1);
            d.turn = 3 * round + i;
            CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_OK);
        }
        uint32_t slot, generation;
        CHECK(dpf_ring_loan(&ring, 1, &slot, &generation) == DPF_FULL);
        for (uint32_t i = 0; i < 3; i++) {
            CHECK(dpf_ring_receive(&ring, 2, &got) == DPF_OK);
            CHECK(got.turn == 3 * round + i && got.sequence == got.turn);
            CHECK(dpf_ring_release(&ring, 2, got.slot) == DPF_OK);
            CHECK(dpf_ring_release(&ring, 2, got.slot) == DPF_STALE);
        }
    }
}

static void test_growing_slot(void) {
    dpf_descriptor got;
    start(1, DPF_POLICY_FAIL);
    dpf_descriptor d = loaned(1);
    uint32_t limit = ring.capacity - ring.count, slot, generation;
    d.flags = DPF_PARTIAL;
    for (uint32_t i = 0; i < limit; i++) CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_OK);
    CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_FULL);
    d.flags = DPF_LAST;
    CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_OK);
    CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_STALE);
    for (uint32_t i = 0; i <= limit; i++) {
        CHECK(dpf_ring_receive(&ring, 2, &got) == DPF_OK);
        CHECK((got.flags == DPF_LAST) == (i == limit));
    }
    for (uint32_t i = 0; i <= limit; i++) {
        CHECK(dpf_ring_loan(&ring, 1, &slot, &generation) == DPF_FULL);
        CHECK(dpf_ring_release(&ring, 2, got.slot) == DPF_OK);
    }
    CHECK(dpf_ring_loan(&ring, 1, &slot, &generation) == DPF_OK);
    CHECK(generation == d.generation + 1);
}

static void test_newest(void) {
    dpf_descriptor got;
    start(2, DPF_POLICY_NEWEST);
    for (uint32_t i = 0; i < 10; i++) {
        dpf_descriptor d = loaned(1);
        d.turn = i;
        CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_OK);
    }
    CHECK(dpf_ring_receive(&ring, 2, &got) == DPF_OK && got.turn == 8);
    CHECK(dpf_ring_receive(&ring, 2, &got) == DPF_OK && got.turn == 9);
    uint32_t slot, generation;
    CHECK(dpf_ring_loan(&ring, 1, &slot, &generation) == DPF_FULL);
    dpf_ring_stats stats;
    dpf_ring_read_stats(&ring, &stats);
    CHECK(stats.dropped == 8 && stats.leased == 2 && stats.depth == 0);
}

static void test_bad_messages(void) {
    start(1, DPF_POLICY_FAIL);
    dpf_descriptor d = loaned(1), bad;
    bad = d, bad.offset = 97;
    CHECK(dpf_ring_send(&ring, 1, &bad, false) == DPF_BAD);
    bad = d, bad.dtype = DPF_DTYPES;
    CHECK(dpf_ring_send(&ring, 1, &bad, false) == DPF_BAD);
    bad = d, bad.rank_urgency = 4;
    CHECK(dpf_ring_send(&ring, 1, &bad, false) == DPF_BAD);
    bad = d, bad.dtype = 1, bad.rank_urgency = 3, bad.shape[0] = bad.shape[1] = bad.shape[2] = 65536;
    CHECK(dpf_ring_send(&ring, 1, &bad, false) == DPF_BAD);
    bad = d, bad.dtype = 1, bad.rank_urgency = 1, bad.shape[0] = 2;
    CHECK(dpf_ring_send(&ring, 1, &bad, false) == DPF_BAD);
    bad = d, bad.slot = 1;
    CHECK(dpf_ring_send(&ring, 1, &bad, false) == DPF_BAD);
    bad = d, bad.generation++;
    CHECK(dpf_ring_send(&ring, 1, &bad, false) == DPF_STALE);
    CHECK(dpf_ring_send(&ring, 3, &d, false) == DPF_STALE);
    CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_OK);
}

static void test_ports(void) {
    start(1, DPF_POLICY_FAIL);
    CHECK(dpf_ring_attach_producer(&ring, 0) == DPF_BAD);
    CHECK(dpf_ring_attach_producer(&ring, 1) == DPF_OK && dpf_ring_attach_producer(&ring, 1) == DPF_OK);
    CHECK(dpf_ring_attach_producer(&ring, 2) == DPF_TAKEN);
    CHECK(dpf_ring_attach_consumer(&ring, 0, 2) == DPF_OK);
    loaned(1);
    CHECK(dpf_ring_reclaim(&ring, 1) == 1 && dpf_ring_reclaim(&ring, 1) == 0);
    CHECK(dpf_ring_attach_producer(&ring, 3) == DPF_OK);
    CHECK(dpf_ring_attach_consumer(&ring, 0, 3) == DPF_TAKEN);
    dpf_ring_detach_consumer(&ring, 0, 3);
    CHECK(dpf_ring_attach_consumer(&ring, 0, 3) == DPF_TAKEN);
    dpf_ring_detach_consumer(&ring, 0, 2);
    CHECK(dpf_ring_attach_consumer(&ring, 0, 3) == DPF_OK);
}

static void test_wake(void) {
    dpf_descriptor got;
    uint32_t slot, generation;
    start(1, DPF_POLICY_FAIL);
    dpf_descriptor d = loaned(1);
    uint32_t epoch = dpf_bell_arm(ring.consumer_bell[0]), seen = dpf_bell_value(ring.consumer_bell[0]);
    CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_OK);
    CHECK(ring.wake == DPF_WAKE_CONSUMER && dpf_bell_value(ring.consumer_bell[0]) == seen + 1);
    dpf_bell_disarm(ring.consumer_bell[0], epoch);
    ring.wake = 0;
    dpf_bell_arm(ring.producer_bell);
    CHECK(dpf_ring_receive(&ring, 2, &got) == DPF_OK && dpf_ring_release(&ring, 2, got.slot) == DPF_OK);
    CHECK(ring.wake == 0); /* the producer did not ask */
    d = loaned(1);
    CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_OK);
    CHECK(dpf_ring_loan(&ring, 1, &slot, &generation) == DPF_FULL);
    CHECK(dpf_ring_receive(&ring, 2, &got) == DPF_OK && dpf_ring_release(&ring, 2, got.slot) == DPF_OK);
    CHECK(ring.wake == DPF_WAKE_PRODUCER);
}

static void test_bell_epochs(void) {
    start(1, DPF_POLICY_FAIL);
    dpf_bell *bell = &arena.bells[0];
    uint32_t old = dpf_bell_arm(bell);
    CHECK(dpf_bell_ring(bell));
    dpf_bell_reset(bell);
    CHECK(!dpf_bell_ring(bell)); /* the killed sleeper is forgotten */
    uint32_t now = dpf_bell_arm(bell);
    dpf_bell_disarm(bell, old); /* and cannot take another's place back */
    CHECK(now != old && dpf_bell_ring(bell));
    dpf_bell_disarm(bell, now);
    CHECK(!dpf_bell_ring(bell));
}

static void test_requests(void) {
    uint64_t keys[4], again;
    start(1, DPF_POLICY_FAIL);
    dpf_requests *table = &arena.requests;
    for (int i = 0; i < 4; i++) CHECK(dpf_requests_open(table, 3, 7, &keys[i]) == DPF_OK && keys[i] != 0);
    CHECK(dpf_requests_open(table, 3, 7, &again) == DPF_FULL);
    CHECK(!dpf_requests_cancelled(table, keys[1], 0));
    CHECK(dpf_requests_cancel(table, keys[1], 5) == DPF_OK && dpf_requests_cancel(table, keys[1], 3) == DPF_OK);
    CHECK(dpf_requests_cancelled(table, keys[1], 4) && !dpf_requests_cancelled(table, keys[1], 5));
    CHECK(!dpf_requests_cancelled(table, keys[2], 4));
    CHECK(dpf_requests_cancel(table, keys[1], DPF_ALL_TURNS) == DPF_OK);
    CHECK(dpf_requests_cancelled(table, keys[1], DPF_ALL_TURNS));
    CHECK(dpf_requests_close(table, keys[1]) == DPF_OK && dpf_requests_close(table, keys[1]) == DPF_STALE);
    CHECK(dpf_requests_open(table, 0, 9, &again) == DPF_OK && again != keys[1]);
    CHECK((again & 0xFFFF) == (keys[1] & 0xFFFF) && !dpf_requests_cancelled(table, again, 0));
    CHECK(dpf_requests_cancelled(table, keys[1], 0xFFFFFFF0) && dpf_requests_cancel(table, keys[1], 1) == DPF_STALE);
    uint32_t urgency;
    uint64_t started;
    CHECK(dpf_requests_live(table, again, &urgency, &started) && urgency == 0 && started == 9);
    CHECK(dpf_requests_cancelled(table, UINT64_MAX, 0) && dpf_requests_cancelled(table, 0, 0));
    CHECK(dpf_requests_key(table, (uint32_t)(again & 0xFFFF)) == again && dpf_requests_key(table, 4) == 0);
}

static void test_positions_wrap(void) {
    dpf_descriptor got;
    start(2, DPF_POLICY_FAIL);
    ring.control->tail = ring.control->place[0].head = UINT32_MAX - 5ull;
    for (uint32_t i = 0; i < 1000; i++) {
        dpf_descriptor d = loaned(1);
        d.turn = i;
        CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_OK);
        CHECK(dpf_ring_receive(&ring, 2, &got) == DPF_OK && got.turn == i);
        CHECK(dpf_ring_release(&ring, 2, got.slot) == DPF_OK);
    }
}

/* A view of the same ring for one place. */
static dpf_ring seat(uint32_t place) {
    dpf_ring view;
    CHECK(dpf_arena_ring(&arena, 0, &view) == DPF_OK && dpf_ring_attach_consumer(&view, place, 10 + place) == DPF_OK);
    return view;
}

static void start_fan_out(uint32_t slots, dpf_policy policy) {
    dpf_link_spec link = fan_out(link_of(slots, 100, policy), 2);
    dpf_arena_spec spec = spec_of(&link);
    uint64_t nbytes;
    free(base);
    base = new_arena(&spec, &nbytes);
    CHECK(dpf_arena_open(base, nbytes, &arena) == DPF_OK && dpf_arena_ring(&arena, 0, &ring) == DPF_OK);
}

static void test_every_consumer_gets_every_message(void) {
    dpf_descriptor got, d;
    uint32_t slot, generation;
    start_fan_out(1, DPF_POLICY_FAIL);
    dpf_ring first = seat(0), second = seat(1);
    d = loaned(1);
    CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_OK && dpf_ring_depth(&ring, 0) == 1 && dpf_ring_depth(&ring, 1) == 1);
    CHECK(dpf_ring_receive(&first, 10, &got) == DPF_OK && dpf_ring_release(&first, 10, got.slot) == DPF_OK);
    CHECK(dpf_ring_receive(&first, 10, &got) == DPF_EMPTY);
    CHECK(dpf_ring_loan(&ring, 1, &slot, &generation) == DPF_FULL); /* the second has not read it */
    CHECK(dpf_ring_receive(&second, 11, &got) == DPF_OK && got.generation == d.generation);
    CHECK(dpf_ring_leases(&second, 11, got.slot, got.generation) && !dpf_ring_leases(&first, 10, got.slot, got.generation));
    CHECK(dpf_ring_loan(&ring, 1, &slot, &generation) == DPF_FULL); /* it reads it now */
    CHECK(dpf_ring_release(&first, 11, got.slot) == DPF_STALE);
    uint32_t seen = dpf_bell_value(ring.producer_bell);
    CHECK(dpf_ring_release(&second, 11, got.slot) == DPF_OK && dpf_bell_value(ring.producer_bell) == seen + 1);
    CHECK(dpf_ring_loan(&ring, 1, &slot, &generation) == DPF_OK);
}

static void test_newest_drops_for_who_has_not_read(void) {
    dpf_descriptor got;
    dpf_ring_stats stats;
    start_fan_out(1, DPF_POLICY_NEWEST);
    dpf_ring first = seat(0), second = seat(1);
    for (uint32_t i = 0; i < 3; i++) {
        dpf_descriptor d = loaned(1);
        d.turn = i;
        CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_OK);
        CHECK(dpf_ring_receive(&first, 10, &got) == DPF_OK && got.turn == i);
        CHECK(dpf_ring_release(&first, 10, got.slot) == DPF_OK);
    }
    CHECK(dpf_ring_receive(&second, 11, &got) == DPF_OK && got.turn == 2);
    dpf_ring_read_stats(&ring, &stats);
    CHECK(stats.sent == 3 && stats.received == 4 && stats.dropped == 2 && stats.leased == 1);
}

static void test_a_dead_consumer_frees_its_own_place_only(void) {
    dpf_descriptor got, d;
    uint32_t slot, generation;
    start_fan_out(1, DPF_POLICY_FAIL);
    dpf_ring first = seat(0), second = seat(1);
    d = loaned(1);
    CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_OK);
    CHECK(dpf_ring_receive(&first, 10, &got) == DPF_OK && dpf_ring_receive(&second, 11, &got) == DPF_OK);
    CHECK(dpf_ring_reclaim(&ring, 11) == 1 && dpf_ring_loan(&ring, 1, &slot, &generation) == DPF_FULL);
    CHECK(dpf_ring_attach_consumer(&second, 1, 12) == DPF_OK && dpf_ring_attach_consumer(&second, 0, 12) == DPF_TAKEN);
    CHECK(dpf_ring_attach_consumer(&second, 2, 12) == DPF_BAD);
    CHECK(dpf_ring_release(&first, 10, got.slot) == DPF_OK && dpf_ring_loan(&ring, 1, &slot, &generation) == DPF_OK);
}

static void test_plan_bounds(void) {
    uint64_t nbytes;
    dpf_link_spec link = link_of(0, 100, DPF_POLICY_FAIL);
    dpf_arena_spec spec = spec_of(&link);
    CHECK(dpf_arena_plan(&spec, &nbytes) == DPF_BAD);
    link = link_of(DPF_SLOTS_MAX, UINT32_MAX, DPF_POLICY_FAIL);
    CHECK(dpf_arena_plan(&spec, &nbytes) == DPF_BAD || nbytes > (uint64_t)DPF_SLOTS_MAX * UINT32_MAX);
    link = fan_out(link_of(2, 100, DPF_POLICY_FAIL), 2);
    link.consumer[1] = link.consumer[0];
    CHECK(dpf_arena_plan(&spec, &nbytes) == DPF_BAD); /* one stage cannot sit twice */
    link.places = 0;
    CHECK(dpf_arena_plan(&spec, &nbytes) == DPF_BAD);
    link.places = DPF_PLACES + 1;
    CHECK(dpf_arena_plan(&spec, &nbytes) == DPF_BAD);
    link = link_of(2, 5000, DPF_POLICY_FAIL);
    CHECK(dpf_arena_plan(&spec, &nbytes) == DPF_OK);
    void *memory = new_arena(&spec, &nbytes);
    CHECK(dpf_arena_format(&spec, memory, nbytes - 1) == DPF_BAD);
    dpf_ring paged;
    CHECK(dpf_arena_open(memory, nbytes, &arena) == DPF_OK && dpf_arena_ring(&arena, 0, &paged) == DPF_OK);
    CHECK(paged.stride == 8192 && (uintptr_t)paged.slots % 4096 == 0);
    CHECK(dpf_arena_open(memory, nbytes - 1, &arena) == DPF_CORRUPT);
    CHECK(dpf_arena_ring(&arena, 1, &paged) == DPF_BAD);
    free(memory);
}

int main(void) {
    test_order();
    test_growing_slot();
    test_newest();
    test_bad_messages();
    test_ports();
    test_wake();
    test_bell_epochs();
    test_requests();
    test_positions_wrap();
    test_every_consumer_gets_every_message();
    test_newest_drops_for_who_has_not_read();
    test_a_dead_consumer_frees_its_own_place_only();
    test_plan_bounds();
    free(base);
    puts("ring: ok");
    return 0;
}
