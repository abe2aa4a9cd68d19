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

/* The largest |x| of one block; a NaN where one is among them: its bits are larger than those of any number. */
DPF_INLINE float dpf_largest(const float *x) {
    uint32_t high[DPF_BLOCK];
    float largest;
    memcpy(high, x, sizeof high);
    for (int i = 0; i < DPF_BLOCK; i++) high[i] &= 0x7fffffff;
    for (int width = DPF_BLOCK / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) high[i] = high[i] > high[i + width] ? high[i] : high[i + width];
    }
    memcpy(&largest, high, sizeof largest);
    return largest;
}

/* What values up to `largest` are multiplied by to be words; of values too small to have one nothing is left. */
DPF_INLINE float dpf_factor(float largest) {
    const float factor = largest > 0 ? DPF_LARGEST / largest : 0;
    return factor <= 3e38f ? factor : 0;
}

/* What a word of 1 means; not a number where one of the values is none, or is infinite. */
DPF_INLINE float dpf_scale(float largest) {
    return largest / DPF_LARGEST + (largest - largest);
}

/* One block of x into its words of a chunk's `vectors`, and its scale into as many lanes; Σscale·word comes back. */
DPF_INLINE float dpf_round_block(const float *x, const unsigned vectors, int16_t *words, float *scales) {
    const float largest = dpf_largest(x), factor = dpf_factor(largest);
    int16_t rounded[DPF_BLOCK];
    int32_t total = 0;
    for (int i = 0; i < DPF_BLOCK; i++) {
        float value = x[i] * factor;
        value = value == value ? value + (value < 0 ? -0.5f : 0.5f) : 0;
        rounded[i] = (int16_t)(int32_t)value;
    }
    for (int i = 0; i < DPF_BLOCK; i++) total += rounded[i];
    for (unsigned v = 0; v < vectors; v++) {
        for (unsigned w = 0; w < DPF_BLOCK / vectors; w++) words[v * DPF_WORDS + w] = rounded[w * vectors + v];
    }
    const float scale = dpf_scale(largest);
    for (unsigned lane = 0; lane < DPF_LANES / vectors; lane++) scales[lane] = scale;
    return scale * (float)total;
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
