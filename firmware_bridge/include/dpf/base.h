/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/base.h - result codes, sizes and the atomic type that every dpf header shares.
 *
 * Nothing here allocates, calls libc or needs an operating system. Shared memory is little-endian on every machine: the
 * link's headers refuse a compiler of the other byte order. Packages and digests are read the same on either.
 */
#ifndef DPF_BASE_H
#define DPF_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <atomic>
#define DPF_ATOMIC(T) std::atomic<T>
#define DPF_ASSERT(condition, text) static_assert(condition, text)
#define DPF_BEGIN_C extern "C" {
#define DPF_END_C }
#else
#include <stdatomic.h>
#define DPF_ATOMIC(T) _Atomic(T)
#define DPF_ASSERT(condition, text) _Static_assert(condition, text)
#define DPF_BEGIN_C
#define DPF_END_C
#endif

#define DPF_LITTLE_ENDIAN_ONLY \
    DPF_ASSERT(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "this header is about shared memory, whose layout is little-endian")
DPF_ASSERT(sizeof(DPF_ATOMIC(uint64_t)) == 8 && sizeof(DPF_ATOMIC(uint32_t)) == 4, "shared words carry no lock");

/* What a call answers. Only DPF_OK means that the call did what its name says. */
typedef enum dpf_result {
    DPF_OK = 0,
    DPF_EMPTY = 1,   /* nothing waits to be received */
    DPF_FULL = 2,    /* no slot, descriptor or request place is free now */
    DPF_STALE = 3,   /* the loan, lease or key ended before (released, reclaimed or of an older generation) */
    DPF_CORRUPT = 4, /* shared memory holds an impossible value, or somebody overwrites a word on purpose; a bad message was skipped
                      * and counted, nothing else was changed */
    DPF_BAD = 5,     /* an argument is out of range; nothing was changed */
    DPF_TAKEN = 6,   /* the port belongs to another owner that was not reclaimed */
    DPF_TIMEOUT = 7, /* a bounded wait ended */
    DPF_SIGNAL = 8   /* a wait was interrupted by a signal handler */
} dpf_result;

enum {
    DPF_LINE = 64,       /* alignment of everything two sides write: one cache line */
    DPF_NAME_BYTES = 64, /* a name in the directory: UTF-8, NUL-terminated, at most 63 bytes */
    DPF_TRIES = 64       /* of a call to change a word that few others ever write: losing all of them is no chance, but purpose */
};

#endif
