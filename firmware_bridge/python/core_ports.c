/* SPDX-License-Identifier: Apache-2.0
 *
 * dpfedge._core.Producer and Consumer: the two ports of a link.
 */
#include "core.h"

#include <stddef.h>
#include <string.h>

static bool is_producer(const PortObject *self) {
    return Py_TYPE((PyObject *)self) == core_producer_type;
}

static uint32_t *attach_count(PortObject *self) {
    return &self->arena->attached[(1 + DPF_PLACES) * self->index + (is_producer(self) ? 0 : 1 + self->place)];
}

static void detach(PortObject *self) {
    if (!self->attached) return;
    self->attached = false;
    if (self->fork != core_fork || --*attach_count(self) != 0) return;
    if (is_producer(self)) {
        dpf_ring_detach_producer(&self->ring, self->owner);
    } else {
        dpf_ring_detach_consumer(&self->ring, self->place, self->owner);
    }
}

void core_port_settle(PortObject *self) {
    if (self->closed && self->live == 0) detach(self);
}

static PyObject *attach_error(PortObject *self, dpf_result result) {
    uint32_t other = is_producer(self) ? self->ring.control->owner : self->ring.control->place[self->place].owner;
    if (result == DPF_BAD && self->owner == 0) return core_raise(core_usage_error, "owner", "0 is nobody", NULL, NULL, NULL);
    if (result == DPF_BAD) {
        return core_raise(core_usage_error, self->ring.name, "no such consumer place", PyLong_FromUnsignedLong(self->place),
                          PyUnicode_FromFormat("0..%u", self->ring.places - 1), NULL);
    }
    return core_raise(core_link_error, self->ring.name,
                      is_producer(self) ? "already has a producer" : "already has a consumer",
                      PyUnicode_FromFormat("owner %lu", (unsigned long)other), NULL,
                      "close that port, or reclaim its owner after its death");
}

PyObject *core_port_new(PyTypeObject *type, ArenaObject *arena, uint32_t index, uint32_t place, uint32_t owner) {
    dpf_ring ring;
    if (dpf_arena_ring(&arena->arena, index, &ring) != DPF_OK) {
        return core_raise(core_link_error, "arena", "no such link, or its directory entry was overwritten", NULL, NULL, NULL);
    }
    PortObject *self = PyObject_New(PortObject, type);
    if (self == NULL) return NULL;
    self->arena = (ArenaObject *)Py_NewRef((PyObject *)arena);
    self->ring = ring;
    self->index = index;
    self->place = place;
    self->owner = owner;
    self->fork = core_fork;
    self->live = 0;
    self->closed = self->attached = false;
    self->suspect = 0;
    self->look_ns = 0;
    self->spinner = (dpf_spinner){0};
    dpf_result result = is_producer(self) ? dpf_ring_attach_producer(&self->ring, owner)
                                          : dpf_ring_attach_consumer(&self->ring, place, owner);
    if (result != DPF_OK) {
        attach_error(self, result);
        Py_DECREF(self);
        return NULL;
    }
    self->attached = true;
    ++*attach_count(self);
    core_peer_sign(self);
    return (PyObject *)self;
}

