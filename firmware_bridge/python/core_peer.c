/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits of a port that end when the process at the other end is dead.
 *
 * A supervisor knows a death from its pidfd and reclaims within a millisecond or two; whoever has none must look. A look costs some
 * 10 us, so only those who wait look, LOOK_NS apart, and believe the second look: the first may be the supervisor's own moment.
 */
#include "core.h"

#include <errno.h>

#define LOOK_NS 50000000u

static bool is_producer(const PortObject *self) {
    return Py_TYPE((PyObject *)self) == core_producer_type;
}

void core_peer_sign(PortObject *self) {
    dpf_control *control = self->ring.control;
    dpf_process_sign(is_producer(self) ? &control->process : &control->place[self->place].process, self->owner);
}

static uint32_t gone(const PortObject *self) {
    return is_producer(self) ? dpf_ring_gone_consumer(&self->ring) : dpf_ring_gone_producer(&self->ring);
}

static void raise_gone(const PortObject *self, uint32_t owner) {
    core_raise(core_peer_gone, self->ring.name, is_producer(self) ? "the consumer's process is dead" : "the producer's process is dead",
               PyUnicode_FromFormat("owner %lu", (unsigned long)owner), NULL, "reclaim that owner, then start its successor");
}

/* When it is time to: whether this look and the one before found the same owner dead; then with PeerGone set. */
static bool found_dead(PortObject *self, uint64_t now) {
    if (self->look_ns == 0 || now >= self->look_ns + LOOK_NS) { /* nobody waited meanwhile: no look keeps a message waiting */
        self->look_ns = now + LOOK_NS;
        return false;
    }
    if (now < self->look_ns) return false;
    uint32_t before = self->suspect;
    self->look_ns = now + LOOK_NS;
    self->suspect = gone(self);
    if (self->suspect == 0 || self->suspect != before) return false;
    raise_gone(self, before);
    return true;
}

dpf_result core_peer_wait(PortObject *self, dpf_bell *bell, uint32_t seen, uint64_t deadline_ns, uint64_t spin_ns) {
    uint64_t now = dpf_now_ns();
    if (deadline_ns != 0 && now >= deadline_ns) return DPF_TIMEOUT;
    if (found_dead(self, now)) return DPF_SIGNAL;
    uint64_t until = deadline_ns != 0 && deadline_ns < self->look_ns ? deadline_ns : self->look_ns;
    int waited;
    Py_BEGIN_ALLOW_THREADS
    waited = dpf_bell_wait(bell, seen, until, spin_ns);
    Py_END_ALLOW_THREADS
    if (PyErr_CheckSignals() < 0) return DPF_SIGNAL; /* also of one that another thread got */
    if (waited < 0) {
        errno = -waited;
        PyErr_SetFromErrno(PyExc_OSError);
        return DPF_SIGNAL;
    }
    return core_port_usable(self) ? DPF_OK : DPF_SIGNAL;
}

bool core_peer_lives(PortObject *self) {
    uint32_t owner = gone(self);
    if (owner != 0) raise_gone(self, owner);
    return owner == 0;
}

PyObject *core_peer_gone_property(PyObject *object, void *closure) {
    (void)closure;
    return PyBool_FromLong(gone((PortObject *)object) != 0);
}
