/* SPDX-License-Identifier: Apache-2.0
 *
 * dpfedge._core.RouteMap: the published table in shared memory, for those who read it and for the one who writes it.
 */
#include "core_route.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

typedef struct {
    PyObject_HEAD
    void *base;
    uint64_t nbytes;
    dpf_route_view view;
    bool writable;
} MapObject;

static MapObject *own(PyObject *object) {
    return (MapObject *)object;
}

static PyObject *problem(dpf_route_fault fault, const dpf_route_header *header) {
    static const char *const texts[] = {"", "the table's file has the wrong size", "this is no routing table",
                                        "the table is of another version", "a number in the table's header is impossible"};
    PyObject *found = NULL, *allowed = NULL;
    if (fault == DPF_ROUTE_BAD_VERSION) {
        found = PyUnicode_FromFormat("version %u", (unsigned)header->version);
        allowed = PyUnicode_FromFormat("version %d", DPF_ROUTE_VERSION);
    }
    return core_raise(core_route_error, "table", texts[fault], found, allowed, "publish it again with this version of dpfedge");
}

static PyObject *map_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"fd", "writable", NULL};
    int fd, writable = 0;
    struct stat info;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|p", names, &fd, &writable)) return NULL;
    if (fstat(fd, &info) < 0) return PyErr_SetFromErrno(PyExc_OSError);
    if (info.st_size < (off_t)sizeof(dpf_route_header)) return problem(DPF_ROUTE_BAD_SIZE, NULL);
    void *base = mmap(NULL, (size_t)info.st_size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (base == MAP_FAILED) return PyErr_SetFromErrno(PyExc_OSError);
    dpf_route_view view;
    dpf_route_fault fault = dpf_route_map_open(base, (uint64_t)info.st_size, &view);
    MapObject *self = NULL;
    if (fault != DPF_ROUTE_OK) {
        problem(fault, base);
    } else {
        self = (MapObject *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    }
    if (self == NULL) {
        munmap(base, (size_t)info.st_size);
        return NULL;
    }
    self->base = base, self->nbytes = (uint64_t)info.st_size, self->view = view, self->writable = writable != 0;
    return (PyObject *)self;
}

static void map_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    if (own(object)->base) munmap(own(object)->base, (size_t)own(object)->nbytes);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *ended(void) {
    return core_raise(core_route_error, "table", "another table took the place of this one", NULL, NULL, "open it again");
}

static PyObject *map_lookup(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    uint64_t hash;
    dpf_route_word generation;
    if (!core_route_hash(args, count, own(object)->view.key_seed, &hash)) return NULL;
    uint32_t owner = dpf_route_owner(&own(object)->view, hash, &generation);
    if (generation == DPF_ROUTE_ENDED) return ended();
    return core_route_owner(object, owner);
}

static PyObject *entry_bytes(const dpf_route_entry *entry) {
    return PyBytes_FromStringAndSize((const char *)entry, sizeof *entry);
}

static PyObject *map_find(PyObject *object, PyObject *arg) {
    uint64_t hash;
    dpf_route_word generation;
    dpf_route_entry entry;
    if (!core_unsigned(arg, "hash", UINT64_MAX, &hash)) return NULL;
    uint32_t owner = dpf_route_find(&own(object)->view, hash, &entry, &generation);
    if (generation == DPF_ROUTE_ENDED) return ended();
    if (owner == DPF_ROUTE_NONE) return Py_BuildValue("(OKO)", Py_None, (unsigned long long)generation, Py_None);
    return Py_BuildValue("(IKN)", owner, (unsigned long long)generation, entry_bytes(&entry));
}

/* All of one generation: (generation, slots as bytes, entries as bytes). */
static PyObject *map_snapshot(PyObject *object, PyObject *none) {
    const dpf_route_view *view = &own(object)->view;
    Py_ssize_t slots_bytes = (Py_ssize_t)(sizeof(uint16_t) << view->bits);
    Py_ssize_t entries_bytes = (Py_ssize_t)(view->capacity * sizeof(dpf_route_entry));
    PyObject *slots = PyBytes_FromStringAndSize(NULL, slots_bytes), *entries = PyBytes_FromStringAndSize(NULL, entries_bytes);
    dpf_route_word before, now = dpf_route_generation(view);
    (void)none;
    if (slots == NULL || entries == NULL) {
        Py_XDECREF(slots);
        Py_XDECREF(entries);
        return NULL;
    }
    do {
        before = now;
        memcpy(PyBytes_AsString(slots), view->table[before & 1], (size_t)slots_bytes);
        memcpy(PyBytes_AsString(entries), view->entries[before & 1], (size_t)entries_bytes);
    } while (!dpf_route_same(view, before, &now));
    return Py_BuildValue("(KNN)", (unsigned long long)before, slots, entries);
}

static PyObject *map_publish(PyObject *object, PyObject *args) {
    MapObject *self = own(object);
    RouteTableObject *table;
    Py_buffer entries;
    if (!PyArg_ParseTuple(args, "O!y*", core_route_table_type, &table, &entries)) return NULL;
    uint64_t count = (uint64_t)entries.len / sizeof(dpf_route_entry);
    bool fits = self->writable && (uint64_t)entries.len % sizeof(dpf_route_entry) == 0 && count <= self->view.capacity;
    PyObject *done = NULL;
    if (dpf_route_generation(&self->view) == DPF_ROUTE_ENDED) {
        done = ended();
    } else if (!fits || table->table.bits != self->view.bits || table->key_seed != self->view.key_seed) {
        core_raise(core_usage_error, "publish", "the table does not fit the shared memory",
                   PyUnicode_FromFormat("%u bits, %llu instances", (unsigned)table->table.bits, (unsigned long long)count),
                   PyUnicode_FromFormat("%u bits, %u instances, opened for writing, the same key seed", (unsigned)self->view.bits,
                                        (unsigned)self->view.capacity), NULL);
    } else {
        uint64_t next = dpf_route_map_publish(self->base, &self->view, table->table.slots, entries.buf, (uint32_t)count, dpf_now_ns());
        done = PyLong_FromUnsignedLongLong(next);
    }
    PyBuffer_Release(&entries);
    return done;
}

static PyObject *map_end(PyObject *object, PyObject *none) {
    (void)none;
    if (!own(object)->writable) return core_raise(core_usage_error, "table", "it was not opened for writing", NULL, NULL, NULL);
    dpf_route_map_end(own(object)->base);
    Py_RETURN_NONE;
}

static PyObject *map_nobody(PyObject *object, PyObject *none) {
    (void)object, (void)none;
    Py_RETURN_NONE;
}

static PyObject *map_generation(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLongLong(dpf_route_generation(&own(object)->view));
}

static PyObject *map_bits(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLong(own(object)->view.bits);
}

static PyObject *map_capacity(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLong(own(object)->view.capacity);
}

static PyObject *map_key_seed(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLongLong(own(object)->view.key_seed);
}

static PyObject *map_ended(PyObject *object, void *closure) {
    (void)closure;
    return PyBool_FromLong(dpf_route_generation(&own(object)->view) == DPF_ROUTE_ENDED);
}

static PyObject *map_published(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLongLong(((const dpf_route_header *)own(object)->base)->published_ns);
}

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

static PyMethodDef map_methods[] = {
    {"lookup", FAST(map_lookup), "lookup(model, user, ts_ms): the owner's index; nobody() where there is none."},
    {"find", map_find, METH_O, "find(hash): (index, generation, entry) of one generation; Nones without an owner."},
    {"snapshot", map_snapshot, METH_NOARGS, "(generation, slots, entries), all of one generation."},
    {"publish", map_publish, METH_VARARGS, "publish(table, entries): the new generation."},
    {"end", map_end, METH_NOARGS, "Tell its readers that another table took its place."},
    {"nobody", map_nobody, METH_NOARGS, "What lookup answers where no instance has weight: None here."},
    {0},
};

static PyGetSetDef map_fields[] = {
    {"generation", map_generation, NULL, "How often the table was published.", NULL},
    {"bits", map_bits, NULL, "The table has 2**bits slots.", NULL},
    {"capacity", map_capacity, NULL, "How many instances it has room for.", NULL},
    {"key_seed", map_key_seed, NULL, "The seed of the keys' hash.", NULL},
    {"ended", map_ended, NULL, "Whether another table took its place.", NULL},
    {"published_ns", map_published, NULL, "CLOCK_MONOTONIC of the last publication; 0 before the first.", NULL},
    {0},
};

static PyType_Slot map_slots[] = {
    {Py_tp_new, map_new}, {Py_tp_dealloc, map_dealloc}, {Py_tp_methods, map_methods}, {Py_tp_getset, map_fields},
    {Py_tp_doc, "RouteMap(fd, writable=False): a published table in shared memory."}, {0, NULL},
};

static PyType_Spec map_spec = {
    .name = "dpfedge._core.RouteMap",
    .basicsize = sizeof(MapObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = map_slots,
};

static PyObject *map_bytes(PyObject *module, PyObject *args) {
    unsigned int bits, capacity;
    (void)module;
    if (!PyArg_ParseTuple(args, "II", &bits, &capacity)) return NULL;
    return PyLong_FromUnsignedLongLong(dpf_route_map_bytes(bits, capacity));
}

static PyObject *map_format(PyObject *module, PyObject *args) {
    unsigned int bits, capacity;
    unsigned long long key_seed;
    int fd;
    (void)module;
    if (!PyArg_ParseTuple(args, "iIIK", &fd, &bits, &capacity, &key_seed)) return NULL;
    uint64_t nbytes = dpf_route_map_bytes(bits, capacity);
    if (nbytes == 0) {
        return core_raise(core_usage_error, "table", "number out of range", PyUnicode_FromFormat("%u bits, %u instances", bits, capacity),
                          PyUnicode_FromFormat("%d..%d bits, 1..%d instances", DPF_ROUTE_BITS_LEAST, DPF_ROUTE_BITS_MOST,
                                               DPF_ROUTE_CAPACITY_MOST), NULL);
    }
    void *base = mmap(NULL, (size_t)nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return PyErr_SetFromErrno(PyExc_OSError);
    (void)dpf_route_map_format(base, nbytes, bits, capacity, key_seed);
    munmap(base, (size_t)nbytes);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"route_map_bytes", map_bytes, METH_VARARGS, "route_map_bytes(bits, capacity): the size of a table's memory; 0 if out of range."},
    {"route_map_format", map_format, METH_VARARGS,
     "route_map_format(fd, bits, capacity, key_seed): an empty table in memory of that size, all zero."},
    {0},
};

bool core_add_route_map(PyObject *module) {
    PyTypeObject *type = core_add_type(module, &map_spec);
    Py_XDECREF((PyObject *)type); /* the module keeps it */
    return type != NULL && PyModule_AddFunctions(module, functions) == 0 &&
           PyModule_AddIntConstant(module, "ROUTE_ENTRY_BYTES", (long)sizeof(dpf_route_entry)) == 0;
}
