/* SPDX-License-Identifier: Apache-2.0
 *
 * The published table of dpf/route.h: its memory, its checks, and the one who writes it.
 */
#include "dpf/route.h"

#include "step.h"

enum { PAGE = 4096, FRONT = 128 };

_Static_assert(sizeof(dpf_route_entry) == 280 && sizeof(dpf_route_entry) % sizeof(uint64_t) == 0, "entries are whole words");
_Static_assert(sizeof(dpf_route_header) == FRONT, "the header is two cache lines");
_Static_assert(__builtin_offsetof(dpf_route_header, generation) == 64, "what changes has its own cache line");

static uint64_t pages(uint64_t nbytes) {
    return (nbytes + (uint64_t)PAGE - 1u) & ~((uint64_t)PAGE - 1u);
}

static bool sound(uint32_t bits, uint32_t capacity) {
    return (bits >= (uint32_t)DPF_ROUTE_BITS_LEAST) && (bits <= (uint32_t)DPF_ROUTE_BITS_MOST) && (capacity >= 1u) &&
           (capacity <= (uint32_t)DPF_ROUTE_CAPACITY_MOST);
}

static uint64_t table_bytes(uint32_t bits) {
    return pages((uint64_t)sizeof(uint16_t) << bits);
}

static uint64_t stride(uint32_t bits, uint32_t capacity) {
    return table_bytes(bits) + pages((uint64_t)sizeof(dpf_route_entry) * capacity);
}

uint64_t dpf_route_map_bytes(uint32_t bits, uint32_t capacity) {
    return sound(bits, capacity) ? (uint64_t)PAGE + 2u * stride(bits, capacity) : 0u;
}

typedef dpf_route_word __attribute__((aligned(1))) any_word;

/* A word of the published table: a reader sees it whole. What it makes of words it keeps only if the generation stands still. */
static inline void store(dpf_route_word *to, dpf_route_word word) {
    DPF_STEP();
    __atomic_store_n(to, word, __ATOMIC_RELAXED);
}

/* Eight words are read before the first is written: a read behind writes whose addresses are like its own waits for them. */
static inline void put_eight(dpf_route_word *out, const any_word *in) {
    dpf_route_word a = in[0], b = in[1], c = in[2], d = in[3], e = in[4], f = in[5], g = in[6], h = in[7];
    store(out, a), store(out + 1, b), store(out + 2, c), store(out + 3, d);
    store(out + 4, e), store(out + 5, f), store(out + 6, g), store(out + 7, h);
}

static void put(void *to, const void *from, uint64_t nbytes) {
    dpf_route_word *out = (dpf_route_word *)to;
    const any_word *in = (const any_word *)from;
    uint64_t words = nbytes / sizeof *out, i = 0u;
    for (; i + 8u <= words; i += 8u) put_eight(out + i, in + i);
    for (; i < words; i++) store(out + i, in[i]);
}

static void fill(void *to, uint64_t word, uint64_t nbytes) {
    for (uint64_t i = 0u; i < nbytes / sizeof word; i++) {
        ((uint64_t *)to)[i] = word;
        __asm__ volatile("" ::: "memory");
    }
}

bool dpf_route_map_format(void *base, uint64_t nbytes, uint32_t bits, uint32_t capacity, uint64_t key_seed) {
    bool fits = (dpf_route_map_bytes(bits, capacity) == nbytes) && (nbytes != 0u);
    if (fits) {
        dpf_route_header *header = (dpf_route_header *)base;
        header->version = (uint32_t)DPF_ROUTE_VERSION;
        header->bits = bits;
        header->capacity = capacity;
        header->entry_bytes = (uint32_t)sizeof(dpf_route_entry);
        header->table_at = (uint64_t)PAGE;
        header->entries_at = (uint64_t)PAGE + table_bytes(bits);
        header->stride = stride(bits, capacity);
        header->nbytes = nbytes;
        header->key_seed = key_seed;
        for (uint32_t i = 0u; i < 2u; i++) {
            fill((unsigned char *)base + header->table_at + i * header->stride, ~UINT64_C(0), (uint64_t)sizeof(uint16_t) << bits);
        }
        header->magic = DPF_ROUTE_MAGIC;
    }
    return fits;
}

