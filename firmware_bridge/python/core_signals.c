/* SPDX-License-Identifier: Apache-2.0
 *
 * dpfedge._core.Bell and RequestTable.
 */
#include "core.h"

#include <errno.h>

typedef struct {
    PyObject_HEAD
    ArenaObject *arena;
    dpf_bell *bell;
    dpf_spinner spinner;
} BellObject;

typedef struct {
    PyObject_HEAD
    ArenaObject *arena;
    dpf_requests table;
} RequestsObject;

PyObject *core_bell_new(ArenaObject *arena, uint32_t index) {
    BellObject *self = PyObject_New(BellObject, core_bell_type);
    if (self == NULL) return NULL;
    self->arena = (ArenaObject *)Py_NewRef((PyObject *)arena);
    self->bell = &arena->arena.bells[index];
    self->spinner = (dpf_spinner){0};
    return (PyObject *)self;
}

PyObject *core_requests_new(ArenaObject *arena) {
    RequestsObject *self = PyObject_New(RequestsObject, core_requests_type);
    if (self == NULL) return NULL;
    self->arena = (ArenaObject *)Py_NewRef((PyObject *)arena);
    self->table = arena->arena.requests;
    return (PyObject *)self;
}

static void signal_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    Py_DECREF((PyObject *)((BellObject *)object)->arena);
    PyObject_Free(object);
    Py_DECREF(type);
}

DPF_ASSERT(offsetof(BellObject, arena) == offsetof(RequestsObject, arena), "signal_dealloc serves both");

static PyObject *wait_for(dpf_bell *bell, uint32_t seen, uint64_t deadline, uint64_t spin_ns) {
    while (dpf_bell_value(bell) == seen) {
        int result;
        Py_BEGIN_ALLOW_THREADS
        result = dpf_bell_wait(bell, seen, deadline, spin_ns);
        Py_END_ALLOW_THREADS
        if (result == DPF_TIMEOUT) break;
        if (result == DPF_SIGNAL && PyErr_CheckSignals() < 0) return NULL;
        if (result < 0) {
            errno = -result;
            return PyErr_SetFromErrno(PyExc_OSError);
        }
        spin_ns = 0;
    }
    return PyLong_FromUnsignedLong(dpf_bell_value(bell));
}

/* Looks before a sleep as long as that pays. */
static void spin(BellObject *self, uint32_t seen, uint64_t deadline) {
    bool found;
    if (dpf_bell_value(self->bell) != seen || !dpf_spin_due(&self->spinner)) return;
    Py_BEGIN_ALLOW_THREADS
    found = dpf_bell_spin(self->bell, seen, CORE_SPIN_NS, deadline);
    Py_END_ALLOW_THREADS
    dpf_spin_learn(&self->spinner, found);
}

static PyObject *bell_wait(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"seen", "timeout_ns", "spin_ns", NULL};
    PyObject *seen, *timeout = Py_None, *spin_for = NULL;
    uint64_t value, spin_ns = 0, deadline;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O", names, &seen, &timeout, &spin_for)) return NULL;
    if (!core_unsigned(seen, "seen", UINT32_MAX, &value)) return NULL;
    if (spin_for != NULL && spin_for != Py_None && !core_unsigned(spin_for, "spin_ns", INT64_MAX, &spin_ns)) return NULL;
    if (!core_deadline(timeout, "timeout_ns", &deadline)) return NULL;
    if (spin_for == NULL || spin_for == Py_None) spin((BellObject *)object, (uint32_t)value, deadline);
    return wait_for(((BellObject *)object)->bell, (uint32_t)value, deadline, spin_ns);
}

static PyObject *bell_value(PyObject *object, PyObject *none) {
    (void)none;
    return PyLong_FromUnsignedLong(dpf_bell_value(((BellObject *)object)->bell));
}

static PyObject *bell_ring(PyObject *object, PyObject *none) {
    dpf_bell *bell = ((BellObject *)object)->bell;
    (void)none;
    if (dpf_bell_ring(bell)) dpf_bell_wake(bell);
    Py_RETURN_NONE;
}

static bool read_key(PyObject *key, uint64_t *out) {
    return core_unsigned(key, "key", UINT64_MAX, out);
}

static PyObject *requests_open(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"urgency", NULL};
    RequestsObject *self = (RequestsObject *)object;
    PyObject *wanted = NULL;
    uint64_t urgency = 3, key;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &wanted)) return NULL;
    if (wanted != NULL && !core_unsigned(wanted, "urgency", 7, &urgency)) return NULL;
    if (dpf_requests_open(&self->table, (uint32_t)urgency, dpf_now_ns(), &key) != DPF_OK) {
        return core_raise(core_busy, "requests", "every place for a request is taken", PyLong_FromUnsignedLong(self->table.count),
                          NULL, "try again later");
    }
    return PyLong_FromUnsignedLongLong(key);
}

static PyObject *requests_close(PyObject *object, PyObject *arg) {
    uint64_t key;
    if (!read_key(arg, &key)) return NULL;
    /* closing twice is closing; who can keep a word from being changed could undo the change as well */
    (void)dpf_requests_close(&((RequestsObject *)object)->table, key);
    Py_RETURN_NONE;
}

