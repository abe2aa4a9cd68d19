// SPDX-License-Identifier: Apache-2.0
// Pools over windows of an image: an item takes a row of the output, or ROWS of them.
// Options: MAX (else the average), PADDED (the average counts the border); ROWS, KH, KW and SW for `pool_wide`.

#ifndef SW
__kernel void pool(TENSOR(x), TENSOR(y), const int rows, const int IH, const int IW, const int OH, const int OW,
                   const int KH, const int KW, const int SH, const int SW, const int DH, const int DW, const int top,
                   const int left, const int bottom, const int right) {
    const int row = get_global_id(0);
    if (row >= rows) return;
    const int h0 = (row % OH) * SH - top;
    __global const float *X = AS(const float, x) + (size_t)(row / OH) * IH * IW;
    __global float *Y = AS(float, y) + (size_t)row * OW;
    for (int o = 0; o < OW; o++) {
        const int w0 = o * SW - left;
        float found = MAX ? -INFINITY : 0.f;
        int count = 0;
        for (int kh = 0; kh < KH; kh++) {
            const int h = h0 + kh * DH;
            if (h < 0 || h >= IH) {
                if (PADDED && h >= -top && h < IH + bottom)
                    for (int kw = 0; kw < KW; kw++) count += w0 + kw * DW < IW + right;
                continue;
            }
            for (int kw = 0; kw < KW; kw++) {
                const int w = w0 + kw * DW;
                if (w < 0 || w >= IW) {
                    count += PADDED && w < IW + right;
                    continue;
                }
                const float v = X[h * IW + w];
                found = MAX ? (v > found ? v : found) : found + v;
                count++;
            }
        }
        Y[o] = MAX ? found : found / (float)(count ? count : 1);
    }
}

#else
// The largest, or the sum, of each of V windows; the first begins at row h0 and column w0
INNER VF windows(__global const float *X, const int h0, const int w0, const int IH, const int IW, const int DH,
                 const int DW) {
    const VF nothing = (VF)(MAX ? -INFINITY : 0.f);
    VF found = nothing;
    uint2 there[KW];
#pragma unroll
    for (int kw = 0; kw < KW; kw++) there[kw] = columns_of(w0 + kw * DW, IW);
#pragma unroll
    for (int kh = 0; kh < KH; kh++) {
        const int h = h0 + kh * DH;
        if (h < 0 || h >= IH) continue;
#pragma unroll
        for (int kw = 0; kw < KW; kw++) {
            const VF v = columns(X + h * IW + w0 + kw * DW, there[kw], nothing);
            found = MAX ? MOST(v, found) : found + v;
        }
    }
    return found;
}

// The same by vectors of columns, for the largest, or the average where no window leaves the image
__kernel void pool_wide(TENSOR(x), TENSOR(y), const int rows, const int IH, const int IW, const int OH, const int OW,
                        const int SH, const int DH, const int DW, const int top, const int left) {
    const int first = get_global_id(0) * ROWS, end = LEAST(first + ROWS, rows);
    for (int row = first; row < end; row++) {
        __global const float *X = AS(const float, x) + (size_t)(row / OH) * IH * IW;
        __global float *Y = AS(float, y) + (size_t)row * OW;
        for (int o = 0; o < OW; o += V) {
            VF found = windows(X, (row % OH) * SH - top, o * SW - left, IH, IW, DH, DW);
            const int have = LEAST(V, OW - o);
            if (!MAX) found /= (float)(KH * KW);
            STOREN(found, Y + o, have);
        }
    }
}
#endif
