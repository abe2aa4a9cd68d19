/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of dpfedge._core share: object layouts, the errors of dpfedge.errors, argument helpers.
 *
 * Every object of a link keeps its arena alive, and the arena's memory is unmapped with the last of them: a view
 * handed to Python can never point to unmapped memory. All calls run under the GIL except the waits.
 */
#ifndef DPF_CORE_H
#define DPF_CORE_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "dpf/arena.h"
#include "dpf/posix.h"

typedef struct {
    PyObject_HEAD
    dpf_arena arena;
    void *base;
    uint64_t nbytes;
    uint32_t *attached; /* per ring: producers, and consumers of each place, of this process */
    bool closed;
    bool sealed;
} ArenaObject;

/* How long a wait looks before it sleeps when nobody says: about what a sleep and a wake-up cost. */
enum { CORE_SPIN_NS = 50000 };

/* One side of a ring. `live`: loans or leases that still hold a slot. */
typedef struct {
    PyObject_HEAD
    ArenaObject *arena;
    dpf_ring ring;
    uint32_t index;
    uint32_t place; /* of a consumer */
    uint32_t owner;
    uint32_t fork;
    uint32_t live;
    uint32_t suspect; /* the peer's owner, when its process was dead at the last look */
    uint64_t look_ns; /* when to look next */
    dpf_spinner spinner;
    bool closed;
    bool attached;
} PortObject;

/* The right to use a slot: a loan (writable) or a lease (read-only). */
typedef struct {
    PyObject_HEAD
    PortObject *port;
    dpf_descriptor descriptor; /* of a loan: slot, generation and nbytes only */
    PyObject *view;            /* weak reference to the memoryview handed out */
    PyObject *weakrefs;
    Py_ssize_t exports;
    bool ended; /* the caller gave it up */
    bool held;  /* shared memory still names us: until `ended` and the last export is gone */
} RightObject;

extern PyTypeObject *core_arena_type, *core_producer_type, *core_consumer_type, *core_loan_type, *core_lease_type;
extern PyTypeObject *core_bell_type, *core_requests_type;
extern PyObject *core_link_error, *core_would_block, *core_link_timeout, *core_lease_error, *core_peer_gone;
extern PyObject *core_usage_error, *core_busy, *core_route_error;

/* Grows by one in every forked child: an object made before the fork belongs to the parent. */
extern uint32_t core_fork;

/* Sets `type(what, where=, found=, allowed=, remedy=)` and returns NULL. `found` and `allowed` are stolen, may be NULL. */
PyObject *core_raise(PyObject *type, const char *where, const char *what, PyObject *found, PyObject *allowed,
                     const char *remedy);

/* An int (or anything with __index__) in 0 .. most; false with UsageError set. */
bool core_unsigned(PyObject *value, const char *where, uint64_t most, uint64_t *out);

/* CLOCK_MONOTONIC deadline for a timeout of None (0: none) or nanoseconds; false with an error set. */
bool core_deadline(PyObject *timeout_ns, const char *where, uint64_t *deadline_ns);

/* A dtype name of dpfedge.tensors for a code; NULL beyond the last. */
const char *core_dtype_name(uint32_t code);

/* numpy.frombuffer(owner, dtype, count, offset).reshape(shape); steals nothing. */
PyObject *core_array(PyObject *owner, PyObject *dtype, Py_ssize_t count, Py_ssize_t offset, PyObject *shape);
/* The NumPy dtype of a code, borrowed; NULL with UsageError set. */
PyObject *core_numpy_dtype(uint32_t code);
/* The NumPy dtype of a name of dpfedge.tensors or of anything numpy.dtype takes, new; NULL with an error set. */
PyObject *core_any_dtype(PyObject *dtype);

/* rights.c: a new loan or lease, which takes over the slot the caller just got. */
PyObject *core_right_new(PyTypeObject *type, PortObject *port, const dpf_descriptor *descriptor);
/* Ends a right: no new view, views handed out are released; frees the slot now or with the last export. */
void core_right_end(RightObject *right, bool already_dropped);
/* Releases the memoryview handed out, where nothing was built over it. */
void core_right_end_views(RightObject *right);
/* Whether the right may still be used; false with LeaseError set. */
bool core_right_usable(RightObject *right);

/* message.c: the keyword arguments of send and publish. */
enum { CORE_KEYWORDS = 11 };
bool core_ready_keywords(void);
/* Sorts the named values into `found`; false with TypeError set when one is unknown or missing. */
bool core_read_keywords(PyObject *const *values, PyObject *names, PyObject **found);
/* Fills the descriptor; slot and generation are the loan's. False with UsageError set when something does not fit. */
bool core_read_message(PyObject **found, const RightObject *loan, dpf_descriptor *descriptor);

/* peer.c: the process at the other end. Writes down that this process has the port. */
void core_peer_sign(PortObject *port);
/* Sleeps on `bell` until it was rung since `seen`, or for a while: DPF_OK (look again), DPF_TIMEOUT when `deadline_ns` (0: none)
 * has passed, or DPF_SIGNAL with an error set: a signal handler's, or PeerGone when the other end's process is dead. */
dpf_result core_peer_wait(PortObject *port, dpf_bell *bell, uint32_t seen, uint64_t deadline_ns, uint64_t spin_ns);
/* False with PeerGone set when the other end's process is dead now. */
bool core_peer_lives(PortObject *port);
PyObject *core_peer_gone_property(PyObject *port, void *closure);

/* ports.c */
/* Whether the port may be used in this process; false with LinkError set. */
bool core_port_usable(PortObject *port);
/* What one receive found, new; NULL with an error set, None when nothing waits. */
PyObject *core_receive(PortObject *consumer);
PyObject *core_port_new(PyTypeObject *type, ArenaObject *arena, uint32_t index, uint32_t place, uint32_t owner);
void core_port_settle(PortObject *port); /* detaches a closed port whose last right ended */

/* wait.c */
PyObject *core_consumer_wait(PyObject *consumer, PyObject *const *args, Py_ssize_t count, PyObject *names);

bool core_add_arena(PyObject *module);
bool core_add_ports(PyObject *module);
bool core_add_rights(PyObject *module);
bool core_add_signals(PyObject *module);
bool core_add_layout(PyObject *module);
bool core_add_route(PyObject *module);
bool core_add_sha256(PyObject *module);
PyTypeObject *core_add_type(PyObject *module, PyType_Spec *spec);

PyObject *core_bell_new(ArenaObject *arena, uint32_t index);
PyObject *core_requests_new(ArenaObject *arena);

#endif
