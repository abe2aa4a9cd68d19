/* SPDX-License-Identifier: Apache-2.0
 *
 * What the forms for aarch64 have in common, compiled anew for each: everything but how codes meet words.
 *
 * Four outputs are multiplied at once, and their sums are the lanes of one vector. Activations lie otherwise than
 * blocks.h says, in the same memory: `words` has the 64 bytes of a block behind those of the block before, `scales` four
 * numbers of it, its scale and what is the form's own.
 */
#ifndef DPF_NEON_H
#define DPF_NEON_H

#include <arm_neon.h>

#include "round.h"

enum {
    DPF_FOUR = 4,         /* outputs of a tile */
    DPF_TOKENS = 4,       /* of a tile; those that are left are multiplied one by one */
    DPF_PARTS = 4,        /* vectors of eight words: of 4 bits those of lower halves of bytes come first, then the upper */
    DPF_UNPACKED = 16,    /* vectors of codes of a block of four outputs, at most */
    DPF_BLOCK_BYTES = 64, /* of words */
    DPF_BLOCK_SCALES = 4  /* numbers in `scales` */
};

/* What is known of a matrix when a form is compiled. */
typedef struct {
    unsigned bits;
    unsigned each; /* scales of a block */
    bool halves, ends;
} dpf_kind;

/* A block of codes of each of four outputs as the form multiplies them. */
typedef void dpf_unpack(const uint8_t *const *codes, const unsigned bits, uint8x16_t *q);

/* Σ code·word of the halves `first` to `last` of a block, of each of the four outputs. */
typedef int32x4_t dpf_product(const unsigned bits, const int first, const int last, const uint8x16_t *q, const uint8_t *words,
                              const float *scale);

/* Words of a block to where they lie; all of scale but [0] is the form's own. */
typedef void dpf_keep(const unsigned bits, const int16x8_t *rounded, uint8_t *words, float *scale);

typedef struct {
    const dpf_matrix *m;
    const dpf_rounded *a;
    size_t row[DPF_FOUR]; /* the first block of each of the four outputs */
    size_t n, t;          /* the first output and the first token */
} dpf_place;

/* What the blocks of four outputs have at `index`, where a block has `each`. */
DPF_INLINE float32x4_t dpf_parameters(const void *values, const bool halves, const dpf_place *at, const unsigned each, size_t index) {
    if (halves) {
        const uint16_t *from = (const uint16_t *)values + index;
        uint16x4_t four = vld1_dup_u16(from + each * at->row[0]);
        four = vld1_lane_u16(from + each * at->row[1], four, 1);
        four = vld1_lane_u16(from + each * at->row[2], four, 2);
        four = vld1_lane_u16(from + each * at->row[3], four, 3);
        return vcvt_f32_f16(vreinterpret_f16_u16(four));
    }
    const float *from = (const float *)values + index;
    float32x4_t four = vld1q_dup_f32(from + each * at->row[0]);
    four = vld1q_lane_f32(from + each * at->row[1], four, 1);
    four = vld1q_lane_f32(from + each * at->row[2], four, 2);
    return vld1q_lane_f32(from + each * at->row[3], four, 3);
}

/* The codes of block b of four outputs; memory is asked for the next four at the pace at which these are read. */
DPF_INLINE void dpf_codes(dpf_unpack *unpack, const unsigned bits, const dpf_place *at, size_t b, uint8x16_t *q) {
    const size_t bytes = 4 * bits;
    const uint8_t *codes[DPF_FOUR], *next = at->m->codes + (at->row[3] + at->m->blocks + DPF_FOUR * b) * bytes;
    for (int c = 0; c < DPF_FOUR; c++) codes[c] = at->m->codes + at->row[c] * bytes + b * bytes;
    for (unsigned i = 0; i < bits / 4; i++) __builtin_prefetch(next + 64 * i);
    unpack(codes, bits, q);
}

