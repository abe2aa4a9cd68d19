/* SPDX-License-Identifier: Apache-2.0
 *
 * The other side runs at every instruction that matters: the core is compiled with a hook between any two writes to
 * shared memory (src/step.h); each run stops one side at one more of them, lets the other side do all it can there, and
 * goes on. Payloads must never change under a lease, messages never repeat, slots never get lost.
 */
#include "check.h"

enum { SLOTS = 2, MESSAGES = 10, PRODUCER = 1, CONSUMER = 2, NEVER = 1 << 30 };

static dpf_ring ring;
static int steps_left;
static bool inside;
static uint32_t sent, next, lost;
static dpf_policy policy;
static struct {
    dpf_descriptor d[8];
    uint32_t count;
} leased;

static void write_payload(const dpf_descriptor *d) {
    for (uint32_t i = 0; i < 4; i++) memcpy(dpf_ring_slot(&ring, d->slot) + 4 * i, &d->turn, 4);
}

static void check_payload(const dpf_descriptor *d) {
    for (uint32_t i = 0; i < 4; i++) CHECK(memcmp(dpf_ring_slot(&ring, d->slot) + 4 * i, &d->turn, 4) == 0);
}

static bool produce(void) {
    dpf_descriptor d = {.nbytes = 16};
    if (sent == MESSAGES || dpf_ring_loan(&ring, PRODUCER, &d.slot, &d.generation) != DPF_OK) return false;
    d.turn = sent++;
    write_payload(&d);
    CHECK(dpf_ring_send(&ring, PRODUCER, &d, false) == DPF_OK);
    return true;
}

static bool consume(uint32_t keep) {
    dpf_descriptor d;
    dpf_result result = dpf_ring_receive(&ring, CONSUMER, &d);
    CHECK(result == DPF_OK || result == DPF_EMPTY);
    if (result == DPF_OK) {
        CHECK(d.turn >= next && d.turn < sent);
        check_payload(&d);
        lost += d.turn - next;
        next = d.turn + 1;
        leased.d[leased.count++] = d;
    }
    while (leased.count > keep) {
        check_payload(&leased.d[0]);
        dpf_descriptor first = leased.d[0];
        leased.count--;
        memmove(&leased.d[0], &leased.d[1], leased.count * sizeof first);
        CHECK(dpf_ring_release(&ring, CONSUMER, first.slot) == DPF_OK);
    }
    return result == DPF_OK;
}

static bool producing;

void dpf_step_hook(void) {
    if (inside || steps_left-- != 0) return;
    inside = true;
    if (producing) {
        for (int i = 0; i < 3; i++) consume(0);
    } else {
        for (int i = 0; i < 3; i++) produce();
    }
    inside = false;
}

static bool run(int k) {
    dpf_link_spec link = link_of(SLOTS, 100, policy);
    dpf_arena_spec spec = spec_of(&link);
    dpf_arena arena;
    uint64_t nbytes;
    void *base = new_arena(&spec, &nbytes);
    CHECK(dpf_arena_open(base, nbytes, &arena) == DPF_OK && dpf_arena_ring(&arena, 0, &ring) == DPF_OK);
    sent = next = lost = leased.count = 0;
    steps_left = k;
    for (uint32_t i = 0; i < 60; i++) {
        producing = true;
        produce();
        if (i % 3 == 1) produce();
        producing = false;
        consume(i % 2);
    }
    consume(0);
    dpf_ring_stats stats;
    dpf_ring_read_stats(&ring, &stats);
    CHECK(sent == MESSAGES && next == MESSAGES);
    CHECK(lost == stats.dropped && (policy == DPF_POLICY_NEWEST || lost == 0));
    CHECK(stats.loaned == 0 && stats.leased == 0 && stats.depth == 0 && stats.corrupt == 0);
    free(base);
    return steps_left < 0;
}

int main(void) {
    int runs = 0;
    for (int i = DPF_POLICY_FAIL; i <= DPF_POLICY_NEWEST; i++) {
        policy = (dpf_policy)i;
        int k = 0;
        while (run(k)) k++, runs++;
    }
    printf("interleave: ok, %d switches\n", runs);
    return runs > 200 ? 0 : 1;
}
