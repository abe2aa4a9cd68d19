/* SPDX-License-Identifier: Apache-2.0
 *
 * The products of blocks.h with AVX-512 and its VNNI, which adds pairs of 16-bit products to 32-bit sums.
 */
#include "blocks.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "target.h"

DPF_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")
#include "round.h"

/* Bytes of codes that are asked for before they are needed, into the first and the second cache: without, a step that
 * waits for memory takes up to twice as long. */
#define NEAR 1024
#define FAR 8192

/* How many of `most` are left, as a mask. */
DPF_INLINE __mmask16 mask_of(size_t left, size_t most) {
    return left >= most ? (__mmask16)((1u << most) - 1) : (__mmask16)((1u << left) - 1);
}

/* A chunk of codes as `vectors` of 16-bit integers. */
DPF_INLINE void unpack(const uint8_t *codes, __mmask16 there, const unsigned vectors, __m512i *q) {
    const __m512i all = _mm512_maskz_loadu_epi32(there, codes);
    _mm_prefetch((const char *)codes + NEAR, _MM_HINT_T0);
    _mm_prefetch((const char *)codes + FAR, _MM_HINT_T1);
    if (vectors == 4) {
        const __m512i nibble = _mm512_set1_epi16(15);
        q[0] = _mm512_and_si512(all, nibble);
        q[1] = _mm512_and_si512(_mm512_srli_epi16(all, 4), nibble);
        q[2] = _mm512_and_si512(_mm512_srli_epi16(all, 8), nibble);
        q[3] = _mm512_srli_epi16(all, 12);
    } else {
        const __m512i centred = _mm512_xor_si512(all, _mm512_set1_epi8((char)0x80));
        q[0] = _mm512_srai_epi16(_mm512_slli_epi16(centred, 8), 8);
        q[1] = _mm512_srai_epi16(centred, 8);
    }
}

/* What is known of a matrix when this file is compiled. */
typedef struct {
    unsigned vectors; /* 4 of 4 bits, 2 of 8 */
    unsigned each;    /* scales of a block */
    bool halves;
} kind;

/* Scales of a chunk, `left` blocks of which are there, each in the lanes of its sums; `at` is its first block. */
DPF_INLINE __m512 spread(const kind f, const dpf_matrix *m, size_t at, size_t left) {
    const __mmask8 there = (__mmask8)mask_of(left * f.each, f.vectors * f.each);
    at *= f.each;
    const __m512i four = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i two = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m128 scales = f.halves ? _mm_cvtph_ps(_mm_maskz_loadu_epi16(there, (const uint16_t *)m->scales + at))
                                   : _mm_maskz_loadu_ps(there, (const float *)m->scales + at);
    return _mm512_permutexvar_ps(f.vectors * f.each == 4 ? four : two, _mm512_castps128_ps512(scales));
}

DPF_INLINE __m512 ends_of(const dpf_matrix *m, const kind f, size_t at, __mmask16 there) {
    return f.halves ? _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(there, (const uint16_t *)m->ends + at))
                    : _mm512_maskz_loadu_ps(there, (const float *)m->ends + at);
}

/* Elements of a block sorted by the vector they belong to. */
static const uint16_t by_four[DPF_WORDS] = {0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29,
                                            2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31};
static const uint16_t by_two[DPF_WORDS] = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                           1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};

typedef struct {
    const dpf_matrix *m;
    const dpf_rounded *a;
    size_t n, t; /* the first output and the first token */
} place;

/* Products of 16-bit pairs onto 32-bit sums; of the first half only, which CPUs with narrow units do in half the time. */
DPF_INLINE __m512i add_pairs(__m512i sum, __m512i q, const int16_t *x, const bool half) {
    if (!half) return _mm512_dpwssd_epi32(sum, q, _mm512_loadu_si512(x));
    const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)x);
    return _mm512_zextsi256_si512(_mm256_dpwssd_epi32(_mm512_castsi512_si256(sum), _mm512_castsi512_si256(q), low));
}

