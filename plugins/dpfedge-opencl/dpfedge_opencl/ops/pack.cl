// SPDX-License-Identifier: Apache-2.0
// Copies that bring an operand into the layout a product wants: columns into panels, planes with borders.

// B, where element (k, n) lies at k * sk + n * sn, into [panel][K][WIDTH], columns past N being zero
__kernel void to_panels(TENSOR(b), TENSOR(to), const int N, const int K, const int sk, const int sn, const int inner,
                        const long b0, const long b1) {
    const int panel = get_global_id(0), z = get_global_id(2), n0 = panel * WIDTH;
    if (n0 >= N) return;
    __global const float *B = AS(const float, b) + (z / inner) * b0 + (z % inner) * b1 + (size_t)n0 * sn;
    const size_t panels = (N + WIDTH - 1) / WIDTH;
    __global float *to = AS(float, to) + ((size_t)z * panels + panel) * K * WIDTH;
    const int have = LEAST(WIDTH, N - n0);
    const int first = get_global_id(1) * ROWS, end = LEAST(first + ROWS, K);
    for (int k = first; k < end; k++) {
        for (int n = 0; n < have; n++) to[(size_t)k * WIDTH + n] = B[(size_t)k * sk + (size_t)n * sn];
        for (int n = have; n < WIDTH; n++) to[(size_t)k * WIDTH + n] = 0.f;
    }
}

// x [planes, IH, IW] into [planes][SH * SW phases][PH][PW]: element (h, w) of phase (r, s) is x's at row
// h * SH + r - top, column w * SW + s - left, zero outside of x; `plane` floats for each plane of x
#ifndef SW
__kernel void to_phases(TENSOR(x), TENSOR(to), const int IH, const int IW, const int SH, const int SW, const int PH,
                        const int PW, const int top, const int left, const int plane, const int rows, const int planes) {
    const int c = get_global_id(1);
    if (c >= planes) return;
    const int first = get_global_id(0) * ROWS, end = LEAST(first + ROWS, rows);
    __global const float *X = AS(const float, x) + (size_t)c * IH * IW;
    for (int one = first; one < end; one++) {
        const int phase = one / PH, h = (one % PH) * SH + phase / SW - top, s = phase % SW - left;
        __global float *to = AS(float, to) + (size_t)c * plane + (size_t)one * PW;
        if (h < 0 || h >= IH) {
            for (int w = 0; w < PW; w++) to[w] = 0.f;
            continue;
        }
        __global const float *from = X + (size_t)h * IW;
        const int begin = LEAST(PW, s < 0 ? (SW - 1 - s) / SW : 0), stop = LEAST(PW, s < IW ? (IW - s + SW - 1) / SW : 0);
        for (int w = 0; w < begin; w++) to[w] = 0.f;
        if (SW == 1)
            for (int w = begin; w < stop; w++) to[w] = from[w + s];
        else
            for (int w = begin; w < stop; w++) to[w] = from[w * SW + s];
        for (int w = MOST(begin, stop); w < PW; w++) to[w] = 0.f;
    }
}

#else
// The same where lanes of a load can be left out
INNER void phase_row(__global const float *from, __global float *to, const int first, const int IW, const int PW) {
    int w = 0;
    for (; w + V <= PW; w += V) {
        const int at = first + w * SW;
        VF v;
        if (at < 0 || at + SW * V > IW)
            v = columns(from + at, columns_of(at, IW), (VF)(0.f));
        else
            v = SW == 1 ? LOADV(from + at) : (VF)(LOADV(from + at).even, LOADV(from + at + V).even);
        STOREV(v, to + w);
    }
    if (w < PW) store_some(columns(from + first + w * SW, columns_of(first + w * SW, IW), (VF)(0.f)), to + w, PW - w);
}

__kernel void to_phases(TENSOR(x), TENSOR(to), const int IH, const int IW, const int SH, const int PH, const int PW,
                        const int top, const int left, const int plane, const int rows, const int planes) {
    const int c = get_global_id(1);
    if (c >= planes) return;
    const int begin = get_global_id(0) * ROWS, end = LEAST(begin + ROWS, rows);
    __global const float *X = AS(const float, x) + (size_t)c * IH * IW;
    __global float *to = AS(float, to) + (size_t)c * plane;
    for (int one = begin; one < end; one++) {
        const int phase = one / PH, h = (one % PH) * SH + phase / SW - top;
        phase_row(X + (size_t)LEAST(MOST(h, 0), IH - 1) * IW, to + (size_t)one * PW, phase % SW - left,
                  h < 0 || h >= IH ? 0 : IW, PW); // a row outside of x has no element
    }
}
#endif

// `times` copies of x's `count` floats, one behind the other
__kernel void repeat(TENSOR(x), TENSOR(to), const int count, const int times) {
    const int one = get_global_id(0);
    if (one >= times) return;
    for (int i = 0; i < count; i++) AS(float, to)[(size_t)one * count + i] = AS(const float, x)[i];
}

// Rows of `have` floats at the beginning of rows of `want`, zero behind them; WIDTH floats an item
__kernel void lengthen(TENSOR(x), TENSOR(to), const int rows, const int have, const int want) {
    const int first = get_global_id(0) * WIDTH, row = get_global_id(1);
    if (first >= want || row >= rows) return;
    __global const float *X = AS(const float, x) + (size_t)row * have;
    __global float *to = AS(float, to) + (size_t)row * want;
    const int end = LEAST(first + WIDTH, want), copied = WITHIN(have, first, end);
    for (int i = first; i < copied; i++) to[i] = X[i];
    for (int i = copied; i < end; i++) to[i] = 0.f;
}
