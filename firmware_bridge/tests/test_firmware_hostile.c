/* SPDX-License-Identifier: Apache-2.0
 *
 * Somebody writes nonsense anywhere into the memory that the firmware shares (arena, routing table, frames), between its ticks
 * and during them: it may read and write nothing outside (the sanitizer watches), hang in no tick, and hears the phrase all the same.
 */
#include <pthread.h>

#include "firmware_rig.h"
#ifdef DPF_FW_RPMSG
#include "bridge.h"
#endif

static uint64_t seed = 88172645463325252ull;
static atomic_bool done;

static void storm(uint32_t ticks, uint32_t most) {
    for (uint32_t tick = 0; tick < ticks; tick++) {
        for (uint64_t n = next_random(&seed) % most; n > 0; n--) rig_scribble(&seed, 0);
        if (next_random(&seed) % 16 == 0) dpf_fw_flush(&the_rig.core);
        if (next_random(&seed) % 16 == 0) dpf_fw_clear(&the_rig.core);
        if (next_random(&seed) % 16 == 0) dpf_fw_stop(&the_rig.core);
        rig_tick(NULL);
    }
}

static void test_arena_between_ticks(void) {
    for (int round = 0; round < 40; round++) {
        rig_start(1, NULL, 0);
        storm(60, 200);
        (void)rig_say_phrase();
    }
}

static void *scribbler(void *unused) {
    uint64_t state = 12345;
    (void)unused;
    while (!atomic_load(&done)) rig_scribble(&state, 0);
    return NULL;
}

static void test_arena_during_ticks(void) {
    pthread_t thread;
    rig_start(1, NULL, 0);
    atomic_store(&done, false);
    CHECK(pthread_create(&thread, NULL, scribbler, NULL) == 0);
    for (int i = 0; i < 5; i++) {
        storm(200, 2);
        (void)rig_say_phrase();
    }
    atomic_store(&done, true);
    pthread_join(thread, NULL);
}

/* A table that is written over and over: a tick looks once, and what it finds is an instance or none. */
static void test_route(void) {
    uint64_t nbytes, *map = rig_table(&nbytes);
    rig_start(2, map, nbytes);
    for (int tick = 0; tick < 2000; tick++) {
        for (int n = 0; n < 50; n++) {
            uint64_t value = next_random(&seed) % 2 ? next_random(&seed) : 'a' | (uint64_t)1 << 48;
            __atomic_store_n(map + next_random(&seed) % (nbytes / 8), value, __ATOMIC_RELAXED);
        }
        the_rig.core.counters.ticks = 0; /* every tick looks */
        rig_tick(NULL);
        CHECK(the_rig.core.chosen < 2 || the_rig.core.chosen == UINT32_MAX);
    }
    free(map);
}

#ifdef DPF_FW_RPMSG
static uint32_t make_frame(unsigned char *frame) {
    dpf_fw_frame_head head = {.sequence = 1, .bound = (uint32_t)next_random(&seed) % 4, .count = (uint32_t)(next_random(&seed) % 13)};
    uint32_t nbytes = dpf_fw_frame_write_head(frame, &head);
    for (uint32_t i = 0; i < head.count; i++) {
        dpf_fw_item item = {.request = next_random(&seed), .slot = (uint32_t)(next_random(&seed) % 20),
                            .offset = (uint32_t)(next_random(&seed) % (the_rig.sessions[0].nbytes + 4096)),
                            .nbytes = (uint32_t)(next_random(&seed) % 9000), .turn = (uint32_t)next_random(&seed) % 4,
                            .generation = (uint32_t)next_random(&seed) % 3, .code = (uint16_t)(next_random(&seed) % 9),
                            .kind = (uint8_t)(next_random(&seed) % 9), .flags = (uint8_t)next_random(&seed)};
        dpf_fw_frame_write_item(frame, i, &item);
    }
    for (uint64_t n = next_random(&seed) % 4; n > 0; n--) frame[next_random(&seed) % DPF_FW_RPMSG_BYTES] = (unsigned char)next_random(&seed);
    return next_random(&seed) % 4 ? nbytes : (uint32_t)(next_random(&seed) % (DPF_FW_RPMSG_BYTES + 1));
}

/* Frames of an enemy, to the core and to the bridge; each in memory of its own size, so that a byte too far is seen. */
static void test_frames(void) {
    static dpf_fw_bridge bridge;
    unsigned char frame[DPF_FW_RPMSG_BYTES], out[DPF_FW_RPMSG_BYTES];
    for (int round = 0; round < 20; round++) {
        rig_start(1, NULL, 0);
        rig_session *one = &the_rig.sessions[0];
        CHECK(dpf_fw_bridge_open(&bridge, one->base, one->nbytes, one->key) == DPF_OK);
        for (int i = 0; i < 300; i++) {
            uint32_t nbytes = make_frame(frame);
            unsigned char *exact = malloc(nbytes == 0 ? 1 : nbytes);
            CHECK(exact != NULL);
            memcpy(exact, frame, nbytes);
            dpf_fw_link_receive(&the_rig.core.instances[0].link, exact, nbytes);
            dpf_fw_bridge_receive(&bridge, exact, nbytes, 1);
            free(exact);
            (void)dpf_fw_bridge_frame(&bridge, out);
            rig_tick(NULL);
            CHECK(bridge.places <= DPF_FW_BRIDGE_PLACES && bridge.sounds <= DPF_FW_BRIDGE_SOUNDS);
        }
        (void)rig_say_phrase();
    }
}
#endif

int main(void) {
    test_arena_between_ticks();
    test_arena_during_ticks();
    test_route();
#ifdef DPF_FW_RPMSG
    test_frames();
#endif
    rig_end();
    printf("firmware, hostile: ok\n");
    return 0;
}
