/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/route.h - which instance serves a request: key, hash, table slot, owner; and the published table that all read.
 *
 * A pure function, inline, the same in Python, C, firmware and the kernel. `dpfedge/routing/ROUTING.md` is normative.
 * No allocation, no libc, no floating point, no lock. The table is made by dpf/table.h.
 *
 *     unsigned char key[DPF_ROUTE_KEY_MOST];
 *     uint32_t nbytes = dpf_route_key(key, "llm", 3, "alice", 5, ts_ms);
 *     uint64_t hash = dpf_xxh64(key, nbytes, view.key_seed);
 *     uint32_t owner = dpf_route_find(&view, hash, &entry, &generation);
 */
#ifndef DPF_ROUTE_H
#define DPF_ROUTE_H

#include "dpf/xxh64.h"

#define DPF_ROUTE_KEY_SEED UINT64_C(0x3159454B54554F52) /* "ROUTKEY1" */
#define DPF_ROUTE_MAGIC UINT64_C(0x4554554F52465044)    /* "DPFROUTE" */

enum {
    DPF_ROUTE_FIELD_MOST = 120, /* bytes of a model or of a user */
    DPF_ROUTE_KEY_LEAST = 12,
    DPF_ROUTE_KEY_MOST = 252,
    DPF_ROUTE_BITS = 16, /* of a table slot's number, unless said */
    DPF_ROUTE_BITS_LEAST = 4,
    DPF_ROUTE_BITS_MOST = 22,
    DPF_ROUTE_NONE = 0xFFFF, /* the owner of a table slot that nobody serves */
    DPF_ROUTE_VERSION = 1,
    DPF_ROUTE_NAME_MOST = 256,  /* bytes of an instance's name */
    DPF_ROUTE_CAPACITY_MOST = 65535
};

/* ---- key and table slot ---- */

/* Words of one memory, so that no loop looks like memcpy; the empty asm keeps the compiler from making it one. */
static inline void dpf_route_copy(unsigned char *to, const unsigned char *from, uint32_t nbytes) {
    if (nbytes >= 8u) {
        for (uint32_t at = 0u; at + 8u < nbytes; at += 8u) {
            *(dpf_any64 *)(void *)(to + at) = *(const dpf_any64 *)(const void *)(from + at);
            __asm__ volatile("" ::: "memory");
        }
        *(dpf_any64 *)(void *)(to + nbytes - 8u) = *(const dpf_any64 *)(const void *)(from + nbytes - 8u);
    } else if (nbytes >= 4u) {
        uint32_t first = *(const dpf_any32 *)(const void *)from;
        uint32_t last = *(const dpf_any32 *)(const void *)(from + nbytes - 4u);
        *(dpf_any32 *)(void *)to = first;
        *(dpf_any32 *)(void *)(to + nbytes - 4u) = last;
    } else if (nbytes != 0u) {
        to[0] = from[0];
        to[nbytes >> 1u] = from[nbytes >> 1u];
        to[nbytes - 1u] = from[nbytes - 1u];
    } else {
        /* nothing to copy, and `from` may be NULL */
    }
}

static inline unsigned char *dpf_route_field(unsigned char *to, const void *field, uint32_t nbytes) {
    to[0] = (unsigned char)nbytes;
    to[1] = 0u; /* a length of at most 120 has no high byte */
    dpf_route_copy(to + 2, (const unsigned char *)field, nbytes);
    return to + 2u + nbytes;
}

/* Writes the key of a session into `key` (room for DPF_ROUTE_KEY_MOST bytes); its length, or 0 when a field is too long.
 * A field is bytes as given: nothing is normalised, NUL is a byte like any other. `ts_ms`: when the session began. */
