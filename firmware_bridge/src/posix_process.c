/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes, of dpf/posix.h: who has a port, and whether it lives.
 */
#define _GNU_SOURCE
#include "dpf/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { START_FIELD = 20 }; /* of /proc/PID/stat, counted from the one behind the name */

int dpf_pidfd_open(int pid) {
    long fd = syscall(SYS_pidfd_open, pid, 0);
    return fd < 0 ? -errno : (int)fd;
}

/* When a process started, in clock ticks after boot: with it a process id is never mistaken for a later one. 0: not known.
 * Of its first thread, which is the same: what a process reads of itself as /proc/PID/stat is made up under qemu-user. */
static uint64_t start_of(int pid) {
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size <= 0) return 0;
    text[size] = 0;
    char *at = strrchr(text, ')'); /* the name may hold anything */
    for (int field = 0; at != NULL && field < START_FIELD; field++) at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoull(at, NULL, 10);
}

/* The namespace in which this process' id means something; 0: not known. */
static uint64_t space(void) {
    struct stat info;
    return stat("/proc/self/ns/pid", &info) < 0 ? 0 : (uint64_t)info.st_ino;
}

void dpf_process_sign(dpf_process *process, uint32_t owner) {
    int pid = (int)getpid();
    atomic_store(&process->owner, 0);
    atomic_store(&process->pid, (uint32_t)pid);
    atomic_store(&process->start, start_of(pid));
    atomic_store(&process->space, space());
    atomic_store(&process->owner, owner); /* last: what it speaks of is complete */
}

bool dpf_process_gone(const dpf_process *shared, uint32_t owner) {
    dpf_process *process = (dpf_process *)shared;
    if (owner == 0 || atomic_load(&process->owner) != owner) return false;
    int pid = (int)atomic_load(&process->pid);
    uint64_t start = atomic_load(&process->start), there = atomic_load(&process->space);
    if (pid <= 0 || start == 0 || there == 0 || there != space() || atomic_load(&process->owner) != owner) return false;
    int fd = dpf_pidfd_open(pid);
    if (fd < 0) return fd == -ESRCH;
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    bool gone = poll(&ended, 1, 0) == 1;
    uint64_t now = gone ? 0 : start_of(pid);
    close(fd);
    return gone || (now != 0 && now != start);
}

uint32_t dpf_ring_gone_consumer(const dpf_ring *ring) {
    for (uint32_t i = 0; i < ring->places; i++) {
        dpf_place *place = &ring->control->place[i];
        uint32_t owner = atomic_load(&place->owner);
        if (dpf_process_gone(&place->process, owner)) return owner;
    }
    return 0;
}

uint32_t dpf_ring_gone_producer(const dpf_ring *ring) {
    uint32_t owner = atomic_load(&ring->control->owner);
    return dpf_process_gone(&ring->control->process, owner) ? owner : 0;
}
