/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/arena.h - the one block of shared memory of a pipeline: bells, request table and links at checked offsets.
 *
 *     header (192 bytes) | bells | ring headers | requests | per ring: control, entries, slot states, slots
 *
 * Every part begins on a 64-byte line, slots larger than a page on a page. The geometry is written once by
 * dpf_arena_format and never changes; dpf_arena_open and dpf_arena_ring copy it out, check every number against the
 * size the caller mapped, and use only the copies afterwards. This file does not get the memory (dpf/posix.h does).
 */
#ifndef DPF_ARENA_H
#define DPF_ARENA_H

#include "dpf/bell.h"
#include "dpf/requests.h"
#include "dpf/ring.h"

#define DPF_ARENA_MAGIC 0x414E455241465044ull /* "DPFARENA" */
enum { DPF_ARENA_VERSION = 3, DPF_RINGS_MAX = 1024, DPF_BELLS_MAX = 256, DPF_SLOTS_MAX = 1 << 20 };

typedef struct dpf_arena_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint64_t nbytes;
    uint32_t page;
    uint32_t bells;
    uint32_t rings;
    uint32_t requests;
    uint64_t bells_at;
    uint64_t rings_at;
    uint64_t requests_at;
    char name[DPF_NAME_BYTES];
    uint8_t reserved[64];
} dpf_arena_header;

DPF_ASSERT(sizeof(dpf_arena_header) == 192, "header layout");
DPF_ASSERT(offsetof(dpf_arena_header, bells_at) == 40 && offsetof(dpf_arena_header, name) == 64, "header layout");

typedef struct dpf_ring_header {
    char name[DPF_NAME_BYTES];
    uint32_t producer; /* index of a bell: the stage */
    uint32_t places;   /* consumers, 1 .. DPF_PLACES */
    uint32_t slots;
    uint32_t capacity;
    uint32_t policy;
    uint32_t reserved0;
    uint64_t slot_bytes;
    uint64_t stride;
    uint64_t block_ns;
    uint64_t control_at;
    uint64_t entries_at;
    uint64_t states_at;
    uint64_t slots_at;
    uint32_t consumer[DPF_PLACES]; /* indices of bells: the stage of each place */
    uint8_t reserved[88];
} dpf_ring_header;

DPF_ASSERT(sizeof(dpf_ring_header) == 256, "ring header layout");
DPF_ASSERT(offsetof(dpf_ring_header, slot_bytes) == 88 && offsetof(dpf_ring_header, slots_at) == 136, "ring header layout");

/* What the caller wants: one link. Names are UTF-8 and NUL-terminated within their 64 bytes. */
typedef struct dpf_link_spec {
    char name[DPF_NAME_BYTES];
    uint32_t producer; /* index into the stages */
    uint32_t places;   /* consumers, 1 .. DPF_PLACES */
    uint32_t consumer[DPF_PLACES];
    uint32_t slots;  /* 1 .. DPF_SLOTS_MAX */
    uint32_t policy; /* dpf_policy */
    uint64_t slot_bytes; /* 1 .. 2^32 - 1 */
    uint64_t block_ns;
} dpf_link_spec;

typedef struct dpf_arena_spec {
    const char *name;
    const char (*stages)[DPF_NAME_BYTES];
    const dpf_link_spec *links;
    uint32_t stage_count;
    uint32_t link_count;
    uint32_t requests; /* 1 .. DPF_REQUESTS_MAX */
    uint32_t page;     /* a power of two: the page size of this machine */
} dpf_arena_spec;

/* A process's private view of an arena. */
typedef struct dpf_arena {
    unsigned char *base;
    uint64_t nbytes;
    dpf_bell *bells;
    const dpf_ring_header *rings;
    dpf_requests requests;
    uint32_t bell_count;
    uint32_t ring_count;
} dpf_arena;

DPF_BEGIN_C

/* Bytes the arena takes; DPF_BAD when a number of the spec is out of range. */
dpf_result dpf_arena_plan(const dpf_arena_spec *spec, uint64_t *nbytes);

/* Lays the arena out in zeroed memory of at least the planned size, aligned to a page. */
dpf_result dpf_arena_format(const dpf_arena_spec *spec, void *base, uint64_t nbytes);

/* Checks a formatted arena of `nbytes` mapped bytes; DPF_CORRUPT when a number does not fit. Keeps `base`. */
dpf_result dpf_arena_open(void *base, uint64_t nbytes, dpf_arena *arena);

/* A checked private view of ring `index`; DPF_BAD beyond the last one, DPF_CORRUPT when a number does not fit. */
dpf_result dpf_arena_ring(const dpf_arena *arena, uint32_t index, dpf_ring *ring);

/* After the death of `owner`: reclaims it in one ring after the other (`freed`, when given, gets one count per ring), then
 * resets every bell. The caller must wake every bell's sleepers afterwards (dpf_arena_wake in dpf/posix.h). */
dpf_result dpf_arena_reclaim(const dpf_arena *arena, uint32_t owner, uint32_t *freed);

DPF_END_C

#endif
