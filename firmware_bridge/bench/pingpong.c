/* SPDX-License-Identifier: Apache-2.0
 *
 * The floor under tests/bench/bench_link.py: round trips between two processes in C, without Python.
 *
 *     pingpong futex|spin|link|link-spin BYTES TRIPS [CORE CORE]
 *
 * prints the nanoseconds of each trip, one a line, after TRIPS / 10 that warm up. Of a payload of BYTES the first and the
 * last 8 are written by the one side and read by the other, in shared memory; 64 bytes come back the same way.
 *
 *     futex      two words and nothing else: store, FUTEX_WAKE, FUTEX_WAIT; a system call for each
 *     spin       two words that both sides read until they change
 *     link       two links of dpf/ring.h, sleeping on their bells
 *     link-spin  the same, spinning
 *
 * A core for each process, or placed by the kernel. It measures; it checks nothing but its own payload.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "dpf/arena.h"
#include "dpf/posix.h"

enum { BACK_BYTES = 64, FOREVER_NS = 1000000000 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void write_payload(unsigned char *at, uint64_t nbytes, uint64_t turn) {
    memcpy(at, &turn, sizeof turn);
    memcpy(at + nbytes - sizeof turn, &turn, sizeof turn);
}

static void read_payload(const unsigned char *at, uint64_t nbytes, uint64_t turn) {
    uint64_t first, last;
    memcpy(&first, at, sizeof first);
    memcpy(&last, at + nbytes - sizeof last, sizeof last);
    if (first != turn || last != turn) {
        fprintf(stderr, "payload of trip %llu is not what was sent\n", (unsigned long long)turn);
        exit(1);
    }
}

/* One direction: a word and its payload. */
typedef struct words {
    _Atomic(uint32_t) *word;
    unsigned char *payload;
    uint64_t nbytes;
} words;

static words words_make(uint64_t nbytes) {
    unsigned char *at = mmap(NULL, nbytes + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) fail("mmap");
    return (words){(_Atomic(uint32_t) *)(void *)at, at + 4096, nbytes};
}

