/* SPDX-License-Identifier: Apache-2.0
 *
 * key.h - the key of a session from a socket option: its bytes in, checked; XXH64 out, by the steps of dpf/xxh64.h.
 *
 * Every byte is at a place that the compiler knows, so that the verifier takes it from a loader without CAP_PERFMON: there
 * a pointer may not be moved by a number that differs from path to path, which dpf_xxh64 does. Little-endian machines.
 */
#ifndef DPF_EBPF_KEY_H
#define DPF_EBPF_KEY_H

#include "maps.h"

/* Copies what is before `end`. What is behind it stays as it was. */
static __always_inline void rh_key_take(rh_scratch *to, const unsigned char *from, const unsigned char *end) {
#pragma unroll
    for (__u32 word = 0u; word < RH_KEY_WORDS; word++) {
        const unsigned char *at = from + word * 8u;
        if (at + 8u <= end) {
            to->word[word] = *(const __u64 *)(const void *)at;
        } else {
            unsigned char *last = (unsigned char *)&to->word[word];
#pragma unroll
            for (__u32 byte = 0u; byte < 7u; byte++) {
                if (at + byte + 1u > end) return;
                last[byte] = at[byte];
            }
            return;
        }
    }
}

/* How long the key is that dpf_route_key wrote, by the two lengths in it, each at most 120; 0: it is no key. */
static __always_inline __u32 rh_key_length(const rh_scratch *of) {
    const unsigned char *key = (const unsigned char *)of->word;
    __u32 model = key[0] | (__u32)key[1] << 8u;
    if (model > DPF_ROUTE_FIELD_MOST) return 0u;
    __u32 user = key[2u + model] | (__u32)key[3u + model] << 8u;
    return (user <= DPF_ROUTE_FIELD_MOST) ? DPF_ROUTE_KEY_LEAST + model + user : 0u;
}

/* The four words from `first` on. Without the asm the compiler would move a pointer and load once. */
#define RH_KEY_WORDS_AT(key, first, to)                            \
    do {                                                           \
        (to)[0] = *(const volatile __u64 *)&(key)->word[(first)];  \
        (to)[1] = *(const volatile __u64 *)&(key)->word[(first) + 1]; \
        (to)[2] = *(const volatile __u64 *)&(key)->word[(first) + 2]; \
        (to)[3] = *(const volatile __u64 *)&(key)->word[(first) + 3]; \
        __asm__ volatile("" : "+r"((to)[3]) : "i"(first));         \
    } while (0)

/* What is left after the last stripe of 32 bytes. */
static __always_inline void rh_key_last(const rh_scratch *key, __u32 nbytes, __u64 *to) {
    switch (nbytes >> 5u) {
    case 0u: RH_KEY_WORDS_AT(key, 0, to); break;
    case 1u: RH_KEY_WORDS_AT(key, 4, to); break;
    case 2u: RH_KEY_WORDS_AT(key, 8, to); break;
    case 3u: RH_KEY_WORDS_AT(key, 12, to); break;
    case 4u: RH_KEY_WORDS_AT(key, 16, to); break;
    case 5u: RH_KEY_WORDS_AT(key, 20, to); break;
    case 6u: RH_KEY_WORDS_AT(key, 24, to); break;
    default: RH_KEY_WORDS_AT(key, 28, to); break;
    }
}

/* dpf_xxh64 of a key: 12 .. 252 bytes. */
static __always_inline __u64 rh_key_hash(const rh_scratch *key, __u32 nbytes, __u64 seed) {
    __u64 a = seed + DPF_XXH64_1 + DPF_XXH64_2, b = seed + DPF_XXH64_2, c = seed, d = seed - DPF_XXH64_1;
    __u64 hash = seed + DPF_XXH64_5, last[4];
    __u32 left = nbytes & 7u;
#pragma unroll
    for (__u32 word = 0u; word + 4u < RH_KEY_WORDS; word += 4u) {
        if (nbytes < word * 8u + 32u) break;
        a = dpf_xxh64_round(a, key->word[word]);
        b = dpf_xxh64_round(b, key->word[word + 1u]);
        c = dpf_xxh64_round(c, key->word[word + 2u]);
        d = dpf_xxh64_round(d, key->word[word + 3u]);
    }
    if (nbytes >= 32u) {
        hash = dpf_xxh64_turn(a, 1u) + dpf_xxh64_turn(b, 7u) + dpf_xxh64_turn(c, 12u) + dpf_xxh64_turn(d, 18u);
        hash = dpf_xxh64_merge(dpf_xxh64_merge(dpf_xxh64_merge(dpf_xxh64_merge(hash, a), b), c), d);
    }
    hash += nbytes;
    rh_key_last(key, nbytes, last);
    __u64 rest = last[0];
    if ((nbytes & 31u) >= 8u) hash = dpf_xxh64_word(hash, last[0]), rest = last[1];
    if ((nbytes & 31u) >= 16u) hash = dpf_xxh64_word(hash, last[1]), rest = last[2];
    if ((nbytes & 31u) >= 24u) hash = dpf_xxh64_word(hash, last[2]), rest = last[3];
    if (left >= 4u) {
        hash = dpf_xxh64_turn(hash ^ ((rest & 0xFFFFFFFFu) * DPF_XXH64_1), 23u) * DPF_XXH64_2 + DPF_XXH64_3;
        rest >>= 32u;
        left -= 4u;
    }
#pragma unroll
    for (__u32 byte = 0u; byte < 3u; byte++) {
        if (byte < left) hash = dpf_xxh64_turn(hash ^ (((rest >> (byte * 8u)) & 0xFFu) * DPF_XXH64_5), 11u) * DPF_XXH64_1;
    }
    return dpf_xxh64_end(hash);
}

#endif
