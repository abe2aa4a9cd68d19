/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples to cepstra (cepstra.h), in integers.
 */
#include "cepstra.h"

#include "tables.h"

enum {
    DEPTH = 2 * DPF_FW_SLOPE + 1,
    FLOOR = 4096,          /* power added to every band, so that silence has no structure */
    OVER_NOISE = 5 * 256,  /* 15 dB: log2 of power, times 256 */
    NOISE_RISE = 2,        /* of the noise estimate, in 1/256 of log2 a frame: 2.3 dB a second */
    MEAN_SHIFT = 7         /* the mean follows speech within 128 loud frames */
};

static void copy_samples(int16_t *to, const int16_t *from, uint32_t count) {
    for (uint32_t i = 0u; i < count; i++) {
        to[i] = from[i];
        __asm__ volatile("" ::: "memory"); /* or a compiler makes it a call of memmove */
    }
}

void dpf_fw_features_init(dpf_fw_features *state) {
    state->filled = 0u;
    state->frames = 0u;
    state->noise = INT32_MAX;
    for (uint32_t i = 0u; i < (uint32_t)DPF_FW_CEPSTRA; i++) {
        state->mean[i] = DPF_FW_TYPICAL[i] * 256;
        __asm__ volatile("" ::: "memory");
    }
}

int32_t dpf_fw_log2(uint64_t power) {
    int32_t result = 0;
    if (power > 1u) {
        uint32_t whole = 63u - (uint32_t)__builtin_clzll(power);
        uint64_t top = power << (63u - whole); /* the first one is bit 63 */
        uint32_t index = (uint32_t)(top >> 58u) & 31u;
        uint32_t rest = (uint32_t)(top >> 50u) & 255u;
        uint32_t low = DPF_FW_LOG2[index];
        uint32_t high = DPF_FW_LOG2[index + 1u];
        result = (int32_t)((whole << 8u) + low + (((high - low) * rest) >> 8u));
    }
    return result;
}

static int32_t scale(int32_t value, int32_t q15) {
    return (int32_t)(((int64_t)value * q15 + 16384) >> 15);
}

/* The 9 bits of an index, the last one first. */
static uint32_t reversed(uint32_t index) {
    uint32_t bits = index << 7u;
    bits = ((bits & 0x5555u) << 1u) | ((bits >> 1u) & 0x5555u);
    bits = ((bits & 0x3333u) << 2u) | ((bits >> 2u) & 0x3333u);
    bits = ((bits & 0x0F0Fu) << 4u) | ((bits >> 4u) & 0x0F0Fu);
    return ((bits & 0x00FFu) << 8u) | (bits >> 8u);
}

/* Windows the samples into bit-reversed order, with the high frequencies raised (pre-emphasis 31/32). */
static void window(dpf_fw_features *state) {
    for (uint32_t i = 0u; i < (uint32_t)DPF_FW_FFT; i++) {
        uint32_t to = reversed(i);
        int32_t value = 0;
        if (i < (uint32_t)DPF_FW_WINDOW) {
            int32_t before = (i == 0u) ? state->samples[0] : state->samples[i - 1u];
            value = scale((int32_t)state->samples[i] * 32 - before * 31, DPF_FW_HAMMING[i]);
        }
        state->re[to] = value;
        state->im[to] = 0;
    }
}

/* Radix 2, in place (Cooley and Tukey 1965). 16 bits, 6 of the pre-emphasis and 9 of growth fit in 32 with no scaling. */
static void transform(dpf_fw_features *state) {
    int32_t *re = state->re;
    int32_t *im = state->im;
    uint32_t step = (uint32_t)DPF_FW_FFT;
    for (uint32_t half = 1u; half < (uint32_t)DPF_FW_FFT; half *= 2u) {
        step >>= 1u;
        for (uint32_t first = 0u; first < (uint32_t)DPF_FW_FFT; first += 2u * half) {
            for (uint32_t k = 0u; k < half; k++) {
                int32_t c = DPF_FW_COSINE[k * step];
                int32_t s = DPF_FW_SINE[k * step];
                uint32_t a = first + k;
                uint32_t b = a + half;
                int32_t x = scale(re[b], c) + scale(im[b], s);
                int32_t y = scale(im[b], c) - scale(re[b], s);
                re[b] = re[a] - x;
                im[b] = im[a] - y;
                re[a] += x;
                im[a] += y;
            }
        }
    }
}