static inline uint32_t dpf_route_key(unsigned char *key, const void *model, uint32_t model_bytes, const void *user,
                                     uint32_t user_bytes, uint64_t ts_ms) {
    uint32_t nbytes = 0u;
    if ((model_bytes <= (uint32_t)DPF_ROUTE_FIELD_MOST) && (user_bytes <= (uint32_t)DPF_ROUTE_FIELD_MOST)) {
        unsigned char *at = dpf_route_field(key, model, model_bytes);
        at = dpf_route_field(at, user, user_bytes);
        *(dpf_any64 *)(void *)at = dpf_little64(ts_ms);
        nbytes = (uint32_t)DPF_ROUTE_KEY_LEAST + model_bytes + user_bytes;
    }
    return nbytes;
}

/* The table slot of a hash in a table of 2^bits slots. */
static inline uint32_t dpf_route_slot(uint64_t hash, uint32_t bits) {
    return (uint32_t)(hash >> (64u - bits));
}

/* The short form of a hash for channels of 32 bits (SO_MARK); never 0, keeps the table slot of a table of up to 2^31. */
static inline uint32_t dpf_route_mark(uint64_t hash) {
    return (uint32_t)(hash >> 32u) | 1u;
}

/* ---- the published table: two buffers and a generation; buffer = generation & 1 ---- */

/* An instance as readers see it. `ip` and `port` are in network byte order, 0 where the name is no IPv4 address. */
typedef struct dpf_route_entry {
    uint64_t seed;
    uint32_t ip;
    uint16_t port;
    uint16_t weight;    /* configured; 0: takes no part */
    uint16_t effective; /* 0 while it is not healthy */
    uint16_t health;    /* 0 .. 10000 */
    uint16_t flags;     /* DPF_ROUTE_USED, DPF_ROUTE_HEALTHY */
    uint16_t name_bytes;
    char name[DPF_ROUTE_NAME_MOST];
} dpf_route_entry;

enum { DPF_ROUTE_USED = 1, DPF_ROUTE_HEALTHY = 2 };

/* The first bytes of the shared memory, in the host's byte order. Everything but `generation` is written once. */
typedef struct dpf_route_header {
    uint64_t magic;
    uint32_t version;
    uint32_t bits;
    uint32_t capacity;    /* entries of each buffer */
    uint32_t entry_bytes; /* sizeof(dpf_route_entry) */
    uint64_t table_at;    /* of buffer 0, from the start */
    uint64_t entries_at;
    uint64_t stride; /* from buffer 0 to buffer 1 */
    uint64_t nbytes;
    uint64_t key_seed;
    uint64_t generation; /* 64 bytes from the start: a cache line of its own */
    uint64_t published_ns;
    uint64_t reserved[6];
} dpf_route_header;

/* The words that change under a reader. Machines of 32 bits read the low half of the generation: it names the buffer, and
 * says that nothing changed unless 2^32 publications pass inside one lookup. */
#if __SIZEOF_POINTER__ >= 8 || defined(__bpf__)
typedef uint64_t __attribute__((may_alias)) dpf_route_word;
#else
typedef uint32_t __attribute__((may_alias)) dpf_route_word;
#endif

/* The generation of a table whose place another one took: whoever reads it opens the place again. */
#define DPF_ROUTE_ENDED ((dpf_route_word)-1)

/* What a reader has of a table. The kernel's arrays, mapped, serve as well as the file. */
typedef struct dpf_route_view {
    const uint64_t *generation;
    const uint16_t *table[2];
    const dpf_route_entry *entries[2]; /* NULL: not here */
    uint32_t bits;
    uint32_t capacity;
    uint64_t key_seed;
} dpf_route_view;

