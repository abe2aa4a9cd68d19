/* SPDX-License-Identifier: Apache-2.0
 *
 * dpfedge._core.Consumer.wait: a look, a short spin where that pays, then a sleep on the stage's bell.
 */
#include "core.h"

/* The arguments of wait; `*spin_ns` is NULL or None where nothing is said. False with an error set. */
static bool read_arguments(PyObject *const *args, Py_ssize_t count, PyObject *names, uint64_t *deadline, PyObject **spin_ns) {
    PyObject *timeout = count > 0 ? args[0] : NULL;
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    bool known = count <= 2;
    *spin_ns = count > 1 ? args[1] : NULL;
    for (Py_ssize_t i = 0; known && i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        PyObject **found = PyUnicode_CompareWithASCIIString(name, "spin_ns") == 0 ? spin_ns : &timeout;
        known = *found == NULL && (found == spin_ns || PyUnicode_CompareWithASCIIString(name, "timeout_ns") == 0);
        *found = args[count + i];
    }
    if (known && timeout != NULL) return core_deadline(timeout, "timeout_ns", deadline);
    PyErr_SetString(PyExc_TypeError, "wait(timeout_ns, spin_ns=None)");
    return false;
}

/* Looks for a message as long as it was told to, or, when it was told nothing, while that pays. False with an error set. */
static bool spin(PortObject *self, PyObject *spin_ns, uint64_t deadline) {
    bool told = spin_ns != NULL && spin_ns != Py_None, found;
    uint64_t most = CORE_SPIN_NS;
    if (told && !core_unsigned(spin_ns, "spin_ns", INT64_MAX, &most)) return false;
    if (most == 0 || dpf_ring_ready(&self->ring) || (!told && !dpf_spin_due(&self->spinner))) return true;
    Py_BEGIN_ALLOW_THREADS
    found = dpf_ring_spin(&self->ring, most, deadline);
    Py_END_ALLOW_THREADS
    if (!told) dpf_spin_learn(&self->spinner, found);
    return core_port_usable(self);
}

PyObject *core_consumer_wait(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PortObject *self = (PortObject *)object;
    uint64_t deadline;
    PyObject *spin_ns, *lease;
    if (!core_port_usable(self) || !read_arguments(args, count, names, &deadline, &spin_ns)) return NULL;
    if (!spin(self, spin_ns, deadline)) return NULL;
    /* A message that is there is taken without a look at the bell, whose cache line is its ringer's. */
    if (dpf_ring_ready(&self->ring) && (lease = core_receive(self)) != Py_None) return lease;
    for (;;) {
        dpf_bell *bell = self->ring.consumer_bell[self->place];
        uint32_t seen = dpf_bell_value(bell);
        lease = core_receive(self);
        if (lease != Py_None) return lease;
        dpf_result result = core_peer_wait(self, bell, seen, deadline, 0);
        if (result == DPF_TIMEOUT) return lease;
        Py_DECREF(lease);
        if (result != DPF_OK) return NULL;
    }
}
