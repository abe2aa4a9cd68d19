/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and closing a session of dpf/client.h: the socket, the handshake, the shared memory.
 */
#define _GNU_SOURCE
#include "client_parts.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_MS = 5000, RETRY_MS = 50 };
#define MS 1000000u

/* Where words about a failure go. */
typedef struct explanation {
    char *text;
    size_t room;
} explanation;

__attribute__((format(printf, 3, 4))) static int fail(explanation *why, int status, const char *format, ...) {
    if (why->text == NULL || why->room == 0) return status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, why->room, format, arguments);
    va_end(arguments);
    return status;
}

uint32_t dpf_client_version(void) {
    return (uint32_t)DPF_CLIENT_MAJOR << 16 | DPF_CLIENT_MINOR;
}

const char *dpf_client_status_text(int status) {
    static const char *const TEXTS[] = {
        "ok", "nothing came in time", "an argument is impossible", "no server listens there", "the server is another user's",
        "the server speaks another version", "the server is not ready", "every session is taken", "the server refuses the options",
        "the server is gone", "the session was hung up", "that is no dpfedge server", "the system refused memory or descriptors",
        "the server could not open the session",
    };
    return status > 0 || -status >= (int)(sizeof TEXTS / sizeof *TEXTS) ? "no status of dpf/client.h" : TEXTS[-status];
}

void dpf_client_options_init(dpf_client_options *options, size_t bytes) {
    if (options == NULL || bytes < sizeof *options) return;
    memset(options, 0, bytes);
    options->bytes = (uint32_t)bytes;
    options->input_hz = 16000;
}

uint64_t dpf_client_deadline(int timeout_ms) {
    return timeout_ms < 0 ? 0 : dpf_now_ns() + (uint64_t)timeout_ms * MS;
}

int dpf_client_left_ms(uint64_t deadline_ns) {
    if (deadline_ns == 0) return -1;
    uint64_t now = dpf_now_ns();
    if (now >= deadline_ns) return 0;
    uint64_t left = (deadline_ns - now + MS - 1) / MS;
    return left > 1000000 ? 1000000 : (int)left;
}

/* Where `dpf_client_options.socket` is when nobody says. */
static void default_path(char *path, size_t room) {
    const char *given = getenv("DPFEDGE_NATIVE"), *run = getenv("XDG_RUNTIME_DIR"), *home = getenv("DPFEDGE_HOME");
    const char *temporary = getenv("TMPDIR");
    if (given != NULL && *given != 0) {
        snprintf(path, room, "%s", given);
    } else if (run != NULL && *run != 0) {
        snprintf(path, room, "%s/dpfedge/serve-8080.native", run);
    } else if (home != NULL && *home != 0) {
        snprintf(path, room, "%s/run/serve-8080.native", home);
    } else {
        snprintf(path, room, "%s/dpfedge-%u/serve-8080.native", temporary != NULL && *temporary != 0 ? temporary : "/tmp",
                 (unsigned)getuid());
    }
}

static int connect_to(const dpf_client_options *options, int *fd, explanation *why) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[4096];
    if (options->socket != NULL) {
        snprintf(path, sizeof path, "%s", options->socket);
    } else {
        default_path(path, sizeof path);
    }
    if (strlen(path) >= sizeof address.sun_path) {
        return fail(why, DPF_CLIENT_BAD, "%s: longer than the %zu bytes of a socket's path", path, sizeof address.sun_path - 1);
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (*fd < 0) return fail(why, DPF_CLIENT_SYSTEM, "no socket: %s", strerror(errno));
    struct timeval most = {.tv_sec = ANSWER_MS / 1000};
    setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    int result;
    do {
        result = connect(*fd, (const struct sockaddr *)&address, sizeof address);
    } while (result < 0 && errno == EINTR);
    if (result == 0) return DPF_CLIENT_OK;
    int error = errno;
    close(*fd);
    if (error == EPROTOTYPE) return fail(why, DPF_CLIENT_PROTOCOL, "%s: not a native socket; its name ends in .native", path);
    int status = error == EACCES || error == EPERM ? DPF_CLIENT_DENIED : DPF_CLIENT_NO_SERVER;
    return fail(why, status, "%s: %s", path, strerror(error));
}

