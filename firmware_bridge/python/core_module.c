/* SPDX-License-Identifier: Apache-2.0
 *
 * dpfedge._core: the C core of dpf as Python types. This file starts the module and holds the shared helpers.
 */
#include "core.h"

#include <pthread.h>

PyTypeObject *core_arena_type, *core_producer_type, *core_consumer_type, *core_loan_type, *core_lease_type;
PyTypeObject *core_bell_type, *core_requests_type;
PyObject *core_link_error, *core_would_block, *core_link_timeout, *core_lease_error, *core_peer_gone;
PyObject *core_usage_error, *core_busy, *core_route_error;
uint32_t core_fork;

static void in_child(void) {
    core_fork++;
}

PyObject *core_raise(PyObject *type, const char *where, const char *what, PyObject *found, PyObject *allowed,
                     const char *remedy) {
    PyObject *parts = PyDict_New();
    PyObject *place = where ? PyUnicode_FromString(where) : NULL;
    PyObject *advice = remedy ? PyUnicode_FromString(remedy) : NULL;
    PyObject *text = Py_BuildValue("(s)", what);
    if (parts && text && (!place || PyDict_SetItemString(parts, "where", place) == 0) &&
        (!found || PyDict_SetItemString(parts, "found", found) == 0) &&
        (!allowed || PyDict_SetItemString(parts, "allowed", allowed) == 0) &&
        (!advice || PyDict_SetItemString(parts, "remedy", advice) == 0)) {
        PyObject *error = PyObject_Call(type, text, parts);
        if (error) PyErr_SetObject(type, error);
        Py_XDECREF(error);
    }
    Py_XDECREF(parts);
    Py_XDECREF(place);
    Py_XDECREF(advice);
    Py_XDECREF(text);
    Py_XDECREF(found);
    Py_XDECREF(allowed);
    return NULL;
}

bool core_unsigned(PyObject *value, const char *where, uint64_t most, uint64_t *out) {
    PyObject *number = PyLong_Check(value) ? Py_NewRef(value) : PyNumber_Index(value);
    if (number == NULL) return false;
    *out = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    bool failed = *out == UINT64_MAX && PyErr_Occurred() != NULL;
    if (failed && !PyErr_ExceptionMatches(PyExc_OverflowError)) return false;
    if (!failed && *out <= most) return true;
    PyErr_Clear();
    core_raise(core_usage_error, where, "number out of range", PyObject_Repr(value),
               PyUnicode_FromFormat("0..%llu", (unsigned long long)most), NULL);
    return false;
}

bool core_deadline(PyObject *timeout_ns, const char *where, uint64_t *deadline_ns) {
    uint64_t timeout;
    *deadline_ns = 0;
    if (timeout_ns == NULL || timeout_ns == Py_None) return true;
    if (!core_unsigned(timeout_ns, where, INT64_MAX, &timeout)) return false;
    *deadline_ns = dpf_now_ns() + timeout;
    return true;
}

static bool load_errors(void) {
    static const struct {
        const char *name;
        PyObject **to;
    } wanted[] = {
        {"LinkError", &core_link_error},     {"WouldBlock", &core_would_block}, {"LinkTimeout", &core_link_timeout},
        {"LeaseError", &core_lease_error},   {"PeerGone", &core_peer_gone},     {"UsageError", &core_usage_error},
        {"Busy", &core_busy},                  {"RouteError", &core_route_error},
    };
    PyObject *errors = PyImport_ImportModule("dpfedge.errors");
    if (errors == NULL) return false;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].to = PyObject_GetAttrString(errors, wanted[i].name);
        if (*wanted[i].to == NULL) break;
    }
    Py_DECREF(errors);
    return !PyErr_Occurred();
}

PyTypeObject *core_add_type(PyObject *module, PyType_Spec *spec) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddType(module, (PyTypeObject *)type) < 0) Py_CLEAR(type);
    return (PyTypeObject *)type;
}

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "dpfedge._core",
    .m_doc = "The C core of dpfedge: shared-memory links, bells and the request table. Use it through dpfedge.link.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__core(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    bool ready = load_errors() && core_add_arena(module) && core_add_ports(module) && core_add_rights(module) &&
                 core_add_signals(module) && core_add_layout(module) && core_add_route(module) &&
                 core_add_sha256(module);
    if (ready && pthread_atfork(NULL, NULL, in_child) != 0) {
        PyErr_NoMemory();
        ready = false;
    }
    if (!ready) Py_CLEAR(module);
    return module;
}
