// SPDX-License-Identifier: Apache-2.0
// Attention over keys and values that lie anywhere, rotary positions, and the caches they are kept in.
//
// An item answers one query of one head: keys in order, KEYS at a time, with a running maximum and sum (Milakov and
// Gimelshein, "Online normalizer calculation for softmax"). HEAD is the size of a head, V divides it.
// Options: HEAD, V, GROUPED (ends are read from memory), CAUSAL, CAP, INTERLEAVED, POSITION.

#define PARTS (HEAD / V)
#define KEYS 8

#ifdef GROUPED
#if GROUPED
// Behind the last key of row b, which the last of its `count` queries sees; more than fit make everything NaN
#define END(b) (AS(const int, ends)[b] + 1)
#else
#define END(b) keys
#endif

__kernel void attend(TENSOR(q), TENSOR(k), TENSOR(v), TENSOR(ends), TENSOR(y), const int heads, const int shared,
                     const int count, const int keys, const long qb, const int qt, const int qh, const long kb,
                     const int kt, const int kh, const float scale, const int window, const float cap) {
    const int t = get_global_id(0), h = get_global_id(1), b = get_global_id(2);
    if (t >= count || h >= heads) return;
    const int end = END(b);
    // a prompt that is shorter than the others of its batch is padded on the right
    const int start = MOST(end - count, 0);
    const int stop = CAUSAL ? LEAST(start + t + 1, end) : end;
    const int first = CAUSAL && window > 0 ? MOST(start + t + 1 - window, 0) : 0;
    __global float *Y = AS(float, y) + (((size_t)b * count + t) * heads + h) * HEAD;
    if (start + t >= end && GROUPED) {
        for (int i = 0; i < HEAD; i++) Y[i] = 0.f;
        return;
    }
    __global const float *Q = AS(const float, q) + b * qb + (size_t)t * qt + (size_t)h * qh;
    __global const float *K = AS(const float, k) + b * kb + (size_t)(h / shared) * kh;
    __global const float *W = AS(const float, v) + b * kb + (size_t)(h / shared) * kh;
    VF query[PARTS], acc[PARTS];
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        query[p] = LOADV(Q + p * V) * scale;
        acc[p] = (VF)(0.f);
    }
    float most = -INFINITY, sum = 0.f;
    for (int key = first; key < stop; key += KEYS) {
        const int have = LEAST(KEYS, stop - key);
        float score[KEYS];
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            __global const float *row = K + (size_t)LEAST(key + j, stop - 1) * kt;
            VF dot = query[0] * LOADV(row);
#pragma unroll
            for (int p = 1; p < PARTS; p++) dot = query[p] * LOADV(row + p * V) + dot;
            score[j] = total(dot);
        }
#if CAP
        for (int j = 0; j < KEYS; j++) score[j] = cap * tanh(score[j] / cap);
#endif
        float larger = most;
        for (int j = 0; j < have; j++) larger = score[j] > larger ? score[j] : larger;
        float8 share;
        for (int j = 0; j < KEYS; j++) ((float *)&share)[j] = j < have ? score[j] - larger : -INFINITY;
        share = exp(share);
        const float kept = most == -INFINITY ? 0.f : exp(most - larger);
        most = larger;
        sum *= kept;
#pragma unroll
        for (int p = 0; p < PARTS; p++) acc[p] *= kept;
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            __global const float *row = W + (size_t)LEAST(key + j, stop - 1) * kt;
            const float weight = ((const float *)&share)[j];
            sum += weight;
#pragma unroll
            for (int p = 0; p < PARTS; p++) acc[p] = weight * LOADV(row + p * V) + acc[p];
        }
    }
    const float turn = end > keys ? NAN : 1.f / sum;
#pragma unroll
    for (int p = 0; p < PARTS; p++) STOREV(acc[p] * turn, Y + p * V);
}

