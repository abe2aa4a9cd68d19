/* SPDX-License-Identifier: Apache-2.0
 *
 * The server's side of a session, for tests of dpf/client.h: it does what a test tells it and nothing else.
 */
#ifndef DPF_FAKE_SERVER_H
#define DPF_FAKE_SERVER_H

#include "client_wire.h"
#include "dpf/client.h"
#include "dpf/posix.h"

/* What the next welcome is like. */
typedef enum fake_mood { FAKE_KIND, FAKE_BUSY, FAKE_OTHER_VERSION, FAKE_NONSENSE, FAKE_NO_FDS, FAKE_BAD_ARENA, FAKE_SILENT_END } fake_mood;

typedef struct fake_server {
    int listener;
    char path[108];
} fake_server;

typedef struct fake_session {
    int socket, bells[2], arena_fd;
    void *base;
    uint64_t nbytes, key;
    dpf_arena arena;
    dpf_ring rings[DPF_WIRE_RINGS];
    dpf_wire_hello hello;
    char instructions[DPF_WIRE_TEXT_MAX + 1];
} fake_session;

void fake_listen(fake_server *server, const char *path);
void fake_end(fake_server *server);

/* Takes the next client; `session` is usable when the mood is kind. */
void fake_accept(fake_server *server, fake_mood mood, fake_session *session);
void fake_close(fake_session *session);

bool fake_event(fake_session *session, uint8_t kind, uint32_t number, uint32_t code, const char *text);
bool fake_sound(fake_session *session, uint32_t epoch, uint32_t number, int16_t value, uint32_t count, bool last);

/* The next message of a ring from the client, waited for; release it with fake_release. NULL: the client left. */
const unsigned char *fake_receive(fake_session *session, uint32_t ring, dpf_descriptor *message);
void fake_release(fake_session *session, uint32_t ring, const dpf_descriptor *message);

#endif
