/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 with the instructions of x86-64 (SHA-NI), one or two digests at a time, for dpf/digest.h.
 *
 * A round waits for the one before; of two digests one computes while the other waits, so two take as long as one.
 */
#include "dpf/digest.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include "package_sha256.h"

#define LANES_OF_X86 __attribute__((target("sha,sse4.1,ssse3")))

/* One digest's state in the order of the instructions, and the newest 16 words of its schedule. */
typedef struct lane {
    __m128i abef, cdgh, word[4];
} lane;

LANES_OF_X86 static inline lane take(const uint32_t state[8]) {
    __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
    lane one = {.abef = _mm_alignr_epi8(cdab, efgh, 8), .cdgh = _mm_blend_epi16(efgh, cdab, 0xf0)};
    return one;
}

LANES_OF_X86 static inline void give(const lane *one, uint32_t state[8]) {
    __m128i feba = _mm_shuffle_epi32(one->abef, 0x1b), dchg = _mm_shuffle_epi32(one->cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

LANES_OF_X86 static inline void read_block(lane *one, const unsigned char *block) {
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    for (unsigned i = 0; i < 4; i++) {
        one->word[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(block + 16 * i)), big_endian);
    }
}

/* Rounds 4r to 4r + 3, and the words of rounds 4r + 16 to 4r + 19. */
LANES_OF_X86 static inline void four_rounds(lane *one, unsigned r) {
    __m128i *w = one->word;
    __m128i sum = _mm_add_epi32(w[r & 3], _mm_load_si128((const __m128i *)(ROUND + 4 * r)));
    one->cdgh = _mm_sha256rnds2_epu32(one->cdgh, one->abef, sum);
    one->abef = _mm_sha256rnds2_epu32(one->abef, one->cdgh, _mm_shuffle_epi32(sum, 0x0e));
    if (r < 12) {
        __m128i next = _mm_sha256msg1_epu32(w[r & 3], w[(r + 1) & 3]);
        next = _mm_add_epi32(next, _mm_alignr_epi8(w[(r + 3) & 3], w[(r + 2) & 3], 4));
        w[r & 3] = _mm_sha256msg2_epu32(next, w[(r + 3) & 3]);
    }
}

LANES_OF_X86 static void compress_one(uint32_t state[8], const unsigned char *at, uint64_t nblocks) {
    lane now = take(state);
    for (; nblocks != 0; nblocks--, at += 64) {
        lane before = now;
        read_block(&now, at);
#pragma GCC unroll 16
        for (unsigned r = 0; r < 16; r++) four_rounds(&now, r);
        now.abef = _mm_add_epi32(now.abef, before.abef);
        now.cdgh = _mm_add_epi32(now.cdgh, before.cdgh);
    }
    give(&now, state);
}

LANES_OF_X86 static void compress_two(uint32_t state_a[8], const unsigned char *a, uint32_t state_b[8],
                                      const unsigned char *b, uint64_t nblocks) {
    lane now_a = take(state_a), now_b = take(state_b);
    for (; nblocks != 0; nblocks--, a += 64, b += 64) {
        lane before_a = now_a, before_b = now_b;
        read_block(&now_a, a);
        read_block(&now_b, b);
#pragma GCC unroll 16
        for (unsigned r = 0; r < 16; r++) {
            four_rounds(&now_a, r);
            four_rounds(&now_b, r);
        }
        now_a.abef = _mm_add_epi32(now_a.abef, before_a.abef);
        now_a.cdgh = _mm_add_epi32(now_a.cdgh, before_a.cdgh);
        now_b.abef = _mm_add_epi32(now_b.abef, before_b.abef);
        now_b.cdgh = _mm_add_epi32(now_b.cdgh, before_b.cdgh);
    }
    give(&now_a, state_a);
    give(&now_b, state_b);
}

bool dpf_sha256_has_lanes(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1)) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29) != 0;
}

/* Feeds the beginning of the bytes until a block is whole; how many that were. */
static uint64_t to_block(dpf_sha256 *sha256, const void *bytes, uint64_t nbytes) {
    uint64_t missing = (64 - sha256->nbytes % 64) % 64;
    if (missing > nbytes) missing = nbytes;
    dpf_sha256_add(sha256, bytes, missing);
    return missing;
}

void dpf_sha256_add_lane(dpf_sha256 *sha256, const void *bytes, uint64_t nbytes) {
    const unsigned char *at = bytes;
    uint64_t begun = to_block(sha256, at, nbytes), nblocks = (nbytes - begun) / 64;
    compress_one(sha256->state, at + begun, nblocks);
    sha256->nbytes += 64 * nblocks;
    dpf_sha256_add(sha256, at + begun + 64 * nblocks, (nbytes - begun) % 64);
}

bool dpf_sha256_add_lanes(dpf_sha256 *a, const void *bytes_a, dpf_sha256 *b, const void *bytes_b, uint64_t nbytes) {
    if (a->nbytes % 64 != 0 || b->nbytes % 64 != 0 || nbytes % 64 != 0) return false;
    compress_two(a->state, bytes_a, b->state, bytes_b, nbytes / 64);
    a->nbytes += nbytes;
    b->nbytes += nbytes;
    return true;
}

#else

bool dpf_sha256_has_lanes(void) {
    return false;
}

void dpf_sha256_add_lane(dpf_sha256 *sha256, const void *bytes, uint64_t nbytes) {
    dpf_sha256_add(sha256, bytes, nbytes);
}

bool dpf_sha256_add_lanes(dpf_sha256 *a, const void *bytes_a, dpf_sha256 *b, const void *bytes_b, uint64_t nbytes) {
    if (a->nbytes % 64 != 0 || b->nbytes % 64 != 0 || nbytes % 64 != 0) return false;
    dpf_sha256_add(a, bytes_a, nbytes);
    dpf_sha256_add(b, bytes_b, nbytes);
    return true;
}

#endif
