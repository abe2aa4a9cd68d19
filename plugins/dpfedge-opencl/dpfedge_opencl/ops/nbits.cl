// SPDX-License-Identifier: Apache-2.0
// C[M, N] = epilogue(A[M, K] * W^T), W of 4 or 8 bit codes in blocks of BLOCK along K: w = scale * (code - MIDDLE) + offset.
//
// Codes lie as [N / 16][block][VECS][16 columns][4 bytes]; byte j of vector v is element 4 v + j of its part of the
// block, of 4 bits the low half, the high half being HALF elements further. Scales and offsets are [N / 16][block][16].
// An item makes NR * V columns (V divides 16) of MR rows. DIGITS 2 or 3: A was rounded to 16 or 24 bits per block, as
// digits of a byte (`round_blocks`); sums of products are exact then, also of the last bit of a float32 with three, and
// only offsets multiply sums of A before it was rounded. DIGITS 0: products of floats.
// Options: BITS, BLOCK, MR, NR, V, DIGITS, OFFSETS (0: there are none), LOUD (how many channels have floats), EXTRA_LOAD,
// EPILOGUE.

#define SUB (BLOCK < 32 ? BLOCK : 32)
#define HALF (BITS == 4 ? SUB / 2 : 0)
#define VECS (BLOCK * BITS / 32)
#define PER_SUB (SUB * BITS / 32)
#define MIDDLE (BITS == 4 ? 8 : 128)
#define SHIFTED (BITS == 4 || !SIGNED_DOT) // whether codes are multiplied with MIDDLE in them
#define LARGEST (DIGITS == 3 ? 8323072.f : 32512.f) // what the largest of a block is rounded to: the first digit is 127

#if CPU
typedef VI VIU __attribute__((aligned(4)));
typedef CAT(char, V) VC;
typedef VC VCU __attribute__((aligned(1)));
#define LOADVI(p) (*(__global const VIU *)(p))
#define STOREPI(x, p) (*(VIU *)(p) = (x))
#define STORE_BYTES(x, p) (*(__global VCU *)(p) = __builtin_convertvector(x, VC))
#define FLOATS(x) __builtin_convertvector(x, VF)
#define INTS(x) __builtin_convertvector(x, VI)
#else
#define LOADVI(p) CAT(vload, V)(0, p)
#define STOREPI(x, p) CAT(vstore, V)(x, 0, p)
#define STORE_BYTES(x, p) CAT(vstore, V)(CAT(convert_char, V)(x), 0, p)
#define FLOATS(x) CAT(convert_float, V)(x)
#define INTS(x) CAT(convert_int, V)(x)
#endif

// Four products of a code of `a` and a signed byte of `x`, added to each lane of `acc`
inline VI dot4(VI acc, const VI a, const int x) {
#if SIGNED_DOT
    return dot_lanes(acc, x, BITS == 4 ? a : a ^ (int)0x80808080); // codes of 8 bits less MIDDLE, which is 128
#elif CPU && V == 16 && defined(HAS_AVX512VNNI)
    return __builtin_ia32_vpdpbusd512(acc, a, (VI)(x));
#elif CPU && V == 8 && defined(HAS_AVX512VNNI) && defined(HAS_AVX512VL)
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
#if BITS == 4 && CPU && V == 16 && defined(HAS_AVX512F)
    const VF table = (VF)(-8.f, -7.f, -6.f, -5.f, -4.f, -3.f, -2.f, -1.f, 0.f, 1.f, 2.f, 3.f, 4.f, 5.f, 6.f, 7.f);
    return __builtin_ia32_permvarsf512(table, c >> shift);
#elif BITS == 4 && CPU && V == 8 && defined(HAS_AVX512VL)
    const VF low = (VF)(-8.f, -7.f, -6.f, -5.f, -4.f, -3.f, -2.f, -1.f);
    const VF high = (VF)(0.f, 1.f, 2.f, 3.f, 4.f, 5.f, 6.f, 7.f);
    return __builtin_ia32_vpermi2varps256(low, c >> shift, high);
#else
    return FLOATS(((c >> shift) & (BITS == 4 ? 15 : 255)) - MIDDLE);
#endif
}

