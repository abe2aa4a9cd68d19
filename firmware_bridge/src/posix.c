/* SPDX-License-Identifier: Apache-2.0
 *
 * Time, sleeping and waking of dpf/posix.h.
 */
#define _GNU_SOURCE
#include "dpf/posix.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t dpf_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* When a look ends: after `spin_ns`, and never behind the deadline of the sleep that follows. */
static uint64_t look_end(uint64_t spin_ns, uint64_t deadline_ns) {
    uint64_t end = dpf_now_ns() + spin_ns;
    return deadline_ns != 0 && deadline_ns < end ? deadline_ns : end;
}

bool dpf_bell_spin(dpf_bell *bell, uint32_t seen, uint64_t spin_ns, uint64_t deadline_ns) {
    uint64_t end = look_end(spin_ns, deadline_ns);
    do {
        for (int i = 0; i < 64; i++) {
            if (dpf_bell_value(bell) != seen) return true;
            relax();
        }
    } while (dpf_now_ns() < end);
    return false;
}

bool dpf_ring_spin(const dpf_ring *ring, uint64_t spin_ns, uint64_t deadline_ns) {
    uint64_t end = look_end(spin_ns, deadline_ns);
    do {
        for (int i = 0; i < 64; i++) {
            if (dpf_ring_ready(ring)) return true;
            relax();
        }
    } while (dpf_now_ns() < end);
    return false;
}

bool dpf_spin_due(dpf_spinner *spinner) {
    if (spinner->rest == 0) return true;
    spinner->rest--;
    return false;
}

void dpf_spin_learn(dpf_spinner *spinner, bool found) {
    if (found) {
        spinner->misses /= 2;
    } else {
        if (spinner->misses < 5) spinner->misses++;
        spinner->rest = (1u << 2 * (spinner->misses - 1)) - 1;
    }
}

/* On a 32-bit machine a struct timespec of 64-bit seconds belongs to another call. */
#ifdef SYS_futex_time64
enum { FUTEX = sizeof(time_t) > sizeof(long) ? SYS_futex_time64 : SYS_futex };
#else
enum { FUTEX = SYS_futex };
#endif

static int sleep_on(dpf_bell *bell, uint32_t seen, uint64_t deadline_ns) {
    struct timespec until = {
        .tv_sec = (time_t)(deadline_ns / 1000000000u),
        .tv_nsec = (long)(deadline_ns % 1000000000u),
    };
    uint32_t epoch = dpf_bell_arm(bell);
    /* Not FUTEX_PRIVATE: the word is shared by processes. BITSET takes an absolute CLOCK_MONOTONIC time. */
    long result = syscall(FUTEX, &bell->value, FUTEX_WAIT_BITSET, seen, deadline_ns ? &until : NULL, NULL,
                          FUTEX_BITSET_MATCH_ANY);
    int error = result < 0 ? errno : 0;
    dpf_bell_disarm(bell, epoch);
    return error;
}

int dpf_bell_wait(dpf_bell *bell, uint32_t seen, uint64_t deadline_ns, uint64_t spin_ns) {
    if (spin_ns != 0 && dpf_bell_spin(bell, seen, spin_ns, deadline_ns)) return DPF_OK;
    while (dpf_bell_value(bell) == seen) {
        int error = sleep_on(bell, seen, deadline_ns);
        if (dpf_bell_value(bell) != seen) break;
        if (error == EINTR) return DPF_SIGNAL;
        if (error == ETIMEDOUT) return DPF_TIMEOUT;
        if (error != 0 && error != EAGAIN) return -error;
    }
    return DPF_OK;
}

void dpf_bell_wake(dpf_bell *bell) {
    syscall(FUTEX, &bell->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void dpf_ring_wake(dpf_ring *ring) {
    for (uint32_t i = 0; i < ring->places; i++) {
        if (ring->wake & (uint32_t)DPF_WAKE_CONSUMER << i) dpf_bell_wake(ring->consumer_bell[i]);
    }
    if (ring->wake & DPF_WAKE_PRODUCER) dpf_bell_wake(ring->producer_bell);
    ring->wake = 0;
}

void dpf_arena_wake(const dpf_arena *arena) {
    for (uint32_t i = 0; i < arena->bell_count; i++) {
        dpf_bell_ring(&arena->bells[i]);
        dpf_bell_wake(&arena->bells[i]);
    }
}
