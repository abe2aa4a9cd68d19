/* SPDX-License-Identifier: Apache-2.0
 *
 * What the routing files of dpfedge._core share: the ids of a session, read from Python once for all callers.
 */
#ifndef DPF_CORE_ROUTE_H
#define DPF_CORE_ROUTE_H

#include "core.h"
#include "dpf/table.h"

typedef struct {
    PyObject_HEAD
    dpf_table table;
    uint64_t key_seed;
    uint32_t heirs_left, heirs_at; /* how many slots find_heirs has not looked at since the last change, and the next one */
    uint64_t changes; /* of the instances, so that a build without the GIL sees whether it is of yesterday */
} RouteTableObject;

extern PyTypeObject *core_route_table_type;

/* The key hash of (model, user, ts_ms); false with UsageError or TypeError set. */
bool core_route_hash(PyObject *const *args, Py_ssize_t count, uint64_t key_seed, uint64_t *hash);

/* An owner as Python sees it: an index, or what the object's method `nobody` returns or raises. */
PyObject *core_route_owner(PyObject *self, uint32_t owner);

bool core_add_route_map(PyObject *module);
bool core_add_health(PyObject *module);

#endif
