/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding of activations, compiled anew for each kind of CPU: every loop is one of independent lanes.
 */
#ifndef DPF_ROUND_H
#define DPF_ROUND_H

#include <math.h>
#include <string.h>

#include "blocks.h"

#define DPF_INLINE static inline __attribute__((always_inline))
#define DPF_LARGEST 32767.0f

/* Σx and the largest |x| of one block; of a block with a NaN the sum is one, and the largest may be. */
DPF_INLINE float dpf_look(const float *x, float *largest) {
    float high[DPF_LANES], sum[DPF_LANES];
    for (int i = 0; i < DPF_LANES; i++) {
        const float a = fabsf(x[i]), b = fabsf(x[i + DPF_LANES]);
        high[i] = a > b ? a : b;
        sum[i] = x[i] + x[i + DPF_LANES];
    }
    for (int width = DPF_LANES / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) {
            high[i] = high[i] > high[i + width] ? high[i] : high[i + width];
            sum[i] += sum[i + width];
        }
    }
    *largest = high[0];
    return sum[0];
}

/* What values up to `largest` are multiplied by to be words; of values too small to have one nothing is left. */
DPF_INLINE float dpf_factor(float largest) {
    const float factor = largest > 0 ? DPF_LARGEST / largest : 0;
    return factor <= 3e38f ? factor : 0;
}

/* What a word of 1 means; not a number where one of the values is none, or is infinite. */
DPF_INLINE float dpf_scale(float largest, float sum) {
    return largest / DPF_LARGEST + (sum - sum);
}

/* One block of x into its words of a chunk's `vectors`, and its scale into as many lanes; Σx comes back. */
DPF_INLINE float dpf_round_block(const float *x, const unsigned vectors, int16_t *words, float *scales) {
    float largest;
    const float sum = dpf_look(x, &largest);
    const float factor = dpf_factor(largest);
    int16_t rounded[DPF_BLOCK];
    for (int i = 0; i < DPF_BLOCK; i++) {
        float value = x[i] * factor;
        value = value == value ? value + (value < 0 ? -0.5f : 0.5f) : 0;
        rounded[i] = (int16_t)(int32_t)value;
    }
    for (unsigned v = 0; v < vectors; v++) {
        for (unsigned w = 0; w < DPF_BLOCK / vectors; w++) words[v * DPF_WORDS + w] = rounded[w * vectors + v];
    }
    const float scale = dpf_scale(largest, sum);
    for (unsigned lane = 0; lane < DPF_LANES / vectors; lane++) scales[lane] = scale;
    return sum;
}

/* Rounds the row of one token with `block`, a function like dpf_round_block. */
typedef float dpf_block_rounder(const float *x, const unsigned vectors, int16_t *words, float *scales);

DPF_INLINE void dpf_round_row(dpf_block_rounder *block, const float *x, size_t blocks, const unsigned vectors, float share,
                              const dpf_rounded *to, size_t token) {
    int16_t *words = to->words + token * to->chunks * vectors * DPF_WORDS;
    float *scales = to->scales + token * to->chunks * DPF_LANES, *sums = to->sums + token * to->ends;
    const size_t last = to->chunks - 1;
    memset(words + last * vectors * DPF_WORDS, 0, vectors * DPF_WORDS * sizeof *words);
    memset(scales + last * DPF_LANES, 0, DPF_LANES * sizeof *scales);
    for (size_t b = 0; b < blocks; b++) {
        const size_t chunk = b / vectors, place = b % vectors;
        int16_t *to_words = words + chunk * vectors * DPF_WORDS + place * (DPF_BLOCK / vectors);
        sums[b] = share * block(x + b * DPF_BLOCK, vectors, to_words, scales + chunk * DPF_LANES + place * (DPF_LANES / vectors));
    }
    for (size_t b = blocks; b < to->ends; b++) sums[b] = 0;
}

/* All of `round` in a form; inlined with its constant arguments it becomes two loops without a branch. */
DPF_INLINE void dpf_round_rows(dpf_block_rounder *block, const float *x, size_t columns, unsigned bits, float share,
                               const dpf_rounded *to, size_t first, size_t last) {
    for (size_t t = first; t < last; t++) {
        if (bits == 4) dpf_round_row(block, x + t * columns, columns / DPF_BLOCK, 4, share, to, t);
        if (bits == 8) dpf_round_row(block, x + t * columns, columns / DPF_BLOCK, 2, share, to, t);
    }
}

#endif
