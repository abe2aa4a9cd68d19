/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for an arena, of dpf/posix.h.
 */
#define _GNU_SOURCE
#include "dpf/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* Linux 6.3 */
#endif

enum { FILE_TRIES = 16 };

/* 0, or a negative errno; every page of the file exists then. */
static int reserve(int fd, uint64_t nbytes) {
    int error;
    do {
        error = posix_fallocate(fd, 0, (off_t)nbytes);
    } while (error == EINTR);
    return -error;
}

static int memfd(const char *name) {
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); /* an older kernel */
    return fd < 0 ? -errno : fd;
}

int dpf_memory_create(const char *name, uint64_t nbytes) {
    if (nbytes == 0 || nbytes > INT64_MAX) return -EINVAL;
    int fd = memfd(name);
    if (fd < 0) return fd;
    int error = reserve(fd, nbytes);
    if (error == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) error = -errno;
    if (error != 0) {
        close(fd);
        return error;
    }
    return fd;
}

/* A new file that has lost its name; a process that dies in between leaves an empty one. */
static int nameless(int folder) {
    for (uint32_t i = 0; i < FILE_TRIES; i++) {
        char name[64];
        snprintf(name, sizeof name, "arena-%d-%llx", (int)getpid(), (unsigned long long)dpf_now_ns() + i);
        int fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0) return -errno;
        if (unlinkat(folder, name, 0) == 0) return fd;
        int error = -errno;
        close(fd);
        return error;
    }
    return -EEXIST;
}

int dpf_memory_create_in(int folder, uint64_t nbytes) {
    if (nbytes == 0 || nbytes > INT64_MAX) return -EINVAL;
    int fd = nameless(folder);
    if (fd < 0) return fd;
    int error = reserve(fd, nbytes);
    if (error != 0) {
        close(fd);
        return error;
    }
    return fd;
}

/* Whether a file is of the kind that dpf_memory_create_in makes: ours, nobody else's, and without a name. */
static bool is_private(const struct stat *info) {
    return S_ISREG(info->st_mode) && (info->st_mode & 077) == 0 && info->st_nlink == 0 && info->st_uid == geteuid();
}

bool dpf_memory_sealed(int fd) {
    int seals = fcntl(fd, F_GET_SEALS); /* fails for files that are not in memory */
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

int dpf_memory_map(int fd, void **base, uint64_t *nbytes) {
    struct stat info;
    if (fstat(fd, &info) < 0) return -errno;
    if (!dpf_memory_sealed(fd) && !is_private(&info)) return -EPERM;
    if (info.st_size <= 0) return -EINVAL;
    void *at = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return -errno;
    *base = at;
    *nbytes = (uint64_t)info.st_size;
    return 0;
}

void dpf_memory_unmap(void *base, uint64_t nbytes) {
    munmap(base, (size_t)nbytes);
}
