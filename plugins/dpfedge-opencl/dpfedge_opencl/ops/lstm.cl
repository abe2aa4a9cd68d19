// SPDX-License-Identifier: Apache-2.0
// One step of an LSTM: an item makes V of the hidden values of one row of the batch.
//
// `gates` holds x·Wᵀ + biases, [.., 4, size] in ONNX's order i, o, f, c; R is [size / 16][size][4][16].

__kernel void lstm_step(TENSOR(gates), TENSOR(r), TENSOR(h), TENSOR(c), TENSOR(y), TENSOR(c_next), TENSOR(h_last),
                   const int batch, const int size, const int gates_row, const int gates_from, const int r_from,
                   const int h_from, const int c_from, const int y_from, const int last, const int zero) {
    const int n0 = get_global_id(0) * V, b = get_global_id(1), have = LEAST(V, size - n0);
    if (have <= 0 || b >= batch) return;
    __global const float *G = AS(const float, gates) + gates_from + (size_t)b * gates_row + n0;
    __global const float *R = AS(const float, r) + r_from + (size_t)(n0 / 16) * size * 64 + n0 % 16;
    VF gate[4];
#pragma unroll
    for (int g = 0; g < 4; g++) gate[g] = LOADN(G + g * size, have);
    if (!zero) {
        __global const float *H = AS(const float, h) + h_from + (size_t)b * size;
        for (int k = 0; k < size; k++) {
            const float x = H[k];
#pragma unroll
            for (int g = 0; g < 4; g++) gate[g] = x * LOADV(R + g * 16) + gate[g];
            R += 64;
        }
    }
    const VF in = 1.f / (1.f + exp(-gate[0])), out = 1.f / (1.f + exp(-gate[1]));
    const VF forget = 1.f / (1.f + exp(-gate[2]));
    VF cell = in * tanh(gate[3]);
    if (!zero) cell += forget * LOADN(AS(const float, c) + c_from + (size_t)b * size + n0, have);
    const VF hidden = out * tanh(cell);
    STOREN(cell, AS(float, c_next) + c_from + (size_t)b * size + n0, have);
    STOREN(hidden, AS(float, y) + y_from + (size_t)b * size + n0, have);
    if (last) STOREN(hidden, AS(float, h_last) + c_from + (size_t)b * size + n0, have);
}
