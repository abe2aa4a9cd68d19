/* SPDX-License-Identifier: Apache-2.0
 *
 * dpfedge._core.RouteTable, and the functions of a request's key.
 */
#include "core_route.h"

#include <string.h>

PyTypeObject *core_route_table_type;
static uint64_t logs[DPF_TABLE_LOGS];

enum { HEIRS_PART = 1 << 12 }; /* slots whose heirs are found without a pause: at 128 instances 0.6 ms at most */

/* ---- ids ---- */

static bool field(PyObject *value, const char *where, const char **bytes, uint32_t *nbytes) {
    Py_ssize_t size;
    if (PyUnicode_Check(value)) {
        *bytes = PyUnicode_AsUTF8AndSize(value, &size);
        if (*bytes == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return false;
            PyErr_Clear();
            core_raise(core_usage_error, where, "the text cannot be written as UTF-8", PyObject_ASCII(value), NULL,
                       "pass bytes for an id that is no text");
            return false;
        }
    } else if (PyBytes_Check(value)) {
        *bytes = PyBytes_AsString(value);
        size = PyBytes_Size(value);
    } else {
        PyErr_Format(PyExc_TypeError, "%s: str or bytes, not %R", where, (PyObject *)Py_TYPE(value));
        return false;
    }
    if (size > DPF_ROUTE_FIELD_MOST) {
        core_raise(core_usage_error, where, "the id is too long", PyUnicode_FromFormat("%zd bytes", size),
                   PyUnicode_FromFormat("0..%d bytes", DPF_ROUTE_FIELD_MOST), "ids are never cut: hash a long one yourself");
        return false;
    }
    *nbytes = (uint32_t)size;
    return true;
}

static bool read_key(PyObject *const *args, Py_ssize_t count, unsigned char *key, uint32_t *nbytes) {
    const char *model, *user;
    uint32_t model_bytes, user_bytes;
    uint64_t ts_ms;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "the key of a session is (model, user, ts_ms)");
        return false;
    }
    if (!field(args[0], "model", &model, &model_bytes) || !field(args[1], "user", &user, &user_bytes)) return false;
    if (!core_unsigned(args[2], "ts_ms", UINT64_MAX, &ts_ms)) return false;
    *nbytes = dpf_route_key(key, model, model_bytes, user, user_bytes, ts_ms);
    return true;
}

bool core_route_hash(PyObject *const *args, Py_ssize_t count, uint64_t key_seed, uint64_t *hash) {
    unsigned char key[DPF_ROUTE_KEY_MOST];
    uint32_t nbytes;
    if (!read_key(args, count, key, &nbytes)) return false;
    *hash = dpf_xxh64(key, nbytes, key_seed);
    return true;
}

PyObject *core_route_owner(PyObject *self, uint32_t owner) {
    return owner != DPF_ROUTE_NONE ? PyLong_FromUnsignedLong(owner) : PyObject_CallMethod(self, "nobody", NULL);
}

static PyObject *route_key(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    unsigned char key[DPF_ROUTE_KEY_MOST];
    uint32_t nbytes;
    (void)module;
    return read_key(args, count, key, &nbytes) ? PyBytes_FromStringAndSize((char *)key, nbytes) : NULL;
}

static PyObject *route_hash(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    uint64_t key_seed = DPF_ROUTE_KEY_SEED, hash;
    (void)module;
    if (count == 4 && !core_unsigned(args[3], "key_seed", UINT64_MAX, &key_seed)) return NULL;
    if (!core_route_hash(args, count == 4 ? 3 : count, key_seed, &hash)) return NULL;
    return PyLong_FromUnsignedLongLong(hash);
}

static PyObject *route_seed(PyObject *module, PyObject *name) {
    char *bytes;
    Py_ssize_t size;
    (void)module;
    if (PyBytes_AsStringAndSize(name, &bytes, &size) < 0) return NULL;
    if (size < 1 || size > DPF_ROUTE_NAME_MOST) {
        return core_raise(core_usage_error, "name", "an instance's name has the wrong length", PyUnicode_FromFormat("%zd bytes", size),
                          PyUnicode_FromFormat("1..%d bytes", DPF_ROUTE_NAME_MOST), NULL);
    }
    return PyLong_FromUnsignedLongLong(dpf_table_seed(bytes, (uint32_t)size));
}

