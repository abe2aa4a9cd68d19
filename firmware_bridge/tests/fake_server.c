/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fake_server.h.
 */
#define _GNU_SOURCE
#include "fake_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"

static const char NAMES[2][DPF_NAME_BYTES] = {"client", "server"};

void fake_listen(fake_server *server, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(server->path, sizeof server->path, "%s", path);
    memcpy(address.sun_path, server->path, sizeof address.sun_path);
    unlink(path);
    server->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(server->listener >= 0 && bind(server->listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(server->listener, 16) == 0);
}

void fake_end(fake_server *server) {
    close(server->listener);
    unlink(server->path);
}

static void make_arena(fake_session *session) {
    static const uint32_t SLOTS[DPF_WIRE_RINGS] = {64, 8, 16, 8};
    static const uint64_t BYTES[DPF_WIRE_RINGS] = {4096, 64, 4096, 8192};
    dpf_link_spec links[DPF_WIRE_RINGS];
    memset(links, 0, sizeof links);
    for (uint32_t i = 0; i < DPF_WIRE_RINGS; i++) {
        snprintf(links[i].name, sizeof links[i].name, "ring%u", i);
        bool up = i < DPF_WIRE_EVENTS;
        links[i] = (dpf_link_spec){.producer = up ? 0 : 1, .places = 1, .consumer = {up ? 1 : 0}, .slots = SLOTS[i],
                                   .policy = DPF_POLICY_FAIL, .slot_bytes = BYTES[i]};
        snprintf(links[i].name, sizeof links[i].name, "ring%u", i);
    }
    dpf_arena_spec spec = {.name = "session", .stages = NAMES, .links = links, .stage_count = 2, .link_count = DPF_WIRE_RINGS,
                           .requests = 1, .page = 4096};
    CHECK(dpf_arena_plan(&spec, &session->nbytes) == DPF_OK);
    session->arena_fd = dpf_memory_create("session", session->nbytes);
    CHECK(session->arena_fd >= 0 && dpf_memory_map(session->arena_fd, &session->base, &session->nbytes) == 0);
    CHECK(dpf_arena_format(&spec, session->base, session->nbytes) == DPF_OK);
    CHECK(dpf_arena_open(session->base, session->nbytes, &session->arena) == DPF_OK);
    CHECK(dpf_requests_open(&session->arena.requests, 3, dpf_now_ns(), &session->key) == DPF_OK);
    for (uint32_t i = 0; i < DPF_WIRE_RINGS; i++) {
        CHECK(dpf_arena_ring(&session->arena, i, &session->rings[i]) == DPF_OK);
        if (i < DPF_WIRE_EVENTS) {
            CHECK(dpf_ring_attach_consumer(&session->rings[i], 0, DPF_WIRE_SERVER) == DPF_OK);
        } else {
            CHECK(dpf_ring_attach_producer(&session->rings[i], DPF_WIRE_SERVER) == DPF_OK);
        }
    }
}

static void send_packet(int fd, const void *bytes, size_t size, const int *fds, int count) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(3 * sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    struct iovec part = {(void *)bytes, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count != 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(head), fds, (size_t)count * sizeof(int));
    }
    CHECK(sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)size);
}

static void refuse(fake_session *session, uint32_t status, uint16_t major, const char *text) {
    char packet[512] = {0};
    dpf_wire_welcome welcome = {.magic = {'D', 'P', 'F', 'S'}, .major = major, .status = status, .why_bytes = (uint32_t)strlen(text)};
    memcpy(packet, &welcome, sizeof welcome);
    memcpy(packet + sizeof welcome, text, strlen(text));
    send_packet(session->socket, packet, sizeof welcome + strlen(text), NULL, 0);
    close(session->socket);
}

