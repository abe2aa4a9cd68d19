/* SPDX-License-Identifier: Apache-2.0
 *
 * The keyword arguments of Producer.send and publish, read without a parser: they are on the path of every message.
 */
#include "core.h"

#include <string.h>

/* The keyword arguments of send and publish, in the order of `Message.value`. */
enum { KIND, REQUEST, TURN, DTYPE, SHAPE, OFFSET, NBYTES, CAPTURED, DEADLINE, URGENCY, FLAGS, KEYWORDS };
DPF_ASSERT((int)KEYWORDS == (int)CORE_KEYWORDS, "one place for each keyword");
static const char *const KEYWORD[KEYWORDS] = {"kind",   "request",     "turn",        "dtype",   "shape", "offset",
                                              "nbytes", "captured_ns", "deadline_ns", "urgency", "flags"};
static PyObject *keyword[KEYWORDS];

static int find_keyword(PyObject *name) {
    for (int i = 0; i < KEYWORDS; i++) {
        if (name == keyword[i]) return i;
    }
    for (int i = 0; i < KEYWORDS; i++) {
        if (PyUnicode_Compare(name, keyword[i]) == 0) return i;
    }
    PyErr_Format(PyExc_TypeError, "send() has no argument %R", name);
    return -1;
}

bool core_read_keywords(PyObject *const *values, PyObject *names, PyObject **found) {
    memset(found, 0, KEYWORDS * sizeof *found);
    Py_ssize_t count = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        int at = find_keyword(PyTuple_GetItem(names, i));
        if (at < 0) return false;
        found[at] = values[i];
    }
    if (found[KIND] && found[REQUEST]) return true;
    PyErr_SetString(PyExc_TypeError, "send() needs the keyword arguments kind and request");
    return false;
}

static bool read_shape(PyObject *shape, dpf_descriptor *d) {
    if (!PyTuple_Check(shape)) {
        PyErr_SetString(PyExc_TypeError, "shape must be a tuple of ints");
        return false;
    }
    Py_ssize_t rank = PyTuple_Size(shape);
    if (rank > DPF_RANK_MAX) {
        core_raise(core_usage_error, "shape", "rank too high for a link", PyLong_FromSsize_t(rank), PyLong_FromLong(DPF_RANK_MAX),
                   "flatten the outer dimensions");
        return false;
    }
    for (Py_ssize_t i = 0; i < rank; i++) {
        uint64_t size;
        if (!core_unsigned(PyTuple_GetItem(shape, i), "shape", UINT32_MAX, &size)) return false;
        d->shape[i] = (uint32_t)size;
    }
    d->rank_urgency |= (uint8_t)rank;
    return true;
}

static bool number(PyObject **found, int at, uint64_t most, uint64_t *out) {
    return found[at] == NULL || core_unsigned(found[at], KEYWORD[at], most, out);
}

/* Fills the descriptor from the arguments; slot and generation are the loan's. */
bool core_read_message(PyObject **found, const RightObject *loan, dpf_descriptor *d) {
    uint64_t value[KEYWORDS] = {[URGENCY] = 3};
    if (!number(found, KIND, UINT8_MAX, &value[KIND]) || !number(found, REQUEST, UINT64_MAX, &value[REQUEST]) ||
        !number(found, TURN, UINT32_MAX, &value[TURN]) || !number(found, DTYPE, DPF_DTYPES - 1, &value[DTYPE]) ||
        !number(found, OFFSET, loan->descriptor.nbytes, &value[OFFSET]) ||
        !number(found, CAPTURED, UINT64_MAX, &value[CAPTURED]) || !number(found, DEADLINE, UINT64_MAX, &value[DEADLINE]) ||
        !number(found, URGENCY, 7, &value[URGENCY]) || !number(found, FLAGS, DPF_FLAGS, &value[FLAGS])) {
        return false;
    }
    *d = (dpf_descriptor){
        .request = value[REQUEST], .captured_ns = value[CAPTURED], .deadline_ns = value[DEADLINE],
        .slot = loan->descriptor.slot, .generation = loan->descriptor.generation, .turn = (uint32_t)value[TURN],
        .offset = (uint32_t)value[OFFSET], .dtype = (uint8_t)value[DTYPE], .kind = (uint8_t)value[KIND],
        .rank_urgency = (uint8_t)(value[URGENCY] << 4), .flags = (uint8_t)value[FLAGS],
    };
    if (found[SHAPE] && !read_shape(found[SHAPE], d)) return false;
    uint32_t room = loan->descriptor.nbytes - d->offset, needed = 0;
    bool plain = d->dtype == 0 && (d->rank_urgency & 15) == 0;
    bool known = dpf_descriptor_bytes(d, &needed);
    value[NBYTES] = plain ? room : needed;
    if (found[NBYTES] && found[NBYTES] != Py_None && !core_unsigned(found[NBYTES], "nbytes", room, &value[NBYTES])) return false;
    d->nbytes = (uint32_t)value[NBYTES];
    if (!plain && (!known || needed > d->nbytes || d->nbytes > room)) {
        core_raise(core_usage_error, loan->port->ring.name, "shape does not fit the loan",
                   known ? PyUnicode_FromFormat("%lu bytes", (unsigned long)needed) : PyUnicode_FromString("more than 4 GiB"),
                   PyUnicode_FromFormat("%lu bytes", (unsigned long)(found[NBYTES] ? d->nbytes : room)), NULL);
        return false;
    }
    return true;
}

bool core_ready_keywords(void) {
    for (int i = 0; i < KEYWORDS; i++) {
        keyword[i] = PyUnicode_InternFromString(KEYWORD[i]);
        if (keyword[i] == NULL) return false;
    }
    return true;
}
