/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/xxh64.h - XXH64 with a seed, inline: the hash that places requests and instances.
 *
 * After the public specification (xxhash_spec.md). Bytes in, 64 bits out, the same on every machine, of either byte order
 * and any alignment. No allocation, no libc, no tables. A hostile caller who knows the seed can make collisions.
 *
 * In eBPF the bytes must begin at a multiple of 8: there a load of an unaligned word is eight loads.
 */
#ifndef DPF_XXH64_H
#define DPF_XXH64_H

#include <stdbool.h>
#include <stdint.h>

#define DPF_XXH64_1 UINT64_C(0x9E3779B185EBCA87)
#define DPF_XXH64_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define DPF_XXH64_3 UINT64_C(0x165667B19E3779F9)
#define DPF_XXH64_4 UINT64_C(0x85EBCA77C2B2AE63)
#define DPF_XXH64_5 UINT64_C(0x27D4EB2F165667C5)

/* Words at any address: the compiler knows them to be unaligned and of any object, and never calls memcpy for them. */
#if defined(__bpf__)
typedef uint64_t __attribute__((may_alias)) dpf_any64;
typedef uint32_t __attribute__((may_alias)) dpf_any32;
#else
typedef uint64_t __attribute__((aligned(1), may_alias)) dpf_any64;
typedef uint32_t __attribute__((aligned(1), may_alias)) dpf_any32;
#endif

static inline uint64_t dpf_little64(uint64_t word) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(word);
#else
    return word;
#endif
}

static inline uint32_t dpf_little32(uint32_t word) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap32(word);
#else
    return word;
#endif
}

static inline uint64_t dpf_xxh64_turn(uint64_t word, unsigned bits) {
    return (word << bits) | (word >> (64u - bits));
}

static inline uint64_t dpf_xxh64_round(uint64_t lane, uint64_t word) {
    return dpf_xxh64_turn(lane + word * DPF_XXH64_2, 31u) * DPF_XXH64_1;
}

static inline uint64_t dpf_xxh64_merge(uint64_t hash, uint64_t lane) {
    return (hash ^ dpf_xxh64_round(0u, lane)) * DPF_XXH64_1 + DPF_XXH64_4;
}

static inline uint64_t dpf_xxh64_word(uint64_t hash, uint64_t word) {
    return dpf_xxh64_turn(hash ^ dpf_xxh64_round(0u, word), 27u) * DPF_XXH64_1 + DPF_XXH64_4;
}

static inline uint64_t dpf_xxh64_end(uint64_t hash) {
    hash = (hash ^ (hash >> 33u)) * DPF_XXH64_2;
    hash = (hash ^ (hash >> 29u)) * DPF_XXH64_3;
    return hash ^ (hash >> 32u);
}

static inline uint64_t dpf_xxh64_load(const unsigned char *at) {
    return dpf_little64(*(const dpf_any64 *)(const void *)at);
}

/* The part of 32 bytes and more; `end` is where it ended. */
static inline uint64_t dpf_xxh64_stripes(const unsigned char *bytes, uint64_t nbytes, uint64_t seed, uint64_t *end) {
    uint64_t a = seed + DPF_XXH64_1 + DPF_XXH64_2, b = seed + DPF_XXH64_2, c = seed, d = seed - DPF_XXH64_1;
    uint64_t at = 0u;
    for (; at + 32u <= nbytes; at += 32u) {
        a = dpf_xxh64_round(a, dpf_xxh64_load(bytes + at));
        b = dpf_xxh64_round(b, dpf_xxh64_load(bytes + at + 8u));
        c = dpf_xxh64_round(c, dpf_xxh64_load(bytes + at + 16u));
        d = dpf_xxh64_round(d, dpf_xxh64_load(bytes + at + 24u));
    }
    uint64_t hash = dpf_xxh64_turn(a, 1u) + dpf_xxh64_turn(b, 7u) + dpf_xxh64_turn(c, 12u) + dpf_xxh64_turn(d, 18u);
    *end = at;
    return dpf_xxh64_merge(dpf_xxh64_merge(dpf_xxh64_merge(dpf_xxh64_merge(hash, a), b), c), d);
}

/* XXH64 of `nbytes` bytes. `data` is not looked at when there are none.
 * The place is counted, not what is left: along each path the kernel's verifier then knows it as a number. */
static inline uint64_t dpf_xxh64(const void *data, uint64_t nbytes, uint64_t seed) {
    const unsigned char *bytes = (const unsigned char *)data;
    uint64_t at = 0u;
    uint64_t hash = (nbytes >= 32u) ? dpf_xxh64_stripes(bytes, nbytes, seed, &at) : seed + DPF_XXH64_5;
    hash += nbytes;
    for (; at + 8u <= nbytes; at += 8u) hash = dpf_xxh64_word(hash, dpf_xxh64_load(bytes + at));
    if (at + 4u <= nbytes) {
        uint64_t word = dpf_little32(*(const dpf_any32 *)(const void *)(bytes + at));
        hash = dpf_xxh64_turn(hash ^ (word * DPF_XXH64_1), 23u) * DPF_XXH64_2 + DPF_XXH64_3;
        at += 4u;
    }
    for (; at < nbytes; at++) hash = dpf_xxh64_turn(hash ^ (bytes[at] * DPF_XXH64_5), 11u) * DPF_XXH64_1;
    return dpf_xxh64_end(hash);
}

/* XXH64 of the 8 bytes of `word`, lowest first. */
static inline uint64_t dpf_xxh64_of(uint64_t word, uint64_t seed) {
    return dpf_xxh64_end(dpf_xxh64_word(seed + DPF_XXH64_5 + 8u, word));
}

#endif
