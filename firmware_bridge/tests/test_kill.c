/* SPDX-License-Identifier: Apache-2.0
 *
 * A producer and two consumer processes under load, killed with SIGKILL at random points: each side alone, several at once, and
 * their supervisor. Usage: test_kill [kills] [kills of the supervisor]. After every kill the link must move again, every payload must
 * have its checksum, order must hold; at the end every slot must be free and no descriptor of this process left over. The sides
 * of a killed supervisor end by themselves; its successor reclaims them, and what the dead one was just reclaiming.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "dpf/posix.h"

enum { SLOTS = 4, BYTES = 4096, PATIENCE_MS = 20000, CONSUMERS = 2, SIDES = CONSUMERS + 1, PRODUCER = CONSUMERS };

/* Outside the arena: what the processes tell the supervisor. */
typedef struct {
    _Atomic uint64_t received[CONSUMERS];
    _Atomic uint64_t sent;
    _Atomic uint64_t next; /* the producer's next message number */
    _Atomic uint64_t wrong;
    _Atomic uint32_t owners;
    _Atomic uint32_t owner[SIDES]; /* of the side now or last in each role: reclaimed before the next one is written */
    _Atomic uint32_t quit;
} Board;

static Board *board;
static dpf_arena arena;

static int looked, seen_dead;
static int counted[3]; /* kills of: the producer, consumers, producer and consumers at once */

typedef struct {
    pid_t pid;
    int pidfd;
    uint32_t owner;
    uint32_t role; /* PRODUCER, or a consumer's place */
} Side;

static uint64_t mix(uint64_t value) {
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdull;
    return value ^ value >> 29;
}

static void produce(uint32_t owner) {
    dpf_ring ring;
    CHECK(dpf_arena_ring(&arena, 0, &ring) == DPF_OK && dpf_ring_attach_producer(&ring, owner) == DPF_OK);
    dpf_process_sign(&ring.control->process, owner);
    while (!board->quit) {
        dpf_descriptor d = {0};
        uint32_t seen = dpf_bell_value(ring.producer_bell);
        if (dpf_ring_loan(&ring, owner, &d.slot, &d.generation) != DPF_OK) {
            dpf_bell_wait(ring.producer_bell, seen, dpf_now_ns() + 1000000000, 0);
            continue;
        }
        uint64_t *words = (uint64_t *)dpf_ring_slot(&ring, d.slot);
        d.request = atomic_fetch_add(&board->next, 1);
        d.nbytes = 8 * (1 + d.request % (BYTES / 8));
        for (uint32_t i = 0; i < d.nbytes / 8; i++) words[i] = mix(d.request + i);
        if (d.request % 7 == 0) {
            d.flags = DPF_PARTIAL;
            (void)dpf_ring_send(&ring, owner, &d, false);
            dpf_ring_wake(&ring);
        }
        d.flags = 0;
        CHECK(dpf_ring_send(&ring, owner, &d, false) == DPF_OK);
        dpf_ring_wake(&ring);
        atomic_fetch_add(&board->sent, 1);
    }
}

static bool right(const dpf_ring *ring, const dpf_descriptor *d) {
    const uint64_t *words = (const uint64_t *)dpf_ring_slot(ring, d->slot);
    for (uint32_t i = 0; i < d->nbytes / 8; i++) {
        if (words[i] != mix(d->request + i)) return false;
    }
    return true;
}

static void consume(uint32_t owner, uint32_t place) {
    dpf_ring ring;
    uint64_t last = 0;
    CHECK(dpf_arena_ring(&arena, 0, &ring) == DPF_OK && dpf_ring_attach_consumer(&ring, place, owner) == DPF_OK);
    dpf_process_sign(&ring.control->place[place].process, owner);
    while (!board->quit) {
        dpf_descriptor d;
        uint32_t seen = dpf_bell_value(ring.consumer_bell[place]);
        dpf_result result = dpf_ring_receive(&ring, owner, &d);
        if (result == DPF_EMPTY) {
            dpf_bell_wait(ring.consumer_bell[place], seen, dpf_now_ns() + 1000000000, 0);
            continue;
        }
        if (result != DPF_OK || !right(&ring, &d) || d.request < last) atomic_fetch_add(&board->wrong, 1);
        last = d.request;
        if (dpf_ring_release(&ring, owner, d.slot) != DPF_OK) atomic_fetch_add(&board->wrong, 1);
        dpf_ring_wake(&ring);
        atomic_fetch_add(&board->received[place], 1);
    }
}

