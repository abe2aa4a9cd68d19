/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy from the outside: dtypes by code and arrays over a buffer. NumPy is imported with the first array.
 */
#include "core.h"

#include <string.h>

/* In the order of dpfedge.tensors.DTYPES; a test compares them. */
static const struct {
    const char *name, *numpy;
} DTYPES[DPF_DTYPES] = {
    {"bytes", "u1"}, {"f32", "<f4"}, {"f16", "<f2"}, {"bf16", NULL}, {"f64", "<f8"}, {"i8", "i1"},  {"u8", "u1"},
    {"i16", "<i2"},  {"u16", "<u2"}, {"i32", "<i4"}, {"u32", "<u4"}, {"i64", "<i8"}, {"u64", "<u8"}, {"bool", "?"},
};
static PyObject *dtypes[DPF_DTYPES], *numpy_dtype, *numpy_frombuffer, *numpy_empty;

static bool ready(void) {
    if (numpy_empty != NULL) return true;
    PyObject *numpy = PyImport_ImportModule("numpy");
    if (numpy == NULL) return false;
    numpy_dtype = PyObject_GetAttrString(numpy, "dtype");
    numpy_frombuffer = PyObject_GetAttrString(numpy, "frombuffer");
    bool done = numpy_dtype != NULL && numpy_frombuffer != NULL;
    for (int i = 0; done && i < DPF_DTYPES; i++) {
        if (DTYPES[i].numpy == NULL) continue;
        dtypes[i] = PyObject_CallFunction(numpy_dtype, "s", DTYPES[i].numpy);
        done = dtypes[i] != NULL;
    }
    if (done) numpy_empty = PyObject_GetAttrString(numpy, "empty");
    Py_DECREF(numpy);
    return numpy_empty != NULL;
}

const char *core_dtype_name(uint32_t code) {
    return code < DPF_DTYPES ? DTYPES[code].name : NULL;
}

PyObject *core_numpy_dtype(uint32_t code) {
    if (!ready()) return NULL;
    if (code < DPF_DTYPES && dtypes[code] != NULL) return dtypes[code];
    return core_raise(core_usage_error, "dtype", "has no NumPy dtype",
                      PyUnicode_FromString(code < DPF_DTYPES ? DTYPES[code].name : "unknown code"), NULL,
                      "read the bytes through view");
}

PyObject *core_any_dtype(PyObject *dtype) {
    if (!ready()) return NULL;
    for (uint32_t i = 0; PyUnicode_Check(dtype) && i < DPF_DTYPES; i++) {
        if (PyUnicode_CompareWithASCIIString(dtype, DTYPES[i].name) == 0) return Py_XNewRef(core_numpy_dtype(i));
    }
    return PyObject_CallFunctionObjArgs(numpy_dtype, dtype, NULL);
}

PyObject *core_array(PyObject *owner, PyObject *dtype, Py_ssize_t count, Py_ssize_t offset, PyObject *shape) {
    /* frombuffer refuses an empty buffer; no bytes, nothing to share. */
    if (count == 0) {
        if (!core_right_usable((RightObject *)owner)) return NULL;
        return PyObject_CallFunctionObjArgs(numpy_empty, shape, dtype, NULL);
    }
    /* frombuffer keeps a memoryview of us as its base, which counts as an export; ndarray(buffer=) would not. */
    PyObject *flat = PyObject_CallFunction(numpy_frombuffer, "OOnn", owner, dtype, count, offset);
    if (flat == NULL || PyTuple_Size(shape) == 1) return flat;
    PyObject *array = PyObject_CallMethod(flat, "reshape", "O", shape);
    Py_DECREF(flat);
    return array;
}
