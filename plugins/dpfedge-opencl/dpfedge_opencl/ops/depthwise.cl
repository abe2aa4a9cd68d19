// SPDX-License-Identifier: Apache-2.0
// A convolution of each channel by itself, read where the input lies: an item makes ROWS rows of one channel.
//
// A vector is V columns of the output; lanes of it that fall into the border are not read. A row of the input is read
// once for all rows of the output that it takes part in. Options: ROWS, KW, SW (1 or 2), BIAS, EXTRA_LOAD, EPILOGUE.

// The products of V columns from w0 on of output rows h0 .. h0 + ROWS
INNER void sums(__global const float *X, __global const float *W, const int IH, const int IW, const int KH,
                const int DH, const int DW, const int SH, const int top, const int left, const int h0, const int w0,
                VF result[ROWS]) {
    VF acc[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) acc[r] = (VF)(0.f);
    // input row by input row; DH rows of the kernel apart, so that a row fits each output row at most once
    const int begin = MOST(h0 * SH - top, 0), end = LEAST((h0 + ROWS - 1) * SH + (KH - 1) * DH - top + 1, IH);
    for (int h = begin; h < end; h++) {
        VF v[KW];
#pragma unroll
        for (int kw = 0; kw < KW; kw++) v[kw] = columns(X + h * IW, w0 * SW + kw * DW - left, IW, (VF)(0.f));
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int away = h + top - (h0 + r) * SH, kh = DH == 1 ? away : away / DH;
            if (away >= 0 && kh < KH && (DH == 1 || kh * DH == away)) {
#pragma unroll
                for (int kw = 0; kw < KW; kw++) acc[r] = W[kh * KW + kw] * v[kw] + acc[r];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) result[r] = acc[r];
}

__kernel void depthwise(TENSOR(x), TENSOR(w), TENSOR(bias), EXTRA_ARGS TENSOR(y), const int channels, const int planes,
                        const int IH, const int IW, const int OH, const int OW, const int KH,
                        const int DH, const int DW, const int SH, const int top, const int left) {
    const int z = get_global_id(1), h0 = get_global_id(0) * ROWS, c = z % channels;
    if (z >= planes || h0 >= OH) return;
    __global const float *X = AS(const float, x) + (size_t)z * IH * IW;
    __global const float *W = AS(const float, w) + (size_t)c * KH * KW;
    __global float *Y = AS(float, y) + (size_t)z * OH * OW;
    for (int w0 = 0; w0 < OW; w0 += V) {
        VF acc[ROWS];
        sums(X, W, IH, IW, KH, DH, DW, SH, top, left, h0, w0, acc);
        const int have = LEAST(V, OW - w0);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (h0 + r >= OH) continue;
            VF v = acc[r];
#if BIAS
            v += AS(const float, bias)[c];
#endif
            const size_t at = (size_t)(h0 + r) * OW + w0;
            EXTRA_LOAD((size_t)z * OH * OW + at, c, have)
            STOREN(EPILOGUE, Y + at, have);
        }
    }
}
