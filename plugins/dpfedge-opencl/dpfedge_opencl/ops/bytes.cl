// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit matrices, and rounding to 8 bits and back.
//
// B is packed as [N / PANEL][K / 4][PANEL columns][4 bytes], PANEL a multiple of NR * V, signed (unsigned codes less
// 128), columns past N and rows past K being zero. Sums are exact, so their order is free.
// Options: MR, NR, V, PANEL, SIGNED_A, SIGNED_DOT, ZEROS_B, BIAS, FLOATS, EXTRA_LOAD, EPILOGUE; TYPE, AXIS_ZERO (to and from floats).

#if CPU
typedef VI VIU __attribute__((aligned(4)));
typedef int int_any __attribute__((aligned(1)));
#define LOADVI(p) (*(__global const VIU *)(p))
#define LOAD4(p) (*(__global const int_any *)(p))
#else
#define LOADVI(p) CAT(vload, V)(0, p)
#define LOAD4(p) as_int(vload4(0, p))
#endif

// Four products of a byte of `a`, unsigned (SIGNED_DOT: signed), and a signed byte of each lane of `b`, added to `acc`
inline VI dot4(VI acc, const int a, const VI b) {
#if SIGNED_DOT
    return dot_lanes(acc, a, b);
#elif CPU && V == 16 && defined(HAS_AVX512VNNI)
    return __builtin_ia32_vpdpbusd512(acc, (VI)(a), b);
#elif CPU && V == 8 && defined(HAS_AVX512VNNI) && defined(HAS_AVX512VL)
    return __builtin_ia32_vpdpbusd256(acc, (VI)(a), b);
#else
    const uchar4 x = as_uchar4(a);
    acc += ((b << 24) >> 24) * (int)x.s0;
    acc += ((b << 16) >> 24) * (int)x.s1;
    acc += ((b << 8) >> 24) * (int)x.s2;
    return acc + (b >> 24) * (int)x.s3;
#endif
}

#if SIGNED_DOT
#define BYTE(x) (char)(x)
#else
#define BYTE(x) (x)
#endif

#ifdef MR
// Bytes of the other signedness are 128 away from what the dot product takes, and so is their zero
#define FLIP (SIGNED_A != SIGNED_DOT ? (int)0x80808080 : 0)

// Rows m0 .. m0 + MR of A (past the last: that one again) times NR * V columns of B
INNER void products(__global const uchar *A, __global const int *B, const int m0, const int M, const int K,
                    VI result[MR][NR]) {
    __global const uchar *row[MR];
    VI acc[MR][NR];
    const int whole = K / 4;
#pragma unroll
    for (int i = 0; i < MR; i++) {
        row[i] = A + (size_t)LEAST(m0 + i, M - 1) * K;
#pragma unroll
        for (int j = 0; j < NR; j++) acc[i][j] = (VI)(0);
    }
    for (int k = 0; k < whole; k++) {
        VI y[NR];
#pragma unroll
        for (int j = 0; j < NR; j++) y[j] = LOADVI(B + j * V);
        B += PANEL;
#pragma unroll
        for (int i = 0; i < MR; i++) {
            const int x = LOAD4(row[i] + 4 * k) ^ FLIP;
#pragma unroll
            for (int j = 0; j < NR; j++) acc[i][j] = dot4(acc[i][j], x, y[j]);
        }
    }
    if (4 * whole < K) {
        VI y[NR];
#pragma unroll
        for (int j = 0; j < NR; j++) y[j] = LOADVI(B + j * V);
#pragma unroll
        for (int i = 0; i < MR; i++) {
            int x = 0;
            for (int k = 4 * whole; k < K; k++) x |= (row[i][k] ^ (FLIP & 255)) << (8 * (k % 4));
#pragma unroll
            for (int j = 0; j < NR; j++) acc[i][j] = dot4(acc[i][j], x, y[j]);
        }
    }
#pragma unroll
    for (int i = 0; i < MR; i++)
#pragma unroll
        for (int j = 0; j < NR; j++) result[i][j] = acc[i][j];
}

// C = epilogue((A - a_zero) * (B - b_zero) * a_scale * b_scale + bias), or the sums as ints (FLOATS 0)
__kernel void bytes_gemm(TENSOR(a), TENSOR(b), TENSOR(a_scale), TENSOR(a_zero), TENSOR(b_scale), TENSOR(b_zero),
                         TENSOR(b_sums), TENSOR(bias), EXTRA_ARGS TENSOR(c), const int M, const int N, const int K) {
    const int m0 = get_global_id(0) * MR, n0 = get_global_id(1) * (NR * V), fours = (K + 3) / 4;
    if (m0 >= M || n0 >= N) return;
    __global const uchar *A = AS(const uchar, a);
    VI acc[MR][NR];
    products(A, AS(const int, b) + (size_t)(n0 / PANEL) * fours * PANEL + n0 % PANEL, m0, M, K, acc);
#if SIGNED_A
    const int zero = AS(const char, a_zero)[0] + (SIGNED_DOT ? 0 : 128);
#else
    const int zero = AS(const uchar, a_zero)[0] - (SIGNED_DOT ? 128 : 0);
#endif
#pragma unroll
    for (int i = 0; i < MR; i++) {
#if ZEROS_B
        int sum = 0;
        __global const uchar *row = A + (size_t)LEAST(m0 + i, M - 1) * K;
        for (int k = 0; k < K; k++) sum += BYTE(row[k] ^ (FLIP & 255));
#endif
#pragma unroll
        for (int j = 0; j < NR; j++) {
            const int n = n0 + j * V, have = m0 + i < M ? LEAST(V, N - n) : 0;
            if (have <= 0) continue;
            const size_t at = (size_t)(m0 + i) * N + n;
            VI whole_sum = acc[i][j] - zero * LOADVI(AS(const int, b_sums) + n);
#if ZEROS_B
            whole_sum -= sum * LOADVI(AS(const int, b_zero) + n);
#endif
#if FLOATS
#if CPU
            VF v = __builtin_convertvector(whole_sum, VF);
#else
            VF v = CAT(convert_float, V)(whole_sum);
#endif
            v *= AS(const float, a_scale)[0] * LOADV(AS(const float, b_scale) + n);
#if BIAS
            v += LOADN(AS(const float, bias) + n, have);
#endif
            EXTRA_LOAD(at, n, have)
            STOREN(EPILOGUE, AS(float, c) + at, have);
#else
            int lane[V];
            CAT(vstore, V)(whole_sum, 0, lane);
            for (int l = 0; l < have; l++) AS(int, c)[at + l] = lane[l];
#endif
        }
    }
}
#endif