dpf_route_fault dpf_route_map_open(const void *base, uint64_t nbytes, dpf_route_view *view) {
    const dpf_route_header *header = (const dpf_route_header *)base;
    dpf_route_fault fault = DPF_ROUTE_OK;
    if (nbytes < (uint64_t)PAGE) {
        fault = DPF_ROUTE_BAD_SIZE;
    } else if (header->magic != DPF_ROUTE_MAGIC) {
        fault = DPF_ROUTE_BAD_MAGIC;
    } else if (header->version != (uint32_t)DPF_ROUTE_VERSION) {
        fault = DPF_ROUTE_BAD_VERSION;
    } else {
        uint32_t bits = header->bits, capacity = header->capacity; /* read once: another process may write there */
        if (!sound(bits, capacity) || (header->entry_bytes != (uint32_t)sizeof(dpf_route_entry))) {
            fault = DPF_ROUTE_BAD_NUMBER;
        } else if (dpf_route_map_bytes(bits, capacity) != nbytes) {
            fault = DPF_ROUTE_BAD_SIZE;
        } else {
            const unsigned char *start = (const unsigned char *)base + PAGE;
            view->generation = &header->generation;
            for (uint32_t i = 0u; i < 2u; i++) {
                const unsigned char *buffer = start + i * stride(bits, capacity);
                view->table[i] = (const uint16_t *)(const void *)buffer;
                view->entries[i] = (const dpf_route_entry *)(const void *)(buffer + table_bytes(bits));
            }
            view->bits = bits;
            view->capacity = capacity;
            view->key_seed = header->key_seed;
        }
    }
    return fault;
}

static void set_generation(dpf_route_header *header, uint64_t next) {
    DPF_STEP();
#if __SIZEOF_POINTER__ >= 8
    __atomic_store_n(&header->generation, next, __ATOMIC_RELEASE);
#else
    /* Readers of 32 bits look at the low half; the other half is for those of 64, which no such machine has beside it. */
    const uint32_t low = (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) ? 1u : 0u;
    dpf_route_word *halves = (dpf_route_word *)(void *)&header->generation;
    halves[1u - low] = (dpf_route_word)(next >> 32u);
    DPF_STEP();
    __atomic_store_n(halves + low, (dpf_route_word)next, __ATOMIC_RELEASE);
#endif
}

uint64_t dpf_route_map_publish(void *base, const dpf_route_view *view, const uint16_t *table, const dpf_route_entry *entries,
                               uint32_t count, uint64_t now_ns) {
    dpf_route_header *header = (dpf_route_header *)base;
    uint64_t next = header->generation + 1u; /* only the writer stores it */
    unsigned char *buffer = (unsigned char *)base + PAGE + (next & 1u) * stride(view->bits, view->capacity);
    uint64_t used = (uint64_t)sizeof(dpf_route_entry) * count;
    /* Whoever sees a word of the filling below sees the generation that came before it, and reads again. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    put(buffer, table, (uint64_t)sizeof(uint16_t) << view->bits);
    put(buffer + table_bytes(view->bits), entries, used);
    for (uint32_t i = count; i < view->capacity; i++) {
        dpf_route_entry *entry = (dpf_route_entry *)(void *)(buffer + table_bytes(view->bits)) + i;
        DPF_STEP();
        __atomic_store_n(&entry->flags, (uint16_t)0, __ATOMIC_RELAXED);
    }
    DPF_STEP();
    header->published_ns = now_ns;
    set_generation(header, next);
    return next;
}

void dpf_route_map_end(void *base) {
    set_generation((dpf_route_header *)base, ~UINT64_C(0));
}
