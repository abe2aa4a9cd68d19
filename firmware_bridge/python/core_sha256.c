/* SPDX-License-Identifier: Apache-2.0
 *
 * dpfedge._core.Sha256: a digest that is fed alone or beside another one; the GIL is free meanwhile.
 */
#include "core.h"
#include "dpf/digest.h"

typedef struct {
    PyObject_HEAD
    dpf_sha256 sha256;
} Sha256Object;

static PyTypeObject *sha256_type;

static PyObject *sha256_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    if (PyTuple_Size(args) != 0 || (kwargs != NULL && PyDict_Size(kwargs) != 0)) {
        PyErr_SetString(PyExc_TypeError, "Sha256 takes no arguments");
        return NULL;
    }
    if (!dpf_sha256_has_lanes()) {
        return core_raise(core_usage_error, "Sha256", "this processor has no instructions for it", NULL, NULL,
                          "take hashlib.sha256");
    }
    Sha256Object *self = PyObject_New(Sha256Object, type);
    if (self != NULL) dpf_sha256_begin(&self->sha256);
    return (PyObject *)self;
}

static void sha256_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *update(PyObject *object, PyObject *bytes) {
    Sha256Object *self = (Sha256Object *)object;
    Py_buffer view;
    if (PyObject_GetBuffer(bytes, &view, PyBUF_SIMPLE) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    dpf_sha256_add_lane(&self->sha256, view.buf, (uint64_t)view.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

/* update_both(bytes, other, bytes of the other) */
static PyObject *update_both(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || Py_TYPE(args[1]) != sha256_type || args[1] == object) {
        PyErr_SetString(PyExc_TypeError, "update_both takes bytes, another Sha256 and its bytes");
        return NULL;
    }
    Py_buffer ours, theirs;
    if (PyObject_GetBuffer(args[0], &ours, PyBUF_SIMPLE) < 0) return NULL;
    if (PyObject_GetBuffer(args[2], &theirs, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&ours);
        return NULL;
    }
    bool added = ours.len == theirs.len;
    if (added) {
        Py_BEGIN_ALLOW_THREADS
        added = dpf_sha256_add_lanes(&((Sha256Object *)object)->sha256, ours.buf, &((Sha256Object *)args[1])->sha256,
                                     theirs.buf, (uint64_t)ours.len);
        Py_END_ALLOW_THREADS
    }
    PyObject *found = added ? NULL : PyUnicode_FromFormat("%zd and %zd bytes", ours.len, theirs.len);
    PyBuffer_Release(&ours);
    PyBuffer_Release(&theirs);
    if (added) Py_RETURN_NONE;
    return core_raise(core_usage_error, "Sha256.update_both", "the two cannot be fed side by side", found,
                      PyUnicode_FromString("equally many bytes, multiples of 64, as all that was fed before"), NULL);
}

static PyObject *digest(PyObject *object, PyObject *none) {
    unsigned char bytes[DPF_SHA256_BYTES];
    dpf_sha256 copy = ((Sha256Object *)object)->sha256;
    (void)none;
    dpf_sha256_end(&copy, bytes);
    return PyBytes_FromStringAndSize((const char *)bytes, sizeof bytes);
}

static PyObject *has_lanes(PyObject *type, PyObject *none) {
    (void)type;
    (void)none;
    return PyBool_FromLong(dpf_sha256_has_lanes());
}

static PyMethodDef methods[] = {
    {"update", update, METH_O, "Take the next bytes."},
    {"update_both", (PyCFunction)(void (*)(void))update_both, METH_FASTCALL,
     "update_both(bytes, other, others_bytes): feed this digest and another one in the time that one takes."},
    {"digest", digest, METH_NOARGS, "The 32 bytes of what was fed so far."},
    {"has_lanes", has_lanes, METH_NOARGS | METH_STATIC, "Whether this processor has the instructions that Sha256 needs."},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_new, sha256_new}, {Py_tp_dealloc, sha256_dealloc}, {Py_tp_methods, methods},
    {Py_tp_doc, "SHA-256 by the processor's own instructions; one thread at a time."}, {0, NULL},
};

static PyType_Spec spec = {
    .name = "dpfedge._core.Sha256", .basicsize = sizeof(Sha256Object), .flags = Py_TPFLAGS_DEFAULT, .slots = slots,
};

bool core_add_sha256(PyObject *module) {
    sha256_type = core_add_type(module, &spec);
    return sha256_type != NULL;
}