static inline dpf_route_word dpf_route_generation(const dpf_route_view *view) {
    const dpf_route_word *word = (const dpf_route_word *)(const void *)view->generation;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ && __SIZEOF_POINTER__ < 8
    word++;
#endif
#if defined(__bpf__)
    return *(const volatile dpf_route_word *)word;
#else
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

/* Whether what was read since `before` was loaded is all of that generation: a writer may fill the other buffer only, and
 * fills this one again after it has moved the generation. Call it after the reads. */
static inline bool dpf_route_same(const dpf_route_view *view, dpf_route_word before, dpf_route_word *now) {
#if !defined(__bpf__)
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
    *now = dpf_route_generation(view);
    return *now == before;
}

static inline uint32_t dpf_route_read(const uint16_t *slot) {
#if defined(__bpf__)
    return *(const volatile uint16_t *)slot;
#else
    return __atomic_load_n(slot, __ATOMIC_RELAXED);
#endif
}

/* The owner of a hash, an index or DPF_ROUTE_NONE, and the generation that says so; NONE of DPF_ROUTE_ENDED. One load, and again only when a
 * publication happened meanwhile. */
static inline uint32_t dpf_route_owner(const dpf_route_view *view, uint64_t hash, dpf_route_word *generation) {
    dpf_route_word before;
    dpf_route_word now = dpf_route_generation(view);
    uint32_t owner;
    do {
        before = now;
        owner = dpf_route_read(view->table[before & 1u] + dpf_route_slot(hash, view->bits));
    } while (!dpf_route_same(view, before, &now));
    *generation = before;
    return (before == DPF_ROUTE_ENDED) ? (uint32_t)DPF_ROUTE_NONE : owner;
}

#if !defined(__bpf__)
static inline void dpf_route_take(dpf_route_entry *to, const dpf_route_entry *from) {
    dpf_route_word *out = (dpf_route_word *)(void *)to;
    const dpf_route_word *in = (const dpf_route_word *)(const void *)from;
    for (uint32_t i = 0u; i < (uint32_t)(sizeof *to / sizeof *out); i++) out[i] = __atomic_load_n(in + i, __ATOMIC_RELAXED);
}

/* As dpf_route_owner, with the owner's entry of the same generation. A view needs its entries for it. */
static inline uint32_t dpf_route_find(const dpf_route_view *view, uint64_t hash, dpf_route_entry *entry,
                                      dpf_route_word *generation) {
    dpf_route_word before;
    dpf_route_word now = dpf_route_generation(view);
    uint32_t owner;
    do {
        before = now;
        owner = dpf_route_read(view->table[before & 1u] + dpf_route_slot(hash, view->bits));
        if (owner < view->capacity) dpf_route_take(entry, view->entries[before & 1u] + owner);
    } while (!dpf_route_same(view, before, &now));
    *generation = before;
    /* a hostile writer's index points nowhere */
    return ((owner < view->capacity) && (before != DPF_ROUTE_ENDED)) ? owner : (uint32_t)DPF_ROUTE_NONE;
}
#endif

/* ---- making, opening and publishing; src/route.c ---- */

typedef enum dpf_route_fault {
    DPF_ROUTE_OK = 0,
    DPF_ROUTE_BAD_SIZE = 1,    /* shorter than it says, or than a header */
    DPF_ROUTE_BAD_MAGIC = 2,   /* something else, or of a machine of the other byte order */
    DPF_ROUTE_BAD_VERSION = 3, /* of another version of dpf */
    DPF_ROUTE_BAD_NUMBER = 4   /* a number in it is impossible */
} dpf_route_fault;

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of shared memory for a table of 2^bits slots and that many entries; 0 when a number is out of range. */
uint64_t dpf_route_map_bytes(uint32_t bits, uint32_t capacity);

/* Makes memory of exactly dpf_route_map_bytes bytes, 8-aligned and zero, a table that nobody serves, of generation 0. */
bool dpf_route_map_format(void *base, uint64_t nbytes, uint32_t bits, uint32_t capacity, uint64_t key_seed);

/* Checks the header against `nbytes`, the size that the operating system tells, and copies what a reader needs. */
dpf_route_fault dpf_route_map_open(const void *base, uint64_t nbytes, dpf_route_view *view);

/* Fills the buffer that nobody reads with the view's 2^bits slots and `count` entries (at most its capacity), then moves the
 * generation. One writer at a time. A writer that dies here leaves the generation before. The new generation. */
uint64_t dpf_route_map_publish(void *base, const dpf_route_view *view, const uint16_t *table, const dpf_route_entry *entries,
                               uint32_t count, uint64_t now_ns);

/* Tells its readers that another table took its place; the last thing that happens to it. */
void dpf_route_map_end(void *base);

#ifdef __cplusplus
}
#endif

#endif