#ifdef EACH
// Round to even of what is below 2^22: adding and taking away 1.5 * 2^23
inline float even(const float x) {
    const float moved = x + 12582912.f;
    return moved - 12582912.f;
}

// Smallest and largest of zero and X[first .. end)
inline float2 least_and_most(__global const float *X, const int first, const int end) {
    float least = 0.f, most = 0.f;
    int i = first;
    if (end - first >= V) {
        VF low = (VF)(0.f), high = (VF)(0.f);
        for (; i + V <= end; i += V) {
            const VF v = LOADV(X + i);
            low = v < low ? v : low;
            high = v > high ? v : high;
        }
        float lane[V];
        STOREP(low, lane);
        for (int l = 0; l < V; l++) least = lane[l] < least ? lane[l] : least;
        STOREP(high, lane);
        for (int l = 0; l < V; l++) most = lane[l] > most ? lane[l] : most;
    }
    for (; i < end; i++) {
        least = X[i] < least ? X[i] : least;
        most = X[i] > most ? X[i] : most;
    }
    return (float2)(least, most);
}

__kernel void range(TENSOR(x), TENSOR(pieces), const int count) {
    const int piece = get_global_id(0), first = piece * EACH, end = LEAST(first + EACH, count);
    if (first >= count) return;
    const float2 found = least_and_most(AS(const float, x), first, end);
    AS(float, pieces)[2 * piece] = found.s0;
    AS(float, pieces)[2 * piece + 1] = found.s1;
}

// Codes of a piece, 8 bits over the whole range; the first item stores scale and zero. A single piece needs no `range`.
__kernel void codes(TENSOR(x), TENSOR(pieces), TENSOR(y), TENSOR(scale), TENSOR(zero), const int count,
                    const int number) {
    const int first = get_global_id(0) * EACH, end = LEAST(first + EACH, count);
    if (first >= count) return;
    float least = 0.f, most = 0.f;
    if (number == 1) {
        const float2 found = least_and_most(AS(const float, x), 0, count);
        least = found.s0;
        most = found.s1;
    }
    for (int p = 0; number > 1 && p < number; p++) {
        least = LEAST(least, AS(const float, pieces)[2 * p]);
        most = MOST(most, AS(const float, pieces)[2 * p + 1]);
    }
    float step = (most - least) / 255.f;
    if (step == 0.f) step = 1.f;
    float middle = even(-least / step);
    middle = middle < 0.f ? 0.f : middle > 255.f ? 255.f : middle;
    if (get_global_id(0) == 0) {
        AS(float, scale)[0] = step;
        AS(uchar, zero)[0] = (uchar)middle;
    }
    for (int i = first; i < end; i++) {
        const float v = even(AS(const float, x)[i] / step) + middle;
        AS(uchar, y)[i] = (uchar)(v < 0.f ? 0.f : v > 255.f ? 255.f : v);
    }
}
#endif

#ifdef TYPE
// Elements (o, c, i) of [outer, channels, inner]: (x - zero[c]) * scale[c], and back with rounding to even
__kernel void from_codes(TENSOR(x), TENSOR(scale), TENSOR(zero), TENSOR(y), const int outer, const int channels,
                         const int inner) {
    const int row = get_global_id(0), c = row % channels;
    if (row >= outer * channels) return;
    const float s = AS(const float, scale)[c];
    const int z = HAS_ZERO ? (int)AS(const TYPE, zero)[c] : 0;
    for (size_t i = (size_t)row * inner; i < (size_t)(row + 1) * inner; i++)
        AS(float, y)[i] = (float)((int)AS(const TYPE, x)[i] - z) * s;
}

__kernel void to_codes(TENSOR(x), TENSOR(scale), TENSOR(zero), TENSOR(y), const int outer, const int channels,
                       const int inner) {
    const int row = get_global_id(0), c = row % channels;
    if (row >= outer * channels) return;
    const float s = AS(const float, scale)[c];
    const float z = HAS_ZERO ? (float)AS(const TYPE, zero)[c] : 0.f;
    for (size_t i = (size_t)row * inner; i < (size_t)(row + 1) * inner; i++) {
        const float v = rint(AS(const float, x)[i] / s) + z;
        AS(TYPE, y)[i] = (TYPE)(v < LOWEST ? LOWEST : v > HIGHEST ? HIGHEST : v);
    }
}
#endif