static void words_send(const words *to, uint32_t turn, bool sleeps) {
    write_payload(to->payload, to->nbytes, turn);
    atomic_store(to->word, turn);
    if (sleeps) syscall(SYS_futex, to->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void words_receive(const words *from, uint32_t turn, bool sleeps) {
    while (atomic_load(from->word) != turn) {
        if (sleeps) syscall(SYS_futex, from->word, FUTEX_WAIT, turn - 1, NULL, NULL, 0);
        else __asm__ volatile("" ::: "memory");
    }
    read_payload(from->payload, from->nbytes, turn);
}

/* One direction: a port of a link and the owner that has it. */
typedef struct port {
    dpf_ring ring;
    uint32_t owner;
    uint64_t nbytes;
} port;

static void link_send(port *to, uint32_t turn) {
    dpf_descriptor d = {.turn = turn, .request = 1, .nbytes = (uint32_t)to->nbytes};
    if (dpf_ring_loan(&to->ring, to->owner, &d.slot, &d.generation) != DPF_OK) fail("loan");
    write_payload(dpf_ring_slot(&to->ring, d.slot), to->nbytes, turn);
    if (dpf_ring_send(&to->ring, to->owner, &d, false) != DPF_OK) fail("send");
    dpf_ring_wake(&to->ring);
}

static void link_receive(port *from, uint32_t turn, uint64_t spin_ns) {
    dpf_bell *bell = from->ring.consumer_bell[0];
    dpf_descriptor d;
    if (spin_ns != 0) dpf_ring_spin(&from->ring, spin_ns, 0);
    for (;;) {
        uint32_t seen = dpf_bell_value(bell);
        dpf_result result = dpf_ring_receive(&from->ring, from->owner, &d);
        if (result == DPF_OK) break;
        if (result != DPF_EMPTY) fail("receive");
        dpf_bell_wait(bell, seen, 0, 0);
    }
    read_payload(dpf_ring_slot(&from->ring, d.slot), d.nbytes, turn);
    dpf_ring_release(&from->ring, from->owner, d.slot);
    dpf_ring_wake(&from->ring);
}

static dpf_arena arena_make(uint64_t nbytes) {
    static const char stages[2][DPF_NAME_BYTES] = {"here", "there"};
    dpf_link_spec links[2] = {
        {.name = "there", .producer = 0, .places = 1, .consumer = {1}, .slots = 4, .slot_bytes = nbytes},
        {.name = "back", .producer = 1, .places = 1, .consumer = {0}, .slots = 4, .slot_bytes = BACK_BYTES},
    };
    dpf_arena_spec spec = {.name = "pingpong", .stages = stages, .links = links, .stage_count = 2, .link_count = 2,
                           .requests = 1, .page = (uint32_t)sysconf(_SC_PAGESIZE)};
    uint64_t needed, mapped;
    void *base;
    dpf_arena arena;
    if (dpf_arena_plan(&spec, &needed) != DPF_OK) fail("plan");
    int fd = dpf_memory_create("pingpong", needed);
    if (fd < 0 || dpf_memory_map(fd, &base, &mapped) != 0) fail("memory");
    if (dpf_arena_format(&spec, base, mapped) != DPF_OK || dpf_arena_open(base, mapped, &arena) != DPF_OK) fail("arena");
    close(fd);
    return arena;
}

static port port_of(const dpf_arena *arena, uint32_t index, uint32_t owner, bool sends, uint64_t nbytes) {
    port made = {.owner = owner, .nbytes = nbytes};
    if (dpf_arena_ring(arena, index, &made.ring) != DPF_OK) fail("ring");
    dpf_result result = sends ? dpf_ring_attach_producer(&made.ring, owner) : dpf_ring_attach_consumer(&made.ring, 0, owner);
    if (result != DPF_OK) fail("attach");
    return made;
}

/* What both sides know. */
typedef struct setup {
    bool links, sleeps;
    uint64_t nbytes;
    words there, back;
    dpf_arena arena;
} setup;

static void pin(const char *core) {
    cpu_set_t set;
    if (core == NULL) return;
    CPU_ZERO(&set);
    CPU_SET(strtoul(core, NULL, 10), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) fail("core");
}

static void echo(const setup *s, uint32_t trips) {
    uint64_t spin_ns = s->sleeps ? 0 : FOREVER_NS;
    port in = {0}, out = {0};
    if (s->links) {
        in = port_of(&s->arena, 0, 2, false, s->nbytes);
        out = port_of(&s->arena, 1, 2, true, BACK_BYTES);
    }
    for (uint32_t turn = 1; turn <= trips; turn++) {
        if (s->links) {
            link_receive(&in, turn, spin_ns);
            link_send(&out, turn);
        } else {
            words_receive(&s->there, turn, s->sleeps);
            words_send(&s->back, turn, s->sleeps);
        }
    }
}

static void measure(const setup *s, uint32_t trips, uint64_t *times) {
    uint64_t spin_ns = s->sleeps ? 0 : FOREVER_NS;
    port out = {0}, in = {0};
    if (s->links) {
        out = port_of(&s->arena, 0, 1, true, s->nbytes);
        in = port_of(&s->arena, 1, 1, false, BACK_BYTES);
    }
    for (uint32_t turn = 1; turn <= trips; turn++) {
        uint64_t start = dpf_now_ns();
        if (s->links) {
            link_send(&out, turn);
            link_receive(&in, turn, spin_ns);
        } else {
            words_send(&s->there, turn, s->sleeps);
            words_receive(&s->back, turn, s->sleeps);
        }
        times[turn - 1] = dpf_now_ns() - start;
    }
}

int main(int count, char **args) {
    if (count != 4 && count != 6) return fprintf(stderr, "pingpong futex|spin|link|link-spin BYTES TRIPS [CORE CORE]\n"), 2;
    setup s = {.nbytes = strtoull(args[2], NULL, 10), .links = strncmp(args[1], "link", 4) == 0};
    uint32_t trips = (uint32_t)strtoul(args[3], NULL, 10), warm = trips / 10;
    s.sleeps = strstr(args[1], "spin") == NULL;
    if (s.nbytes < sizeof(uint64_t) || trips == 0) return fprintf(stderr, "BYTES must be 8 or more, TRIPS 1 or more\n"), 2;
    uint64_t *times = calloc(trips + warm, sizeof *times);
    if (times == NULL) fail("memory");
    if (s.links) {
        s.arena = arena_make(s.nbytes);
    } else {
        s.there = words_make(s.nbytes);
        s.back = words_make(BACK_BYTES);
    }
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(count == 6 ? args[5] : NULL);
        echo(&s, trips + warm);
        _exit(0);
    }
    pin(count == 6 ? args[4] : NULL);
    measure(&s, trips + warm, times);
    waitpid(child, NULL, 0);
    for (uint32_t i = warm; i < trips + warm; i++) printf("%llu\n", (unsigned long long)times[i]);
    return 0;
}
