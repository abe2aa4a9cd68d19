// SPDX-License-Identifier: Apache-2.0
// A convolution of each channel by itself, read where the input lies: an item makes ROWS rows of one channel.
//
// A vector is V columns of the output, NR of them side by side share a weight; lanes that fall into the border are not
// read. A row of the input is read once for all rows of the output that it takes part in.
// Options: ROWS, NR, KH, KW, DH, SH, SW (1 or 2), BIAS, EXTRA_LOAD, EPILOGUE.

// The products of NR * V columns from w0 on of output rows h0 .. h0 + ROWS
INNER void sums(__global const float *X, __global const float *W, const int IH, const int IW, const int DW,
                const int top, const int left, const int h0, const int w0, VF result[ROWS][NR]) {
    VF acc[ROWS][NR];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int j = 0; j < NR; j++) acc[r][j] = (VF)(0.f);
    uint2 there[KW][NR];
#pragma unroll
    for (int kw = 0; kw < KW; kw++)
#pragma unroll
        for (int j = 0; j < NR; j++) there[kw][j] = columns_of((w0 + j * V) * SW + kw * DW - left, IW);
    // input row by input row, all known to the compiler but whether there is one
#pragma unroll
    for (int i = 0; i < (ROWS - 1) * SH + (KH - 1) * DH + 1; i++) {
        const int h = h0 * SH - top + i;
        if (h < 0 || h >= IH) continue;
#pragma unroll
        for (int kw = 0; kw < KW; kw++) {
            VF v[NR];
#pragma unroll
            for (int j = 0; j < NR; j++)
                v[j] = columns(X + h * IW + (w0 + j * V) * SW + kw * DW - left, there[kw][j], (VF)(0.f));
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int away = i - r * SH, kh = away / DH;
                if (away < 0 || kh >= KH || kh * DH != away) continue;
                const float weight = W[kh * KW + kw];
#pragma unroll
                for (int j = 0; j < NR; j++) acc[r][j] = weight * v[j] + acc[r][j];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int j = 0; j < NR; j++) result[r][j] = acc[r][j];
}

__kernel void depthwise(TENSOR(x), TENSOR(w), TENSOR(bias), EXTRA_ARGS TENSOR(y), const int channels, const int planes,
                        const int IH, const int IW, const int OH, const int OW, const int DW, const int top,
                        const int left) {
    const int z = get_global_id(1), h0 = get_global_id(0) * ROWS, c = z % channels;
    if (z >= planes || h0 >= OH) return;
    __global const float *X = AS(const float, x) + (size_t)z * IH * IW;
    __global const float *W = AS(const float, w) + (size_t)c * KH * KW;
    __global float *Y = AS(float, y) + (size_t)z * OH * OW;
    for (int w0 = 0; w0 < OW; w0 += NR * V) {
        VF acc[ROWS][NR];
        sums(X, W, IH, IW, DW, top, left, h0, w0, acc);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (h0 + r >= OH) continue;
#pragma unroll
            for (int j = 0; j < NR; j++) {
                const int have = LEAST(V, OW - w0 - j * V);
                if (have <= 0) continue;
                VF v = acc[r][j];
#if BIAS
                v += AS(const float, bias)[c];
#endif
                const size_t at = (size_t)(h0 + r) * OW + w0 + j * V;
                EXTRA_LOAD((size_t)z * OH * OW + at, c, have)
                STOREN(EPILOGUE, Y + at, have);
            }
        }
    }
}