// Products of NR * V columns with rows m0 .. m0 + MR of A (past the last: that one again), from panel n0 / 16 on
INNER void products(__global const float *A, __global const char *rounded, __global const int *starts,
                    __global const float *numbers, __global const int *W, __global const float *S,
                    __global const float *O, const int m0, const int M, const int n0, const int N, const int K,
                    VF result[MR][NR]) {
    const int blocks = K / BLOCK;
    VF acc[MR][NR];
    int row[MR];
    size_t panel[NR]; // in blocks
    int lane[NR];
#pragma unroll
    for (int j = 0; j < NR; j++) {
        const int n = LEAST(n0 + j * V, (N - 1) / V * V);
        panel[j] = (size_t)(n / 16) * blocks;
        lane[j] = n % 16;
    }
#pragma unroll
    for (int i = 0; i < MR; i++) {
        row[i] = LEAST(m0 + i, M - 1);
#pragma unroll
        for (int j = 0; j < NR; j++) acc[i][j] = (VF)(0.f);
    }
    for (int b = 0; b < blocks; b++) {
        __global const int *w[NR];
        size_t place[NR];
#pragma unroll
        for (int j = 0; j < NR; j++) {
            w[j] = W + (panel[j] + b) * (VECS * 16) + lane[j];
            place[j] = (panel[j] + b) * 16 + lane[j];
        }
#if DIGITS
        VI sum[DIGITS][MR][NR];
#pragma unroll
        for (int i = 0; i < MR; i++)
#pragma unroll
            for (int d = 0; d < DIGITS; d++)
#pragma unroll
                for (int j = 0; j < NR; j++)
                    sum[d][i][j] = (VI)(SHIFTED ? starts[((size_t)row[i] * blocks + b) * DIGITS + d] : 0);
#pragma unroll
        for (int v = 0; v < VECS; v++) {
            const int k = (v / PER_SUB) * SUB + (v % PER_SUB) * 4;
#pragma unroll
            for (int j = 0; j < NR; j++) {
                const VI code = LOADVI(w[j] + v * 16);
#if BITS == 4
                const VI first = code & 0x0f0f0f0f, second = (code >> 4) & 0x0f0f0f0f;
#endif
#pragma unroll
                for (int i = 0; i < MR; i++) {
                    // the block's first digits, then its second ones, ...
                    __global const int *x =
                        (__global const int *)rounded + (((size_t)row[i] * K + b * BLOCK) * DIGITS + k) / 4;
#pragma unroll
                    for (int d = 0; d < DIGITS; d++) {
#if BITS == 4
                        sum[d][i][j] = dot4(sum[d][i][j], first, x[d * (BLOCK / 4)]);
                        sum[d][i][j] = dot4(sum[d][i][j], second, x[d * (BLOCK / 4) + HALF / 4]);
#else
                        sum[d][i][j] = dot4(sum[d][i][j], code, x[d * (BLOCK / 4)]);
#endif
                    }
                }
            }
        }
#pragma unroll
        for (int j = 0; j < NR; j++) {
            const VF scale = LOADV(S + place[j]);
#pragma unroll
            for (int i = 0; i < MR; i++) {
                const size_t at = (size_t)row[i] * blocks + b;
                VF product = FLOATS(sum[DIGITS - 2][i][j] * 256 + sum[DIGITS - 1][i][j]);
                if (DIGITS == 3) product = FLOATS(sum[0][i][j]) * 65536.f + product;
                acc[i][j] = product * numbers[2 * at] * scale + acc[i][j];
#if OFFSETS
                acc[i][j] = LOADV(O + place[j]) * numbers[2 * at + 1] + acc[i][j];
#endif
            }
        }
#else
        // two sums, as one would wait for each product before the next
        VF dot[MR][NR], odd[MR][NR];
#pragma unroll
        for (int i = 0; i < MR; i++)
#pragma unroll
            for (int j = 0; j < NR; j++) dot[i][j] = odd[i][j] = (VF)(0.f);
#pragma unroll
        for (int v = 0; v < VECS; v++) {
            const int k = b * BLOCK + (v / PER_SUB) * SUB + (v % PER_SUB) * 4;
#pragma unroll
            for (int j = 0; j < NR; j++) {
                const VI code = LOADVI(w[j] + v * 16);
#pragma unroll
                for (int l = 0; l < 4; l++) {
                    const VF low = code_at(code, 8 * l);
#if BITS == 4
                    const VF high = code_at(code, 8 * l + 4);
#endif
#pragma unroll
                    for (int i = 0; i < MR; i++) {
                        __global const float *x = A + (size_t)row[i] * K + k + l;
#if BITS == 4
                        dot[i][j] = x[0] * low + dot[i][j];
                        odd[i][j] = x[HALF] * high + odd[i][j];
#else
                        if (l % 2)
                            odd[i][j] = x[0] * low + odd[i][j];
                        else
                            dot[i][j] = x[0] * low + dot[i][j];
#endif
                    }
                }
            }
        }
#pragma unroll
        for (int j = 0; j < NR; j++) {
            const VF scale = LOADV(S + place[j]);
#pragma unroll
            for (int i = 0; i < MR; i++) {
                acc[i][j] = scale * (dot[i][j] + odd[i][j]) + acc[i][j];
#if OFFSETS
                acc[i][j] = LOADV(O + place[j]) * numbers[2 * ((size_t)row[i] * blocks + b) + 1] + acc[i][j];
#endif
            }
        }
#endif
    }
#pragma unroll
    for (int i = 0; i < MR; i++)
#pragma unroll
        for (int j = 0; j < NR; j++) result[i][j] = acc[i][j];
}

