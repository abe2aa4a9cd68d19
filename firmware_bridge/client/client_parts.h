/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of libdpfedge share: a session from the inside.
 */
#ifndef DPF_CLIENT_PARTS_H
#define DPF_CLIENT_PARTS_H

#include <pthread.h>
#include <sys/types.h>

#include "client_wire.h"
#include "dpf/client.h"
#include "dpf/posix.h"

/* One ring and what its users take turns with; nobody waits for anything but the lock while he has it. */
typedef struct dpf_client_ring {
    pthread_mutex_t lock;
    dpf_ring ring;
    int bell; /* the server writes a byte for every message; -1: a ring to the server */
    uint64_t skipped;
} dpf_client_ring;

struct dpf_client {
    dpf_client_ring rings[DPF_WIRE_RINGS];
    dpf_arena arena;
    void *base;
    uint64_t nbytes, key;
    uint32_t output_hz;
    int socket;
    int hang; /* an eventfd that is written once, when the session is hung up */
    pid_t opener; /* a child that it forked has copies of these descriptors, and may not end its session */
    DPF_ATOMIC(uint32_t) hung;
};

/* When a wait ends: 0 = never. */
uint64_t dpf_client_deadline(int timeout_ms);

/* What is left until then, for poll. */
int dpf_client_left_ms(uint64_t deadline_ns);

#endif