static PyObject *route_cost(PyObject *module, PyObject *arg) {
    uint64_t hash;
    (void)module;
    return core_unsigned(arg, "hash", UINT64_MAX, &hash) ? PyLong_FromUnsignedLongLong(dpf_table_cost(logs, hash)) : NULL;
}

/* ---- the table ---- */

static RouteTableObject *own(PyObject *object) {
    return (RouteTableObject *)object;
}

static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"bits", "key_seed", NULL};
    PyObject *wanted_bits = NULL, *wanted_seed = NULL;
    uint64_t bits = DPF_ROUTE_BITS, key_seed = DPF_ROUTE_KEY_SEED;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO", names, &wanted_bits, &wanted_seed)) return NULL;
    if (wanted_bits && !core_unsigned(wanted_bits, "bits", UINT32_MAX, &bits)) return NULL;
    if (wanted_seed && !core_unsigned(wanted_seed, "key_seed", UINT64_MAX, &key_seed)) return NULL;
    if (bits < DPF_ROUTE_BITS_LEAST || bits > DPF_ROUTE_BITS_MOST) {
        return core_raise(core_usage_error, "bits", "number out of range", PyLong_FromUnsignedLongLong(bits),
                          PyUnicode_FromFormat("%d..%d", DPF_ROUTE_BITS_LEAST, DPF_ROUTE_BITS_MOST), NULL);
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    RouteTableObject *self = (RouteTableObject *)allocate(type, 0);
    if (self == NULL) return NULL;
    self->key_seed = key_seed;
    uint16_t *slots = PyMem_Malloc(sizeof *slots << bits), *heirs = PyMem_Malloc(sizeof *heirs << bits);
    if (slots == NULL || heirs == NULL || !dpf_table_init(&self->table, (uint32_t)bits, slots, NULL, 0, logs)) {
        PyMem_Free(slots);
        PyMem_Free(heirs);
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    dpf_table_use_heirs(&self->table, heirs);
    return (PyObject *)self;
}

static void table_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyMem_Free(own(object)->table.slots);
    PyMem_Free(own(object)->table.heirs);
    PyMem_Free(own(object)->table.instances);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static bool make_room(dpf_table *table, uint64_t index) {
    if (index < table->most) return true;
    uint32_t most = table->most < 8 ? 8 : table->most;
    while (most <= index) most = most * 2 < DPF_TABLE_INSTANCES_MOST ? most * 2 : DPF_TABLE_INSTANCES_MOST;
    dpf_table_instance *instances = PyMem_Realloc(table->instances, most * sizeof *instances);
    if (instances == NULL) {
        PyErr_NoMemory();
        return false;
    }
    table->instances = instances;
    table->most = most;
    return true;
}

static void changing(RouteTableObject *self) {
    self->changes++;
    self->heirs_left = UINT32_C(1) << self->table.bits;
}

/* put and note: (index, seed, weight), with room made. */
static bool read_instance(PyObject *object, PyObject *const *args, Py_ssize_t count, uint64_t out[3]) {
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "an instance is (index, seed, weight)");
        return false;
    }
    return core_unsigned(args[0], "index", DPF_TABLE_INSTANCES_MOST - 1, &out[0]) &&
           core_unsigned(args[1], "seed", UINT64_MAX, &out[1]) &&
           core_unsigned(args[2], "weight", DPF_TABLE_WEIGHT_MOST, &out[2]) && make_room(&own(object)->table, out[0]);
}

static PyObject *taken(const dpf_table *table, uint64_t seed) {
    return core_raise(core_usage_error, "seed", "another instance has this name, or one with the same hash",
                      PyUnicode_FromFormat("index %u", (unsigned)dpf_table_index(table, seed)), NULL, "names are unique");
}

static PyObject *table_put(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    uint64_t want[3];
    uint32_t moved;
    if (!read_instance(object, args, count, want)) return NULL;
    changing(own(object));
    if (!dpf_table_put(&own(object)->table, (uint32_t)want[0], want[1], (uint32_t)want[2], &moved)) {
        return taken(&own(object)->table, want[1]);
    }
    return PyLong_FromUnsignedLong(moved);
}