static void port_dealloc(PyObject *object) {
    PortObject *self = (PortObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    detach(self);
    Py_DECREF((PyObject *)self->arena);
    PyObject_Free(self);
    Py_DECREF(type);
}

bool core_port_usable(PortObject *self) {
    const char *what = self->closed ? "port is closed" : self->fork != core_fork ? "belongs to the parent process" : NULL;
    if (what != NULL) core_raise(core_link_error, self->ring.name, what, NULL, NULL, "attach in this process");
    return what == NULL;
}

static PyObject *port_close(PyObject *object, PyObject *none) {
    PortObject *self = (PortObject *)object;
    (void)none;
    self->closed = true;
    core_port_settle(self);
    Py_RETURN_NONE;
}

/* ---- producer ---- */

/* Waits under policy `block`; DPF_OK with the slot, DPF_FULL after the bound, DPF_SIGNAL with an error set. */
static dpf_result wait_for_slot(PortObject *self, uint64_t bound_ns, dpf_descriptor *d) {
    uint64_t deadline = dpf_now_ns() + bound_ns;
    for (;;) {
        uint32_t seen = dpf_bell_value(self->ring.producer_bell);
        dpf_result result = dpf_ring_loan(&self->ring, self->owner, &d->slot, &d->generation);
        if (result != DPF_FULL) {
            self->look_ns = 0; /* whoever frees slots lives: looks begin anew */
            return result;
        }
        result = core_peer_wait(self, self->ring.producer_bell, seen, deadline, 0);
        if (result != DPF_OK) return result == DPF_TIMEOUT ? DPF_FULL : result;
    }
}

/* Whether every place has a consumer. */
static bool seated(const dpf_ring *ring) {
    for (uint32_t i = 0; i < ring->places; i++) {
        if (ring->control->place[i].owner == 0) return false;
    }
    return true;
}

static PyObject *no_slot(PortObject *self) {
    PyObject *found = PyUnicode_FromFormat("all %lu slots in use", (unsigned long)self->ring.count);
    if (self->ring.policy != DPF_POLICY_BLOCK) {
        return core_raise(core_would_block, self->ring.name, "no slot is free", found, NULL,
                          "wait for this stage's bell, or give the link more slots");
    }
    if (!seated(&self->ring)) {
        return core_raise(core_peer_gone, self->ring.name, "no slot became free and a consumer is gone", found, NULL, NULL);
    }
    if (!core_peer_lives(self)) {
        Py_XDECREF(found);
        return NULL;
    }
    return core_raise(core_link_timeout, self->ring.name, "no slot became free", found, NULL, "give the link more slots");
}

static PyObject *producer_loan(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PortObject *self = (PortObject *)object;
    uint64_t nbytes, bound = self->ring.block_ns;
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    if (count < 1 || count + named > 2 || (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "timeout_ns") != 0)) {
        PyErr_SetString(PyExc_TypeError, "loan(nbytes, timeout_ns=None)");
        return NULL;
    }
    if (!core_port_usable(self) || !core_unsigned(args[0], "nbytes", UINT64_MAX, &nbytes)) return NULL;
    if (count + named == 2 && args[1] != Py_None && !core_unsigned(args[1], "timeout_ns", INT64_MAX, &bound)) return NULL;
    if (nbytes > self->ring.slot_bytes) {
        return core_raise(core_link_error, self->ring.name, "loan larger than a slot", PyLong_FromUnsignedLongLong(nbytes),
                          PyUnicode_FromFormat("0..%llu bytes", (unsigned long long)self->ring.slot_bytes),
                          "send it in parts, or give the link larger slots");
    }
    dpf_descriptor d = {.nbytes = (uint32_t)nbytes};
    dpf_result result = dpf_ring_loan(&self->ring, self->owner, &d.slot, &d.generation);
    if (result == DPF_FULL && self->ring.policy == DPF_POLICY_BLOCK) result = wait_for_slot(self, bound, &d);
    if (result == DPF_SIGNAL) return NULL;
    if (result != DPF_OK) return no_slot(self);
    PyObject *loan = core_right_new(core_loan_type, self, &d);
    if (loan == NULL) dpf_ring_abandon(&self->ring, self->owner, d.slot, d.generation);
    return loan;
}

/* The loan argument, checked; NULL with an error set. */
static RightObject *read_loan(PortObject *self, PyObject *object) {
    if (Py_TYPE(object) != core_loan_type) {
        PyErr_Format(PyExc_TypeError, "expected a Loan, not %R", (PyObject *)Py_TYPE(object));
        return NULL;
    }
    RightObject *loan = (RightObject *)object;
    if (loan->port != self) {
        core_raise(core_lease_error, self->ring.name, "loan is of another port", PyUnicode_FromString(loan->port->ring.name), NULL, NULL);
        return NULL;
    }
    return core_right_usable(loan) ? loan : NULL;
}

static PyObject *send_error(PortObject *self, dpf_result result) {
    const char *name = self->ring.name;
    if (result == DPF_FULL) {
        return core_raise(core_would_block, name, "no descriptor is free for a partial message", NULL, NULL,
                          "write on: a later message shows the same bytes");
    }
    if (result == DPF_STALE) return core_raise(core_lease_error, name, "loan was reclaimed", NULL, NULL, NULL);
    return core_raise(core_link_error, name, "shared memory was overwritten; unread messages were dropped", NULL, NULL, NULL);
}

