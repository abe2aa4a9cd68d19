/* SPDX-License-Identifier: Apache-2.0
 *
 * dpfedge._core.ArenaCore: a mapped arena, and `plan` and `create` that make one.
 */
#include "core.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    dpf_arena_spec spec;
    char name[DPF_NAME_BYTES];
} Plan;

static bool copy_text(PyObject *text, char *to) {
    Py_ssize_t size = 0;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes == NULL) return false;
    if (size == 0 || size >= DPF_NAME_BYTES || memchr(bytes, 0, (size_t)size)) {
        core_raise(core_usage_error, "link", "name cannot be stored", PyObject_Repr(text),
                   PyUnicode_FromFormat("1..%d bytes of UTF-8 without NUL", DPF_NAME_BYTES - 1), NULL);
        return false;
    }
    memset(to, 0, DPF_NAME_BYTES);
    memcpy(to, bytes, (size_t)size);
    return true;
}

static bool read_link(PyObject *item, dpf_link_spec *link) {
    PyObject *name, *consumers;
    unsigned long long slot_bytes, block_ns;
    if (!PyArg_ParseTuple(item, "UIO!IIKK", &name, &link->producer, &PyTuple_Type, &consumers, &link->slots, &link->policy,
                          &slot_bytes, &block_ns)) {
        return false;
    }
    link->places = (uint32_t)PyTuple_Size(consumers);
    for (uint32_t i = 0; i < link->places && i < DPF_PLACES; i++) {
        uint64_t stage;
        if (!core_unsigned(PyTuple_GetItem(consumers, i), "consumer", UINT32_MAX, &stage)) return false;
        link->consumer[i] = (uint32_t)stage;
    }
    link->slot_bytes = slot_bytes;
    link->block_ns = block_ns;
    return copy_text(name, link->name);
}

static void plan_clear(Plan *plan) {
    PyMem_Free((void *)plan->spec.stages);
    PyMem_Free((void *)plan->spec.links);
}

static bool read_lists(Plan *plan, PyObject *stages, PyObject *links) {
    Py_ssize_t stage_count = PyList_Size(stages), link_count = PyList_Size(links);
    char(*names)[DPF_NAME_BYTES] = PyMem_Calloc((size_t)stage_count + 1, DPF_NAME_BYTES);
    dpf_link_spec *specs = PyMem_Calloc((size_t)link_count + 1, sizeof(dpf_link_spec));
    plan->spec.stages = (const char(*)[DPF_NAME_BYTES])names;
    plan->spec.links = specs;
    if (names == NULL || specs == NULL) return PyErr_NoMemory() != NULL;
    plan->spec.stage_count = (uint32_t)stage_count;
    plan->spec.link_count = (uint32_t)link_count;
    for (Py_ssize_t i = 0; i < stage_count; i++) {
        if (!copy_text(PyList_GetItem(stages, i), names[i])) return false;
    }
    for (Py_ssize_t i = 0; i < link_count; i++) {
        if (!read_link(PyList_GetItem(links, i), &specs[i])) return false;
    }
    return true;
}

/* (name, stages, links, requests, page[, folder]) -> a plan that plan_clear frees, and its size. */
static bool plan_read(PyObject *args, Plan *plan, uint64_t *nbytes, int *folder) {
    PyObject *name, *stages, *links;
    memset(plan, 0, sizeof *plan);
    if (!PyArg_ParseTuple(args, "UO!O!II|i", &name, &PyList_Type, &stages, &PyList_Type, &links, &plan->spec.requests,
                          &plan->spec.page, folder)) {
        return false;
    }
    plan->spec.name = plan->name;
    if (!copy_text(name, plan->name) || !read_lists(plan, stages, links)) return false;
    if (dpf_arena_plan(&plan->spec, nbytes) == DPF_OK) return true;
    core_raise(core_usage_error, "arena", "a size is out of range", NULL,
               PyUnicode_FromFormat("1..%d stages, 1..%d links, 1..%d consumers of each, 1..%d requests, 1..%d slots of "
                                    "1..4294967295 bytes",
                                    DPF_BELLS_MAX, DPF_RINGS_MAX, DPF_PLACES, DPF_REQUESTS_MAX, DPF_SLOTS_MAX),
               NULL);
    return false;
}