static Side spawn(uint32_t role) {
    Side side = {.owner = atomic_fetch_add(&board->owners, 1) + 1, .role = role};
    pid_t supervisor = getpid();
    board->owner[role] = side.owner;
    side.pid = fork();
    CHECK(side.pid >= 0);
    if (side.pid == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        if (getppid() != supervisor) _exit(0); /* it died before the request above took effect */
        role == PRODUCER ? produce(side.owner) : consume(side.owner, role);
        _exit(0);
    }
    side.pidfd = dpf_pidfd_open(side.pid);
    CHECK(side.pidfd >= 0);
    return side;
}

/* What whoever has no pidfd of a side can know of it: whether it signed, and its process is dead. */
static bool found_dead(const Side *side) {
    dpf_ring ring;
    CHECK(dpf_arena_ring(&arena, 0, &ring) == DPF_OK);
    return dpf_process_gone(side->role == PRODUCER ? &ring.control->process : &ring.control->place[side->role].process, side->owner);
}

static void reclaim(uint32_t owner) {
    CHECK(dpf_arena_reclaim(&arena, owner, NULL) == DPF_OK);
    dpf_arena_wake(&arena);
}

/* Waits for the end of a side, then frees what it had. */
static void bury(Side *side) {
    struct pollfd gone = {.fd = side->pidfd, .events = POLLIN};
    CHECK(poll(&gone, 1, PATIENCE_MS) == 1);
    looked += 1;
    seen_dead += found_dead(side); /* not one that died before it signed */
    CHECK(waitpid(side->pid, NULL, 0) == side->pid);
    close(side->pidfd);
    reclaim(side->owner);
}

static void kill_and_replace(Side *side, bool living) {
    if (living) CHECK(!found_dead(side));
    kill(side->pid, SIGKILL);
    bury(side);
    *side = spawn(side->role);
}

static void pause_ns(uint64_t ns) {
    struct timespec time = {.tv_sec = 0, .tv_nsec = (long)ns};
    nanosleep(&time, NULL);
}

/* Every consumer must get messages again within a bound that only a hang reaches; the time it took. */
static uint64_t wait_for_progress(void) {
    uint64_t started = dpf_now_ns(), wanted[CONSUMERS];
    for (int i = 0; i < CONSUMERS; i++) wanted[i] = board->received[i] + 3;
    for (int i = 0; i < CONSUMERS; i++) {
        for (int j = 0; j < PATIENCE_MS * 10 && board->received[i] < wanted[i]; j++) pause_ns(100000);
        CHECK(board->received[i] >= wanted[i]);
    }
    return dpf_now_ns() - started;
}

