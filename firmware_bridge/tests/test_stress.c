/* SPDX-License-Identifier: Apache-2.0
 *
 * A producer and one to three consumer threads at full speed, sleeping on bells, with growing slots and drops: every
 * payload carries a checksum, to no consumer a message comes twice or is lost, nobody sleeps for ever. ThreadSanitizer
 * watches the order.
 */
#include <pthread.h>

#include "check.h"
#include "dpf/posix.h"

enum { SLOTS = 3, BYTES = 256 };

static dpf_arena arena;
static uint32_t messages = 200000;
static dpf_policy policy;

static uint32_t checksum(const unsigned char *bytes, uint32_t count, uint32_t turn) {
    uint32_t sum = turn * 2654435761u;
    for (uint32_t i = 0; i < count; i++) sum = (sum ^ bytes[i]) * 16777619u;
    return sum;
}

static dpf_ring port(void) {
    dpf_ring ring;
    CHECK(dpf_arena_ring(&arena, 0, &ring) == DPF_OK);
    return ring;
}

static void loan(dpf_ring *ring, dpf_descriptor *d) {
    for (;;) {
        uint32_t seen = dpf_bell_value(ring->producer_bell);
        dpf_result result = dpf_ring_loan(ring, 1, &d->slot, &d->generation);
        if (result == DPF_OK) return;
        CHECK(result == DPF_FULL);
        CHECK(dpf_bell_wait(ring->producer_bell, seen, dpf_now_ns() + 10000000000ull, 0) == DPF_OK);
    }
}

static void fill(dpf_ring *ring, dpf_descriptor *d, uint32_t from, uint32_t to) {
    unsigned char *bytes = dpf_ring_slot(ring, d->slot);
    for (uint32_t i = from; i < to; i++) bytes[i] = (unsigned char)(d->turn * 31 + i * 7);
    d->nbytes = to;
    d->deadline_ns = checksum(bytes, to, d->turn);
}

static void *produce(void *unused) {
    dpf_ring ring = port();
    (void)unused;
    for (uint32_t turn = 0; turn < messages; turn++) {
        dpf_descriptor d = {.turn = turn};
        uint32_t size = 1 + turn % BYTES;
        loan(&ring, &d);
        if (turn % 5 == 0) {
            fill(&ring, &d, 0, size / 2);
            d.flags = DPF_PARTIAL;
            dpf_result result = dpf_ring_send(&ring, 1, &d, false);
            CHECK(result == DPF_OK || result == DPF_FULL);
            dpf_ring_wake(&ring);
            fill(&ring, &d, size / 2, size);
        } else {
            fill(&ring, &d, 0, size);
        }
        d.flags = turn + 1 == messages ? DPF_LAST : 0;
        CHECK(dpf_ring_send(&ring, 1, &d, false) == DPF_OK);
        dpf_ring_wake(&ring);
    }
    return NULL;
}

static void *consume(void *at) {
    dpf_ring ring = port();
    uint32_t next = 0, place = *(const uint32_t *)at, owner = 2 + place;
    CHECK(dpf_ring_attach_consumer(&ring, place, owner) == DPF_OK);
    for (bool last = false; !last;) {
        dpf_descriptor d;
        uint32_t seen = dpf_bell_value(ring.consumer_bell[place]);
        dpf_result result = dpf_ring_receive(&ring, owner, &d);
        dpf_ring_wake(&ring);
        if (result == DPF_EMPTY) {
            CHECK(dpf_bell_wait(ring.consumer_bell[place], seen, dpf_now_ns() + 10000000000ull, 0) == DPF_OK);
            continue;
        }
        CHECK(result == DPF_OK);
        CHECK(policy == DPF_POLICY_NEWEST ? d.turn >= next : d.turn == next);
        CHECK((uint32_t)d.deadline_ns == checksum(dpf_ring_slot(&ring, d.slot), d.nbytes, d.turn));
        next = d.flags & DPF_PARTIAL ? d.turn : d.turn + 1;
        last = (d.flags & DPF_LAST) != 0;
        CHECK(dpf_ring_release(&ring, owner, d.slot) == DPF_OK);
        dpf_ring_wake(&ring);
    }
    return NULL;
}

static void run(dpf_policy chosen, uint32_t places) {
    static const uint32_t place[] = {0, 1, 2};
    dpf_link_spec link = fan_out(link_of(SLOTS, BYTES, chosen), places);
    dpf_arena_spec spec = spec_of(&link);
    pthread_t producer, consumer[3];
    uint64_t nbytes;
    policy = chosen;
    void *base = new_arena(&spec, &nbytes);
    CHECK(dpf_arena_open(base, nbytes, &arena) == DPF_OK);
    for (uint32_t i = 0; i < places; i++) CHECK(pthread_create(&consumer[i], NULL, consume, (void *)&place[i]) == 0);
    CHECK(pthread_create(&producer, NULL, produce, NULL) == 0);
    pthread_join(producer, NULL);
    for (uint32_t i = 0; i < places; i++) pthread_join(consumer[i], NULL);
    dpf_ring ring = port();
    dpf_ring_stats stats;
    dpf_ring_read_stats(&ring, &stats);
    CHECK(stats.loaned == 0 && stats.leased == 0 && stats.depth == 0 && stats.corrupt == 0);
    CHECK(places * stats.sent == stats.received + stats.dropped);
    free(base);
}

int main(int argc, char **argv) {
    if (argc > 1) messages = (uint32_t)strtoul(argv[1], NULL, 10);
    for (uint32_t places = 1; places <= 3; places += 2) {
        run(DPF_POLICY_FAIL, places);
        run(DPF_POLICY_NEWEST, places);
    }
    puts("stress: ok");
    return 0;
}
