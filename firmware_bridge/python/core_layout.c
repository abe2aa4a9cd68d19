/* SPDX-License-Identifier: Apache-2.0
 *
 * dpfedge._core.layout: sizes and offsets of everything in shared memory, for the test that compares them with LINK.md.
 */
#include "core.h"

typedef struct {
    const char *name;
    size_t value;
} Entry;

#define SIZE(type) {#type, sizeof(type)}
#define AT(type, field) {#type "." #field, offsetof(type, field)}

static const Entry ENTRIES[] = {
    SIZE(dpf_arena_header), AT(dpf_arena_header, magic), AT(dpf_arena_header, version), AT(dpf_arena_header, header_bytes),
    AT(dpf_arena_header, nbytes), AT(dpf_arena_header, page), AT(dpf_arena_header, bells), AT(dpf_arena_header, rings),
    AT(dpf_arena_header, requests), AT(dpf_arena_header, bells_at), AT(dpf_arena_header, rings_at),
    AT(dpf_arena_header, requests_at), AT(dpf_arena_header, name),
    SIZE(dpf_bell), AT(dpf_bell, value), AT(dpf_bell, waiters), AT(dpf_bell, name),
    SIZE(dpf_request), AT(dpf_request, word), AT(dpf_request, started_ns), AT(dpf_request, urgency),
    SIZE(dpf_ring_header), AT(dpf_ring_header, name), AT(dpf_ring_header, producer), AT(dpf_ring_header, consumer),
    AT(dpf_ring_header, slots), AT(dpf_ring_header, capacity), AT(dpf_ring_header, policy), AT(dpf_ring_header, places),
    AT(dpf_ring_header, slot_bytes), AT(dpf_ring_header, stride), AT(dpf_ring_header, block_ns),
    AT(dpf_ring_header, control_at), AT(dpf_ring_header, entries_at), AT(dpf_ring_header, states_at),
    AT(dpf_ring_header, slots_at),
    SIZE(dpf_control), AT(dpf_control, tail), AT(dpf_control, sent), AT(dpf_control, dropped), AT(dpf_control, refused),
    AT(dpf_control, abandoned), AT(dpf_control, copies), AT(dpf_control, copied_bytes), AT(dpf_control, owner),
    AT(dpf_control, starved), AT(dpf_control, process), AT(dpf_control, place),
    SIZE(dpf_place), AT(dpf_place, head), AT(dpf_place, received), AT(dpf_place, corrupt), AT(dpf_place, owner),
    AT(dpf_place, process), SIZE(dpf_process), AT(dpf_process, owner), AT(dpf_process, pid), AT(dpf_process, start),
    AT(dpf_process, space),
    SIZE(dpf_slot_state), AT(dpf_slot_state, hold), AT(dpf_slot_state, last), AT(dpf_slot_state, lease),
    SIZE(dpf_descriptor), AT(dpf_descriptor, request), AT(dpf_descriptor, captured_ns), AT(dpf_descriptor, deadline_ns),
    AT(dpf_descriptor, slot), AT(dpf_descriptor, generation), AT(dpf_descriptor, sequence), AT(dpf_descriptor, turn),
    AT(dpf_descriptor, offset), AT(dpf_descriptor, nbytes), AT(dpf_descriptor, shape), AT(dpf_descriptor, dtype),
    AT(dpf_descriptor, rank_urgency), AT(dpf_descriptor, kind), AT(dpf_descriptor, flags),
};

static PyObject *layout(PyObject *module, PyObject *none) {
    PyObject *table = PyDict_New();
    (void)module;
    (void)none;
    for (size_t i = 0; table != NULL && i < sizeof ENTRIES / sizeof *ENTRIES; i++) {
        PyObject *value = PyLong_FromSize_t(ENTRIES[i].value);
        if (value == NULL || PyDict_SetItemString(table, ENTRIES[i].name, value) < 0) Py_CLEAR(table);
        Py_XDECREF(value);
    }
    return table;
}

/* The dtypes of the descriptor, in the order of their codes: (name, bytes of one element). */
static PyObject *dtypes(PyObject *module, PyObject *none) {
    PyObject *list = PyList_New(0);
    (void)module;
    (void)none;
    for (uint32_t i = 0; list != NULL && i < DPF_DTYPES; i++) {
        PyObject *item = Py_BuildValue("(sI)", core_dtype_name(i), dpf_dtype_bytes(i));
        if (item == NULL || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyMethodDef functions[] = {
    {"layout", layout, METH_NOARGS, "Sizes (`type`) and offsets (`type.field`) in shared memory, in bytes."},
    {"dtypes", dtypes, METH_NOARGS, "The dtypes by code: (name, bytes of one element)."},
    {0},
};

bool core_add_layout(PyObject *module) {
    return PyModule_AddFunctions(module, functions) == 0 && PyModule_AddIntMacro(module, DPF_LAST) == 0 &&
           PyModule_AddIntMacro(module, DPF_CANCELLED) == 0 && PyModule_AddIntMacro(module, DPF_ERROR) == 0 &&
           PyModule_AddIntMacro(module, DPF_PARTIAL) == 0 && PyModule_AddIntMacro(module, DPF_ARENA_VERSION) == 0;
}