static PyObject *transmit(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names, bool partial) {
    PortObject *self = (PortObject *)object;
    PyObject *found[CORE_KEYWORDS];
    dpf_descriptor descriptor;
    if (count != 1) {
        PyErr_SetString(PyExc_TypeError, "send() takes a loan and keyword arguments");
        return NULL;
    }
    RightObject *loan = core_port_usable(self) ? read_loan(self, args[0]) : NULL;
    if (loan == NULL || !core_read_keywords(args + count, names, found)) return NULL;
    if (!core_read_message(found, loan, &descriptor)) return NULL;
    if (partial) descriptor.flags |= DPF_PARTIAL;
    partial = (descriptor.flags & DPF_PARTIAL) != 0;
    /* Revoke what can be revoked, keep the slot for what cannot. */
    if (!partial && loan->exports != 0) core_right_end_views(loan);
    bool keep = partial || loan->exports != 0;
    dpf_result result = dpf_ring_send(&self->ring, self->owner, &descriptor, keep);
    dpf_ring_wake(&self->ring);
    if (result != DPF_OK) return send_error(self, result);
    if (!partial) core_right_end(loan, !keep);
    Py_RETURN_NONE;
}

static PyObject *producer_send(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    return transmit(self, args, count, names, false);
}

static PyObject *producer_publish(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    return transmit(self, args, count, names, true);
}

static PyObject *producer_abandon(PyObject *object, PyObject *arg) {
    PortObject *self = (PortObject *)object;
    RightObject *loan = core_port_usable(self) ? read_loan(self, arg) : NULL;
    if (loan == NULL) return NULL;
    dpf_ring_count_abandon(&self->ring);
    core_right_end(loan, false);
    Py_RETURN_NONE;
}

static PyObject *copy_error(PortObject *self, Py_ssize_t offset, Py_ssize_t nbytes, Py_ssize_t room) {
    return core_raise(core_usage_error, self->ring.name, "array does not fit the loan",
                      PyUnicode_FromFormat("%zd bytes at offset %zd", nbytes, offset), PyUnicode_FromFormat("%zd bytes", room), NULL);
}

static PyObject *producer_copy_in(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"loan", "array", "offset", NULL};
    PortObject *self = (PortObject *)object;
    PyObject *target, *source;
    Py_ssize_t offset = 0;
    Py_buffer buffer;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|n", names, &target, &source, &offset)) return NULL;
    RightObject *loan = core_port_usable(self) ? read_loan(self, target) : NULL;
    if (loan == NULL || PyObject_GetBuffer(source, &buffer, PyBUF_C_CONTIGUOUS) < 0) return NULL;
    Py_ssize_t room = (Py_ssize_t)loan->descriptor.nbytes;
    bool fits = offset >= 0 && offset <= room && buffer.len <= room - offset;
    if (fits) {
        memcpy(dpf_ring_slot(&self->ring, loan->descriptor.slot) + offset, buffer.buf, (size_t)buffer.len);
        dpf_ring_count_copy(&self->ring, (uint64_t)buffer.len);
    } else {
        copy_error(self, offset, buffer.len, room);
    }
    PyBuffer_Release(&buffer);
    return fits ? Py_NewRef(Py_None) : NULL;
}

/* ---- consumer ---- */

PyObject *core_receive(PortObject *self) {
    dpf_descriptor descriptor;
    dpf_result result = dpf_ring_receive(&self->ring, self->owner, &descriptor);
    if (self->ring.wake) dpf_ring_wake(&self->ring);
    if (result == DPF_EMPTY) Py_RETURN_NONE;
    if (result != DPF_OK) {
        return core_raise(core_link_error, self->ring.name, "a message makes no sense and was dropped", NULL, NULL,
                          "the process at the other end overwrote shared memory");
    }
    self->look_ns = 0; /* whoever sends lives: looks begin anew */
    PyObject *lease = core_right_new(core_lease_type, self, &descriptor);
    if (lease == NULL) dpf_ring_release(&self->ring, self->owner, descriptor.slot);
    return lease;
}

static PyObject *consumer_receive(PyObject *object, PyObject *none) {
    PortObject *self = (PortObject *)object;
    (void)none;
    return core_port_usable(self) ? core_receive(self) : NULL;
}

