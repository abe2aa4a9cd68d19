/* SPDX-License-Identifier: Apache-2.0
 *
 * How a program without a libc ends, on every machine that tests/targets.sh emulates.
 */
#ifndef DPF_ALONE_H
#define DPF_ALONE_H

static __attribute__((noreturn)) void leave(long status) {
#if defined(__aarch64__)
    register long x0 __asm__("x0") = status;
    register long x8 __asm__("x8") = 93;
    __asm__ volatile("svc 0" ::"r"(x0), "r"(x8));
#elif defined(__s390x__)
    register long r2 __asm__("r2") = status;
    __asm__ volatile("svc 1" ::"r"(r2));
#elif defined(__x86_64__)
    __asm__ volatile("syscall" ::"a"(60), "D"(status));
#elif defined(__arm__)
    register long r0 __asm__("r0") = status;
    register long r7 __asm__("r7") = 1;
    __asm__ volatile("svc 0" ::"r"(r0), "r"(r7));
#else
#error "how does a program end here?"
#endif
    for (;;) {
    }
}

#endif
