// SPDX-License-Identifier: Apache-2.0
// C[M, N] = epilogue(A[M, K] * W^T), W of 4 or 8 bit codes in blocks of BLOCK along K: w = scale * (code - MIDDLE) + offset.
//
// Codes lie as [N / 16][block][VECS][16 columns][4 bytes]; byte j of vector v is element 4 v + j of its part of the
// block, of 4 bits the low half, the high half being HALF elements further. Scales and offsets are [N / 16][block][16].
// An item makes V columns (V of 16) of MR rows. INT8: A was rounded to 8 bits per block (`round_blocks`); sums of
// products are exact then, and offsets multiply the sums of A before it was rounded. Else products of floats.
// Options: BITS, BLOCK, MR, V, INT8, OFFSETS (0: there are none), LOUD (how many channels have floats), EXTRA_LOAD,
// EPILOGUE.

#define SUB (BLOCK < 32 ? BLOCK : 32)
#define HALF (BITS == 4 ? SUB / 2 : 0)
#define VECS (BLOCK * BITS / 32)
#define PER_SUB (SUB * BITS / 32)
#define MIDDLE (BITS == 4 ? 8 : 128)

#if CPU
typedef VI VIU __attribute__((aligned(4)));
#define LOADVI(p) (*(__global const VIU *)(p))
#else
#define LOADVI(p) CAT(vload, V)(0, p)
#endif

// Four products of a code of `a` and a signed byte of `x`, added to each lane of `acc`
inline VI dot4(VI acc, const VI a, const int x) {
#if SIGNED_DOT
    return dot_lanes(acc, x, BITS == 4 ? a : a ^ (int)0x80808080); // codes of 8 bits less MIDDLE, which is 128
#elif CPU && V == 16 && defined(__AVX512VNNI__)
    return __builtin_ia32_vpdpbusd512(acc, a, (VI)(x));
#elif CPU && V == 8 && defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return __builtin_ia32_vpdpbusd256(acc, a, (VI)(x));
#else
    const char4 y = as_char4(x);
    acc += (a & 255) * (int)y.s0;
    acc += ((a >> 8) & 255) * (int)y.s1;
    acc += ((a >> 16) & 255) * (int)y.s2;
    return acc + ((a >> 24) & 255) * (int)y.s3;
#endif
}

// A code of each lane's int, less MIDDLE, as a float
inline VF code_at(const VI c, const int shift) {
#if BITS == 4 && CPU && V == 16 && defined(__AVX512F__)
    const VF table = (VF)(-8.f, -7.f, -6.f, -5.f, -4.f, -3.f, -2.f, -1.f, 0.f, 1.f, 2.f, 3.f, 4.f, 5.f, 6.f, 7.f);
    return __builtin_ia32_permvarsf512(table, c >> shift);
#elif CPU
    return __builtin_convertvector(((c >> shift) & (BITS == 4 ? 15 : 255)) - MIDDLE, VF);
#else
    return CAT(convert_float, V)(((c >> shift) & (BITS == 4 ? 15 : 255)) - MIDDLE);
#endif
}

__kernel void nbits(TENSOR(a), TENSOR(rounded), TENSOR(steps), TENSOR(sums), TENSOR(w), TENSOR(scales),
                    TENSOR(offsets), TENSOR(channels), TENSOR(loud), EXTRA_ARGS TENSOR(c), const int M, const int N,
                    const int K) {
    const int m0 = get_global_id(0) * MR, n0 = get_global_id(1) * V, blocks = K / BLOCK;
    if (m0 >= M || n0 >= N) return;
    const size_t first = (size_t)(n0 / 16) * blocks;
    __global const int *W = AS(const int, w) + first * (VECS * 16) + n0 % 16;
    __global const float *S = AS(const float, scales) + first * 16 + n0 % 16;
#if OFFSETS
    __global const float *O = AS(const float, offsets) + first * 16 + n0 % 16;
#endif
    VF acc[MR];
    int row[MR];
#pragma unroll
    for (int i = 0; i < MR; i++) {
        acc[i] = (VF)(0.f);
        row[i] = LEAST(m0 + i, M - 1);
    }
    for (int b = 0; b < blocks; b++) {
        const VF scale = LOADV(S);
        S += 16;
#if INT8
        VI dot[MR];
#pragma unroll
        for (int i = 0; i < MR; i++) dot[i] = (VI)(0);
#pragma unroll
        for (int v = 0; v < VECS; v++) {
            const VI code = LOADVI(W + v * 16);
            const int k = b * BLOCK + (v / PER_SUB) * SUB + (v % PER_SUB) * 4;
#pragma unroll
            for (int i = 0; i < MR; i++) {
                __global const int *x = AS(const int, rounded) + ((size_t)row[i] * K + k) / 4;
#if BITS == 4
                dot[i] = dot4(dot[i], code & 0x0f0f0f0f, x[0]);
                dot[i] = dot4(dot[i], (code >> 4) & 0x0f0f0f0f, x[HALF / 4]);
#else
                dot[i] = dot4(dot[i], code, x[0]);
#endif
            }
        }
#pragma unroll
        for (int i = 0; i < MR; i++) {
            const size_t at = (size_t)row[i] * blocks + b;
#if CPU
            const VF product = __builtin_convertvector(dot[i], VF);
#else
            const VF product = CAT(convert_float, V)(dot[i]);
#endif
            acc[i] = product * (scale * AS(const float, steps)[at]) + acc[i];
#if BITS == 4 || !SIGNED_DOT
            acc[i] = scale * (-(float)MIDDLE * AS(const float, sums)[2 * at]) + acc[i];
#endif
#if OFFSETS
            acc[i] = LOADV(O) * AS(const float, sums)[2 * at + 1] + acc[i];
#endif
        }
#else
        // two sums, as one would wait for each product before the next
        VF dot[MR], odd[MR];
#pragma unroll
        for (int i = 0; i < MR; i++) dot[i] = odd[i] = (VF)(0.f);
#pragma unroll
        for (int v = 0; v < VECS; v++) {
            const VI code = LOADVI(W + v * 16);
            const int k = b * BLOCK + (v / PER_SUB) * SUB + (v % PER_SUB) * 4;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const VF low = code_at(code, 8 * j);
#if BITS == 4
                const VF high = code_at(code, 8 * j + 4);
#endif
#pragma unroll
                for (int i = 0; i < MR; i++) {
                    __global const float *x = AS(const float, a) + (size_t)row[i] * K + k + j;
#if BITS == 4
                    dot[i] = x[0] * low + dot[i];
                    odd[i] = x[HALF] * high + odd[i];
#else
                    if (j % 2)
                        odd[i] = x[0] * low + odd[i];
                    else
                        dot[i] = x[0] * low + dot[i];
#endif
                }
            }
        }
#pragma unroll
        for (int i = 0; i < MR; i++) {
            acc[i] = scale * (dot[i] + odd[i]) + acc[i];
#if OFFSETS
            acc[i] = LOADV(O) * AS(const float, sums)[(size_t)row[i] * blocks + b] + acc[i];
#endif
        }
#endif
        W += VECS * 16;
#if OFFSETS
        O += 16;
#endif
    }
