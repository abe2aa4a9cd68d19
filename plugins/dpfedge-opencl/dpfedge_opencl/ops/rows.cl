// SPDX-License-Identifier: Apache-2.0
// Work on rows: norms, softmax, reductions. An item takes a row (or a vector of columns where rows are not contiguous).
// A row's sums run over V lanes, then over the lanes in order.
// Options: CENTRED, SKIP, SUMMED, SCALE, SHIFT, PER_ROW (norm); KIND, TYPE, RESULT, INDEX, LAST (reductions).

inline float lanes_sum(const VF x) {
    float lane[V], sum = 0.f;
    STOREP(x, lane);
    for (int l = 0; l < V; l++) sum += lane[l];
    return sum;
}

inline float lanes_max(const VF x) {
    float lane[V];
    STOREP(x, lane);
    float most = lane[0];
    for (int l = 1; l < V; l++) most = lane[l] > most ? lane[l] : most;
    return most;
}

#ifdef CENTRED
// y = (x - mean) / sqrt(mean of squares + epsilon) * scale + shift along rows of n; x + skip + bias is stored, too
__kernel void norm(TENSOR(x), TENSOR(skip), TENSOR(bias), TENSOR(scale), TENSOR(shift), TENSOR(total), TENSOR(y),
                   const int rows, const int n, const float epsilon, const int channels) {
    const int row = get_global_id(0), whole = n / V * V;
    if (row >= rows) return;
    __global const float *X = AS(const float, x) + (size_t)row * n;
    __global float *Y = AS(float, y) + (size_t)row * n;
#if SKIP
    __global const float *K = AS(const float, skip) + (size_t)row * n;
#if SUMMED
    __global float *T = AS(float, total) + (size_t)row * n;
#else
    __global float *T = Y;
#endif
    for (int i = 0; i < whole; i += V) {
        VF v = LOADV(X + i) + LOADV(K + i);
#if SKIP == 2
        v += LOADV(AS(const float, bias) + i);
#endif
        STOREV(v, T + i);
    }
    for (int i = whole; i < n; i++) {
        T[i] = X[i] + K[i];
#if SKIP == 2
        T[i] += AS(const float, bias)[i];
#endif
    }
    X = T;
#endif
    float mean = 0.f;
#if CENTRED
    VF sums = (VF)(0.f);
    for (int i = 0; i < whole; i += V) sums += LOADV(X + i);
    mean = lanes_sum(sums);
    for (int i = whole; i < n; i++) mean += X[i];
    mean /= n;
#endif
    VF squares = (VF)(0.f);
    for (int i = 0; i < whole; i += V) {
        const VF v = LOADV(X + i) - mean;
        squares = v * v + squares;
    }
    float square = lanes_sum(squares);
    for (int i = whole; i < n; i++) square += (X[i] - mean) * (X[i] - mean);
    const float turn = 1.f / sqrt(square / n + epsilon);
#if PER_ROW
    const float gain = AS(const float, scale)[row % channels] * turn, add = AS(const float, shift)[row % channels];
    for (int i = 0; i < whole; i += V) STOREV((LOADV(X + i) - mean) * gain + add, Y + i);
    for (int i = whole; i < n; i++) Y[i] = (X[i] - mean) * gain + add;
#else
    for (int i = 0; i < whole; i += V) {
        VF v = (LOADV(X + i) - mean) * turn * LOADV(AS(const float, scale) + i);
#if SHIFT
        v += LOADV(AS(const float, shift) + i);
#endif
        STOREV(v, Y + i);
    }
    for (int i = whole; i < n; i++) {
        float v = (X[i] - mean) * turn * AS(const float, scale)[i];
#if SHIFT
        v += AS(const float, shift)[i];
#endif
        Y[i] = v;
    }
#endif
}

// y = x * scale + shift, both one per channel
__kernel void per_channel(TENSOR(x), TENSOR(scale), TENSOR(shift), TENSOR(y), const int rows, const int n,
                          const int channels) {
    const int row = get_global_id(0), whole = n / V * V;
    if (row >= rows) return;
    __global const float *X = AS(const float, x) + (size_t)row * n;
    __global float *Y = AS(float, y) + (size_t)row * n;
    const float gain = AS(const float, scale)[row % channels], add = AS(const float, shift)[row % channels];
    for (int i = 0; i < whole; i += V) STOREV(LOADV(X + i) * gain + add, Y + i);
    for (int i = whole; i < n; i++) Y[i] = X[i] * gain + add;
}
#endif