__kernel void nbits(TENSOR(a), TENSOR(rounded), TENSOR(starts), TENSOR(numbers), TENSOR(w),
                    TENSOR(scales), TENSOR(offsets), TENSOR(channels), TENSOR(loud), EXTRA_ARGS TENSOR(c), const int M, const int N,
                    const int K) {
    const int m0 = get_global_id(0) * MR, n0 = get_global_id(1) * (NR * V);
    if (m0 >= M || n0 >= N) return;
    __global const float *A = AS(const float, a);
    VF acc[MR][NR];
    products(A, AS(const char, rounded), AS(const int, starts), AS(const float, numbers), AS(const int, w),
             AS(const float, scales), AS(const float, offsets), m0, M, n0, N, K, acc);
#if LOUD
    // channels whose weights no block holds well: floats of their own, by A as it is
    const int wide = (N + 15) / 16 * 16;
#pragma unroll
    for (int l = 0; l < LOUD; l++) {
        const int k = AS(const int, channels)[l];
#pragma unroll
        for (int j = 0; j < NR; j++) {
            const VF weight = LOADV(AS(const float, loud) + (size_t)l * wide + LEAST(n0 + j * V, wide - V));
#pragma unroll
            for (int i = 0; i < MR; i++) acc[i][j] = A[(size_t)LEAST(m0 + i, M - 1) * K + k] * weight + acc[i][j];
        }
    }
#endif
#pragma unroll
    for (int i = 0; i < MR; i++)
#pragma unroll
        for (int j = 0; j < NR; j++) {
            const int n = n0 + j * V, have = m0 + i < M ? LEAST(V, N - n) : 0;
            if (have <= 0) continue;
            const size_t at = (size_t)(m0 + i) * N + n;
            const VF v = acc[i][j];
            EXTRA_LOAD(at, n, have)
            STOREN(EPILOGUE, AS(float, c) + at, have);
        }
}

// What sums of products with a block of A need: numbers are the step of its codes and the sum of its floats; with
// DIGITS, codes of step max|a| / LARGEST as that many signed bytes each, all of the highest ones first, and what the sum
// for each digit starts from, so that codes of W count from MIDDLE
INNER void round_block(__global const float *x, __global char *q, __global int *start, __global float *number) {
    VF exact = (VF)(0.f);
    VI most = (VI)(0);
#pragma unroll
    for (int i = 0; i < BLOCK; i += V) {
        const VF v = LOADV(x + i);
        const VI size = CAT(as_int, V)(v) & 0x7fffffff; // no number is larger than the largest, which makes the step none
        exact += v;
        most = size > most ? size : most;
    }
    number[1] = total(exact);
#if DIGITS
    int lane[V], largest = 0;
    STOREPI(most, lane);
    for (int l = 0; l < V; l++) largest = lane[l] > largest ? lane[l] : largest;
    const float size = as_float(largest), reach = size < 1e-31f ? 1e-31f : size; // neither number below is beyond floats
    const float turns = LARGEST / reach;
    VI sum[DIGITS];
#pragma unroll
    for (int d = 0; d < DIGITS; d++) sum[d] = (VI)(0);
#pragma unroll
    for (int i = 0; i < BLOCK; i += V) {
        const VF scaled = LOADV(x + i) * turns, half_up = scaled < 0.f ? (VF)(-0.5f) : (VF)(0.5f);
        VI code = INTS(scaled + half_up);
#pragma unroll
        for (int d = DIGITS - 1; d >= 0; d--) {
            const VI rest = (code + 128) >> 8, digit = d ? code - rest * 256 : code;
            STORE_BYTES(digit, q + d * BLOCK + i);
            sum[d] += digit;
            code = rest;
        }
    }
#pragma unroll
    for (int d = 0; d < DIGITS; d++) {
        int all = 0;
        STOREPI(sum[d], lane);
        for (int l = 0; l < V; l++) all += lane[l];
        start[d] = -MIDDLE * all;
    }
    number[0] = reach / LARGEST;
#endif
}

__kernel void round_blocks(TENSOR(a), TENSOR(rounded), TENSOR(starts), TENSOR(numbers), const int count) {
    const int first = get_global_id(0) * ROWS, end = LEAST(first + ROWS, count);
    for (int b = first; b < end; b++) {
        const size_t at = (size_t)b * DIGITS;
        round_block(AS(const float, a) + (size_t)b * BLOCK, AS(char, rounded) + at * BLOCK, AS(int, starts) + at,
                    AS(float, numbers) + (size_t)b * 2);
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