static PyObject *get_depth(PyObject *object, void *closure) {
    PortObject *self = (PortObject *)object;
    (void)closure;
    return PyLong_FromUnsignedLong(is_producer(self) ? dpf_ring_backlog(&self->ring)
                                                     : dpf_ring_depth(&self->ring, self->place));
}

static PyObject *get_link(PyObject *object, void *closure) {
    (void)closure;
    return PyUnicode_FromString(((PortObject *)object)->ring.name);
}

static PyObject *get_peer(PyObject *object, void *closure) {
    PortObject *self = (PortObject *)object;
    (void)closure;
    dpf_control *control = self->ring.control;
    if (!is_producer(self)) return PyLong_FromUnsignedLong(control->owner);
    return PyLong_FromUnsignedLong(seated(&self->ring) ? control->place[0].owner : 0);
}

#define PORT_MEMBERS                                                                                  \
    {"owner", T_UINT, offsetof(PortObject, owner), READONLY, NULL},                                  \
    {"live", T_UINT, offsetof(PortObject, live), READONLY, "Loans or leases that still hold a slot."},    \
    {"slots", T_UINT, offsetof(PortObject, ring) + offsetof(dpf_ring, count), READONLY, NULL},       \
    {"slot_bytes", T_ULONGLONG, offsetof(PortObject, ring) + offsetof(dpf_ring, slot_bytes), READONLY, NULL}, \
    {0}

static PyMemberDef members[] = {PORT_MEMBERS};

static PyGetSetDef properties[] = {
    {"link", get_link, NULL, "Name of the link.", NULL},
    {"peer", get_peer, NULL, "Owner of the port at the other end, the first of several; 0 when one has no owner.", NULL},
    {"gone", core_peer_gone_property, NULL, "Whether a process at the other end is dead and not reclaimed, as far as can be known.", NULL},
    {"depth", get_depth, NULL, "Messages sent and not received, by the slowest consumer for a producer.", NULL},
    {0},
};

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS

static PyMethodDef producer_methods[] = {
    {"loan", FAST(producer_loan), "loan(nbytes, timeout_ns=None): borrow a free slot."},
    {"send", FAST(producer_send), "send(loan, *, kind, request, ...): queue a message and end the loan."},
    {"publish", FAST(producer_publish), "publish(loan, *, kind, request, ...): show the first bytes and go on writing."},
    {"abandon", producer_abandon, METH_O, "abandon(loan): give an unsent loan back."},
    {"copy_in", (PyCFunction)(void (*)(void))producer_copy_in, METH_VARARGS | METH_KEYWORDS,
     "copy_in(loan, array, offset=0): the one counted copy."},
    {"close", port_close, METH_NOARGS, "Give the port back once its loans have ended."},
    {0},
};

static PyMethodDef consumer_methods[] = {
    {"receive", consumer_receive, METH_NOARGS, "The oldest unread message as a Lease, or None; never blocks."},
    {"wait", FAST(core_consumer_wait),
     "wait(timeout_ns, spin_ns=None): as receive, after sleeping for it; PeerGone when the producer's process is dead."},
    {"close", port_close, METH_NOARGS, "Give the port back once its leases have ended."},
    {0},
};

static PyType_Slot producer_slots[] = {
    {Py_tp_dealloc, port_dealloc}, {Py_tp_methods, producer_methods}, {Py_tp_members, members},
    {Py_tp_getset, properties}, {Py_tp_doc, "The sending port of a link."}, {0, NULL},
};

static PyType_Slot consumer_slots[] = {
    {Py_tp_dealloc, port_dealloc}, {Py_tp_methods, consumer_methods}, {Py_tp_members, members},
    {Py_tp_getset, properties}, {Py_tp_doc, "The receiving port of a link."}, {0, NULL},
};

static PyType_Spec producer_spec = {
    .name = "dpfedge._core.Producer",
    .basicsize = sizeof(PortObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = producer_slots,
};

static PyType_Spec consumer_spec = {
    .name = "dpfedge._core.Consumer",
    .basicsize = sizeof(PortObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = consumer_slots,
};

bool core_add_ports(PyObject *module) {
    if (!core_ready_keywords()) return false;
    core_producer_type = core_add_type(module, &producer_spec);
    core_consumer_type = core_add_type(module, &consumer_spec);
    return core_producer_type != NULL && core_consumer_type != NULL;
}