/* Chunk k onto the sums of C outputs and T tokens, output by output; T·C ≤ 16. Activations are loaded once for all C. */
DPF_INLINE void add_chunk(const int T, const int C, const kind f, const bool whole, const bool half, const place *at, size_t k,
                          __m512 *sum) {
    const dpf_matrix *m = at->m;
    const dpf_rounded *a = at->a;
    const size_t left = m->blocks - k * f.vectors;
    __m512i q[4][4];
    __m512 scales[4];
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) {
        const size_t block = (at->n + (size_t)c) * m->blocks + k * f.vectors;
        const __mmask16 there = whole ? (__mmask16)-1 : mask_of(left * (DPF_LANES / f.vectors), DPF_LANES);
        unpack(m->codes + block * (DPF_CHUNK / f.vectors), there, f.vectors, q[c]);
        scales[c] = spread(f, m, block, whole ? f.vectors : left);
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) {
        const size_t chunk = (at->t + (size_t)t) * a->chunks + k;
        const int16_t *words = a->words + chunk * f.vectors * DPF_WORDS;
        __m512i products[4];
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) products[c] = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (unsigned v = 0; v < f.vectors; v++) {
#pragma GCC unroll 4
            for (int c = 0; c < C; c++) products[c] = add_pairs(products[c], q[c][v], words + v * DPF_WORDS, half);
        }
        const __m512 by = _mm512_loadu_ps(a->scales + chunk * DPF_LANES);
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            sum[c * T + t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[c]), _mm512_mul_ps(scales[c], by), sum[c * T + t]);
        }
    }
}

DPF_INLINE void add_ends(const int T, const int C, const kind f, const place *at, __m512 *sum) {
    const dpf_matrix *m = at->m;
    for (size_t b = 0; b < m->blocks; b += DPF_LANES) {
        const __mmask16 there = mask_of(m->blocks - b, DPF_LANES);
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            const __m512 ends = ends_of(m, f, (at->n + (size_t)c) * m->blocks + b, there);
#pragma GCC unroll 8
            for (int t = 0; t < T; t++) {
                const __m512 x = _mm512_loadu_ps(at->a->sums + (at->t + (size_t)t) * at->a->ends + b);
                sum[c * T + t] = _mm512_fmadd_ps(ends, x, sum[c * T + t]);
            }
        }
    }
}

/* The sums of C outputs and T tokens, each in 16 parts. */
DPF_INLINE void add_all(const int T, const int C, const kind f, const place *at, __m512 *sum) {
#pragma GCC unroll 16
    for (int i = 0; i < T * C; i++) sum[i] = _mm512_setzero_ps();
    const size_t whole = at->m->blocks / f.vectors, rest = at->m->blocks % f.vectors;
    for (size_t k = 0; k < whole; k++) add_chunk(T, C, f, true, false, at, k, sum);
    if (rest != 0 && rest <= f.vectors / 2) add_chunk(T, C, f, false, true, at, whole, sum);
    if (rest > f.vectors / 2) add_chunk(T, C, f, false, false, at, whole, sum);
    if (at->m->ends != NULL) add_ends(T, C, f, at, sum);
}

