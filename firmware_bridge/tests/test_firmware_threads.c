/* SPDX-License-Identifier: Apache-2.0
 *
 * A server and a firmware at the same time, under ThreadSanitizer: what one sends the other reads, whole and in order.
 */
#include <pthread.h>

#include "firmware_rig.h"

enum { SAMPLES = 200000 };

static atomic_bool done;
static uint32_t heard, said;

static void *server(void *unused) {
    dpf_descriptor message;
    const unsigned char *payload;
    uint16_t next = 0;
    int16_t sample = 1;
    (void)unused;
    while (!atomic_load(&done)) {
        while (rig_receive(0, DPF_WIRE_MICROPHONE, &message, &payload)) {
            for (uint32_t i = 0; i < message.nbytes; i += 2) {
                int16_t got;
                memcpy(&got, payload + i, 2);
                CHECK((uint16_t)got == next++);
            }
            heard += message.nbytes / 2;
            rig_release(0, DPF_WIRE_MICROPHONE, &message);
        }
        if (rig_sound(0, 0, 1, sample, 100, false)) {
            sample = sample > 30000 ? 1 : (int16_t)(sample + 100);
            said += 100;
        }
    }
    return NULL;
}

int main(void) {
    pthread_t thread;
    int16_t block[DPF_FW_BLOCK], next = 0;
    uint32_t captured = 0, unsent = 0;
    rig_start(1, NULL, 0);
    CHECK(pthread_create(&thread, NULL, server, NULL) == 0);
    while (captured < SAMPLES) {
        uint64_t before = the_rig.core.counters.unsent;
        for (uint32_t i = 0; i < DPF_FW_BLOCK; i++) block[i] = (int16_t)(captured - unsent + i);
        rig_tick(block);
        captured += DPF_FW_BLOCK;
        unsent += (uint32_t)(the_rig.core.counters.unsent - before); /* what had no room comes again */
        for (uint32_t i = 0; i < DPF_FW_BLOCK && the_rig.core.counters.played != 0 && the_rig.played[i] > next; i++) next = the_rig.played[i];
    }
    atomic_store(&done, true);
    pthread_join(thread, NULL);
    CHECK(heard > 0 && the_rig.core.counters.played > 0 && the_rig.core.counters.played <= said);
    printf("firmware, threads: ok (%u samples up, %llu down)\n", heard, (unsigned long long)the_rig.core.counters.played);
    rig_end();
    return 0;
}
