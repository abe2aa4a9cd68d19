/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/posix.h - the part that needs Linux: memory for an arena, sleeping and waking, watching a process.
 *
 * Calls answer 0 or a dpf_result, or a negative errno. Nothing else in dpf calls the operating system.
 */
#ifndef DPF_POSIX_H
#define DPF_POSIX_H

#include "dpf/arena.h"

DPF_BEGIN_C

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t dpf_now_ns(void);

/* A memfd of `nbytes` bytes, every page reserved now (so that no later write can fail) and sealed against shrinking,
 * growing and unsealing. Close-on-exec. Returns the descriptor, or -ENOSPC, -ENOMEM, -EFBIG, -EMFILE, ...; -EPERM,
 * -EACCES or -ENOSYS where memfds are refused. */
int dpf_memory_create(const char *name, uint64_t nbytes);

/* The same as a file of the open directory `folder`, of mode 0600 and without a name before it has a byte. It cannot be
 * sealed: whoever maps it can truncate it, and then kills everybody who touches what is gone (SIGBUS). */
int dpf_memory_create_in(int folder, uint64_t nbytes);

/* Whether nobody can shrink it. */
bool dpf_memory_sealed(int fd);

/* Maps an arena's descriptor read-write and shared. The size comes from the descriptor, never from the contents. -EPERM:
 * neither sealed, nor a regular file of this user without a name that nobody else may open. */
int dpf_memory_map(int fd, void **base, uint64_t *nbytes);

void dpf_memory_unmap(void *base, uint64_t nbytes);

/* Sleeps until the bell's value differs from `seen`, spinning for `spin_ns` first. `deadline_ns` is absolute
 * CLOCK_MONOTONIC, 0 = none. DPF_OK, DPF_TIMEOUT or DPF_SIGNAL (a handler ran: look at it and call again). */
int dpf_bell_wait(dpf_bell *bell, uint32_t seen, uint64_t deadline_ns, uint64_t spin_ns);

/* Looks for an unread message again and again until there is one, or `spin_ns` have passed, or the deadline (0: none) has
 * come; true when there is one. It looks at the ring, not at the bell: a line that nobody reads is cheap to ring. */
bool dpf_ring_spin(const dpf_ring *ring, uint64_t spin_ns, uint64_t deadline_ns);

/* The same for a bell: until its value is no longer `seen`. */
bool dpf_bell_spin(dpf_bell *bell, uint32_t seen, uint64_t spin_ns, uint64_t deadline_ns);

/* What one waiter knows of whether looking before it sleeps pays; zeros to begin with. */
typedef struct dpf_spinner {
    uint32_t misses, rest;
} dpf_spinner;

/* Whether to look before this sleep: always while it pays (one miss is forgiven), and before one in 4, 16, 64, then 256 sleeps
 * when it does not. */
bool dpf_spin_due(dpf_spinner *spinner);

/* How the look that was due went. */
void dpf_spin_learn(dpf_spinner *spinner, bool found);

/* Wakes every sleeper of a bell. */
void dpf_bell_wake(dpf_bell *bell);

/* Wakes whom the last calls on the ring noted in `ring->wake`, and clears it. */
void dpf_ring_wake(dpf_ring *ring);

/* Rings all bells and wakes every sleeper, whatever the counts say. */
void dpf_arena_wake(const dpf_arena *arena);

/* A descriptor that becomes readable when the process dies. */
int dpf_pidfd_open(int pid);

/* Writes beside a port who has it, after dpf_ring_attach_*: this process. */
void dpf_process_sign(dpf_process *process, uint32_t owner);

/* Whether `owner` signed and its process is dead. False where that cannot be known: it has not signed yet, it is of another
 * pid namespace, /proc is not there, or no descriptor is left. Costs some 10 µs; ends, whatever shared memory holds. */
bool dpf_process_gone(const dpf_process *process, uint32_t owner);

/* The owner of a port at the other end of the link whose process is dead and was not reclaimed; 0 = none. */
uint32_t dpf_ring_gone_consumer(const dpf_ring *ring);
uint32_t dpf_ring_gone_producer(const dpf_ring *ring);

DPF_END_C

#endif