/* [a0+a2, b0+b2, a1+a3, b1+b3] of every four. */
DPF_INLINE __m512 fold_pair(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

/* Lane i: the sum of the four lanes of v[i] in every four. */
DPF_INLINE __m512 fold_four(const __m512 *v) {
    const __m512d a = _mm512_castps_pd(fold_pair(v[0], v[1])), b = _mm512_castps_pd(fold_pair(v[2], v[3]));
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
}

DPF_INLINE __m512 fold_fours(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

/* Lane i: the sum of all lanes of sum i. */
DPF_INLINE __m512 fold(const __m512 *sum) {
    const __m512 low = fold_fours(fold_four(sum), fold_four(sum + 4));
    return fold_fours(low, fold_fours(fold_four(sum + 8), fold_four(sum + 12)));
}

DPF_INLINE void store(const place *at, size_t n, size_t t, float found, float *y) {
    y[t * at->m->outputs + n] = at->m->bias == NULL ? found : found + at->m->bias[n];
}

/* T tokens times C outputs at once: a matrix that is unpacked once for T. */
DPF_INLINE void tile(const int T, const int C, const kind f, const place *at, float *y) {
    __m512 sum[DPF_LANES];
    float found[DPF_LANES];
#pragma GCC unroll 16
    for (int i = T * C; i < DPF_LANES; i++) sum[i] = _mm512_setzero_ps();
    add_all(T, C, f, at, sum);
    _mm512_storeu_ps(found, fold(sum));
    for (int c = 0; c < C; c++) {
        for (int t = 0; t < T; t++) store(at, at->n + (size_t)c, at->t + (size_t)t, found[c * T + t], y);
    }
}

/* One token times up to 16 outputs, in their order: memory is read from its beginning to its end. */
DPF_INLINE void line(const kind f, place at, size_t outputs, float *y) {
    __m512 sum[DPF_LANES];
    float found[DPF_LANES];
    const size_t first = at.n;
    for (size_t c = 0; c < DPF_LANES; c++) sum[c] = _mm512_setzero_ps();
    size_t c = 0;
    for (; c + 4 <= outputs; c += 4, at.n += 4) add_all(1, 4, f, &at, sum + c);
    for (; c < outputs; c++, at.n++) add_all(1, 1, f, &at, sum + c);
    _mm512_storeu_ps(found, fold(sum));
    for (c = 0; c < outputs; c++) store(&at, first + c, at.t, found[c], y);
}

DPF_INLINE void every(const dpf_matrix *m, const kind f, const dpf_rounded *a, size_t first, size_t last,
                      float *y) {
    place at = {m, a, first, 0};
    for (; at.t + 8 <= a->tokens; at.t += 8) {
        for (at.n = first; at.n + 2 <= last; at.n += 2) tile(8, 2, f, &at, y);
        if (at.n < last) tile(8, 1, f, &at, y);
    }
    for (; at.t + 4 <= a->tokens; at.t += 4) {
        for (at.n = first; at.n + 2 <= last; at.n += 2) tile(4, 2, f, &at, y);
        if (at.n < last) tile(4, 1, f, &at, y);
    }
    for (; at.t < a->tokens; at.t++) {
        for (at.n = first; at.n < last; at.n += DPF_LANES) {
            line(f, at, last - at.n < DPF_LANES ? last - at.n : DPF_LANES, y);
        }
    }
}

static void multiply(const dpf_matrix *m, const dpf_rounded *a, size_t first, size_t last, float *y) {
    if (m->bits == 4 && m->halves) every(m, (kind){4, 1, true}, a, first, last, y);
    if (m->bits == 4 && !m->halves) every(m, (kind){4, 1, false}, a, first, last, y);
    if (m->bits == 8 && !m->fine && m->halves) every(m, (kind){2, 1, true}, a, first, last, y);
    if (m->bits == 8 && !m->fine && !m->halves) every(m, (kind){2, 1, false}, a, first, last, y);
    if (m->bits == 8 && m->fine && m->halves) every(m, (kind){2, 2, true}, a, first, last, y);
    if (m->bits == 8 && m->fine && !m->halves) every(m, (kind){2, 2, false}, a, first, last, y);
}

/* One block of x into its words of a chunk's `vectors`, and its scale into as many lanes; Σscale·word comes back. */
DPF_INLINE float round_block(const float *x, const unsigned vectors, int16_t *words, float *scales) {
    const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + DPF_LANES);
    const __m512i a = _mm512_castps_si512(_mm512_abs_ps(low)), b = _mm512_castps_si512(_mm512_abs_ps(high));
    const float largest = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(_mm512_max_epi32(a, b)))));
    const __m512 factor = _mm512_set1_ps(dpf_factor(largest));
    const __m256i first = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(low, factor)));
    const __m256i second = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(high, factor)));
    const __m512i rounded = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    const __m512 scale = _mm512_set1_ps(dpf_scale(largest));
    const int total = _mm512_reduce_add_epi32(_mm512_madd_epi16(rounded, _mm512_set1_epi16(1)));
    if (vectors == 4) {
        const __m512i order = _mm512_loadu_si512(by_four);
        const __m512i sorted = _mm512_permutexvar_epi16(order, rounded);
        _mm_storeu_si128((__m128i *)(void *)words, _mm512_castsi512_si128(sorted));
        _mm_storeu_si128((__m128i *)(void *)(words + DPF_WORDS), _mm512_extracti32x4_epi32(sorted, 1));
        _mm_storeu_si128((__m128i *)(void *)(words + 2 * DPF_WORDS), _mm512_extracti32x4_epi32(sorted, 2));
        _mm_storeu_si128((__m128i *)(void *)(words + 3 * DPF_WORDS), _mm512_extracti32x4_epi32(sorted, 3));
        _mm_storeu_ps(scales, _mm512_castps512_ps128(scale));
    } else {
        const __m512i sorted = _mm512_permutexvar_epi16(_mm512_loadu_si512(by_two), rounded);
        _mm256_storeu_si256((__m256i *)(void *)words, _mm512_castsi512_si256(sorted));
        _mm256_storeu_si256((__m256i *)(void *)(words + DPF_WORDS), _mm512_extracti64x4_epi64(sorted, 1));
        _mm256_storeu_ps(scales, _mm512_castps512_ps256(scale));
    }
    return _mm512_cvtss_f32(scale) * (float)total;
}

static void round_rows(const float *x, size_t columns, unsigned bits, float share, const dpf_rounded *to, size_t first, size_t last) {
    dpf_round_rows(round_block, x, columns, bits, share, to, first, last);
}

const dpf_blocks_form dpf_blocks_avx512 = {"avx512-vnni", round_rows, multiply};
DPF_TARGET_END
#endif
