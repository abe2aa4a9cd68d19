/* SPDX-License-Identifier: Apache-2.0
 *
 * Death at every instruction that matters: the core is compiled with a hook between any two writes to shared memory
 * (src/step.h); a scenario is run again and again, and dies one write later each time. The reclaim after it dies at
 * every one of its own writes too, and is repeated. Afterwards the link must work and no message may be repeated, or
 * lost except with its dead holder.
 */
#include <setjmp.h>

#include "check.h"

enum { SLOTS = 3, MESSAGES = 12, PRODUCER = 1, CONSUMER = 2, HEIR = 3, NEVER = 1 << 30 };

static jmp_buf death;
static int steps_left;
static uint32_t acting;

void dpf_step_hook(void) {
    if (steps_left-- == 0) longjmp(death, 1);
}

/* What the world outside the arena knows. */
static struct {
    uint32_t sent;           /* send returned */
    uint32_t sending;        /* send was called */
    uint32_t next;           /* the lowest message the consumer may see */
    uint32_t lost;           /* messages skipped: at most what a dead consumer held and what the policy dropped */
    uint32_t holding;        /* slots the consumer has leased and not released */
    uint32_t slot[SLOTS * 4];
} world;

static void send_one(dpf_ring *ring, uint32_t owner, bool growing) {
    dpf_descriptor d = {.nbytes = 4};
    acting = owner;
    dpf_result result = dpf_ring_loan(ring, owner, &d.slot, &d.generation);
    if (result == DPF_FULL) return;
    CHECK(result == DPF_OK);
    for (int part = growing ? 0 : 1; part < 2; part++) {
        d.turn = world.sending++;
        d.flags = part == 0 ? DPF_PARTIAL : 0;
        d.offset = part * sizeof d.turn;
        memcpy(dpf_ring_slot(ring, d.slot) + d.offset, &d.turn, sizeof d.turn);
        CHECK(dpf_ring_send(ring, owner, &d, false) == DPF_OK);
        world.sent = world.sending;
    }
}

/* A growing slot holds one number per message, each behind the one before. */
static uint32_t payload(const dpf_ring *ring, const dpf_descriptor *d) {
    uint32_t number;
    memcpy(&number, dpf_ring_slot(ring, d->slot) + d->offset, sizeof number);
    return number;
}

static bool receive_one(dpf_ring *ring, uint32_t owner) {
    dpf_descriptor d;
    acting = owner;
    dpf_result result = dpf_ring_receive(ring, owner, &d);
    if (result == DPF_EMPTY) return false;
    CHECK(result == DPF_OK);
    CHECK(d.turn >= world.next && d.turn < world.sending); /* not repeated, not invented */
    CHECK(payload(ring, &d) == d.turn);                     /* not overwritten */
    world.lost += d.turn - world.next;
    world.next = d.turn + 1;
    world.slot[world.holding++] = d.slot;
    return true;
}

static void release_one(dpf_ring *ring, uint32_t owner) {
    acting = owner;
    if (world.holding == 0) return;
    uint32_t slot = world.slot[--world.holding];
    CHECK(dpf_ring_release(ring, owner, slot) == DPF_OK);
}

static void scenario(dpf_ring *ring) {
    for (uint32_t i = 0; world.sending < MESSAGES && i < 40; i++) {
        send_one(ring, PRODUCER, i % 3 == 1);
        send_one(ring, PRODUCER, false);
        receive_one(ring, CONSUMER);
        if (i % 2) receive_one(ring, CONSUMER);
        while (world.holding > i % 2) release_one(ring, CONSUMER);
    }
}

/* Reclaims the dead, dying after `steps` writes if the reclaim is that long; true when it was. */
static bool reclaim(const dpf_arena *arena, uint32_t dead, int steps) {
    bool died = true;
    steps_left = steps;
    if (setjmp(death) == 0) {
        CHECK(dpf_arena_reclaim(arena, dead, NULL) == DPF_OK);
        died = false;
    }
    steps_left = NEVER;
    return died;
}