static int say_hello(int fd, const dpf_client_options *options, explanation *why) {
    size_t words = options->instructions == NULL ? 0 : strlen(options->instructions);
    if (words > DPF_WIRE_TEXT_MAX) return fail(why, DPF_CLIENT_BAD, "instructions of %zu bytes; allowed %d", words, DPF_WIRE_TEXT_MAX);
    dpf_wire_hello hello = {
        .magic = {DPF_WIRE_HELLO[0], DPF_WIRE_HELLO[1], DPF_WIRE_HELLO[2], DPF_WIRE_HELLO[3]},
        .major = DPF_CLIENT_MAJOR,
        .minor = DPF_CLIENT_MINOR,
        .bytes = sizeof hello,
        .flags = options->flags,
        .input_hz = options->input_hz,
        .output_hz = options->output_hz,
        .silence_ms = options->silence_ms,
        .max_answer_tokens = options->max_answer_tokens,
        .instructions_bytes = options->instructions == NULL ? DPF_WIRE_NO_TEXT : (uint32_t)words,
    };
    struct iovec parts[2] = {{&hello, sizeof hello}, {(void *)options->instructions, words}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = words == 0 ? 1 : 2};
    ssize_t sent;
    do {
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? fail(why, DPF_CLIENT_GONE, "the server left: %s", strerror(errno)) : DPF_CLIENT_OK;
}

/* Copies the descriptors of a packet; how many there were. */
static int descriptors_of(struct msghdr *message, int fds[DPF_WIRE_FDS]) {
    int count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        size_t here = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            if (count < DPF_WIRE_FDS) {
                fds[count++] = fd;
            } else {
                close(fd);
            }
        }
    }
    return count;
}

/* Receives the welcome and its descriptors, or says why there is none. */
static int await_welcome(int fd, dpf_wire_welcome *welcome, int fds[DPF_WIRE_FDS], explanation *why) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(8 * sizeof(int))];
    } control;
    char text[DPF_WIRE_WHY_MAX + 1];
    struct iovec parts[2] = {{welcome, sizeof *welcome}, {text, sizeof text - 1}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t size;
    do {
        size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    } while (size < 0 && errno == EINTR);
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return fail(why, DPF_CLIENT_NOT_READY, "the server does not answer");
    if (size <= 0) return fail(why, DPF_CLIENT_GONE, "the server left: %s", size == 0 ? "no answer" : strerror(errno));
    for (int i = 0; i < DPF_WIRE_FDS; i++) fds[i] = -1;
    int count = descriptors_of(&message, fds);
    if ((size_t)size < sizeof *welcome || memcmp(welcome->magic, DPF_WIRE_WELCOME, 4) != 0) {
        return fail(why, DPF_CLIENT_PROTOCOL, "the answer is no welcome");
    }
    if (welcome->status != 0) {
        size_t words = (size_t)size - sizeof *welcome;
        text[words < welcome->why_bytes ? words : welcome->why_bytes] = 0;
        int status = welcome->status <= -(int)DPF_CLIENT_FAILED ? -(int)welcome->status : DPF_CLIENT_FAILED;
        return fail(why, status, "%s", text);
    }
    if (welcome->major != DPF_CLIENT_MAJOR) return fail(why, DPF_CLIENT_VERSION, "the server speaks version %u", welcome->major);
    if (count != DPF_WIRE_FDS) return fail(why, DPF_CLIENT_SYSTEM, "%d of %d descriptors came (ulimit -n)", count, DPF_WIRE_FDS);
    return DPF_CLIENT_OK;
}

static int open_rings(dpf_client *client, explanation *why) {
    for (uint32_t i = 0; i < DPF_WIRE_RINGS; i++) {
        dpf_client_ring *one = &client->rings[i];
        if (dpf_arena_ring(&client->arena, i, &one->ring) != DPF_OK) return fail(why, DPF_CLIENT_PROTOCOL, "ring %u makes no sense", i);
        bool out = i == DPF_WIRE_MICROPHONE || i == DPF_WIRE_STOPS;
        dpf_result result = out ? dpf_ring_attach_producer(&one->ring, DPF_WIRE_CLIENT)
                                : dpf_ring_attach_consumer(&one->ring, 0, DPF_WIRE_CLIENT);
        if (result != DPF_OK) return fail(why, DPF_CLIENT_PROTOCOL, "ring %u is somebody else's", i);
        if (one->ring.slot_bytes < (i == DPF_WIRE_MICROPHONE ? DPF_WIRE_SAY_MAX : 2 * sizeof(dpf_wire_event))) {
            return fail(why, DPF_CLIENT_PROTOCOL, "ring %u has slots of %llu bytes", i, (unsigned long long)one->ring.slot_bytes);
        }
    }
    return DPF_CLIENT_OK;
}

