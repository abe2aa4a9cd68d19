/* SPDX-License-Identifier: Apache-2.0
 *
 * dpfedge._core.Loan and Lease: the right to use a slot, as buffer exporters.
 *
 * A right that ends while NumPy arrays or memoryviews over it are alive keeps its slot until the last of them is gone:
 * a kept view goes on showing the same bytes and never another message's.
 */
#include "core.h"

#include <stddef.h>

static const char *where(const RightObject *self) {
    return self->port->ring.name;
}

/* Gives the slot back in shared memory. */
static void drop(RightObject *self) {
    PortObject *port = self->port;
    const dpf_descriptor *d = &self->descriptor;
    if (!self->held) return;
    self->held = false;
    if (port->fork != core_fork) return; /* the parent's right: not ours to end */
    if (Py_TYPE((PyObject *)self) == core_lease_type) {
        dpf_ring_release(&port->ring, port->owner, d->slot);
    } else {
        dpf_ring_abandon(&port->ring, port->owner, d->slot, d->generation);
    }
    dpf_ring_wake(&port->ring);
    port->live--;
    core_port_settle(port);
}

PyObject *core_right_new(PyTypeObject *type, PortObject *port, const dpf_descriptor *descriptor) {
    RightObject *self = PyObject_New(RightObject, type);
    if (self == NULL) return NULL;
    self->port = (PortObject *)Py_NewRef((PyObject *)port);
    self->descriptor = *descriptor;
    self->view = NULL;
    self->weakrefs = NULL;
    self->exports = 0;
    self->ended = false;
    self->held = true;
    port->live++;
    return (PyObject *)self;
}

/* Makes the memoryview we handed out unusable; one with NumPy arrays over it stays, and counts as an export. */
void core_right_end_views(RightObject *self) {
    PyObject *view = self->view ? PyWeakref_GetObject(self->view) : NULL;
    if (view != NULL && view != Py_None) {
        Py_INCREF(view);
        PyObject *done = PyObject_CallMethod(view, "release", NULL);
        if (done == NULL) PyErr_Clear();
        Py_XDECREF(done);
        Py_DECREF(view);
    }
    Py_CLEAR(self->view);
}

void core_right_end(RightObject *self, bool already_dropped) {
    self->ended = true;
    if (self->view != NULL) core_right_end_views(self);
    if (already_dropped) {
        self->held = false;
        self->port->live--;
        core_port_settle(self->port);
    } else if (self->exports == 0) {
        drop(self);
    }
}

bool core_right_usable(RightObject *self) {
    const PortObject *port = self->port;
    const dpf_descriptor *d = &self->descriptor;
    const char *what = NULL;
    bool lease = Py_TYPE((PyObject *)self) == core_lease_type;
    if (self->ended) {
        what = lease ? "lease was released" : "loan was sent or abandoned";
    } else if (port->fork != core_fork) {
        what = "belongs to the parent process";
    } else if (lease ? !dpf_ring_leases(&port->ring, port->owner, d->slot, d->generation)
                     : !dpf_ring_holds(&port->ring, port->owner, d->slot, d->generation)) {
        what = "was reclaimed: its owner was declared dead";
    }
    if (what != NULL) core_raise(core_lease_error, where(self), what, NULL, NULL, NULL);
    return what == NULL;
}

static int right_getbuffer(PyObject *object, Py_buffer *view, int flags) {
    RightObject *self = (RightObject *)object;
    const dpf_descriptor *d = &self->descriptor;
    view->obj = NULL;
    if (!core_right_usable(self)) return -1;
    unsigned char *start = dpf_ring_slot(&self->port->ring, d->slot) + d->offset;
    bool readonly = Py_TYPE(object) == core_lease_type;
    if (PyBuffer_FillInfo(view, object, start, (Py_ssize_t)d->nbytes, readonly, flags) < 0) return -1;
    self->exports++;
    return 0;
}

static void right_releasebuffer(PyObject *object, Py_buffer *view) {
    RightObject *self = (RightObject *)object;
    (void)view;
    if (--self->exports == 0 && self->ended) drop(self);
}