static void welcome_client(fake_session *session, fake_mood mood) {
    make_arena(session);
    int down[2][2];
    CHECK(pipe2(down[0], O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(down[1], O_CLOEXEC | O_NONBLOCK) == 0);
    session->bells[0] = down[0][1];
    session->bells[1] = down[1][1];
    int fds[DPF_WIRE_FDS] = {session->arena_fd, down[0][0], down[1][0]};
    if (mood == FAKE_BAD_ARENA) memset(session->base, 7, 64);
    dpf_wire_welcome welcome = {.magic = {'D', 'P', 'F', 'S'}, .major = DPF_CLIENT_MAJOR, .minor = DPF_CLIENT_MINOR, .key = session->key,
                                .input_hz = session->hello.input_hz, .output_hz = 22050};
    send_packet(session->socket, &welcome, sizeof welcome, fds, mood == FAKE_NO_FDS ? 1 : DPF_WIRE_FDS);
    close(down[0][0]);
    close(down[1][0]);
}

void fake_accept(fake_server *server, fake_mood mood, fake_session *session) {
    static char packet[sizeof(dpf_wire_hello) + DPF_WIRE_TEXT_MAX];
    memset(session, 0, sizeof *session);
    session->socket = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(session->socket >= 0);
    ssize_t size = recv(session->socket, packet, sizeof packet, 0);
    CHECK(size >= (ssize_t)sizeof session->hello);
    memcpy(&session->hello, packet, sizeof session->hello);
    memcpy(session->instructions, packet + sizeof session->hello, (size_t)size - sizeof session->hello);
    CHECK(memcmp(session->hello.magic, DPF_WIRE_HELLO, 4) == 0 && session->hello.bytes == sizeof session->hello);
    if (mood == FAKE_KIND || mood == FAKE_NO_FDS || mood == FAKE_BAD_ARENA) welcome_client(session, mood);
    if (mood == FAKE_BUSY) refuse(session, -DPF_CLIENT_BUSY, DPF_CLIENT_MAJOR, "every session is taken; allowed 8");
    if (mood == FAKE_OTHER_VERSION) refuse(session, 0, DPF_CLIENT_MAJOR + 1, "");
    if (mood == FAKE_NONSENSE) {
        send_packet(session->socket, "HTTP/1.1 400 Bad Request", 24, NULL, 0);
        close(session->socket);
    }
    if (mood == FAKE_SILENT_END) close(session->socket);
}

void fake_close(fake_session *session) {
    close(session->socket);
    close(session->bells[0]);
    close(session->bells[1]);
    close(session->arena_fd);
    dpf_memory_unmap(session->base, session->nbytes);
}

static bool deliver(fake_session *session, uint32_t ring, dpf_descriptor *message) {
    CHECK(dpf_ring_send(&session->rings[ring], DPF_WIRE_SERVER, message, false) == DPF_OK);
    return write(session->bells[ring - DPF_WIRE_EVENTS], "", 1) == 1;
}

bool fake_event(fake_session *session, uint8_t kind, uint32_t number, uint32_t code, const char *text) {
    dpf_ring *ring = &session->rings[DPF_WIRE_EVENTS];
    dpf_wire_event head = {.code = code, .at_ms = 40, .text_bytes = (uint32_t)strlen(text)};
    dpf_descriptor message = {.kind = kind, .request = number, .captured_ns = dpf_now_ns(),
                              .nbytes = (uint32_t)(sizeof head + strlen(text) + 1)};
    if (dpf_ring_loan(ring, DPF_WIRE_SERVER, &message.slot, &message.generation) != DPF_OK) return false;
    memcpy(dpf_ring_slot(ring, message.slot), &head, sizeof head);
    memcpy(dpf_ring_slot(ring, message.slot) + sizeof head, text, strlen(text) + 1);
    return deliver(session, DPF_WIRE_EVENTS, &message);
}

bool fake_sound(fake_session *session, uint32_t epoch, uint32_t number, int16_t value, uint32_t count, bool last) {
    dpf_ring *ring = &session->rings[DPF_WIRE_SOUND];
    dpf_descriptor message = {.kind = 1, .request = number, .turn = epoch, .nbytes = count * 2, .flags = last ? DPF_LAST : 0};
    if (dpf_ring_loan(ring, DPF_WIRE_SERVER, &message.slot, &message.generation) != DPF_OK) return false;
    int16_t *samples = (int16_t *)(void *)dpf_ring_slot(ring, message.slot);
    for (uint32_t i = 0; i < count; i++) samples[i] = value;
    return deliver(session, DPF_WIRE_SOUND, &message);
}

const unsigned char *fake_receive(fake_session *session, uint32_t ring, dpf_descriptor *message) {
    for (;;) {
        char byte;
        dpf_result result = dpf_ring_receive(&session->rings[ring], DPF_WIRE_SERVER, message);
        CHECK(result != DPF_CORRUPT);
        if (result == DPF_OK) return dpf_ring_slot(&session->rings[ring], message->slot);
        if (recv(session->socket, &byte, 1, 0) <= 0) {
            return dpf_ring_receive(&session->rings[ring], DPF_WIRE_SERVER, message) == DPF_OK
                       ? dpf_ring_slot(&session->rings[ring], message->slot)
                       : NULL;
        }
    }
}

void fake_release(fake_session *session, uint32_t ring, const dpf_descriptor *message) {
    CHECK(dpf_ring_release(&session->rings[ring], DPF_WIRE_SERVER, message->slot) == DPF_OK);
    dpf_ring_wake(&session->rings[ring]);
}