static PyObject *core_plan(PyObject *module, PyObject *args) {
    Plan plan;
    uint64_t nbytes;
    int folder;
    (void)module;
    PyObject *result = plan_read(args, &plan, &nbytes, &folder) ? PyLong_FromUnsignedLongLong(nbytes) : NULL;
    plan_clear(&plan);
    return result;
}

/* The formatted memory's descriptor, or a negative errno; a memfd, or a file of the open folder where one is given. */
static int create(const Plan *plan, uint64_t nbytes, int folder) {
    void *base;
    uint64_t mapped;
    int fd = folder < 0 ? dpf_memory_create(plan->name, nbytes) : dpf_memory_create_in(folder, nbytes);
    if (fd < 0) return fd;
    int error = dpf_memory_map(fd, &base, &mapped);
    if (error != 0) {
        close(fd);
        return error;
    }
    (void)dpf_arena_format(&plan->spec, base, mapped); /* cannot fail: the same spec was planned */
    dpf_memory_unmap(base, mapped);
    return fd;
}

static PyObject *core_create(PyObject *module, PyObject *args) {
    Plan plan;
    uint64_t nbytes;
    int fd = -1, folder = -1;
    (void)module;
    if (plan_read(args, &plan, &nbytes, &folder)) {
        Py_BEGIN_ALLOW_THREADS
        fd = create(&plan, nbytes, folder);
        Py_END_ALLOW_THREADS
        if (fd < 0) {
            errno = -fd;
            PyErr_SetFromErrno(PyExc_OSError);
        }
    }
    plan_clear(&plan);
    return fd < 0 ? NULL : PyLong_FromLong(fd);
}

static PyObject *corrupt(const char *where) {
    return core_raise(core_link_error, where, "not an arena this dpfedge can use", NULL, NULL,
                      "create it with dpfedge.link.Arena of the same version");
}

static bool check_rings(const dpf_arena *arena) {
    dpf_ring ring;
    for (uint32_t i = 0; i < arena->ring_count; i++) {
        if (dpf_arena_ring(arena, i, &ring) != DPF_OK) return false;
    }
    return true;
}

