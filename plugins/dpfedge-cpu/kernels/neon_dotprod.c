/* SPDX-License-Identifier: Apache-2.0
 *
 * The products of blocks.h for aarch64 CPUs with dot products of bytes: word = 256·high + low, high signed, low not.
 *
 * Four bytes of each of four outputs meet the same four of a token. Codes of 4 bits are signed and not; those of 8 bits
 * are kept both ways, less 128 for the high bytes; for the low ones 128·Σlow is taken off, which is in scale[1] and scale[2]
 * for the first and the second half of a block.
 */
#include "blocks.h"

#if defined(__AARCH64EL__)
#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "target.h"

DPF_TARGET("arch=armv8.2-a+dotprod")
#include "neon.h"

enum { SIGNED = 8, LOW = 32 }; /* where the signed codes of 8 bits are, and the low bytes of a block */

/* 32-bit words: [a0 b0 c0 d0], [a1 …], … of a, b, c, d. */
DPF_INLINE void transpose(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d, uint8x16_t *to) {
    const uint32x4_t w[4] = {vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b), vreinterpretq_u32_u8(c), vreinterpretq_u32_u8(d)};
    const uint64x2_t even[2] = {vreinterpretq_u64_u32(vtrn1q_u32(w[0], w[1])), vreinterpretq_u64_u32(vtrn1q_u32(w[2], w[3]))};
    const uint64x2_t odd[2] = {vreinterpretq_u64_u32(vtrn2q_u32(w[0], w[1])), vreinterpretq_u64_u32(vtrn2q_u32(w[2], w[3]))};
    to[0] = vreinterpretq_u8_u64(vtrn1q_u64(even[0], even[1]));
    to[1] = vreinterpretq_u8_u64(vtrn1q_u64(odd[0], odd[1]));
    to[2] = vreinterpretq_u8_u64(vtrn2q_u64(even[0], even[1]));
    to[3] = vreinterpretq_u8_u64(vtrn2q_u64(odd[0], odd[1]));
}

/* Eight vectors, each with the same four bytes of every output: of 4 bits four of lower halves and four of upper ones. */
DPF_INLINE void unpack(const uint8_t *const *codes, const unsigned bits, uint8x16_t *q) {
    transpose(vld1q_u8(codes[0]), vld1q_u8(codes[1]), vld1q_u8(codes[2]), vld1q_u8(codes[3]), q);
    if (bits == 4) {
        for (int i = 0; i < 4; i++) q[i + 4] = vshrq_n_u8(q[i], 4), q[i] = vandq_u8(q[i], vdupq_n_u8(15));
    } else {
        transpose(vld1q_u8(codes[0] + 16), vld1q_u8(codes[1] + 16), vld1q_u8(codes[2] + 16), vld1q_u8(codes[3] + 16), q + 4);
        for (int i = 0; i < 8; i++) q[SIGNED + i] = veorq_u8(q[i], vdupq_n_u8(0x80));
    }
}

DPF_INLINE int32x4_t add_high(int32x4_t sum, const uint8x16_t *q, const uint8_t *words) {
    const int8x16_t x = vreinterpretq_s8_u8(vld1q_u8(words));
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(q[0]), x, 0);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(q[1]), x, 1);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(q[2]), x, 2);
    return vdotq_laneq_s32(sum, vreinterpretq_s8_u8(q[3]), x, 3);
}

DPF_INLINE uint32x4_t add_low(uint32x4_t sum, const uint8x16_t *q, const uint8_t *words) {
    const uint8x16_t x = vld1q_u8(words);
    sum = vdotq_laneq_u32(sum, q[0], x, 0);
    sum = vdotq_laneq_u32(sum, q[1], x, 1);
    sum = vdotq_laneq_u32(sum, q[2], x, 2);
    return vdotq_laneq_u32(sum, q[3], x, 3);
}

DPF_INLINE int32x4_t product(const unsigned bits, const int first, const int last, const uint8x16_t *q, const uint8_t *words,
                             const float *scale) {
    int32x4_t high = vdupq_n_s32(0);
    uint32x4_t low = vdupq_n_u32(0);
    for (int i = first; i < last; i++) {
        const uint32x4_t off = bits == 8 ? vld1q_dup_u32((const uint32_t *)(const void *)(scale + 1 + i)) : vdupq_n_u32(0);
        high = add_high(high, q + 4 * i + (bits == 8 ? SIGNED : 0), words + 16 * i);
        low = add_low(vaddq_u32(low, off), q + 4 * i, words + LOW + 16 * i);
    }
    return vaddq_s32(vshlq_n_s32(high, 8), vreinterpretq_s32_u32(low));
}

/* 16 words' high bytes, and their low ones behind those of all 32; −128·Σlow to `off`. */
DPF_INLINE void split(int16x8_t first, int16x8_t second, uint8_t *words, float *off) {
    const uint8x16_t a = vreinterpretq_u8_s16(first), b = vreinterpretq_u8_s16(second), low = vuzp1q_u8(a, b);
    const int32_t found = -128 * (int32_t)vaddlvq_u8(low);
    vst1q_u8(words, vuzp2q_u8(a, b));
    vst1q_u8(words + LOW, low);
    memcpy(off, &found, sizeof found);
}

DPF_INLINE void keep(const unsigned bits, const int16x8_t *rounded, uint8_t *words, float *scale) {
    (void)bits;
    split(rounded[0], rounded[1], words, scale + 1);
    split(rounded[2], rounded[3], words + 16, scale + 2);
}

static void multiply(const dpf_matrix *m, const dpf_rounded *a, size_t first, size_t last, float *y) {
    dpf_multiply(unpack, product, m, a, first, last, y);
}

static void round_rows(const float *x, size_t columns, unsigned bits, float share, const dpf_rounded *to, size_t first, size_t last) {
    dpf_neon_rows(keep, x, columns, bits, share, to, first, last);
}

const dpf_blocks_form dpf_blocks_neon_dotprod = {"dotprod", round_rows, multiply};
DPF_TARGET_END
#endif
