// SPDX-License-Identifier: Apache-2.0
// Convolution where positions are few: a vector is V channels, an item makes TILES of them at FEW positions, and reads
// the input as it lies. Weights are [group][channels / V][tap][channel in][V].
//
// BORDER: some taps fall outside of the input. WHOLE: one tap, and the positions are the FEW of the input. Results are
// stored by vectors of positions, or, where there is one (EPILOGUE runs along the last axis then), of channels.
// Options: V, TILES, FEW, BORDER, WHOLE, WEIGHTS_HALF, FP16, BIAS, EXTRA_LOAD, EPILOGUE.

INNER void few_sums(__global const float *X, __global const WEIGHT *W, const int tile, const int IC, const int IH,
                    const int IW, const int OW, const int KH, const int KW, const int DH, const int DW, const int SH,
                    const int SW, const int top, const int left, const int p0, const int area, const int tiles,
                    VF result[TILES][FEW]) {
    const int plane = IH * IW;
    __global const WEIGHT *w[TILES];
    VF acc[TILES][FEW];
    int row[FEW], column[FEW];
#pragma unroll
    for (int p = 0; p < FEW; p++) {
        const int one = LEAST(p0 + p, area - 1);
        row[p] = (one / OW) * SH - top;
        column[p] = (one % OW) * SW - left;
    }
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        w[t] = W + (size_t)LEAST(tile + t, tiles - 1) * KH * KW * IC * V;
#pragma unroll
        for (int p = 0; p < FEW; p++) acc[t][p] = (VF)(0.f);
    }
    for (int kh = 0; kh < KH; kh++) {
        for (int kw = 0; kw < KW; kw++) {
            int at[FEW], mask[FEW];
#pragma unroll
            for (int p = 0; p < FEW; p++) {
                const int h = row[p] + kh * DH, u = column[p] + kw * DW;
                at[p] = WHOLE ? p : h * IW + u;
#if BORDER
                mask[p] = h >= 0 && h < IH && u >= 0 && u < IW ? -1 : 0;
                at[p] &= mask[p];
#endif
            }
            __global const float *from = X;
            for (int c = 0; c < IC; c++) {
                VF k[TILES];
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    k[t] = WIDENED(LOADW(w[t]));
                    w[t] += V;
                }
#pragma unroll
                for (int p = 0; p < FEW; p++) {
#if BORDER
                    const float one = as_float(as_int(from[at[p]]) & mask[p]);
#else
                    const float one = from[at[p]];
#endif
#pragma unroll
                    for (int t = 0; t < TILES; t++) acc[t][p] = one * k[t] + acc[t][p];
                }
                from += plane;
            }
        }
    }
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int p = 0; p < FEW; p++) result[t][p] = acc[t][p];
}

__kernel void conv_few(TENSOR(x), TENSOR(w), TENSOR(bias), EXTRA_ARGS TENSOR(y), const int groups, const int OC,
                       const int IC, const int IH, const int IW, const int OH, const int OW, const int KH,
                       const int KW, const int DH, const int DW, const int SH, const int SW, const int top,
                       const int left) {
    const int tile = get_global_id(0) * TILES, p0 = get_global_id(1) * FEW, z = get_global_id(2), area = OH * OW;
    if (tile * V >= OC || p0 >= area) return;
    const int g = z % groups, tiles = (OC + V - 1) / V;
    __global const WEIGHT *W = AS(const WEIGHT, w) + (size_t)g * tiles * KH * KW * IC * V;
    VF acc[TILES][FEW];
    few_sums(AS(const float, x) + (size_t)z * IC * IH * IW, W, tile, IC, IH, IW, OW, KH, KW, DH, DW, SH, SW, top, left,
             p0, area, tiles, acc);
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        const int m0 = (tile + t) * V, channels = LEAST(V, OC - m0);
        if (channels <= 0) continue;
#if BIAS
        const VF add = LOADN(AS(const float, bias) + g * OC + m0, channels);
#else
        const VF add = (VF)(0.f);
#endif
#if FEW == 1
        const VF v = acc[t][0] + add;
        const size_t to = (size_t)z * OC + m0;
        EXTRA_LOAD(to, g * OC + m0, channels)
        STOREN(EPILOGUE, AS(float, y) + to, channels);
#else
        float lane[FEW + V - 1][V]; // by position
#pragma unroll
        for (int p = 0; p < FEW; p++) STOREP(acc[t][p] + add, lane[p]);
        for (int i = 0; i < channels; i++) {
            for (int p = 0; p < LEAST(FEW, area - p0); p += V) {
                const int have = LEAST(LEAST(V, FEW - p), area - p0 - p);
                const size_t to = ((size_t)z * OC + m0 + i) * area + p0 + p;
                float across[V];
#pragma unroll
                for (int l = 0; l < V; l++) across[l] = l < have ? lane[p + l][i] : 0.f;
                const VF v = LOADP(across);
                EXTRA_LOAD(to, g * OC + m0 + i, have)
                STOREN(EPILOGUE, AS(float, y) + to, have);
            }
        }
#endif
    }
}
