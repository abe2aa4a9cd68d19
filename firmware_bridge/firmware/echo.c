/* SPDX-License-Identifier: Apache-2.0
 *
 * The echo canceller of echo.h.
 */
#include "echo.h"

enum {
    TAPS = DPF_FW_ECHO_TAPS,
    LEAST_POWER = TAPS * 400, /* of 20 in each sample: below it there is nothing to learn from */
    SOFT_POWER = TAPS * 4096, /* added to the power: what is quiet teaches little */
    WEIGHT_BITS = 28,
    FRACTION = 15,   /* bits of a weight that the filter does not use */
    USUAL_FALL = 10, /* the usual error falls within 1024 samples, and rises within 32768 */
    USUAL_RISE = 15,
    USUAL_LEAST = 8 * 256,
    USUAL_FIRST = 2000 * 256
};
#define MOST_WEIGHT (INT32_MAX / 2)

void dpf_fw_echo_init(dpf_fw_echo *echo) {
    for (uint32_t i = 0u; i < (uint32_t)TAPS; i++) {
        echo->weights[i] = 0;
        echo->played[i] = 0;
        echo->played[i + (uint32_t)TAPS] = 0;
        __asm__ volatile("" ::: "memory"); /* or a compiler makes it a call of memset */
    }
    echo->at = 0u;
    echo->power = 0;
    echo->usual = USUAL_FIRST;
}

static int32_t within(int64_t value, int32_t most) {
    int64_t above = (value < -(int64_t)most) ? -(int64_t)most : value;
    return (int32_t)((above > (int64_t)most) ? (int64_t)most : above);
}

/* Puts a sample before all others. */
static const int16_t *take(dpf_fw_echo *echo, int16_t sample) {
    echo->at = (echo->at == 0u) ? ((uint32_t)TAPS - 1u) : (echo->at - 1u);
    int64_t oldest = echo->played[echo->at];
    echo->power += (int64_t)sample * sample - oldest * oldest;
    echo->played[echo->at] = sample;
    echo->played[echo->at + (uint32_t)TAPS] = sample;
    return &echo->played[echo->at];
}

static int64_t filter(const dpf_fw_echo *echo, const int16_t *played) {
    int64_t sum = 0;
    for (uint32_t i = 0u; i < (uint32_t)TAPS; i++) sum += (echo->weights[i] >> FRACTION) * (int32_t)played[i];
    return sum >> (WEIGHT_BITS - FRACTION);
}

static int32_t magnitude(int32_t value) {
    return (value < 0) ? -value : value;
}

/* A step towards what would make the error nothing; instead of by the power, it is divided by the next power of two. */
static void learn(dpf_fw_echo *echo, const int16_t *played, int32_t error) {
    uint64_t power = (uint64_t)echo->power + (uint64_t)SOFT_POWER;
    uint32_t bits = 64u - (uint32_t)__builtin_clzll(power);
    uint32_t down = (bits > (uint32_t)WEIGHT_BITS) ? (bits - (uint32_t)WEIGHT_BITS) : 0u;
    uint32_t up = (bits > (uint32_t)WEIGHT_BITS) ? 0u : ((uint32_t)WEIGHT_BITS - bits);
    int32_t step = within((int64_t)error * ((int64_t)1 << up), 32767);
    for (uint32_t i = 0u; i < (uint32_t)TAPS; i++) {
        int32_t weight = echo->weights[i] + ((step * (int32_t)played[i]) >> down);
        weight = (weight > MOST_WEIGHT) ? MOST_WEIGHT : weight;
        echo->weights[i] = (weight < -MOST_WEIGHT) ? -MOST_WEIGHT : weight;
    }
}

static int16_t leave(dpf_fw_echo *echo, int16_t captured, int16_t played) {
    const int16_t *row = take(echo, played);
    int32_t error = within((int64_t)captured - ((echo->power == 0) ? 0 : filter(echo, row)), 32767);
    if (echo->power > (int64_t)LEAST_POWER) {
        int32_t most = echo->usual >> 7; /* twice the usual */
        int32_t size = magnitude(error);
        int32_t change = (((size < most) ? size : most) * 256) - echo->usual;
        learn(echo, row, within(error, most));
        echo->usual += (change < 0) ? (change >> USUAL_FALL) : (change >> USUAL_RISE);
        if (echo->usual < (int32_t)USUAL_LEAST) echo->usual = USUAL_LEAST;
    }
    return (int16_t)error;
}

void dpf_fw_echo_cancel(dpf_fw_echo *echo, const int16_t *captured, const int16_t *played, int16_t *out, uint32_t count) {
    for (uint32_t i = 0u; i < count; i++) out[i] = leave(echo, captured[i], played[i]);
}