static int map(dpf_client *client, const dpf_wire_welcome *welcome, int arena, explanation *why) {
    int result = dpf_memory_map(arena, &client->base, &client->nbytes);
    if (result != 0) return fail(why, DPF_CLIENT_SYSTEM, "the memory cannot be mapped: %s", strerror(-result));
    if (dpf_arena_open(client->base, client->nbytes, &client->arena) != DPF_OK || client->arena.ring_count != DPF_WIRE_RINGS) {
        return fail(why, DPF_CLIENT_PROTOCOL, "the memory is no session's");
    }
    client->key = welcome->key;
    client->output_hz = welcome->output_hz;
    if (!dpf_requests_live(&client->arena.requests, client->key, NULL, NULL)) {
        return fail(why, DPF_CLIENT_PROTOCOL, "the memory does not know the session");
    }
    return open_rings(client, why);
}

static dpf_client *new_client(void) {
    dpf_client *client = calloc(1, sizeof *client);
    if (client == NULL) return NULL;
    client->socket = client->hang = -1;
    client->opener = getpid();
    for (int i = 0; i < DPF_WIRE_RINGS; i++) {
        client->rings[i].bell = -1;
        pthread_mutex_init(&client->rings[i].lock, NULL);
    }
    return client;
}

static int try_open(dpf_client *client, const dpf_client_options *options, explanation *why) {
    dpf_wire_welcome welcome;
    int fds[DPF_WIRE_FDS] = {-1, -1, -1};
    int status = connect_to(options, &client->socket, why);
    if (status != DPF_CLIENT_OK) {
        client->socket = -1;
        return status;
    }
    status = say_hello(client->socket, options, why);
    if (status == DPF_CLIENT_OK) status = await_welcome(client->socket, &welcome, fds, why);
    client->rings[DPF_WIRE_EVENTS].bell = fds[DPF_WIRE_EVENT_BELL];
    client->rings[DPF_WIRE_SOUND].bell = fds[DPF_WIRE_SOUND_BELL];
    if (status == DPF_CLIENT_OK) status = map(client, &welcome, fds[DPF_WIRE_ARENA], why);
    if (fds[DPF_WIRE_ARENA] >= 0) close(fds[DPF_WIRE_ARENA]);
    if (status != DPF_CLIENT_OK) return status;
    client->hang = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return client->hang < 0 ? fail(why, DPF_CLIENT_SYSTEM, "no eventfd: %s", strerror(errno)) : DPF_CLIENT_OK;
}

static int check(const dpf_client_options *options, explanation *why) {
    if (options->bytes < sizeof *options) {
        return fail(why, DPF_CLIENT_BAD, "options of %u bytes: use dpf_client_options_init", options->bytes);
    }
    if (options->flags & ~(uint32_t)DPF_CLIENT_FLAGS) return fail(why, DPF_CLIENT_BAD, "flags 0x%x: unknown bits", options->flags);
    return DPF_CLIENT_OK;
}

int dpf_client_open(const dpf_client_options *options, dpf_client **opened, char *text, size_t room) {
    explanation why = {text, room};
    if (opened == NULL) return DPF_CLIENT_BAD;
    *opened = NULL;
    if (options == NULL) return fail(&why, DPF_CLIENT_BAD, "no options");
    int status = check(options, &why);
    if (status != DPF_CLIENT_OK) return status;
    uint64_t deadline = dpf_now_ns() + (uint64_t)options->wait_ms * MS;
    for (;;) {
        dpf_client *client = new_client();
        if (client == NULL) return fail(&why, DPF_CLIENT_SYSTEM, "no memory");
        status = try_open(client, options, &why);
        if (status == DPF_CLIENT_OK) {
            *opened = client;
            return status;
        }
        dpf_client_close(client);
        bool again = status == DPF_CLIENT_NO_SERVER || status == DPF_CLIENT_NOT_READY || status == DPF_CLIENT_GONE;
        if (!again || dpf_now_ns() >= deadline) return status;
        poll(NULL, 0, RETRY_MS);
    }
}

void dpf_client_close(dpf_client *client) {
    if (client == NULL) return;
    if (client->socket >= 0) {
        if (client->opener == getpid()) shutdown(client->socket, SHUT_RDWR); /* close alone ends it only when every copy is closed */
        close(client->socket);
    }
    if (client->hang >= 0) close(client->hang);
    for (int i = 0; i < DPF_WIRE_RINGS; i++) {
        if (client->rings[i].bell >= 0) close(client->rings[i].bell);
        pthread_mutex_destroy(&client->rings[i].lock);
    }
    if (client->base != NULL) dpf_memory_unmap(client->base, client->nbytes);
    free(client);
}
