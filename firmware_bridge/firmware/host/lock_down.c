/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that has only its memory: seccomp (Linux 3.5) kills it for any system call that a tick does not need.
 *
 * So it is a fact, not a promise, that the host port opens, allocates and starts nothing while it works.
 */
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "host.h"

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

/* A sanitizer needs system calls of its own. */
#if !defined(ARCHITECTURE) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
bool dpf_fw_lock_down(void) {
    return true;
}
#else
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

bool dpf_fw_lock_down(void) {
    static struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_ppoll),
        ALLOW(SYS_sendto),
        ALLOW(SYS_recvfrom),
        ALLOW(SYS_write),
        ALLOW(SYS_clock_gettime), /* where the kernel's page does not answer it */
        ALLOW(SYS_restart_syscall),
        ALLOW(SYS_exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    static const struct sock_fprog program = {.len = sizeof rules / sizeof *rules, .filter = rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
#endif
