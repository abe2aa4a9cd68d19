/* SPDX-License-Identifier: Apache-2.0
 *
 * The products of blocks.h for every aarch64 CPU: 16-bit codes and words multiplied onto 32-bit sums.
 */
#include "blocks.h"

#if defined(__AARCH64EL__)
#include "neon.h"

/* A block of an output becomes four vectors of 16-bit codes. */
DPF_INLINE void unpack(const uint8_t *const *codes, const unsigned bits, uint8x16_t *q) {
    for (int c = 0; c < DPF_FOUR; c++) {
        uint8x16_t *to = q + c * DPF_PARTS;
        const uint8x16_t first = vld1q_u8(codes[c]);
        if (bits == 4) {
            const uint8x16_t low = vandq_u8(first, vdupq_n_u8(15)), high = vshrq_n_u8(first, 4);
            to[0] = vreinterpretq_u8_u16(vmovl_u8(vget_low_u8(low))), to[1] = vreinterpretq_u8_u16(vmovl_high_u8(low));
            to[2] = vreinterpretq_u8_u16(vmovl_u8(vget_low_u8(high))), to[3] = vreinterpretq_u8_u16(vmovl_high_u8(high));
        } else {
            const uint8x16_t flip = vdupq_n_u8(0x80), second = vld1q_u8(codes[c] + 16);
            const int8x16_t low = vreinterpretq_s8_u8(veorq_u8(first, flip)), high = vreinterpretq_s8_u8(veorq_u8(second, flip));
            to[0] = vreinterpretq_u8_s16(vmovl_s8(vget_low_s8(low))), to[1] = vreinterpretq_u8_s16(vmovl_high_s8(low));
            to[2] = vreinterpretq_u8_s16(vmovl_s8(vget_low_s8(high))), to[3] = vreinterpretq_u8_s16(vmovl_high_s8(high));
        }
    }
}

DPF_INLINE int32x4_t product(const unsigned bits, const int first, const int last, const uint8x16_t *q, const uint8_t *words,
                             const float *scale) {
    (void)bits, (void)scale;
    int32x4_t sum[DPF_FOUR];
    for (int i = 2 * first; i < 2 * last; i++) {
        const int16x8_t x = vreinterpretq_s16_u8(vld1q_u8(words + 16 * i));
        for (int c = 0; c < DPF_FOUR; c++) {
            const int16x8_t code = vreinterpretq_s16_u8(q[c * DPF_PARTS + i]);
            const int16x4_t low = vget_low_s16(code), by = vget_low_s16(x);
            sum[c] = i == 2 * first ? vmull_s16(low, by) : vmlal_s16(sum[c], low, by);
            sum[c] = vmlal_high_s16(sum[c], code, x);
        }
    }
    return vpaddq_s32(vpaddq_s32(sum[0], sum[1]), vpaddq_s32(sum[2], sum[3]));
}

DPF_INLINE void keep(const unsigned bits, const int16x8_t *rounded, uint8_t *words, float *scale) {
    (void)bits, (void)scale;
    for (int i = 0; i < DPF_PARTS; i++) vst1q_u8(words + 16 * i, vreinterpretq_u8_s16(rounded[i]));
}

static void multiply(const dpf_matrix *m, const dpf_rounded *a, size_t first, size_t last, float *y) {
    dpf_multiply(unpack, product, m, a, first, last, y);
}

static void round_rows(const float *x, size_t columns, unsigned bits, float share, const dpf_rounded *to, size_t first, size_t last) {
    dpf_neon_rows(keep, x, columns, bits, share, to, first, last);
}

const dpf_blocks_form dpf_blocks_neon = {"neon", round_rows, multiply};
#endif