static void right_dealloc(PyObject *object) {
    RightObject *self = (RightObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->weakrefs != NULL) PyObject_ClearWeakRefs(object);
    drop(self);
    Py_XDECREF(self->view);
    Py_DECREF((PyObject *)self->port);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *get_view(PyObject *object, void *closure) {
    RightObject *self = (RightObject *)object;
    (void)closure;
    if (!core_right_usable(self)) return NULL;
    PyObject *known = self->view ? PyWeakref_GetObject(self->view) : Py_None;
    if (known != NULL && known != Py_None) return Py_NewRef(known);
    PyObject *view = PyMemoryView_FromObject(object);
    PyObject *weak = view ? PyWeakref_NewRef(view, NULL) : NULL;
    if (weak == NULL) {
        Py_XDECREF(view);
        return NULL;
    }
    Py_XDECREF(self->view);
    self->view = weak;
    return view;
}

/* Product of the sizes in a tuple; false with an error set. */
static bool elements(PyObject *shape, Py_ssize_t *count) {
    uint64_t total = 1, size;
    for (Py_ssize_t i = 0; i < PyTuple_Size(shape); i++) {
        if (!core_unsigned(PyTuple_GetItem(shape, i), "shape", UINT32_MAX, &size)) return false;
        if (size != 0 && total > (uint64_t)PY_SSIZE_T_MAX / size) total = (uint64_t)PY_SSIZE_T_MAX;
        else total *= size;
    }
    *count = (Py_ssize_t)total;
    return true;
}

static PyObject *loan_array(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"dtype", "shape", "offset", NULL};
    PyObject *dtype, *shape;
    Py_ssize_t offset = 0, count;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|n", names, &dtype, &shape, &offset)) return NULL;
    PyObject *real = core_any_dtype(dtype);
    PyObject *sizes = PyLong_Check(shape) ? PyTuple_Pack(1, shape) : PySequence_Tuple(shape);
    PyObject *array = NULL;
    if (real != NULL && sizes != NULL && elements(sizes, &count)) array = core_array(object, real, count, offset, sizes);
    Py_XDECREF(real);
    Py_XDECREF(sizes);
    return array;
}

