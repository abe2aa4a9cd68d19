/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking before sleeping: it ends with a message, a ring or its time, and is tried ever more rarely when it does not pay.
 */
#include "check.h"
#include "dpf/posix.h"

static void test_a_look_that_does_not_pay_becomes_rare(void) {
    dpf_spinner spinner = {0};
    for (uint32_t misses = 1; misses <= 12; misses++) {
        uint32_t rests = 0;
        CHECK(dpf_spin_due(&spinner));
        dpf_spin_learn(&spinner, false);
        while (!dpf_spin_due(&spinner)) rests++;
        CHECK(rests == (misses == 1 ? 0u : misses == 2 ? 3u : misses == 3 ? 15u : misses == 4 ? 63u : 255u));
    }
}

static void test_a_look_that_pays_is_repeated(void) {
    dpf_spinner spinner = {0};
    for (int i = 0; i < 100; i++) dpf_spin_learn(&spinner, false);
    for (int i = 0; i < 4; i++) dpf_spin_learn(&spinner, true);
    while (!dpf_spin_due(&spinner)) {
    }
    dpf_spin_learn(&spinner, true);
    for (int i = 0; i < 100; i++) CHECK(dpf_spin_due(&spinner));
    dpf_spin_learn(&spinner, false);
    CHECK(dpf_spin_due(&spinner)); /* one miss after hits is forgiven, a second is not */
    dpf_spin_learn(&spinner, false);
    CHECK(!dpf_spin_due(&spinner));
}

static void test_a_look_ends(void) {
    dpf_link_spec link = link_of(2, 100, DPF_POLICY_FAIL);
    dpf_arena_spec spec = spec_of(&link);
    dpf_descriptor d = {.nbytes = 8};
    dpf_arena arena;
    dpf_ring ring;
    uint64_t nbytes;
    void *base = new_arena(&spec, &nbytes);
    CHECK(dpf_arena_open(base, nbytes, &arena) == DPF_OK && dpf_arena_ring(&arena, 0, &ring) == DPF_OK);
    uint32_t seen = dpf_bell_value(ring.consumer_bell[0]);
    CHECK(!dpf_ring_ready(&ring) && !dpf_ring_spin(&ring, 1000, 0) && !dpf_bell_spin(ring.consumer_bell[0], seen, 1000, 0));
    CHECK(!dpf_ring_spin(&ring, UINT64_MAX / 2, 1) && !dpf_bell_spin(ring.consumer_bell[0], seen, UINT64_MAX / 2, 1));
    CHECK(dpf_ring_loan(&ring, 1, &d.slot, &d.generation) == DPF_OK && dpf_ring_send(&ring, 1, &d, false) == DPF_OK);
    CHECK(dpf_ring_ready(&ring) && dpf_ring_spin(&ring, 0, 0) && dpf_bell_spin(ring.consumer_bell[0], seen, 0, 0));
    CHECK(dpf_ring_receive(&ring, 2, &d) == DPF_OK && !dpf_ring_ready(&ring));
    free(base);
}

/* A sleep lasts until its time, whatever the sizes of the machine's words. */
static void test_a_sleep_lasts(void) {
    dpf_bell bell = {0};
    uint64_t until = dpf_now_ns() + 50000000;
    CHECK(dpf_bell_wait(&bell, dpf_bell_value(&bell), until, 0) == DPF_TIMEOUT && dpf_now_ns() >= until);
}

int main(void) {
    test_a_look_that_does_not_pay_becomes_rare();
    test_a_look_that_pays_is_repeated();
    test_a_look_ends();
    test_a_sleep_lasts();
    puts("wait: ok");
    return 0;
}