// New keys and values of `count` tokens into caches [b, groups, keys, HEAD] at their positions, keys turned (ROTARY
// 1: halves, 2: pairs); queries turned into [b, count, heads, HEAD]. Source rows are `row` floats a token.
__kernel void store(TENSOR(q), TENSOR(k), TENSOR(v), TENSOR(ends), TENSOR(cos), TENSOR(sin), TENSOR(turned),
                    TENSOR(key_cache), TENSOR(value_cache), const int heads, const int groups, const int count,
                    const int keys, const int q_row, const int k_row, const int q0, const int k0, const int v0,
                    const int wide) {
    const int t = get_global_id(0), h = get_global_id(1), b = get_global_id(2);
    if (t >= count || h >= heads + 2 * groups) return;
    const int end = AS(const int, ends)[b] + 1, at = MOST(end - count, 0) + t;
    const size_t token = (size_t)b * count + t;
    __global const float *from;
    __global float *to;
    if (h < heads) {
        from = AS(const float, q) + token * q_row + q0 + h * HEAD;
        to = AS(float, turned) + (token * heads + h) * HEAD;
    } else {
        const int value = h >= heads + groups, g = (h - heads) % groups;
        if (at >= end || at >= keys) return;
        from = (value ? AS(const float, v) + v0 : AS(const float, k) + k0) + token * k_row + g * HEAD;
        to = (value ? AS(float, value_cache) : AS(float, key_cache)) + (((size_t)b * groups + g) * keys + at) * HEAD;
    }
    int begin = 0;
#if ROTARY
    if (h < heads + groups) {
        __global const float *c = AS(const float, cos) + (size_t)at * (wide / 2);
        __global const float *s = AS(const float, sin) + (size_t)at * (wide / 2);
        for (int i = 0; i < wide / 2; i++) {
            const int one = ROTARY == 2 ? 2 * i : i, two = ROTARY == 2 ? 2 * i + 1 : i + wide / 2;
            const float x = from[one], y = from[two];
            to[one] = x * c[i] - y * s[i];
            to[two] = y * c[i] + x * s[i];
        }
        begin = wide;
    }
#endif
    for (int i = begin; i < HEAD; i++) to[i] = from[i];
}
#endif

#ifdef APPEND
// present [b, heads, past + count, HEAD] = past [b, heads, past, HEAD], then x at b * xb + t * xt + h * xh; of keys and
// of values (dimension 2)
__kernel void append(TENSOR(old_keys), TENSOR(old_values), TENSOR(keys), TENSOR(values), TENSOR(all_keys),
                     TENSOR(all_values), const int heads, const int past, const int count, const long xb, const int xt,
                     const int xh) {
    const int h = get_global_id(0), b = get_global_id(1), value = get_global_id(2);
    if (h >= heads) return;
    const size_t head = (size_t)b * heads + h;
    __global float *T = (value ? AS(float, all_values) : AS(float, all_keys)) + head * (past + count) * HEAD;
    __global const float *O = (value ? AS(const float, old_values) : AS(const float, old_keys)) + head * past * HEAD;
    for (int i = 0; i < past * HEAD; i++) T[i] = O[i];
    T += (size_t)past * HEAD;
    __global const float *X = (value ? AS(const float, values) : AS(const float, keys)) + b * xb + (size_t)h * xh;
    for (int t = 0; t < count; t++)
        for (int i = 0; i < HEAD; i++) T[t * HEAD + i] = X[(size_t)t * xt + i];
}
#endif

#ifdef POSITION
// x at b * xb + t * xt + h * xh into y of the same layout, the first `wide` of each head turned by its position
__kernel void turn_heads(TENSOR(x), TENSOR(at), TENSOR(cos), TENSOR(sin), TENSOR(y), const int count, const int heads,
                     const int batch, const int size, const int wide, const int table, const int each,
                     const int positions, const long xb, const int xt, const int xh) {
    const int t = get_global_id(0), b = get_global_id(2);
    if (t >= count || b >= batch) return;
    const long place = positions == 1 ? AS(const POSITION, at)[0] + t : AS(const POSITION, at)[b * count + t];
    const int row = (int)WITHIN(place, (long)0, (long)table - 1), half_wide = wide / 2;
    __global const float *c = AS(const float, cos) + (size_t)row * half_wide;
    __global const float *s = AS(const float, sin) + (size_t)row * half_wide;
    const int last = LEAST((int)(get_global_id(1) + 1) * each, heads);
    for (int h = get_global_id(1) * each; h < last; h++) {
        const size_t first = b * xb + (size_t)t * xt + (size_t)h * xh;
        __global const float *X = AS(const float, x) + first;
        __global float *Y = AS(float, y) + first;
        for (int i = 0; i < half_wide; i++) {
            const int one = INTERLEAVED ? 2 * i : i, two = INTERLEAVED ? 2 * i + 1 : i + half_wide;
            const float p = X[one], q = X[two];
            Y[one] = p * c[i] - q * s[i];
            Y[two] = q * c[i] + p * s[i];
        }
        for (int i = wide; i < size; i++) Y[i] = X[i];
    }
}
#endif
