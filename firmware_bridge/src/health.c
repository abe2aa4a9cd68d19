/* SPDX-License-Identifier: Apache-2.0
 *
 * The reckoning of dpf/health.h.
 */
#include "dpf/health.h"

enum { BUSY_SHARE = 6, MEMORY_SHARE = 4, USUAL_URGENCY = 3, LAST_URGENCY = 7 };

static uint32_t share(uint32_t value) {
    return (value < (uint32_t)DPF_HEALTH_ONE) ? value : (uint32_t)DPF_HEALTH_ONE;
}

static uint32_t times(uint32_t score, uint32_t factor) {
    return (score * factor) / (uint32_t)DPF_HEALTH_ONE; /* both at most 10000 */
}

static uint32_t heat(int32_t temperature_mc, const dpf_health_rule *rule) {
    uint32_t factor = (uint32_t)DPF_HEALTH_ONE;
    if (temperature_mc >= rule->hot_mc) {
        factor = rule->hot;
    } else if (temperature_mc > rule->warm_mc) {
        uint32_t above = (uint32_t)(temperature_mc - rule->warm_mc), range = (uint32_t)(rule->hot_mc - rule->warm_mc);
        factor -= (((uint32_t)DPF_HEALTH_ONE - rule->hot) * (above / 10u)) / (range / 10u);
    } else {
        /* cool, or nobody knows */
    }
    return factor;
}

static uint32_t wear(uint32_t corrected, const dpf_health_rule *rule) {
    uint32_t most = (uint32_t)DPF_HEALTH_ONE - rule->corrected_least, lost = most;
    if ((rule->corrected == 0u) || (corrected < (most / rule->corrected))) lost = corrected * rule->corrected;
    return (uint32_t)DPF_HEALTH_ONE - lost;
}

bool dpf_health_rule_sound(const dpf_health_rule *rule) {
    uint32_t one = (uint32_t)DPF_HEALTH_ONE;
    bool scores = (rule->down < rule->up) && (rule->up <= one);
    bool factors = (rule->throttled <= one) && (rule->hot <= one) && (rule->corrected <= one) && (rule->corrected_least <= one);
    /* the range is reckoned in hundredths of a degree, times 10000, in 32 bits */
    bool heats = (rule->warm_mc >= -273150) && (rule->hot_mc <= 1000000) && (rule->hot_mc >= (rule->warm_mc + 10));
    return scores && factors && heats;
}

uint32_t dpf_health_score(const dpf_health_sample *sample, const dpf_health_rule *rule) {
    uint32_t idle = (uint32_t)DPF_HEALTH_ONE - share(sample->utilisation);
    uint32_t score = ((uint32_t)BUSY_SHARE * idle + (uint32_t)MEMORY_SHARE * share(sample->memory_free)) / 10u;
    if (sample->throttled != 0u) score = times(score, rule->throttled);
    score = times(score, heat(sample->temperature_mc, rule));
    score = times(score, wear(sample->corrected, rule));
    return (sample->fatal != 0u) ? 0u : score;
}

bool dpf_health_step(dpf_health_state *state, uint32_t score, uint64_t now_ms, bool at_once, const dpf_health_rule *rule) {
    bool healthy = state->healthy != 0u, changed = false;
    bool across = healthy ? (score < rule->down) : (score >= rule->up);
    uint32_t hold = healthy ? rule->down_hold_ms : rule->up_hold_ms;
    state->score = score;
    if (!across) {
        state->crossing = 0u;
    } else {
        if ((state->crossing == 0u) || (now_ms < state->since_ms)) {
            state->crossing = 1u;
            state->since_ms = now_ms;
        }
        changed = (healthy && at_once) || ((now_ms - state->since_ms) >= hold);
    }
    if (changed) {
        state->healthy = healthy ? 0u : 1u;
        state->crossing = 0u;
        state->since_ms = now_ms;
    }
    return changed;
}

bool dpf_health_memory_low(uint32_t memory_free, bool before) {
    return memory_free < (before ? (uint32_t)DPF_HEALTH_ENOUGH_MEMORY : (uint32_t)DPF_HEALTH_LOW_MEMORY);
}

uint32_t dpf_health_urgency(uint32_t urgency, bool memory_low) {
    return (memory_low && (urgency > (uint32_t)USUAL_URGENCY)) ? (uint32_t)LAST_URGENCY : urgency;
}
