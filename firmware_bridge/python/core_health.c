/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/health.h for Python: plain numbers in and out, for dpfedge.routing.health.
 */
#include "core_route.h"
#include "dpf/health.h"

#define RULE_FORMAT "(IIIIIIiiII)"
#define RULE_PLACES(rule)                                                                                          \
    &(rule).down, &(rule).up, &(rule).down_hold_ms, &(rule).up_hold_ms, &(rule).throttled, &(rule).hot, &(rule).warm_mc, \
        &(rule).hot_mc, &(rule).corrected, &(rule).corrected_least

static bool sound(const dpf_health_rule *rule) {
    if (!dpf_health_rule_sound(rule)) {
        core_raise(core_usage_error, "health", "the rule's numbers make no sense", NULL,
                   PyUnicode_FromString("down < up, factors of 0..1, warm < hot"), NULL);
        return false;
    }
    return true;
}

static PyObject *score(PyObject *module, PyObject *args) {
    dpf_health_sample sample;
    dpf_health_rule rule;
    (void)module;
    if (!PyArg_ParseTuple(args, "(IIiIII)" RULE_FORMAT, &sample.utilisation, &sample.memory_free, &sample.temperature_mc,
                          &sample.throttled, &sample.corrected, &sample.fatal, RULE_PLACES(rule))) {
        return NULL;
    }
    return sound(&rule) ? PyLong_FromUnsignedLong(dpf_health_score(&sample, &rule)) : NULL;
}

static PyObject *step(PyObject *module, PyObject *args) {
    dpf_health_state state;
    dpf_health_rule rule;
    unsigned long long since, now;
    unsigned int score_now;
    int at_once;
    (void)module;
    if (!PyArg_ParseTuple(args, "(KIII)IKp" RULE_FORMAT, &since, &state.score, &state.healthy, &state.crossing, &score_now, &now,
                          &at_once, RULE_PLACES(rule))) {
        return NULL;
    }
    if (!sound(&rule)) return NULL;
    state.since_ms = since;
    (void)dpf_health_step(&state, score_now, now, at_once != 0, &rule);
    return Py_BuildValue("(KIII)", (unsigned long long)state.since_ms, state.score, state.healthy, state.crossing);
}

static PyObject *memory_low(PyObject *module, PyObject *args) {
    unsigned int memory_free;
    int before;
    (void)module;
    if (!PyArg_ParseTuple(args, "Ip", &memory_free, &before)) return NULL;
    return PyBool_FromLong(dpf_health_memory_low(memory_free, before != 0));
}

static PyObject *urgency(PyObject *module, PyObject *args) {
    unsigned int wanted;
    int low;
    (void)module;
    if (!PyArg_ParseTuple(args, "Ip", &wanted, &low)) return NULL;
    return PyLong_FromUnsignedLong(dpf_health_urgency(wanted, low != 0));
}

static PyMethodDef functions[] = {
    {"health_score", score, METH_VARARGS, "health_score(sample, rule): 0..10000."},
    {"health_step", step, METH_VARARGS, "health_step(state, score, now_ms, at_once, rule): the state after it."},
    {"health_memory_low", memory_low, METH_VARARGS, "health_memory_low(memory_free, before)."},
    {"health_urgency", urgency, METH_VARARGS, "health_urgency(urgency, memory_low): what new work gets."},
    {0},
};

bool core_add_health(PyObject *module) {
    const dpf_health_rule *rule = &DPF_HEALTH_RULE;
    PyObject *numbers = Py_BuildValue(RULE_FORMAT, rule->down, rule->up, rule->down_hold_ms, rule->up_hold_ms, rule->throttled, rule->hot,
                                      rule->warm_mc, rule->hot_mc, rule->corrected, rule->corrected_least);
    bool added = numbers != NULL && PyModule_AddObjectRef(module, "HEALTH_RULE", numbers) == 0;
    Py_XDECREF(numbers);
    return added && PyModule_AddFunctions(module, functions) == 0;
}