static int ascending(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static void check_all_free(void) {
    dpf_ring ring;
    dpf_ring_stats stats;
    dpf_descriptor d;
    for (uint32_t place = 0; place < CONSUMERS; place++) {
        CHECK(dpf_arena_ring(&arena, 0, &ring) == DPF_OK && dpf_ring_attach_consumer(&ring, place, 99) == DPF_OK);
        while (dpf_ring_receive(&ring, 99, &d) == DPF_OK) {
            CHECK(right(&ring, &d) && dpf_ring_release(&ring, 99, d.slot) == DPF_OK);
        }
    }
    dpf_ring_read_stats(&ring, &stats);
    CHECK(stats.loaned == 0 && stats.leased == 0 && stats.depth == 0 && stats.corrupt == 0);
    for (uint32_t i = 0; i < SLOTS; i++) CHECK(dpf_ring_loan(&ring, 98, &d.slot, &d.generation) == DPF_OK);
}

/* One side alone, everybody but one, or everybody. */
static void kill_some(Side *sides, uint64_t *seed, int turn) {
    uint64_t who = next_random(seed) % (2 * SIDES);
    if (who >= SIDES) {
        kill_and_replace(&sides[who - SIDES], true);
        counted[who - SIDES == PRODUCER ? 0 : 1]++;
        return;
    }
    bool all = turn % 2;
    for (uint32_t role = 0; role < SIDES; role++) {
        if (role != who || all) kill(sides[role].pid, SIGKILL);
    }
    for (uint32_t role = 0; role < SIDES; role++) {
        if (role != who || all) kill_and_replace(&sides[role], false);
    }
    counted[who == PRODUCER && !all ? 1 : 2]++;
}

static void kill_sides(int kills) {
    Side sides[SIDES];
    uint64_t recovery[64], recoveries = 0, seed = 424242;
    for (uint32_t role = 0; role < SIDES; role++) sides[role] = spawn(role);
    for (int i = 0; i < kills; i++) {
        pause_ns(next_random(&seed) % 400000);
        kill_some(sides, &seed, i);
        if (i % 16 == 0) recovery[recoveries++ % 64] = wait_for_progress();
    }
    wait_for_progress();
    board->quit = 1;
    for (uint32_t role = 0; role < SIDES; role++) bury(&sides[role]);
    uint64_t kept = recoveries < 64 ? recoveries : 64;
    qsort(recovery, kept, sizeof *recovery, ascending);
    printf("kill: ok, %d kills: the producer %d times, a consumer or both %d times, producer and consumers %d times; "
           "%d of %d deaths seen without a pidfd; %llu and %llu messages; from restart to the third message %.2f ms P50, %.2f ms at most\n",
           kills, counted[0], counted[1], counted[2], seen_dead, looked, (unsigned long long)board->received[0],
           (unsigned long long)board->received[1], (double)recovery[kept / 2] / 1e6, (double)recovery[kept - 1] / 1e6);
}

/* A supervisor for ever: what its predecessor left is reclaimed, then sides are killed and replaced without a pause. */
static void supervise(uint64_t seed) {
    Side sides[SIDES];
    for (uint32_t role = 0; role < SIDES; role++) {
        if (board->owner[role] != 0) reclaim(board->owner[role]);
    }
    for (uint32_t role = 0; role < SIDES; role++) sides[role] = spawn(role);
    for (int i = 0;; i++) {
        pause_ns(next_random(&seed) % 400000);
        kill_some(sides, &seed, i);
    }
}

/* Until no child and no child of a dead child is left; they are ours because this process reaps. */
static uint64_t wait_for_all(void) {
    uint64_t started = dpf_now_ns();
    for (int i = 0; i < PATIENCE_MS * 10; i++) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0) return dpf_now_ns() - started;
        if (pid == 0) pause_ns(100000);
    }
    CHECK(!"a side outlives its supervisor");
    return 0;
}

static void kill_supervisors(int kills) {
    uint64_t seed = 77, slowest = 0, wrong = 0;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        CHECK(errno == EINVAL); /* every Linux has subreapers; emulators of its calls need not */
        puts("kill: SKIPPED, supervisors: orphans cannot be waited for here");
        return;
    }
    board->quit = 0;
    for (int i = 0; i < kills; i++) {
        pid_t parent = getpid(), pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
            if (getppid() == parent) supervise(seed);
            _exit(0);
        }
        pause_ns(next_random(&seed) % 4000000);
        if (i % 8 == 0) wait_for_progress();
        kill(pid, SIGKILL);
        uint64_t took = wait_for_all();
        if (took > slowest) slowest = took;
        wrong += board->wrong;
    }
    for (uint32_t role = 0; role < SIDES; role++) reclaim(board->owner[role]);
    CHECK(wrong == 0);
    printf("kill: ok, %d kills of the supervisor, %u sides started; from its death until every side is gone %.1f ms at most\n",
           kills, board->owners, (double)slowest / 1e6);
}

int main(int argc, char **argv) {
    int kills = argc > 1 ? atoi(argv[1]) : 300, supervisors = argc > 2 ? atoi(argv[2]) : 50;
    dpf_link_spec link = fan_out(link_of(SLOTS, BYTES, DPF_POLICY_FAIL), CONSUMERS);
    dpf_arena_spec spec = spec_of(&link);
    uint64_t nbytes, mapped;
    void *base;
    CHECK(dpf_arena_plan(&spec, &nbytes) == DPF_OK);
    int fd = dpf_memory_create("kill", nbytes);
    CHECK(fd >= 0 && dpf_memory_map(fd, &base, &mapped) == 0);
    CHECK(dpf_arena_format(&spec, base, mapped) == DPF_OK && dpf_arena_open(base, mapped, &arena) == DPF_OK);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    int first = dup(fd);

    kill_sides(kills);
    kill_supervisors(supervisors);
    CHECK(board->wrong == 0);
    check_all_free();
    int second = dup(fd);
    CHECK(second == first + 1); /* no descriptor leaked */
    return 0;
}
