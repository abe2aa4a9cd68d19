// SPDX-License-Identifier: Apache-2.0
// C[M, N] = epilogue(A[M, K] * W^T), W of 4 or 8 bit codes in blocks of BLOCK along K: w = scale * (code - MIDDLE) + offset.
//
// Codes lie as [N / 16][block][VECS][16 columns][4 bytes]; byte j of vector v is element 4 v + j of its part of the
// block, of 4 bits the low half, the high half being HALF elements further. Scales and offsets are [N / 16][block][16].
// An item makes NR * V columns (V divides 16) of MR rows. INT8: A was rounded to 16 bits per block, two digits of a byte
// (`round_blocks`); sums of products are exact then, and offsets multiply the sums of A before it was rounded. Else
// products of floats.
// Options: BITS, BLOCK, MR, NR, V, INT8, OFFSETS (0: there are none), LOUD (how many channels have floats), EXTRA_LOAD,
// EPILOGUE.

#define SUB (BLOCK < 32 ? BLOCK : 32)
#define HALF (BITS == 4 ? SUB / 2 : 0)
#define VECS (BLOCK * BITS / 32)
#define PER_SUB (SUB * BITS / 32)
#define MIDDLE (BITS == 4 ? 8 : 128)

#if CPU
typedef VI VIU __attribute__((aligned(4)));
typedef CAT(char, V) VC;
typedef VC VCU __attribute__((aligned(1)));
#define LOADVI(p) (*(__global const VIU *)(p))
#define STOREPI(x, p) (*(VIU *)(p) = (x))
#define STORE_BYTES(x, p) (*(__global VCU *)(p) = __builtin_convertvector(x, VC))
#else
#define LOADVI(p) CAT(vload, V)(0, p)
#define STOREPI(x, p) CAT(vstore, V)(x, 0, p)
#define STORE_BYTES(x, p) CAT(vstore, V)(CAT(convert_char, V)(x), 0, p)
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
#elif CPU
    return __builtin_convertvector(((c >> shift) & (BITS == 4 ? 15 : 255)) - MIDDLE, VF);
#else
    return CAT(convert_float, V)(((c >> shift) & (BITS == 4 ? 15 : 255)) - MIDDLE);
#endif
}

