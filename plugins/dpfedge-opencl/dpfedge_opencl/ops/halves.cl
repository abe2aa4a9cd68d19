// SPDX-License-Identifier: Apache-2.0
// Between tensors of halves and of floats, for operators that compute in floats.

__kernel void widen(TENSOR(x), TENSOR(y), const int count) {
    const int first = get_global_id(0) * ROWS, end = LEAST(first + ROWS, count);
    for (int i = first; i < end; i++) AS(float, y)[i] = vload_half(i, AS(const half, x));
}

__kernel void narrow(TENSOR(x), TENSOR(y), const int count) {
    const int first = get_global_id(0) * ROWS, end = LEAST(first + ROWS, count);
    for (int i = first; i < end; i++) vstore_half(AS(const float, x)[i], i, AS(half, y));
}