static PyObject *table_note(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    uint64_t want[3];
    if (!read_instance(object, args, count, want)) return NULL;
    changing(own(object));
    if (!dpf_table_note(&own(object)->table, (uint32_t)want[0], want[1], (uint32_t)want[2])) {
        return taken(&own(object)->table, want[1]);
    }
    Py_RETURN_NONE;
}

static PyObject *table_weigh(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    uint64_t index, weight;
    uint32_t moved;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "weigh(index, weight)");
        return NULL;
    }
    if (!core_unsigned(args[0], "index", DPF_TABLE_INSTANCES_MOST - 1, &index)) return NULL;
    if (!core_unsigned(args[1], "weight", DPF_TABLE_WEIGHT_MOST, &weight)) return NULL;
    changing(own(object));
    if (!dpf_table_weigh(&own(object)->table, (uint32_t)index, (uint32_t)weight, &moved)) {
        return core_raise(core_usage_error, "index", "no instance has this index", PyLong_FromUnsignedLongLong(index), NULL, NULL);
    }
    return PyLong_FromUnsignedLong(moved);
}

/* Builds a copy without the GIL, again if the instances changed meanwhile: lookups go on in the old slots. */
static PyObject *table_build(PyObject *object, PyObject *none) {
    RouteTableObject *self = own(object);
    (void)none;
    for (;;) {
        dpf_table copy = self->table;
        uint64_t changes = self->changes;
        size_t nbytes = copy.count * sizeof *copy.instances;
        copy.slots = PyMem_Malloc(sizeof *copy.slots << copy.bits);
        copy.heirs = NULL;
        copy.instances = PyMem_Malloc(nbytes ? nbytes : 1);
        bool same = copy.slots && copy.instances;
        if (same) {
            if (nbytes) memcpy(copy.instances, self->table.instances, nbytes);
            Py_BEGIN_ALLOW_THREADS
            dpf_table_build(&copy);
            Py_END_ALLOW_THREADS
            same = changes == self->changes;
            if (same) {
                memcpy(self->table.slots, copy.slots, sizeof *copy.slots << copy.bits);
                dpf_table_use_heirs(&self->table, self->table.heirs);
                self->heirs_left = UINT32_C(1) << self->table.bits;
            }
        } else {
            PyErr_NoMemory();
        }
        PyMem_Free(copy.slots);
        PyMem_Free(copy.instances);
        if (PyErr_Occurred()) return NULL;
        if (same) Py_RETURN_NONE;
    }
}

/* In parts, between which other threads run and may change the table: what is found is of the table as it is then. */
static PyObject *table_find_heirs(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    RouteTableObject *self = own(object);
    uint32_t slots = UINT32_C(1) << self->table.bits;
    uint64_t most = slots;
    if (count > 1) {
        PyErr_SetString(PyExc_TypeError, "find_heirs(most)");
        return NULL;
    }
    if (count == 1 && !core_unsigned(args[0], "most", UINT32_MAX, &most)) return NULL;
    while (most != 0 && self->heirs_left != 0) {
        uint32_t part = self->heirs_left < HEIRS_PART ? self->heirs_left : HEIRS_PART;
        if (part > most) part = (uint32_t)most;
        if (part > slots - self->heirs_at) part = slots - self->heirs_at;
        (void)dpf_table_find_heirs(&self->table, self->heirs_at, self->heirs_at + part);
        self->heirs_at = (self->heirs_at + part) & (slots - 1);
        self->heirs_left -= part;
        most -= part;
        Py_BEGIN_ALLOW_THREADS
        Py_END_ALLOW_THREADS
    }
    return PyLong_FromUnsignedLong(self->heirs_left);
}

static PyObject *table_lookup(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    uint64_t hash;
    if (!core_route_hash(args, count, own(object)->key_seed, &hash)) return NULL;
    const dpf_table *table = &own(object)->table;
    return core_route_owner(object, table->slots[dpf_route_slot(hash, table->bits)]);
}

static PyObject *table_owner(PyObject *object, PyObject *arg) {
    uint64_t slot;
    const dpf_table *table = &own(object)->table;
    if (!core_unsigned(arg, "slot", (UINT64_C(1) << table->bits) - 1, &slot)) return NULL;
    return table->slots[slot] == DPF_ROUTE_NONE ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(table->slots[slot]);
}