// Products of NR * V columns with rows m0 .. m0 + MR of A (past the last: that one again), from panel n0 / 16 on
INNER void products(__global const float *A, __global const char *rounded, __global const float *steps,
                    __global const float *sums, __global const int *W, __global const float *S,
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
        size_t numbers[NR];
#pragma unroll
        for (int j = 0; j < NR; j++) {
            w[j] = W + (panel[j] + b) * (VECS * 16) + lane[j];
            numbers[j] = (panel[j] + b) * 16 + lane[j];
        }
#if INT8
        VI high[MR][NR], low[MR][NR];
#pragma unroll
        for (int i = 0; i < MR; i++)
#pragma unroll
            for (int j = 0; j < NR; j++) high[i][j] = low[i][j] = (VI)(0);
#pragma unroll
        for (int v = 0; v < VECS; v++) {
            const int k = (v / PER_SUB) * SUB + (v % PER_SUB) * 4;
#pragma unroll
            for (int j = 0; j < NR; j++) {
                const VI code = LOADVI(w[j] + v * 16);
#pragma unroll
                for (int i = 0; i < MR; i++) {
                    // the block's higher digits, then its lower ones
                    __global const int *x =
                        (__global const int *)rounded + (((size_t)row[i] * K + b * BLOCK) * 2 + k) / 4;
#if BITS == 4
                    const VI first = code & 0x0f0f0f0f, second = (code >> 4) & 0x0f0f0f0f;
                    high[i][j] = dot4(dot4(high[i][j], first, x[0]), second, x[HALF / 4]);
                    low[i][j] = dot4(dot4(low[i][j], first, x[BLOCK / 4]), second, x[(BLOCK + HALF) / 4]);
#else
                    high[i][j] = dot4(high[i][j], code, x[0]);
                    low[i][j] = dot4(low[i][j], code, x[BLOCK / 4]);
#endif
                }
            }
        }
#pragma unroll
        for (int j = 0; j < NR; j++) {
            const VF scale = LOADV(S + numbers[j]);
#pragma unroll
            for (int i = 0; i < MR; i++) {
                const size_t at = (size_t)row[i] * blocks + b;
                const VI whole = high[i][j] * 256 + low[i][j];
#if CPU
                VF product = __builtin_convertvector(whole, VF);
#else
                VF product = CAT(convert_float, V)(whole);
#endif
#if BITS == 4 || !SIGNED_DOT
                product = product * steps[at] - MIDDLE * sums[2 * at];
#else
                product *= steps[at];
#endif
                acc[i][j] = product * scale + acc[i][j];
#if OFFSETS
                acc[i][j] = LOADV(O + numbers[j]) * sums[2 * at + 1] + acc[i][j];
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
            const VF scale = LOADV(S + numbers[j]);
#pragma unroll
            for (int i = 0; i < MR; i++) {
                acc[i][j] = scale * (dot[i][j] + odd[i][j]) + acc[i][j];
#if OFFSETS
                acc[i][j] = LOADV(O + numbers[j]) * sums[(size_t)row[i] * blocks + b] + acc[i][j];
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

__kernel void nbits(TENSOR(a), TENSOR(rounded), TENSOR(steps), TENSOR(sums), TENSOR(w), TENSOR(scales),
                    TENSOR(offsets), TENSOR(channels), TENSOR(loud), EXTRA_ARGS TENSOR(c), const int M, const int N,
                    const int K) {
    const int m0 = get_global_id(0) * MR, n0 = get_global_id(1) * (NR * V);
    if (m0 >= M || n0 >= N) return;
    __global const float *A = AS(const float, a);
    VF acc[MR][NR];
    products(A, AS(const char, rounded), AS(const float, steps), AS(const float, sums), AS(const int, w),
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

// The sum of a block of A, and (INT8) its 16-bit codes of step max|a| / 32512 as two digits of a signed byte each, all
// of the higher ones before the lower ones, and the sum of what the codes stand for
INNER float round_block(__global const float *x, __global char *q, float *step, float *rounded) {
    VF exact = (VF)(0.f), most = (VF)(0.f);
#pragma unroll
    for (int i = 0; i < BLOCK; i += V) {
        const VF v = LOADV(x + i), size = v < 0.f ? -v : v;
        exact += v;
        most = size > most ? size : most;
    }
#if INT8
    float lane[V], largest = 0.f;
    STOREP(most, lane);
    for (int l = 0; l < V; l++) largest = lane[l] > largest ? lane[l] : largest;
    const float turns = largest > 0.f ? 32512.f / largest : 0.f;
    VI sum = (VI)(0);
#pragma unroll
    for (int i = 0; i < BLOCK; i += V) {
        const VF scaled = LOADV(x + i) * turns, half_up = scaled < 0.f ? (VF)(-0.5f) : (VF)(0.5f);
#if CPU
        const VI code = __builtin_convertvector(scaled + half_up, VI);
#else
        const VI code = CAT(convert_int, V)(scaled + half_up);
#endif
        const VI high = (code + 128) >> 8, low = code - high * 256;
        STORE_BYTES(high, q + i);
        STORE_BYTES(low, q + BLOCK + i);
        sum += code;
    }
    int part[V], all = 0;
    STOREPI(sum, part);
    for (int l = 0; l < V; l++) all += part[l];
    *step = largest / 32512.f;
    *rounded = *step * all;
#endif
    return total(exact);
}

__kernel void round_blocks(TENSOR(a), TENSOR(rounded), TENSOR(steps), TENSOR(sums), const int count) {
    const int first = get_global_id(0) * ROWS, end = LEAST(first + ROWS, count);
    for (int b = first; b < end; b++) {
        float step, sum;
        const float exact =
            round_block(AS(const float, a) + (size_t)b * BLOCK, AS(char, rounded) + (size_t)b * 2 * BLOCK, &step, &sum);
#if INT8
        AS(float, steps)[b] = step;
        AS(float, sums)[2 * b] = sum;
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