/* Whatever looks free is written over: a message that still waits must not have been in it. */
static void overwrite_free(dpf_ring *ring, uint32_t producer) {
    uint32_t slot[SLOTS], generation[SLOTS], count = 0;
    if (ring->policy != DPF_POLICY_FAIL) return; /* newest would drop what waits */
    while (count < SLOTS && dpf_ring_loan(ring, producer, &slot[count], &generation[count]) == DPF_OK) count++;
    for (uint32_t i = 0; i < count; i++) memset(dpf_ring_slot(ring, slot[i]), 0xFF, ring->slot_bytes);
    for (uint32_t i = 0; i < count; i++) CHECK(dpf_ring_abandon(ring, producer, slot[i], generation[i]) == DPF_OK);
}

static void check_after(dpf_ring *ring, uint32_t dead, uint32_t allowed) {
    uint32_t producer = dead == PRODUCER ? HEIR : PRODUCER, consumer = dead == CONSUMER ? HEIR : CONSUMER;
    CHECK(dpf_ring_attach_producer(ring, producer) == DPF_OK);
    CHECK(dpf_ring_attach_consumer(ring, 0, consumer) == DPF_OK);
    if (dead == CONSUMER) world.holding = 0;
    overwrite_free(ring, producer);
    while (world.holding) release_one(ring, consumer);
    while (receive_one(ring, consumer)) release_one(ring, consumer);
    /* The message being sent when its producer died is there or not; everything sent before is. */
    CHECK(world.next == world.sent || world.next == world.sending);
    dpf_ring_stats stats;
    dpf_ring_read_stats(ring, &stats);
    CHECK(world.lost <= allowed + stats.dropped);
    CHECK(stats.loaned == 0 && stats.leased == 0 && stats.depth == 0);
    world.next = world.sent = world.sending;
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t before = world.sent;
        for (uint32_t i = 0; i < SLOTS; i++) send_one(ring, producer, false);
        CHECK(world.sent == before + SLOTS); /* every slot came back */
        for (uint32_t i = 0; i < SLOTS; i++) CHECK(receive_one(ring, consumer));
        while (world.holding) release_one(ring, consumer);
    }
}

/* One run that dies after `k` writes, whose reclaim dies after `j` of its own; false when nothing died. */
static bool run(dpf_policy policy, int k, int j, bool *reclaim_died) {
    dpf_link_spec link = link_of(SLOTS, 100, policy);
    dpf_arena_spec spec = spec_of(&link);
    static void *base;
    static dpf_arena arena;
    static dpf_ring ring;
    uint64_t nbytes;
    free(base);
    base = new_arena(&spec, &nbytes);
    CHECK(dpf_arena_open(base, nbytes, &arena) == DPF_OK && dpf_arena_ring(&arena, 0, &ring) == DPF_OK);
    memset(&world, 0, sizeof world);
    CHECK(dpf_ring_attach_producer(&ring, PRODUCER) == DPF_OK);
    CHECK(dpf_ring_attach_consumer(&ring, 0, CONSUMER) == DPF_OK);
    steps_left = k;
    if (setjmp(death) == 0) {
        scenario(&ring);
        steps_left = NEVER;
        return false;
    }
    uint32_t dead = acting;
    steps_left = NEVER;
    *reclaim_died = reclaim(&arena, dead, j);
    CHECK(!reclaim(&arena, dead, NEVER));
    /* Lost with its consumer, or dropped by policy and not yet counted: one message at most. */
    check_after(&ring, dead, dead == CONSUMER || policy == DPF_POLICY_NEWEST ? 1 : 0);
    return true;
}

int main(void) {
    int runs = 0;
    for (int policy = DPF_POLICY_FAIL; policy <= DPF_POLICY_NEWEST; policy++) {
        bool died = true;
        for (int k = 0; died; k++) {
            bool reclaim_died = true;
            for (int j = 0; died && reclaim_died; j++, runs++) died = run((dpf_policy)policy, k, j, &reclaim_died);
        }
    }
    printf("death: ok, %d deaths\n", runs);
    return runs > 500 ? 0 : 1;
}
