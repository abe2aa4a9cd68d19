/* SPDX-License-Identifier: Apache-2.0
 *
 * The products of blocks.h with AVX2, half a chunk at a time: its products of 16-bit pairs never saturate.
 */
#include "blocks.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "target.h"

DPF_TARGET("avx2,fma,f16c")
#include "round.h"

/* Half a chunk of codes as `vectors` of 16-bit integers. */
DPF_INLINE void unpack(__m256i all, const unsigned vectors, __m256i *q) {
    if (vectors == 4) {
        const __m256i nibble = _mm256_set1_epi16(15);
        q[0] = _mm256_and_si256(all, nibble);
        q[1] = _mm256_and_si256(_mm256_srli_epi16(all, 4), nibble);
        q[2] = _mm256_and_si256(_mm256_srli_epi16(all, 8), nibble);
        q[3] = _mm256_srli_epi16(all, 12);
    } else {
        const __m256i centred = _mm256_xor_si256(all, _mm256_set1_epi8((char)0x80));
        q[0] = _mm256_srai_epi16(_mm256_slli_epi16(centred, 8), 8);
        q[1] = _mm256_srai_epi16(centred, 8);
    }
}

DPF_INLINE float parameter(const void *values, const bool halves, size_t at) {
    return halves ? _cvtsh_ss(((const uint16_t *)values)[at]) : ((const float *)values)[at];
}

typedef struct {
    const dpf_matrix *m;
    const dpf_rounded *a;
    size_t n, t; /* the first output and the first token */
} place;

/* The blocks of one half chunk, `there` of them, times T tokens. */
DPF_INLINE void add_half(const int T, const unsigned vectors, const unsigned each, const bool halves, const place *at, size_t b, size_t there, __m256 *sum) {
    const dpf_matrix *m = at->m;
    const dpf_rounded *a = at->a;
    const size_t block = at->n * m->blocks + b, first = b % vectors;
    const uint8_t *codes = m->codes + block * (DPF_CHUNK / vectors);
    const bool whole = there == vectors / 2;
    __m256i q[4];
    unpack(whole ? _mm256_loadu_si256((const __m256i *)codes) : _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)codes)), vectors, q);
    const size_t one = each * block, other = vectors == 4 || each == 2 ? one + 1 : one; /* where the two scales are */
    const __m128 low = _mm_set1_ps(parameter(m->scales, halves, one));
    const __m128 high = whole ? _mm_set1_ps(parameter(m->scales, halves, other)) : _mm_setzero_ps();
    const __m256 scales = _mm256_set_m128(high, low);
    for (int t = 0; t < T; t++) {
        const size_t chunk = (at->t + (size_t)t) * a->chunks + b / vectors;
        const int16_t *words = a->words + chunk * vectors * DPF_WORDS + first * (DPF_BLOCK / vectors);
        __m256i products = _mm256_setzero_si256();
        for (unsigned v = 0; v < vectors; v++) {
            const __m256i x = _mm256_loadu_si256((const __m256i *)(words + v * DPF_WORDS));
            products = _mm256_add_epi32(products, _mm256_madd_epi16(q[v], x));
        }
        const __m256 by = _mm256_loadu_ps(a->scales + chunk * DPF_LANES + first * (DPF_LANES / vectors));
        sum[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products), _mm256_mul_ps(scales, by), sum[t]);
    }
}

DPF_INLINE float together(__m256 sum) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* Σ end·Σx of one token and output. */
DPF_INLINE float ends_of(const bool halves, const place *at, size_t t) {
    const dpf_matrix *m = at->m;
    const float *sums = at->a->sums + (at->t + t) * at->a->ends;
    float all = 0;
    __m256 sum = _mm256_setzero_ps();
    size_t b = 0;
    for (; b + 8 <= m->blocks; b += 8) {
        const size_t from = at->n * m->blocks + b;
        const __m256 ends = halves ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)m->ends + from)))
                                   : _mm256_loadu_ps((const float *)m->ends + from);
        sum = _mm256_fmadd_ps(ends, _mm256_loadu_ps(sums + b), sum);
    }
    for (; b < m->blocks; b++) all += parameter(m->ends, halves, at->n * m->blocks + b) * sums[b];
    return all + together(sum);
}

/* T tokens times one output. */
DPF_INLINE void tile(const int T, const unsigned vectors, const unsigned each, const bool halves, const place *at, float *y) {
    const dpf_matrix *m = at->m;
    const size_t step = vectors / 2;
    __m256 sum[4];
    for (int t = 0; t < T; t++) sum[t] = _mm256_setzero_ps();
    size_t b = 0;
    for (; b + step <= m->blocks; b += step) add_half(T, vectors, each, halves, at, b, step, sum);
    if (b < m->blocks) add_half(T, vectors, each, halves, at, b, m->blocks - b, sum);
    for (int t = 0; t < T; t++) {
        const float ends = m->ends == NULL ? 0 : ends_of(halves, at, (size_t)t);
        const float bias = m->bias == NULL ? 0 : m->bias[at->n];
        y[(at->t + (size_t)t) * m->outputs + at->n] = together(sum[t]) + ends + bias;
    }
}

DPF_INLINE void every(const dpf_matrix *m, const unsigned vectors, const unsigned each, const bool halves, const dpf_rounded *a, size_t first, size_t last,
                      float *y) {
    place at = {m, a, first, 0};
    for (; at.t + 4 <= a->tokens; at.t += 4) {
        for (at.n = first; at.n < last; at.n++) tile(4, vectors, each, halves, &at, y);
    }
    for (; at.t < a->tokens; at.t++) {
        for (at.n = first; at.n < last; at.n++) tile(1, vectors, each, halves, &at, y);
    }
}

static void multiply(const dpf_matrix *m, const dpf_rounded *a, size_t first, size_t last, float *y) {
    if (m->bits == 4 && m->halves) every(m, 4, 1, true, a, first, last, y);
    if (m->bits == 4 && !m->halves) every(m, 4, 1, false, a, first, last, y);
    if (m->bits == 8 && !m->fine && m->halves) every(m, 2, 1, true, a, first, last, y);
    if (m->bits == 8 && !m->fine && !m->halves) every(m, 2, 1, false, a, first, last, y);
    if (m->bits == 8 && m->fine && m->halves) every(m, 2, 2, true, a, first, last, y);
    if (m->bits == 8 && m->fine && !m->halves) every(m, 2, 2, false, a, first, last, y);
}

static void round_rows(const float *x, size_t columns, unsigned bits, float share, const dpf_rounded *to, size_t first, size_t last) {
    dpf_round_rows(dpf_round_block, x, columns, bits, share, to, first, last);
}

const dpf_blocks_form dpf_blocks_avx2 = {"avx2", round_rows, multiply};
DPF_TARGET_END
#endif