/* Block b of T tokens and four outputs onto their sums. */
DPF_INLINE void dpf_add_block(dpf_unpack *unpack, dpf_product *product, const int T, const dpf_kind f, const dpf_place *at, size_t b,
                              float32x4_t *sum) {
    const dpf_matrix *m = at->m;
    const dpf_rounded *a = at->a;
    uint8x16_t q[DPF_UNPACKED];
    float32x4_t scales[2], ends = vdupq_n_f32(0);
    dpf_codes(unpack, f.bits, at, b, q);
    for (unsigned i = 0; i < f.each; i++) scales[i] = dpf_parameters(m->scales, f.halves, at, f.each, f.each * b + i);
    if (f.ends) ends = m->ends == m->scales ? scales[0] : dpf_parameters(m->ends, f.halves, at, 1, b);
#pragma GCC unroll 4
    for (int t = 0; t < T; t++) {
        const size_t token = at->t + (size_t)t;
        const float *scale = a->scales + token * a->chunks * DPF_LANES + b * DPF_BLOCK_SCALES;
        const uint8_t *words = (const uint8_t *)a->words + token * m->blocks * DPF_BLOCK_BYTES + b * DPF_BLOCK_BYTES;
#pragma GCC unroll 2
        for (unsigned i = 0; i < f.each; i++) {
            const int32x4_t found = product(f.bits, (int)i, f.each == 1 ? 2 : (int)i + 1, q, words, scale);
            sum[t] = vfmaq_f32(sum[t], vcvtq_f32_s32(found), vmulq_n_f32(scales[i], scale[0]));
        }
        if (f.ends) sum[t] = vfmaq_n_f32(sum[t], ends, a->sums[token * a->ends + b]);
    }
}

/* The outputs from n, as many of four as are `there`, of one token. */
DPF_INLINE void dpf_store(const dpf_matrix *m, size_t n, size_t there, float32x4_t found, float *to) {
    if (there == DPF_FOUR) {
        vst1q_f32(to, m->bias == NULL ? found : vaddq_f32(found, vld1q_f32(m->bias + n)));
        return;
    }
    float each[DPF_FOUR];
    vst1q_f32(each, found);
    for (size_t c = 0; c < there; c++) to[c] = m->bias == NULL ? each[c] : each[c] + m->bias[n + c];
}

/* T tokens times the four outputs from n, or as many as there are before `last`. */
DPF_INLINE void dpf_tile(dpf_unpack *unpack, dpf_product *product, const int T, const dpf_kind f, const dpf_place *from, size_t last,
                         float *y) {
    dpf_place at = *from;
    float32x4_t sum[DPF_TOKENS];
    for (size_t c = 0; c < DPF_FOUR; c++) at.row[c] = (at.n + c < last ? at.n + c : last - 1) * at.m->blocks;
#pragma GCC unroll 4
    for (int t = 0; t < T; t++) sum[t] = vdupq_n_f32(0);
    for (size_t b = 0; b < at.m->blocks; b++) dpf_add_block(unpack, product, T, f, &at, b, sum);
    const size_t there = last - at.n < DPF_FOUR ? last - at.n : DPF_FOUR;
#pragma GCC unroll 4
    for (int t = 0; t < T; t++) dpf_store(at.m, at.n, there, sum[t], y + (at.t + (size_t)t) * at.m->outputs + at.n);
}

/* T tokens at a time, until fewer are left, times all outputs. */
DPF_INLINE void dpf_tiles(dpf_unpack *unpack, dpf_product *product, const int T, const dpf_kind f, dpf_place *at, size_t first,
                          size_t last, float *y) {
    for (; at->t + (size_t)T <= at->a->tokens; at->t += (size_t)T) {
        for (at->n = first; at->n < last; at->n += DPF_FOUR) dpf_tile(unpack, product, T, f, at, last, y);
    }
}

DPF_INLINE void dpf_every(dpf_unpack *unpack, dpf_product *product, const dpf_kind f, const dpf_matrix *m, const dpf_rounded *a,
                          size_t first, size_t last, float *y) {
    dpf_place at = {.m = m, .a = a};
    dpf_tiles(unpack, product, DPF_TOKENS, f, &at, first, last, y);
    dpf_tiles(unpack, product, 1, f, &at, first, last, y);
}

DPF_INLINE void dpf_by_type(dpf_unpack *unpack, dpf_product *product, const unsigned bits, const unsigned each, const bool ends,
                            const dpf_matrix *m, const dpf_rounded *a, size_t first, size_t last, float *y) {
    if (m->halves) dpf_every(unpack, product, (dpf_kind){bits, each, true, ends}, m, a, first, last, y);
    if (!m->halves) dpf_every(unpack, product, (dpf_kind){bits, each, false, ends}, m, a, first, last, y);
}