#if LOUD
    // channels whose weights no block holds well: floats of their own, by A as it is
    const int wide = (N + 15) / 16 * 16;
#pragma unroll
    for (int j = 0; j < LOUD; j++) {
        const int k = AS(const int, channels)[j];
        const VF weight = LOADV(AS(const float, loud) + (size_t)j * wide + n0);
#pragma unroll
        for (int i = 0; i < MR; i++) acc[i] = AS(const float, a)[(size_t)row[i] * K + k] * weight + acc[i];
    }
#endif
#pragma unroll
    for (int i = 0; i < MR; i++) {
        const int have = m0 + i < M ? LEAST(V, N - n0) : 0;
        if (have <= 0) continue;
        const size_t at = (size_t)(m0 + i) * N + n0;
        const VF v = acc[i];
        EXTRA_LOAD(at, n0, have)
        STOREN(EPILOGUE, AS(float, c) + at, have);
    }
}

// Blocks of A: their sums, and (INT8) 8-bit codes of step max|a| / 127 and the sums of what these stand for before
__kernel void round_blocks(TENSOR(a), TENSOR(rounded), TENSOR(steps), TENSOR(sums), const int count) {
    const int first = get_global_id(0) * ROWS, end = LEAST(first + ROWS, count);
    for (int b = first; b < end; b++) {
        __global const float *x = AS(const float, a) + (size_t)b * BLOCK;
        float exact = 0.f;
        for (int i = 0; i < BLOCK; i++) exact += x[i];
#if INT8
        __global char *q = AS(char, rounded) + (size_t)b * BLOCK;
        float most = 0.f;
        for (int i = 0; i < BLOCK; i++) {
            const float size = x[i] < 0.f ? -x[i] : x[i];
            most = size > most ? size : most;
        }
        const float step = most / 127.f, turns = most > 0.f ? 127.f / most : 0.f;
        int sum = 0;
        for (int i = 0; i < BLOCK; i++) {
            const float scaled = x[i] * turns;
            const int code = (int)(scaled + (scaled < 0.f ? -0.5f : 0.5f));
            q[i] = (char)code;
            sum += code;
        }
        AS(float, steps)[b] = step;
        AS(float, sums)[2 * b] = step * sum;
        AS(float, sums)[2 * b + 1] = exact;
#else
        AS(float, sums)[b] = exact;
#endif
    }
}

// Row ids[i] of a matrix of codes whose last axis is quantised, as floats; out of range counts from the end
__kernel void gather_blocks(TENSOR(w), TENSOR(at), TENSOR(scales), TENSOR(zeros), TENSOR(y), const int count,
                            const int rows, const int K, const int block) {
    const int i = get_global_id(0), blocks = (K + block - 1) / block;
    if (i >= count) return;
    const int asked = (int)AS(const INDEX, at)[i], row = WITHIN(asked < 0 ? asked + rows : asked, 0, rows - 1);
    const int row_bytes = K * BITS / 8, zero_bytes = (blocks * BITS + 7) / 8;
    __global const uchar *codes = AS(const uchar, w) + (size_t)row * row_bytes;
    __global const float *scale = AS(const float, scales) + (size_t)row * blocks;
    __global float *y = AS(float, y) + (size_t)i * K;
    for (int b = 0; b < blocks; b++) {
        int zero = MIDDLE;
#if ZEROS
        const uchar z = AS(const uchar, zeros)[(size_t)row * zero_bytes + b * BITS / 8];
        zero = BITS == 8 ? z : (b % 2 ? z >> 4 : z & 15);
#endif
        const float s = scale[b];
        for (int k = b * block; k < LEAST(b * block + block, K); k++) {
            const uchar c = codes[k * BITS / 8];
            y[k] = s * (float)((BITS == 8 ? c : (k % 2 ? c >> 4 : c & 15)) - zero);
        }
    }
}
