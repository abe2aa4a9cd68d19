/* SPDX-License-Identifier: Apache-2.0
 *
 * Health: the score's formula and penalties, hysteresis and hold times, memory pressure.
 */
#include "check.h"
#include "dpf/health.h"

static const dpf_health_rule *const RULE = &DPF_HEALTH_RULE;

static dpf_health_sample idle(void) {
    return (dpf_health_sample){.memory_free = DPF_HEALTH_ONE, .temperature_mc = 40000};
}

static uint32_t score_of(dpf_health_sample sample) {
    return dpf_health_score(&sample, RULE);
}

static void scores(void) {
    dpf_health_sample one = idle();
    CHECK(score_of(one) == 10000);
    one.utilisation = 5000, one.memory_free = 2500;
    CHECK(score_of(one) == 4000); /* 0.6 · 0.5 + 0.4 · 0.25 */
    one.utilisation = UINT32_MAX, one.memory_free = UINT32_MAX;
    CHECK(score_of(one) == 4000);
    one = idle(), one.throttled = 1;
    CHECK(score_of(one) == 5000);
    one = idle(), one.temperature_mc = 95000;
    CHECK(score_of(one) == 6250); /* half way to a quarter */
    one.temperature_mc = 85000;
    CHECK(score_of(one) == 10000);
    one.temperature_mc = INT32_MAX;
    CHECK(score_of(one) == 2500);
    one.temperature_mc = DPF_HEALTH_UNKNOWN_MC;
    CHECK(score_of(one) == 10000);
    one = idle(), one.corrected = 2;
    CHECK(score_of(one) == 9000);
    one.corrected = 15;
    CHECK(score_of(one) == 2500);
    one.corrected = UINT32_MAX;
    CHECK(score_of(one) == 2500);
    one = idle(), one.fatal = 1;
    CHECK(score_of(one) == 0);
}

static void holds(void) {
    dpf_health_state state = {.healthy = 1};
    CHECK(!dpf_health_step(&state, 499, 1000, false, RULE) && state.healthy && state.score == 499);
    CHECK(!dpf_health_step(&state, 500, 1050, false, RULE)); /* not under `down`: the hold begins anew */
    CHECK(!dpf_health_step(&state, 0, 1060, false, RULE));
    CHECK(!dpf_health_step(&state, 0, 1139, false, RULE));
    CHECK(dpf_health_step(&state, 0, 1140, false, RULE) && !state.healthy);
    CHECK(!dpf_health_step(&state, 999, 9000, false, RULE)); /* between `down` and `up` nothing happens */
    CHECK(!dpf_health_step(&state, 1000, 10000, false, RULE));
    CHECK(!dpf_health_step(&state, 10000, 14999, false, RULE));
    CHECK(dpf_health_step(&state, 10000, 15000, false, RULE) && state.healthy);
    CHECK(dpf_health_step(&state, 0, 15001, true, RULE) && !state.healthy); /* fatal: at once */
    CHECK(!dpf_health_step(&state, 10000, 15002, true, RULE));              /* but never back at once */
    CHECK(!dpf_health_step(&state, 10000, 100, false, RULE) && state.since_ms == 100); /* a clock that went back */
}

static void rules(void) {
    dpf_health_rule rule = *RULE;
    CHECK(dpf_health_rule_sound(&rule));
    rule.down = rule.up;
    CHECK(!dpf_health_rule_sound(&rule));
    rule = *RULE, rule.hot_mc = rule.warm_mc + 9;
    CHECK(!dpf_health_rule_sound(&rule));
    rule = *RULE, rule.hot = 10001;
    CHECK(!dpf_health_rule_sound(&rule));
    rule = *RULE, rule.corrected = 0;
    CHECK(dpf_health_rule_sound(&rule));
    dpf_health_sample worn = idle();
    worn.corrected = 1000;
    CHECK(dpf_health_score(&worn, &rule) == 10000);
}

static void memory_pressure(void) {
    CHECK(dpf_health_memory_low(1499, false) && !dpf_health_memory_low(1500, false));
    CHECK(dpf_health_memory_low(1999, true) && !dpf_health_memory_low(2000, true));
    for (uint32_t urgency = 0; urgency < 8; urgency++) {
        CHECK(dpf_health_urgency(urgency, false) == urgency);
        CHECK(dpf_health_urgency(urgency, true) == (urgency > 3 ? 7 : urgency));
    }
}

int main(void) {
    scores();
    holds();
    rules();
    memory_pressure();
    puts("health: ok");
    return 0;
}