static PyObject *map_error(int error) {
    if (error == -EPERM) {
        return core_raise(core_link_error, "arena", "memory is neither sealed against shrinking nor a private file without a name",
                          NULL, NULL, "create it with dpfedge.link.Arena");
    }
    errno = -error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *arena_open(PyObject *module, PyObject *arg) {
    void *base;
    uint64_t nbytes, fd;
    (void)module;
    if (!core_unsigned(arg, "fd", INT32_MAX, &fd)) return NULL;
    int error = dpf_memory_map((int)fd, &base, &nbytes);
    if (error != 0) return map_error(error);
    ArenaObject *self = PyObject_New(ArenaObject, core_arena_type);
    if (self == NULL) {
        dpf_memory_unmap(base, nbytes);
        return NULL;
    }
    self->base = base;
    self->nbytes = nbytes;
    self->sealed = dpf_memory_sealed((int)fd);
    self->closed = false;
    self->attached = NULL;
    if (dpf_arena_open(base, nbytes, &self->arena) != DPF_OK || !check_rings(&self->arena)) {
        Py_DECREF(self);
        return corrupt("arena");
    }
    self->attached = PyMem_Calloc((1u + DPF_PLACES) * self->arena.ring_count, sizeof *self->attached);
    if (self->attached == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void arena_dealloc(PyObject *object) {
    ArenaObject *self = (ArenaObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    dpf_memory_unmap(self->base, self->nbytes);
    PyMem_Free(self->attached);
    PyObject_Free(self);
    Py_DECREF(type);
}

static bool usable(ArenaObject *self) {
    if (self->closed) core_raise(core_link_error, "arena", "is closed", NULL, NULL, NULL);
    return !self->closed;
}

static PyObject *port(PyObject *object, PyObject *args, PyTypeObject *type) {
    ArenaObject *self = (ArenaObject *)object;
    unsigned int index, place = 0;
    PyObject *owner;
    uint64_t number;
    if (!PyArg_ParseTuple(args, "IO|I", &index, &owner, &place) || !usable(self)) return NULL;
    if (!core_unsigned(owner, "owner", UINT32_MAX, &number)) return NULL;
    return core_port_new(type, self, index, place, (uint32_t)number);
}

static PyObject *arena_producer(PyObject *self, PyObject *args) {
    return port(self, args, core_producer_type);
}

static PyObject *arena_consumer(PyObject *self, PyObject *args) {
    return port(self, args, core_consumer_type);
}

static PyObject *arena_bell(PyObject *object, PyObject *arg) {
    ArenaObject *self = (ArenaObject *)object;
    uint64_t index;
    if (!usable(self) || !core_unsigned(arg, "bell", self->arena.bell_count - 1u, &index)) return NULL;
    return core_bell_new(self, (uint32_t)index);
}

static PyObject *arena_requests(PyObject *object, PyObject *none) {
    (void)none;
    return usable((ArenaObject *)object) ? core_requests_new((ArenaObject *)object) : NULL;
}

static PyObject *arena_reclaim(PyObject *object, PyObject *arg) {
    ArenaObject *self = (ArenaObject *)object;
    uint64_t owner;
    if (!usable(self) || !core_unsigned(arg, "owner", UINT32_MAX, &owner)) return NULL;
    if (owner == 0) return core_raise(core_usage_error, "owner", "0 is nobody", NULL, NULL, NULL);
    uint32_t *freed = PyMem_Calloc(self->arena.ring_count, sizeof *freed);
    if (freed == NULL) return PyErr_NoMemory();
    (void)dpf_arena_reclaim(&self->arena, (uint32_t)owner, freed); /* a scribbled ring header counts 0 */
    dpf_arena_wake(&self->arena);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < self->arena.ring_count; i++) {
        PyObject *count = PyLong_FromUnsignedLong(freed[i]);
        if (count == NULL || PyList_Append(list, count) < 0) Py_CLEAR(list);
        Py_XDECREF(count);
    }
    PyMem_Free(freed);
    return list;
}

static bool ring_of(ArenaObject *self, PyObject *arg, dpf_ring *ring) {
    uint64_t index;
    if (!usable(self) || !core_unsigned(arg, "link", self->arena.ring_count - 1u, &index)) return false;
    if (dpf_arena_ring(&self->arena, (uint32_t)index, ring) == DPF_OK) return true;
    corrupt("link");
    return false;
}

/* index -> (sent, received, dropped, refused, abandoned, corrupt, copies, copied_bytes, loaned, in_flight, depth) */
static PyObject *arena_stats(PyObject *object, PyObject *arg) {
    dpf_ring ring;
    dpf_ring_stats s;
    if (!ring_of((ArenaObject *)object, arg, &ring)) return NULL;
    dpf_ring_read_stats(&ring, &s);
    return Py_BuildValue("(KKKKKKKKIII)", s.sent, s.received, s.dropped, s.refused, s.abandoned, s.corrupt, s.copies,
                         s.copied_bytes, s.loaned, s.leased, s.depth);
}

/* index -> (name, producer bell, consumer bells, slots, policy, slot_bytes, block_ns) */
static PyObject *arena_link(PyObject *object, PyObject *arg) {
    ArenaObject *self = (ArenaObject *)object;
    dpf_ring ring;
    if (!ring_of(self, arg, &ring)) return NULL;
    PyObject *consumers = PyTuple_New(ring.places);
    for (uint32_t i = 0; consumers != NULL && i < ring.places; i++) {
        PyObject *bell = PyLong_FromSsize_t(ring.consumer_bell[i] - self->arena.bells);
        if (bell == NULL || PyTuple_SetItem(consumers, i, bell) < 0) Py_CLEAR(consumers);
    }
    if (consumers == NULL) return NULL;
    return Py_BuildValue("(sINIIKK)", ring.name, (unsigned)(ring.producer_bell - self->arena.bells), consumers,
                         ring.count, ring.policy, ring.slot_bytes, ring.block_ns);
}

static PyObject *arena_stage(PyObject *object, PyObject *arg) {
    ArenaObject *self = (ArenaObject *)object;
    char name[DPF_NAME_BYTES];
    uint64_t index;
    if (!usable(self) || !core_unsigned(arg, "bell", self->arena.bell_count - 1u, &index)) return NULL;
    memcpy(name, self->arena.bells[index].name, sizeof name);
    name[sizeof name - 1] = 0;
    return PyUnicode_FromString(name);
}

static PyObject *arena_close(PyObject *object, PyObject *none) {
    (void)none;
    ((ArenaObject *)object)->closed = true;
    Py_RETURN_NONE;
}

static PyObject *get_nbytes(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLongLong(((ArenaObject *)object)->nbytes);
}

static PyObject *get_sealed(PyObject *object, void *closure) {
    (void)closure;
    return PyBool_FromLong(((ArenaObject *)object)->sealed);
}

static PyObject *get_link_count(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLong(((ArenaObject *)object)->arena.ring_count);
}

static PyObject *get_stage_count(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLong(((ArenaObject *)object)->arena.bell_count);
}

static PyMethodDef methods[] = {
    {"producer", arena_producer, METH_VARARGS, "producer(link, owner): take the sending port of a link."},
    {"consumer", arena_consumer, METH_VARARGS, "consumer(link, owner, place=0): take a receiving port of a link."},
    {"bell", arena_bell, METH_O, "bell(stage): the bell of a stage, by index."},
    {"requests", arena_requests, METH_NOARGS, "The request table."},
    {"reclaim", arena_reclaim, METH_O, "reclaim(owner): free what a dead owner had; counts per link."},
    {"stats", arena_stats, METH_O, "stats(link): the counters of a link, in the order of LinkStats."},
    {"link", arena_link, METH_O, "link(index): the directory entry of a link."},
    {"stage", arena_stage, METH_O, "stage(index): the name of a stage."},
    {"close", arena_close, METH_NOARGS, "Refuse further calls; memory goes with the last object made here."},
    {0},
};

static PyGetSetDef properties[] = {
    {"nbytes", get_nbytes, NULL, "Bytes of shared memory.", NULL},
    {"sealed", get_sealed, NULL, "Whether nobody can shrink the memory.", NULL},
    {"link_count", get_link_count, NULL, "Links in the directory.", NULL},
    {"stage_count", get_stage_count, NULL, "Stages in the directory.", NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, arena_dealloc}, {Py_tp_methods, methods}, {Py_tp_getset, properties}, {0, NULL},
};

static PyType_Spec spec = {
    .name = "dpfedge._core.ArenaCore",
    .basicsize = sizeof(ArenaObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

static PyMethodDef functions[] = {
    {"plan", core_plan, METH_VARARGS, "plan(name, stages, links, requests, page): bytes the arena takes."},
    {"create", core_create, METH_VARARGS, "create(name, stages, links, requests, page, folder=-1): formatted memory, a sealed memfd or an unnamed file of an open folder."},
    {"open_arena", arena_open, METH_O, "open_arena(fd): map and check an arena."},
    {0},
};

bool core_add_arena(PyObject *module) {
    core_arena_type = core_add_type(module, &spec);
    return core_arena_type != NULL && PyModule_AddFunctions(module, functions) == 0;
}