/* Mel bands: a bin belongs to two neighbours, with weights that add up to 1. */
static int32_t bands(const dpf_fw_features *state, int32_t *logs) {
    uint64_t power[DPF_FW_BANDS + 2];
    uint64_t total = 0u;
    for (uint32_t i = 0u; i < (uint32_t)DPF_FW_BANDS + 2u; i++) power[i] = (uint64_t)FLOOR << 15u;
    for (uint32_t bin = DPF_FW_FIRST_BIN; bin < DPF_FW_LAST_BIN; bin++) {
        int64_t re = state->re[bin] >> 5;
        int64_t im = state->im[bin] >> 5;
        uint64_t here = (uint64_t)(re * re + im * im);
        uint32_t band = DPF_FW_BAND[bin];
        power[band] += here * (32768u - DPF_FW_WEIGHT[bin]);
        power[band + 1u] += here * DPF_FW_WEIGHT[bin];
        total += here;
    }
    for (uint32_t i = 0u; i < (uint32_t)DPF_FW_BANDS; i++) logs[i] = dpf_fw_log2(power[i + 1u] >> 15u);
    return dpf_fw_log2(total);
}

/* The cosine transform of the bands' logarithms, c1 to c12. */
static void cepstra(const int32_t *logs, int32_t *out) {
    for (uint32_t k = 0u; k < (uint32_t)DPF_FW_CEPSTRA; k++) {
        int32_t sum = 0;
        for (uint32_t i = 0u; i < (uint32_t)DPF_FW_BANDS; i++) sum += logs[i] * DPF_FW_DCT[k][i];
        out[k] = sum >> 14;
    }
}

static void follow(dpf_fw_features *state, int32_t loudness, const int32_t *now) {
    state->noise = (loudness < state->noise) ? loudness : (state->noise + NOISE_RISE);
    if (loudness > state->noise + OVER_NOISE) {
        for (uint32_t k = 0u; k < (uint32_t)DPF_FW_CEPSTRA; k++) {
            state->mean[k] += (now[k] * 256 - state->mean[k]) >> MEAN_SHIFT;
        }
    }
}

static int8_t narrow(int32_t value) {
    int32_t least = (value < -127) ? -127 : value;
    return (int8_t)((least > 127) ? 127 : least);
}

static void finish(const dpf_fw_features *state, uint32_t middle, dpf_fw_frame *frame) {
    const int32_t *now = state->cepstra[middle % (uint32_t)DEPTH];
    const int32_t *back2 = state->cepstra[(middle - 2u) % (uint32_t)DEPTH];
    const int32_t *back1 = state->cepstra[(middle - 1u) % (uint32_t)DEPTH];
    const int32_t *on1 = state->cepstra[(middle + 1u) % (uint32_t)DEPTH];
    const int32_t *on2 = state->cepstra[(middle + 2u) % (uint32_t)DEPTH];
    for (uint32_t k = 0u; k < (uint32_t)DPF_FW_CEPSTRA; k++) {
        int32_t slope = 2 * (on2[k] - back2[k]) + on1[k] - back1[k];
        int32_t level = now[k] - (state->mean[k] >> 8);
        frame->dims[k] = narrow((level * DPF_FW_LEVEL_SCALE[k]) >> 16);
        frame->dims[(uint32_t)DPF_FW_CEPSTRA + k] = narrow((slope * DPF_FW_SLOPE_SCALE[k]) >> 16);
    }
    frame->loudness = (int16_t)state->loudness[middle % (uint32_t)DEPTH];
}

bool dpf_fw_features_push(dpf_fw_features *state, const int16_t *hop, dpf_fw_frame *frame) {
    uint32_t keep = (uint32_t)DPF_FW_WINDOW - (uint32_t)DPF_FW_HOP;
    bool due = false;
    copy_samples(state->samples, state->samples + DPF_FW_HOP, keep);
    copy_samples(state->samples + keep, hop, DPF_FW_HOP);
    state->filled += DPF_FW_HOP;
    if (state->filled >= (uint32_t)DPF_FW_WINDOW) {
        int32_t logs[DPF_FW_BANDS];
        uint32_t place = state->frames % (uint32_t)DEPTH;
        state->filled = keep;
        window(state);
        transform(state);
        state->loudness[place] = bands(state, logs);
        cepstra(logs, state->cepstra[place]);
        follow(state, state->loudness[place], state->cepstra[place]);
        state->frames++;
        due = state->frames >= (uint32_t)DEPTH;
        if (due) finish(state, state->frames - 1u - (uint32_t)DPF_FW_SLOPE, frame);
    }
    return due;
}