static PyObject *shape_of(const dpf_descriptor *d) {
    PyObject *shape = PyTuple_New(d->rank_urgency & 15);
    for (int i = 0; shape != NULL && i < (d->rank_urgency & 15); i++) {
        PyObject *size = PyLong_FromUnsignedLong(d->shape[i]);
        if (size == NULL || PyTuple_SetItem(shape, i, size) < 0) Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *lease_array(PyObject *object, PyObject *none) {
    const dpf_descriptor *d = &((RightObject *)object)->descriptor;
    bool plain = d->dtype == 0 && (d->rank_urgency & 15) == 0;
    uint32_t nbytes = 0;
    (void)none;
    PyObject *dtype = core_numpy_dtype(d->dtype);
    if (dtype == NULL) return NULL;
    PyObject *shape = plain ? Py_BuildValue("(I)", d->nbytes) : shape_of(d);
    if (shape == NULL) return NULL;
    (void)dpf_descriptor_bytes(d, &nbytes); /* checked by receive */
    Py_ssize_t count = plain ? (Py_ssize_t)d->nbytes : (Py_ssize_t)(nbytes / dpf_dtype_bytes(d->dtype));
    PyObject *array = core_array(object, dtype, count, 0, shape);
    Py_DECREF(shape);
    return array;
}

static PyObject *lease_release(PyObject *object, PyObject *none) {
    RightObject *self = (RightObject *)object;
    (void)none;
    if (!self->ended) core_right_end(self, false);
    Py_RETURN_NONE;
}

static PyObject *lease_enter(PyObject *object, PyObject *none) {
    (void)none;
    return core_right_usable((RightObject *)object) ? Py_NewRef(object) : NULL;
}

static PyObject *lease_exit(PyObject *object, PyObject *args) {
    RightObject *self = (RightObject *)object;
    (void)args;
    if (!self->ended) core_right_end(self, false);
    Py_RETURN_NONE;
}

static PyObject *get_shape(PyObject *object, void *closure) {
    (void)closure;
    return shape_of(&((RightObject *)object)->descriptor);
}

static PyObject *get_urgency(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromLong(((RightObject *)object)->descriptor.rank_urgency >> 4);
}

static PyObject *get_released(PyObject *object, void *closure) {
    (void)closure;
    return PyBool_FromLong(((RightObject *)object)->ended);
}

#define FIELD(name, type) {#name, type, offsetof(RightObject, descriptor) + offsetof(dpf_descriptor, name), READONLY, NULL}

static PyMemberDef loan_members[] = {
    FIELD(slot, T_UINT), FIELD(nbytes, T_UINT), FIELD(generation, T_UINT),
    {"__weaklistoffset__", T_PYSSIZET, offsetof(RightObject, weakrefs), READONLY, NULL}, {0},
};

static PyMemberDef lease_members[] = {
    FIELD(kind, T_UBYTE), FIELD(request, T_ULONGLONG), FIELD(turn, T_UINT), FIELD(dtype, T_UBYTE),
    FIELD(offset, T_UINT), FIELD(nbytes, T_UINT), FIELD(captured_ns, T_ULONGLONG),
    FIELD(deadline_ns, T_ULONGLONG), FIELD(flags, T_UBYTE), FIELD(sequence, T_UINT), FIELD(slot, T_UINT),
    FIELD(generation, T_UINT),
    {"__weaklistoffset__", T_PYSSIZET, offsetof(RightObject, weakrefs), READONLY, NULL}, {0},
};

static PyMethodDef loan_methods[] = {
    {"array", (PyCFunction)(void (*)(void))loan_array, METH_VARARGS | METH_KEYWORDS,
     "array(dtype, shape, offset=0): a writable view of the slot."},
    {0},
};

static PyMethodDef lease_methods[] = {
    {"array", lease_array, METH_NOARGS, "A read-only view of the payload with the sender's dtype and shape."},
    {"release", lease_release, METH_NOARGS, "End the lease; a second call does nothing."},
    {"__enter__", lease_enter, METH_NOARGS, NULL},
    {"__exit__", lease_exit, METH_VARARGS, NULL},
    {0},
};

static PyGetSetDef loan_properties[] = {
    {"view", get_view, NULL, "The loaned bytes, writable; unusable once the loan ends.", NULL},
    {"ended", get_released, NULL, "Whether the loan was sent or abandoned.", NULL},
    {0},
};

static PyGetSetDef lease_properties[] = {
    {"view", get_view, NULL, "The payload, read-only; unusable once the lease ends.", NULL},
    {"shape", get_shape, NULL, "Sizes of the payload's dimensions.", NULL},
    {"urgency", get_urgency, NULL, "0 (most urgent) .. 7.", NULL},
    {"released", get_released, NULL, "Whether the lease ended.", NULL},
    {0},
};

static PyType_Slot loan_slots[] = {
    {Py_tp_dealloc, right_dealloc},           {Py_tp_methods, loan_methods},
    {Py_tp_members, loan_members},            {Py_tp_getset, loan_properties},
    {Py_bf_getbuffer, right_getbuffer},       {Py_bf_releasebuffer, right_releasebuffer},
    {Py_tp_doc, "The right to write one slot until it is sent or abandoned; dropping it abandons it."}, {0, NULL},
};

static PyType_Slot lease_slots[] = {
    {Py_tp_dealloc, right_dealloc},           {Py_tp_methods, lease_methods},
    {Py_tp_members, lease_members},           {Py_tp_getset, lease_properties},
    {Py_bf_getbuffer, right_getbuffer},       {Py_bf_releasebuffer, right_releasebuffer},
    {Py_tp_doc, "The right to read one message until `release`; dropping it releases it."}, {0, NULL},
};

static PyType_Spec loan_spec = {
    .name = "dpfedge._core.Loan",
    .basicsize = sizeof(RightObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = loan_slots,
};

static PyType_Spec lease_spec = {
    .name = "dpfedge._core.Lease",
    .basicsize = sizeof(RightObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = lease_slots,
};

bool core_add_rights(PyObject *module) {
    core_loan_type = core_add_type(module, &loan_spec);
    core_lease_type = core_add_type(module, &lease_spec);
    return core_loan_type != NULL && core_lease_type != NULL;
}
