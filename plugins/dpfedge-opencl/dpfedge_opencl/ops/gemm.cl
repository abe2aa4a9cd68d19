// SPDX-License-Identifier: Apache-2.0
// C[M, N] = epilogue(alpha * A[M, K] * B[K, N] + bias), batched, a tile of MR rows and NR * V columns per work item.
//
// B is rows of ldb floats (PANEL 0; then N >= NR * V, and the last tile begins earlier: what two items compute twice
// is equal), or panels of PANEL columns, a multiple of NR * V: [panel][K][PANEL], padded with zeros.
// One accumulator per element and k in order: tile sizes change no bit of a result.
// Options: MR, NR, V, TRANS_A, PANEL, WEIGHTS_HALF, FP16, BIAS (0 none, 1 along N with ld_bias a row, 2 one per row), EXTRA_LOAD, EPILOGUE.

#if TRANS_A
#define A_AT(i, k) A[(size_t)(k)*lda + row[i]]
#else
#define A_AT(i, k) a_row[i][k]
#endif

// Rows m0 .. m0 + MR of A (past the last: that one again) times NR * V columns of B, whose rows are `ldb` apart
INNER void sums(__global const float *A, __global const WEIGHT *B, const int m0, const int M, const int K,
                const int lda, const int ldb, VF result[MR][NR]) {
    int row[MR];
    __global const float *a_row[MR];
    VF acc[MR][NR];
#pragma unroll
    for (int i = 0; i < MR; i++) {
        row[i] = LEAST(m0 + i, M - 1);
        a_row[i] = A + (size_t)row[i] * lda;
#pragma unroll
        for (int j = 0; j < NR; j++) acc[i][j] = (VF)(0.f);
    }
#if FP16
    // sums of halves stay short: FLUSH products, then they go into floats
    for (int first = 0; first < K; first += FLUSH) {
        NARROWV part[MR][NR];
#pragma unroll
        for (int i = 0; i < MR; i++)
#pragma unroll
            for (int j = 0; j < NR; j++) part[i][j] = (NARROWV)(0);
        for (int k = first; k < LEAST(first + FLUSH, K); k++) {
            NARROWV y[NR];
#pragma unroll
            for (int j = 0; j < NR; j++) y[j] = LOADW(B + j * V);
            B += ldb;
#pragma unroll
            for (int i = 0; i < MR; i++) {
                const NARROW x = (NARROW)A_AT(i, k);
#pragma unroll
                for (int j = 0; j < NR; j++) part[i][j] = x * y[j] + part[i][j];
            }
        }
#pragma unroll
        for (int i = 0; i < MR; i++)
#pragma unroll
            for (int j = 0; j < NR; j++) acc[i][j] += WIDENED(part[i][j]);
    }
#else
    for (int k = 0; k < K; k++) {
        VF y[NR];
#pragma unroll
        for (int j = 0; j < NR; j++) y[j] = LOADW(B + j * V);
        B += ldb;
#pragma unroll
        for (int i = 0; i < MR; i++) {
            const float x = A_AT(i, k);
#pragma unroll
            for (int j = 0; j < NR; j++) acc[i][j] = x * y[j] + acc[i][j];
        }
    }
#endif
#pragma unroll
    for (int i = 0; i < MR; i++)
#pragma unroll
        for (int j = 0; j < NR; j++) result[i][j] = acc[i][j];
}

__kernel void gemm(TENSOR(a), TENSOR(b), TENSOR(bias), EXTRA_ARGS TENSOR(c), const int M, const int N, const int K,
                   const int lda, const int ldb, const int ld_bias, const int inner, const long a0, const long a1,
                   const long b0, const long b1, const float alpha) {
    const int m0 = get_global_id(0) * MR, z = get_global_id(2);
    int n0 = get_global_id(1) * (NR * V);
    if (m0 >= M || n0 >= N) return;
    __global const float *A = AS(const float, a) + (z / inner) * a0 + (z % inner) * a1;
    __global const WEIGHT *B = AS(const WEIGHT, b) + (z / inner) * b0 + (z % inner) * b1;
    __global float *C = AS(float, c) + (size_t)z * M * N;
#if PANEL
    B += (size_t)(n0 / PANEL) * K * PANEL + n0 % PANEL;
#else
    n0 = LEAST(n0, N - NR * V);
    B += n0;
#endif
    VF acc[MR][NR];
    sums(A, B, m0, M, K, lda, PANEL ? PANEL : ldb, acc);
#pragma unroll
    for (int i = 0; i < MR; i++) {
#pragma unroll
        for (int j = 0; j < NR; j++) {
            const int n = n0 + j * V, have = m0 + i < M ? LEAST(V, N - n) : 0;
            if (have <= 0) continue;
            const size_t at = (size_t)(m0 + i) * N + n;
            VF v = acc[i][j] * alpha;
#if BIAS == 1
            v += LOADN(AS(const float, bias) + (size_t)(m0 + i) * ld_bias + n, have);
#elif BIAS == 2
            v += AS(const float, bias)[(m0 + i) * ld_bias];
#endif
            EXTRA_LOAD(z * (size_t)M * N + at, n, have)
            STOREN(EPILOGUE, C + at, have);
        }
    }
}