#ifdef SOFTMAX
// Over n elements, `inner` apart; `LOG` subtracts the logarithm instead of dividing
__kernel void softmax(TENSOR(x), TENSOR(y), const int rows, const int n, const int inner) {
    const int row = get_global_id(0);
    if (row >= rows) return;
    const size_t first = (size_t)(row / inner) * n * inner + row % inner;
    __global const float *X = AS(const float, x) + first;
    __global float *Y = AS(float, y) + first;
    const int whole = inner == 1 ? n / V * V : 0;
    float most = -INFINITY, sum = 0.f;
    if (whole) {
        VF found = LOADV(X);
        for (int i = V; i < whole; i += V) {
            const VF v = LOADV(X + i);
            found = MOST(v, found);
        }
        most = lanes_max(found);
    }
    for (int i = whole; i < n; i++) most = MOST(X[(size_t)i * inner], most);
    if (most == -INFINITY) most = 0.f;
    VF sums = (VF)(0.f);
    for (int i = 0; i < whole; i += V) {
        const VF v = exp(LOADV(X + i) - most);
        sums += v;
        STOREV(v, Y + i);
    }
    if (whole) sum = lanes_sum(sums);
    for (int i = whole; i < n; i++) {
        const float v = exp(X[(size_t)i * inner] - most);
        sum += v;
        Y[(size_t)i * inner] = v;
    }
#if LOG
    const float less = most + log(sum);
    for (int i = 0; i < n; i++) Y[(size_t)i * inner] = X[(size_t)i * inner] - less;
#else
    const float share = 1.f / sum;
    for (int i = 0; i < whole; i += V) STOREV(LOADV(Y + i) * share, Y + i);
    for (int i = whole; i < n; i++) Y[(size_t)i * inner] *= share;
#endif
}
#endif

#ifdef KIND
// KIND 0 sum, 1 largest, 2 smallest; 3 product; over n elements `inner` apart, for TYPE; times `factor` for floats
#if KIND == 0
#define JOIN(a, b) ((a) + (b))
#elif KIND == 1
#define JOIN(a, b) ((b) > (a) ? (b) : (a))
#elif KIND == 2
#define JOIN(a, b) ((b) < (a) ? (b) : (a))
#else
#define JOIN(a, b) ((a) * (b))
#endif

__kernel void reduce(TENSOR(x), TENSOR(y), const int rows, const int n, const int inner, const float factor) {
    const int row = get_global_id(0);
    if (row >= rows) return;
    __global const TYPE *X = AS(const TYPE, x) + (size_t)(row / inner) * n * inner + row % inner;
    TYPE found = X[0];
    int i = 1;
#if FLOATS
    if (inner == 1 && n >= V) {
        VF lanes = LOADV(X);
        const int whole = n / V * V;
        for (i = V; i < whole; i += V) {
            const VF v = LOADV(X + i);
            lanes = JOIN(lanes, v);
        }
        float lane[V];
        STOREP(lanes, lane);
        found = lane[0];
        for (int l = 1; l < V; l++) found = JOIN(found, lane[l]);
    }
#endif
    for (; i < n; i++) {
        const TYPE v = X[(size_t)i * inner];
        found = JOIN(found, v);
    }
#if FLOATS
    found *= factor;
#endif
    AS(TYPE, y)[row] = found;
}

// The same for a vector of columns an item, where inner is at least V; the last vector begins earlier
__kernel void reduce_columns(TENSOR(x), TENSOR(y), const int outer, const int n, const int inner,
                             const float factor) {
    const int column = LEAST((int)get_global_id(0) * V, inner - V), o = get_global_id(1);
    if ((int)get_global_id(0) * V >= inner || o >= outer) return;
    __global const float *X = AS(const float, x) + (size_t)o * n * inner + column;
    VF found = LOADV(X);
    for (int i = 1; i < n; i++) {
        const VF v = LOADV(X + (size_t)i * inner);
        found = JOIN(found, v);
    }
    STOREV(found * factor, AS(float, y) + (size_t)o * inner + column);
}
#endif

#ifdef EXTREME
// Where the largest (EXTREME 1) or smallest (-1) of n elements `inner` apart stands first, or last (LAST)
__kernel void arg(TENSOR(x), TENSOR(y), const int rows, const int n, const int inner) {
    const int row = get_global_id(0);
    if (row >= rows) return;
    __global const float *X = AS(const float, x) + (size_t)(row / inner) * n * inner + row % inner;
    int at = 0, i = 1;
    float found = X[0] * EXTREME;
    if (inner == 1 && n >= 2 * V) {
        // one pass for the value, in lanes; one for its place, which ends where it is
        VF most = LOADV(X) * (float)EXTREME;
        const int whole = n / V * V;
        for (i = V; i < whole; i += V) {
            const VF v = LOADV(X + i) * (float)EXTREME;
            most = MOST(v, most);
        }
        found = lanes_max(most);
        for (; i < n; i++) found = MOST(X[i] * EXTREME, found);
#if LAST
        for (at = n - 1; at > 0 && X[at] * EXTREME != found; at--);
#else
        for (at = 0; at < n - 1 && X[at] * EXTREME != found; at++);
#endif
    } else {
        for (; i < n; i++) {
            const float v = X[(size_t)i * inner] * EXTREME;
            if (v > found || (LAST && v == found)) {
                found = v;
                at = i;
            }
        }
    }
    AS(long, y)[row] = at;
}
#endif