/* All of `multiply` in a form. */
DPF_INLINE void dpf_multiply(dpf_unpack *unpack, dpf_product *product, const dpf_matrix *m, const dpf_rounded *a, size_t first, size_t last,
                             float *y) {
    const bool ends = m->ends != NULL;
    if (m->bits == 4 && ends) dpf_by_type(unpack, product, 4, 1, true, m, a, first, last, y);
    if (m->bits == 4 && !ends) dpf_by_type(unpack, product, 4, 1, false, m, a, first, last, y);
    if (m->bits == 8 && !m->fine && ends) dpf_by_type(unpack, product, 8, 1, true, m, a, first, last, y);
    if (m->bits == 8 && !m->fine && !ends) dpf_by_type(unpack, product, 8, 1, false, m, a, first, last, y);
    if (m->bits == 8 && m->fine) dpf_by_type(unpack, product, 8, 2, false, m, a, first, last, y);
}

/* What dpf_largest says. */
DPF_INLINE float dpf_neon_largest(const float32x4_t *x) {
    uint32x4_t high = vreinterpretq_u32_f32(vabsq_f32(x[0]));
    for (int i = 1; i < 8; i++) high = vmaxq_u32(high, vreinterpretq_u32_f32(vabsq_f32(x[i])));
    return vgetq_lane_f32(vreinterpretq_f32_u32(vdupq_n_u32(vmaxvq_u32(high))), 0);
}

/* Eight values as words. */
DPF_INLINE int16x8_t dpf_words(float32x4_t low, float32x4_t high, float factor) {
    const int32x4_t first = vcvtaq_s32_f32(vmulq_n_f32(low, factor)), second = vcvtaq_s32_f32(vmulq_n_f32(high, factor));
    return vqmovn_high_s32(vqmovn_s32(first), second);
}

/* One block of x; Σscale·word comes back. */
DPF_INLINE float dpf_neon_block(dpf_keep *keep, const unsigned bits, const float *x, uint8_t *words, float *scale) {
    float32x4_t values[8];
    int16x8_t w[DPF_PARTS];
    for (int i = 0; i < 8; i++) values[i] = vld1q_f32(x + 4 * i);
    const float largest = dpf_neon_largest(values), factor = dpf_factor(largest);
    for (int i = 0; i < DPF_PARTS; i++) w[i] = dpf_words(values[2 * i], values[2 * i + 1], factor);
    const int16x8_t by_half[DPF_PARTS] = {vuzp1q_s16(w[0], w[1]), vuzp1q_s16(w[2], w[3]), vuzp2q_s16(w[0], w[1]), vuzp2q_s16(w[2], w[3])};
    scale[0] = dpf_scale(largest);
    int32_t total = 0;
    for (int i = 0; i < DPF_PARTS; i++) total += vaddlvq_s16(w[i]);
    keep(bits, bits == 4 ? by_half : w, words, scale);
    return scale[0] * (float)total;
}

/* All of `round` in a form. */
DPF_INLINE void dpf_neon_rows(dpf_keep *keep, const float *x, size_t columns, unsigned bits, float share, const dpf_rounded *to, size_t first,
                              size_t last) {
    const size_t blocks = columns / DPF_BLOCK;
    for (size_t t = first; t < last; t++) {
        uint8_t *words = (uint8_t *)to->words + t * blocks * DPF_BLOCK_BYTES;
        float *scales = to->scales + t * to->chunks * DPF_LANES, *sums = to->sums + t * to->ends;
        for (size_t b = 0; b < blocks; b++) {
            const float *from = x + t * columns + b * DPF_BLOCK;
            if (bits == 4) sums[b] = share * dpf_neon_block(keep, 4, from, words + b * DPF_BLOCK_BYTES, scales + b * DPF_BLOCK_SCALES);
            if (bits == 8) sums[b] = share * dpf_neon_block(keep, 8, from, words + b * DPF_BLOCK_BYTES, scales + b * DPF_BLOCK_SCALES);
        }
    }
}

#endif