static PyObject *table_nobody(PyObject *object, PyObject *none) {
    (void)object, (void)none;
    Py_RETURN_NONE;
}

static PyObject *table_digest(PyObject *object, PyObject *none) {
    (void)none;
    return PyLong_FromUnsignedLongLong(dpf_table_digest(own(object)->table.slots, own(object)->table.bits));
}

static PyObject *table_weight(PyObject *object, PyObject *arg) {
    uint64_t index;
    const dpf_table *table = &own(object)->table;
    if (!core_unsigned(arg, "index", DPF_TABLE_INSTANCES_MOST - 1, &index)) return NULL;
    return PyLong_FromUnsignedLong(index < table->count ? table->instances[index].weight : 0);
}

static int table_buffer(PyObject *object, Py_buffer *view, int flags) {
    const dpf_table *table = &own(object)->table;
    return PyBuffer_FillInfo(view, object, table->slots, (Py_ssize_t)(sizeof *table->slots << table->bits), 1, flags);
}

static PyObject *table_bits(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLong(own(object)->table.bits);
}

static PyObject *table_key_seed(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLongLong(own(object)->key_seed);
}

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

static PyMethodDef table_methods[] = {
    {"put", FAST(table_put), "put(index, seed, weight): make index this instance; how many slots changed owner."},
    {"note", FAST(table_note), "note(index, seed, weight): as put, but the slots wait for build()."},
    {"weigh", FAST(table_weigh), "weigh(index, weight): how many slots changed owner."},
    {"build", table_build, METH_NOARGS, "Decide every slot; other threads run meanwhile."},
    {"find_heirs", FAST(table_find_heirs),
     "find_heirs(most=all): at up to so many slots, find who gets them when their owner leaves; how many slots are left."},
    {"lookup", FAST(table_lookup), "lookup(model, user, ts_ms): the owner's index; nobody() where there is none."},
    {"owner", table_owner, METH_O, "owner(slot): the index, or None."},
    {"nobody", table_nobody, METH_NOARGS, "What lookup answers where no instance has weight: None here."},
    {"digest", table_digest, METH_NOARGS, "XXH64 of the slots as little-endian u16."},
    {"weight", table_weight, METH_O, "weight(index): its weight now."},
    {0},
};

static PyGetSetDef table_fields[] = {
    {"bits", table_bits, NULL, "The table has 2**bits slots.", NULL},
    {"key_seed", table_key_seed, NULL, "The seed of the keys' hash.", NULL},
    {0},
};

static PyType_Slot table_slots[] = {
    {Py_tp_new, table_new}, {Py_tp_dealloc, table_dealloc}, {Py_tp_methods, table_methods}, {Py_tp_getset, table_fields},
    {Py_bf_getbuffer, table_buffer}, {Py_tp_doc, "RouteTable(bits=16, key_seed=...): which instance owns each slot."}, {0, NULL},
};

static PyType_Spec table_spec = {
    .name = "dpfedge._core.RouteTable",
    .basicsize = sizeof(RouteTableObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = table_slots,
};

static PyObject *route_xxh64(PyObject *module, PyObject *args) {
    Py_buffer data;
    unsigned long long seed = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*|K", &data, &seed)) return NULL;
    uint64_t hash = dpf_xxh64(data.buf, (uint64_t)data.len, seed);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLongLong(hash);
}

static PyMethodDef functions[] = {
    {"route_key", FAST(route_key), "route_key(model, user, ts_ms): the key of a session, 12 to 252 bytes."},
    {"route_hash", FAST(route_hash), "route_hash(model, user, ts_ms, key_seed=...): the hash of that key."},
    {"route_seed", route_seed, METH_O, "route_seed(name): the seed of an instance; name is bytes."},
    {"route_cost", route_cost, METH_O, "route_cost(hash): what an instance of weight 1 with that hash bids, 1 to 2**46."},
    {"xxh64", route_xxh64, METH_VARARGS, "xxh64(data, seed=0): XXH64."},
    {0},
};

bool core_add_route(PyObject *module) {
    dpf_table_logs(logs);
    core_route_table_type = core_add_type(module, &table_spec);
    return core_route_table_type != NULL && PyModule_AddFunctions(module, functions) == 0 && core_add_route_map(module) &&
           core_add_health(module);
}
