/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/health.h - how well an instance is, and whether it keeps its table slots: integers only, the same on every machine.
 *
 * Samples of sensors in, a score and a decision out. Shares are parts of 10000. It reads no sensor and no clock.
 *
 *     score = (0.6 · (1 − utilisation) + 0.4 · free memory) · penalties
 *
 * The score takes the instance out when it stays under `down` for `down_hold_ms`, and back when it stays at or over `up` for
 * `up_hold_ms`; an error that hardware could not correct takes it out at once.
 */
#ifndef DPF_HEALTH_H
#define DPF_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

enum {
    DPF_HEALTH_ONE = 10000,
    DPF_HEALTH_UNKNOWN_MC = -1000000, /* a temperature that no sensor tells */
    DPF_HEALTH_LOW_MEMORY = 1500,     /* less free memory than this demotes new work that is not urgent */
    DPF_HEALTH_ENOUGH_MEMORY = 2000   /* from here on it no longer does */
};

/* One look at a device. Counts are since the look before. */
typedef struct dpf_health_sample {
    uint32_t utilisation; /* 0 .. 10000 */
    uint32_t memory_free; /* 0 .. 10000 */
    int32_t temperature_mc; /* thousandths of a degree Celsius, or DPF_HEALTH_UNKNOWN_MC */
    uint32_t throttled; /* not 0: the device runs slower than it is asked to */
    uint32_t corrected; /* errors that hardware corrected: PCIe AER, ECC */
    uint32_t fatal;     /* errors that it could not: uncorrected ECC, XID */
} dpf_health_sample;

typedef struct dpf_health_rule {
    uint32_t down, up; /* scores; down < up */
    uint32_t down_hold_ms, up_hold_ms;
    uint32_t throttled; /* what the score is multiplied by while throttled, parts of 10000 */
    uint32_t hot;       /* at `hot_mc` and above; in between, in proportion */
    int32_t warm_mc, hot_mc; /* warm < hot */
    uint32_t corrected; /* what each corrected error takes off the factor 10000 */
    uint32_t corrected_least; /* and what it leaves at least */
} dpf_health_rule;

/* In the order of the fields, whose names C++17 does not take here. */
static const dpf_health_rule DPF_HEALTH_RULE = {
    500, 1000,     /* down, up */
    80, 5000,      /* down_hold_ms, up_hold_ms */
    5000, 2500,    /* throttled, hot */
    85000, 105000, /* warm_mc, hot_mc */
    500, 2500,     /* corrected, corrected_least */
};

/* What is remembered of an instance. All zero: not healthy; `healthy` may be set before the first sample. */
typedef struct dpf_health_state {
    uint64_t since_ms; /* since when the score has been on the other side */
    uint32_t score;
    uint32_t healthy;
    uint32_t crossing; /* not 0: `since_ms` counts */
} dpf_health_state;

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the numbers of a rule make sense. */
bool dpf_health_rule_sound(const dpf_health_rule *rule);

/* 0 .. 10000. Shares beyond 10000 count as 10000. */
uint32_t dpf_health_score(const dpf_health_sample *sample, const dpf_health_rule *rule);

/* Takes one score at a time of CLOCK_MONOTONIC, in milliseconds; whether the decision changed. `at_once`: no hold time. */
bool dpf_health_step(dpf_health_state *state, uint32_t score, uint64_t now_ms, bool at_once, const dpf_health_rule *rule);

/* Whether memory is low: with hysteresis, `before` is the last answer. */
bool dpf_health_memory_low(uint32_t memory_free, bool before);

/* The urgency that new work gets (RFC 9218: 0 first, 3 usual, 7 last): while memory is low, what is less urgent than usual
 * goes last. */
uint32_t dpf_health_urgency(uint32_t urgency, bool memory_low);

#ifdef __cplusplus
}
#endif

#endif
