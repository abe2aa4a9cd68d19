/* SPDX-License-Identifier: Apache-2.0
 *
 * The products of blocks.h in plain C, for every CPU and either order of bytes.
 */
#include "blocks.h"
#include "round.h"

static float half(uint16_t bits) {
    const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023, sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t word;
    float value;
    if (exponent == 0) {
        value = (float)fraction * 0x1p-24f;
        memcpy(&word, &value, sizeof word);
    } else {
        word = (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    }
    word |= sign;
    memcpy(&value, &word, sizeof value);
    return value;
}

static float parameter(const void *values, bool halves, size_t index) {
    return halves ? half(((const uint16_t *)values)[index]) : ((const float *)values)[index];
}

/* Σ code·word of one block of 4 bits. */
static int32_t nibbles(const uint8_t *codes, const int16_t *words) {
    int32_t sum = 0;
    for (int w = 0; w < 8; w++) {
        const int32_t low = codes[2 * w], high = codes[2 * w + 1];
        sum += (low & 15) * words[w] + (low >> 4) * words[DPF_WORDS + w];
        sum += (high & 15) * words[2 * DPF_WORDS + w] + (high >> 4) * words[3 * DPF_WORDS + w];
    }
    return sum;
}

/* Of `pairs` pairs of 8 bits. */
static int32_t bytes(const uint8_t *codes, const int16_t *words, int pairs) {
    int32_t sum = 0;
    for (int w = 0; w < pairs; w++) {
        sum += (codes[2 * w] - 128) * words[w] + (codes[2 * w + 1] - 128) * words[DPF_WORDS + w];
    }
    return sum;
}

static float one(const dpf_matrix *m, const dpf_rounded *a, size_t n, size_t t) {
    const unsigned vectors = m->bits == 4 ? 4 : 2;
    float sum = 0;
    for (size_t b = 0; b < m->blocks; b++) {
        const size_t chunk = t * a->chunks + b / vectors, place = b % vectors, at = n * m->blocks + b;
        const uint8_t *codes = m->codes + at * 4 * m->bits;
        const int16_t *words = a->words + chunk * vectors * DPF_WORDS + place * (DPF_BLOCK / vectors);
        const float by = a->scales[chunk * DPF_LANES + place * (DPF_LANES / vectors)];
        if (m->fine) {
            sum += (float)bytes(codes, words, 8) * (parameter(m->scales, m->halves, 2 * at) * by);
            sum += (float)bytes(codes + 16, words + 8, 8) * (parameter(m->scales, m->halves, 2 * at + 1) * by);
        } else {
            const int32_t product = m->bits == 4 ? nibbles(codes, words) : bytes(codes, words, 16);
            sum += (float)product * (parameter(m->scales, m->halves, at) * by);
        }
        if (m->ends != NULL) sum += parameter(m->ends, m->halves, at) * a->sums[t * a->ends + b];
    }
    return m->bias == NULL ? sum : sum + m->bias[n];
}

static void multiply(const dpf_matrix *m, const dpf_rounded *a, size_t first, size_t last, float *y) {
    for (size_t t = 0; t < a->tokens; t++) {
        for (size_t n = first; n < last; n++) y[t * m->outputs + n] = one(m, a, n, t);
    }
}

static void round_rows(const float *x, size_t columns, unsigned bits, float share, const dpf_rounded *to, size_t first, size_t last) {
    dpf_round_rows(dpf_round_block, x, columns, bits, share, to, first, last);
}

const dpf_blocks_form dpf_blocks_plain = {"plain", round_rows, multiply};