static void ring_all(const dpf_arena *arena) {
    for (uint32_t i = 0; i < arena->bell_count; i++) {
        if (dpf_bell_ring(&arena->bells[i])) dpf_bell_wake(&arena->bells[i]);
    }
}

static PyObject *requests_cancel(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"key", "before_turn", NULL};
    RequestsObject *self = (RequestsObject *)object;
    PyObject *wanted, *turn = NULL;
    uint64_t key, before = DPF_ALL_TURNS;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O", names, &wanted, &turn)) return NULL;
    if (!read_key(wanted, &key) || (turn != NULL && !core_unsigned(turn, "before_turn", UINT32_MAX, &before))) return NULL;
    (void)dpf_requests_cancel(&self->table, key, (uint32_t)before); /* a stale key is cancelled already; else as in close */
    ring_all(&self->arena->arena);
    Py_RETURN_NONE;
}

static PyObject *requests_cancelled(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    uint64_t key, turn;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "cancelled(key, turn)");
        return NULL;
    }
    if (!read_key(args[0], &key) || !core_unsigned(args[1], "turn", UINT32_MAX, &turn)) return NULL;
    return PyBool_FromLong(dpf_requests_cancelled(&((RequestsObject *)object)->table, key, (uint32_t)turn));
}

static PyObject *requests_live(PyObject *object, PyObject *arg) {
    uint64_t key;
    if (!read_key(arg, &key)) return NULL;
    return PyBool_FromLong(dpf_requests_live(&((RequestsObject *)object)->table, key, NULL, NULL));
}

static PyObject *requests_info(PyObject *object, PyObject *arg) {
    uint64_t key, started;
    uint32_t urgency;
    if (!read_key(arg, &key)) return NULL;
    if (!dpf_requests_live(&((RequestsObject *)object)->table, key, &urgency, &started)) Py_RETURN_NONE;
    return Py_BuildValue("(IK)", urgency, (unsigned long long)started);
}

static PyObject *requests_keys(PyObject *object, PyObject *none) {
    const dpf_requests *table = &((RequestsObject *)object)->table;
    PyObject *list = PyList_New(0);
    (void)none;
    for (uint32_t i = 0; list != NULL && i < table->count; i++) {
        uint64_t key = dpf_requests_key(table, i);
        PyObject *number = key ? PyLong_FromUnsignedLongLong(key) : NULL;
        if (key && (number == NULL || PyList_Append(list, number) < 0)) Py_CLEAR(list);
        Py_XDECREF(number);
    }
    return list;
}

static Py_ssize_t requests_length(PyObject *object) {
    return (Py_ssize_t)((RequestsObject *)object)->table.count;
}

#define WITH_NAMES(function) (PyCFunction)(void (*)(void))function, METH_VARARGS | METH_KEYWORDS

static PyMethodDef bell_methods[] = {
    {"wait", WITH_NAMES(bell_wait), "wait(seen, timeout_ns, spin_ns=None): sleep until the value differs; the value then."},
    {"value", bell_value, METH_NOARGS, "The count of rings so far, modulo 2**32."},
    {"ring", bell_ring, METH_NOARGS, "Count a ring and wake whoever sleeps."},
    {0},
};

static PyMethodDef requests_methods[] = {
    {"open", WITH_NAMES(requests_open), "open(urgency=3): the key of a new request; Busy when every place is taken."},
    {"close", requests_close, METH_O, "close(key): free the place; the key is stale for ever."},
    {"cancel", WITH_NAMES(requests_cancel), "cancel(key, before_turn=0xFFFFFFFF): cancel turns below; rings every bell."},
    {"cancelled", (PyCFunction)(void (*)(void))requests_cancelled, METH_FASTCALL,
     "cancelled(key, turn): one memory read; a stale key counts as cancelled."},
    {"live", requests_live, METH_O, "live(key): whether the request is open."},
    {"info", requests_info, METH_O, "info(key): (urgency, started_ns) of a live request, else None."},
    {"keys", requests_keys, METH_NOARGS, "Keys of the live requests."},
    {0},
};

static PyType_Slot bell_slots[] = {
    {Py_tp_dealloc, signal_dealloc}, {Py_tp_methods, bell_methods}, {Py_tp_doc, "The word a stage sleeps on."}, {0, NULL},
};

static PyType_Slot requests_slots[] = {
    {Py_tp_dealloc, signal_dealloc}, {Py_tp_methods, requests_methods}, {Py_sq_length, requests_length},
    {Py_tp_doc, "The table of live requests of a pipeline."}, {0, NULL},
};

static PyType_Spec bell_spec = {
    .name = "dpfedge._core.Bell",
    .basicsize = sizeof(BellObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = bell_slots,
};

static PyType_Spec requests_spec = {
    .name = "dpfedge._core.RequestTable",
    .basicsize = sizeof(RequestsObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = requests_slots,
};

bool core_add_signals(PyObject *module) {
    core_bell_type = core_add_type(module, &bell_spec);
    core_requests_type = core_add_type(module, &requests_spec);
    return core_bell_type != NULL && core_requests_type != NULL;
}
