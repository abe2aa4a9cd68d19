// SPDX-License-Identifier: Apache-2.0
// Convolution as a product of packed weights with rows of the input at fixed distances; also transposed convolution.
//
// The input is planes (one a channel, `plane` floats apart) whose rows carry their own borders, so that a tap is a
// distance: output position q = row * PW + column reads plane[q + distance(tap)], whatever q is. Positions past a
// row's OW outputs are computed and dropped. Strides are phases of the plane (pack.cl, to_phases).
// An item makes MR channels at NR * V positions; weights are [group][channels / MR][tap][channel in][MR].
// One accumulator per element, taps outside, channels inside: tile sizes change no bit of a result.
// Options: MR, NR, V, WEIGHTS_HALF, FP16, BIAS, EXTRA_LOAD, EPILOGUE, PHASED (an output phase for each kernel offset modulo the stride).

// Products of MR channels' weights with the NR * V positions from X on, over all taps and channels of the input
INNER void sums(__global const float *X, __global const WEIGHT *W, const int IC, const int plane, const int PW,
                const int KH, const int KW, const int DH, const int DW, const int SH, const int SW, const int phase,
                VF result[MR][NR]) {
    VF acc[MR][NR];
#pragma unroll
    for (int i = 0; i < MR; i++)
#pragma unroll
        for (int j = 0; j < NR; j++) acc[i][j] = (VF)(0.f);
    int h_rest = 0, h_whole = 0;
    for (int kh = 0; kh < KH; kh++) {
        int w_rest = 0, w_whole = 0;
        for (int kw = 0; kw < KW; kw++) {
            __global const float *from = X + ((h_rest * SW + w_rest) * phase + h_whole * PW + w_whole);
            for (w_rest += DW; w_rest >= SW; w_rest -= SW) w_whole++; // a division would cost more than the products
            if (DW < 0) w_whole += w_rest, w_rest = 0;
#if FP16
            for (int one = 0; one < IC; one += FLUSH) {
                NARROWV part[MR][NR];
#pragma unroll
                for (int i = 0; i < MR; i++)
#pragma unroll
                    for (int j = 0; j < NR; j++) part[i][j] = (NARROWV)(0);
                for (int c = one; c < LEAST(one + FLUSH, IC); c++) {
                    NARROWV v[NR];
#pragma unroll
                    for (int j = 0; j < NR; j++) v[j] = NARROWED(LOADV(from + j * V));
                    from += plane;
#pragma unroll
                    for (int i = 0; i < MR; i++)
#pragma unroll
                        for (int j = 0; j < NR; j++) part[i][j] = WEIGHT_AT(W, i) * v[j] + part[i][j];
                    W += MR;
                }
#pragma unroll
                for (int i = 0; i < MR; i++)
#pragma unroll
                    for (int j = 0; j < NR; j++) acc[i][j] += WIDENED(part[i][j]);
            }
#else
            for (int c = 0; c < IC; c++) {
                VF v[NR];
#pragma unroll
                for (int j = 0; j < NR; j++) v[j] = LOADV(from + j * V);
                from += plane;
#pragma unroll
                for (int i = 0; i < MR; i++)
#pragma unroll
                    for (int j = 0; j < NR; j++) acc[i][j] = WEIGHT_AT(W, i) * v[j] + acc[i][j];
                W += MR;
            }
#endif
        }
        for (h_rest += DH; h_rest >= SH; h_rest -= SH) h_whole++;
        if (DH < 0) h_whole += h_rest, h_rest = 0;
    }
#pragma unroll
    for (int i = 0; i < MR; i++)
#pragma unroll
        for (int j = 0; j < NR; j++) result[i][j] = acc[i][j];
}

__kernel void conv(TENSOR(x), TENSOR(w), TENSOR(bias), EXTRA_ARGS TENSOR(y), const int groups, const int OC,
                   const int IC, const int plane, const int PW, const int OH, const int OW, const int KH, const int KW,
                   const int DH, const int DW, const int SH, const int SW, const int phase, const int origin,
                   const int Q, const int shift, const int UH, const int UW, const int top, const int left,
                   const int across) {
    // what is larger, weights or input, is walked once: the other's tiles change first
    const int m_tile = get_global_id(across), m0 = m_tile * MR;
    int q0 = get_global_id(1 - across) * (NR * V), z = get_global_id(2), rest = 0;
    if (m0 >= OC || q0 >= Q) return;
    if (shift) q0 = LEAST(q0, Q - NR * V); // the planes are the input itself: nothing may be read past their end
#if PHASED
    rest = z % (UH * UW);
    z /= UH * UW;
#endif
    const int g = z % groups, tiles = (OC + MR - 1) / MR;
    __global const float *X = AS(const float, x) + (size_t)z * IC * plane + origin + q0;
    __global const WEIGHT *W = AS(const WEIGHT, w) +
        (((size_t)(rest * groups + g) * tiles + m_tile) * KH * KW) * IC * MR;
    VF acc[MR][NR];
    sums(X, W, IC, plane, PW, KH, KW, DH, DW, SH, SW, phase, acc);
    const size_t area = (size_t)OH * OW;
#pragma unroll
    for (int i = 0; i < MR; i++) {
        const size_t channel = ((size_t)z * OC + m0 + i) * area;
        __global float *Y = AS(float, y) + channel;
#pragma unroll
        for (int j = 0; j < NR; j++) {
            int q = q0 + j * V, have = m0 + i < OC ? LEAST(V, Q - q) : 0;
            if (have <= 0) continue;
            VF v = acc[i][j];
#if BIAS
            v += AS(const float, bias)[g * OC + m0 + i];
#endif
#if PHASED
            float lane[V];
            STOREP(v, lane);
            int h = (q / PW) * UH + rest / UW - top, u = (q % PW) * UW + rest % UW - left;
            if (have == V && q % PW + V <= PW && h >= 0 && h < OH && u >= 0 && u + (V - 1) * UW < OW) {
#pragma unroll
                for (int l = 0; l < V; l++) Y[h * OW + u + l * UW] = lane[l];
                continue;
            }
            const int behind = PW * UW + rest % UW - left;
            for (int l = 0; l < have; l++) {
                if (h >= 0 && h < OH && u >= 0 && u < OW) Y[h * OW + u] = lane[l];
                u += UW;
                if (u == behind) {
                    u -= PW * UW;
                    h += UH;
                }
            }
#else
            if (OH == 1 || PW == OW) {
                EXTRA_LOAD(channel + q, g * OC + m0 + i, have)
                STOREN(EPILOGUE, Y + q, have);
                continue;
            }
            int row = q / PW, column = q % PW;
            if (column + V <= OW && have == V) {
                EXTRA_LOAD(channel + row * OW + column, g * OC + m0 + i, have)
                STOREV(EPILOGUE, Y + row * OW + column);
                continue;
            }
            float lane[V];
            STOREP(v, lane);
            for (int l = 0; l < have;) { // one piece of a row after another
                const int run = LEAST(OW - column, have - l);
                if (run > 0) {
                    const size_t at = (size_t)row * OW + column;
                    const VF v = load_private(lane + l, run);
                    EXTRA_LOAD(channel + at, g * OC + m0 + i, run)
                    store_some(EPILOGUE, Y + at, run);
                }
                l += PW - column;
                column = 0;
                row++;
            }
#endif
        }
    }
}
