/* SPDX-License-Identifier: Apache-2.0
 *
 * A session of dpf/client.h at work: samples and commands out, events and sound in.
 */
#define _GNU_SOURCE
#include "client_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define SLICE_NS 50000000u /* how soon a thread that waits for room notices that the server is gone */

enum { DTYPE_I16 = 7, I16_BYTES = 2 };

/* --- whether the session lasts --- */

int dpf_client_state(const dpf_client *client) {
    if (client == NULL) return DPF_CLIENT_BAD;
    if (atomic_load(&((dpf_client *)client)->hung)) return DPF_CLIENT_CLOSED;
    /* The server sends nothing after its welcome: whatever can be read here is the end. */
    struct pollfd end = {.fd = client->socket, .events = POLLIN | POLLRDHUP};
    return poll(&end, 1, 0) == 1 ? DPF_CLIENT_GONE : DPF_CLIENT_OK;
}

void dpf_client_hang_up(dpf_client *client) {
    if (client == NULL || atomic_exchange(&client->hung, 1)) return;
    eventfd_write(client->hang, 1);
    shutdown(client->socket, SHUT_RDWR);
    dpf_arena_wake(&client->arena);
}

uint32_t dpf_client_output_hz(const dpf_client *client) {
    return client == NULL ? 0 : client->output_hz;
}

int dpf_client_event_fd(const dpf_client *client) {
    return client == NULL ? -1 : client->rings[DPF_WIRE_EVENTS].bell;
}

int dpf_client_sound_fd(const dpf_client *client) {
    return client == NULL ? -1 : client->rings[DPF_WIRE_SOUND].bell;
}

/* Tells the server to look. When its queue is full it has not looked yet and will. */
static void ring_server(dpf_client *client) {
    ssize_t sent;
    do {
        sent = send(client->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
}

/* --- to the server --- */

static dpf_result try_loan(dpf_client_ring *one, dpf_descriptor *message) {
    pthread_mutex_lock(&one->lock);
    dpf_result result = dpf_ring_loan(&one->ring, DPF_WIRE_CLIENT, &message->slot, &message->generation);
    pthread_mutex_unlock(&one->lock);
    return result;
}

/* A free slot of a ring to the server, waited for. */
static int loan(dpf_client *client, dpf_client_ring *one, dpf_descriptor *message, int timeout_ms) {
    uint64_t deadline = dpf_client_deadline(timeout_ms);
    for (;;) {
        int status = dpf_client_state(client);
        if (status != DPF_CLIENT_OK) return status;
        uint32_t seen = dpf_bell_value(one->ring.producer_bell);
        dpf_result result = try_loan(one, message);
        if (result == DPF_OK) return DPF_CLIENT_OK;
        if (result != DPF_FULL) return DPF_CLIENT_PROTOCOL;
        uint64_t now = dpf_now_ns();
        if (deadline != 0 && now >= deadline) return DPF_CLIENT_TIMEOUT;
        uint64_t slice = now + SLICE_NS;
        dpf_bell_wait(one->ring.producer_bell, seen, deadline != 0 && deadline < slice ? deadline : slice, 0);
    }
}

static int send_message(dpf_client *client, dpf_client_ring *one, dpf_descriptor *message, bool copied) {
    message->request = client->key;
    pthread_mutex_lock(&one->lock);
    dpf_result result = dpf_ring_send(&one->ring, DPF_WIRE_CLIENT, message, false);
    if (result == DPF_OK && copied) dpf_ring_count_copy(&one->ring, message->nbytes);
    one->ring.wake = 0; /* the server sleeps in its event loop, not on its bell */
    pthread_mutex_unlock(&one->lock);
    if (result == DPF_STALE || result == DPF_BAD) return DPF_CLIENT_BAD;
    if (result != DPF_OK) return DPF_CLIENT_PROTOCOL;
    ring_server(client);
    return DPF_CLIENT_OK;
}

/* Sound of an epoch below it is stopped. */
static uint32_t bound(const dpf_client *client) {
    return (uint32_t)atomic_load(&client->arena.requests.entry[client->key & 0xFFFFu].word);
}

static int send_bytes(dpf_client *client, uint32_t ring, uint8_t kind, const void *bytes, uint32_t nbytes, int timeout_ms) {
    dpf_client_ring *one = &client->rings[ring];
    dpf_descriptor message = {.kind = kind, .nbytes = nbytes, .turn = bound(client), .captured_ns = dpf_now_ns()};
    int status = loan(client, one, &message, timeout_ms);
    if (status != DPF_CLIENT_OK) return status;
    if (nbytes != 0) memcpy(dpf_ring_slot(&one->ring, message.slot), bytes, nbytes);
    return send_message(client, one, &message, nbytes != 0);
}

static uint32_t piece(const dpf_client *client) {
    return (uint32_t)(client->rings[DPF_WIRE_MICROPHONE].ring.slot_bytes / I16_BYTES);
}

static int send_samples(dpf_client *client, uint32_t slot, uint32_t generation, uint32_t count, bool copied) {
    dpf_descriptor message = {.kind = DPF_WIRE_SAMPLES, .slot = slot, .generation = generation, .nbytes = count * I16_BYTES,
                              .dtype = DTYPE_I16, .rank_urgency = 1 | 3 << 4, .shape = {count}, .captured_ns = dpf_now_ns()};
    return send_message(client, &client->rings[DPF_WIRE_MICROPHONE], &message, copied);
}

int dpf_client_push(dpf_client *client, const int16_t *samples, size_t count, int timeout_ms) {
    if (client == NULL || (samples == NULL && count != 0)) return DPF_CLIENT_BAD;
    uint64_t deadline = dpf_client_deadline(timeout_ms);
    while (count != 0) {
        dpf_client_room room;
        int status = dpf_client_loan(client, &room, dpf_client_left_ms(deadline));
        if (status != DPF_CLIENT_OK) return status;
        uint32_t now = count < room.count ? (uint32_t)count : room.count;
        memcpy(room.samples, samples, now * I16_BYTES);
        status = send_samples(client, room.slot, room.generation, now, true);
        if (status != DPF_CLIENT_OK) return status;
        samples += now;
        count -= now;
    }
    return DPF_CLIENT_OK;
}

int dpf_client_loan(dpf_client *client, dpf_client_room *room, int timeout_ms) {
    if (client == NULL || room == NULL) return DPF_CLIENT_BAD;
    dpf_client_ring *one = &client->rings[DPF_WIRE_MICROPHONE];
    dpf_descriptor message;
    memset(room, 0, sizeof *room);
    int status = loan(client, one, &message, timeout_ms);
    if (status != DPF_CLIENT_OK) return status;
    room->samples = (int16_t *)(void *)dpf_ring_slot(&one->ring, message.slot);
    room->count = piece(client);
    room->slot = message.slot;
    room->generation = message.generation;
    return DPF_CLIENT_OK;
}

int dpf_client_send(dpf_client *client, dpf_client_room *room, uint32_t count) {
    if (client == NULL || room == NULL || room->samples == NULL || count > room->count) return DPF_CLIENT_BAD;
    dpf_client_ring *one = &client->rings[DPF_WIRE_MICROPHONE];
    room->samples = NULL;
    if (count != 0) return send_samples(client, room->slot, room->generation, count, false);
    pthread_mutex_lock(&one->lock);
    dpf_result result = dpf_ring_abandon(&one->ring, DPF_WIRE_CLIENT, room->slot, room->generation);
    pthread_mutex_unlock(&one->lock);
    return result == DPF_OK ? DPF_CLIENT_OK : DPF_CLIENT_BAD;
}

int dpf_client_commit(dpf_client *client, int timeout_ms) {
    return client == NULL ? DPF_CLIENT_BAD : send_bytes(client, DPF_WIRE_MICROPHONE, DPF_WIRE_COMMIT, NULL, 0, timeout_ms);
}

int dpf_client_clear(dpf_client *client, int timeout_ms) {
    return client == NULL ? DPF_CLIENT_BAD : send_bytes(client, DPF_WIRE_MICROPHONE, DPF_WIRE_CLEAR, NULL, 0, timeout_ms);
}

int dpf_client_say(dpf_client *client, const char *text, size_t bytes, int timeout_ms) {
    if (client == NULL || text == NULL || bytes == 0 || bytes > DPF_WIRE_SAY_MAX) return DPF_CLIENT_BAD;
    return send_bytes(client, DPF_WIRE_MICROPHONE, DPF_WIRE_SAY, text, (uint32_t)bytes, timeout_ms);
}

int dpf_client_respond(dpf_client *client, int timeout_ms) {
    return client == NULL ? DPF_CLIENT_BAD : send_bytes(client, DPF_WIRE_MICROPHONE, DPF_WIRE_RESPOND, NULL, 0, timeout_ms);
}

int dpf_client_cancel(dpf_client *client, int timeout_ms) {
    return client == NULL ? DPF_CLIENT_BAD : send_bytes(client, DPF_WIRE_MICROPHONE, DPF_WIRE_CANCEL, NULL, 0, timeout_ms);
}

int dpf_client_stop(dpf_client *client, uint32_t heard_ms) {
    int status = dpf_client_state(client);
    if (status != DPF_CLIENT_OK) return status;
    dpf_requests *table = &client->arena.requests;
    dpf_wire_stop stop = {.heard_ms = heard_ms, .before = bound(client) + 1};
    /* First the bound, which never fails: from here on older sound is not returned. Then, where there is room, what was heard. */
    if (dpf_requests_cancel(table, client->key, stop.before) != DPF_OK) return DPF_CLIENT_PROTOCOL;
    status = send_bytes(client, DPF_WIRE_STOPS, 1, &stop, sizeof stop, 0);
    if (status != DPF_CLIENT_TIMEOUT) return status;
    ring_server(client);
    return DPF_CLIENT_OK;
}

/* --- from the server --- */

/* Takes one byte off a bell; the server writes one for every message, so that there are never fewer than messages. */
static bool hush(int bell) {
    struct pollfd rung = {.fd = bell, .events = POLLIN};
    char byte;
    return poll(&rung, 1, 0) == 1 && (rung.revents & POLLIN) != 0 && read(bell, &byte, 1) == 1;
}

/* The oldest message, with the lock: DPF_OK, DPF_EMPTY or DPF_CORRUPT. */
static dpf_result take(dpf_client_ring *one, dpf_descriptor *message) {
    dpf_result result = dpf_ring_receive(&one->ring, DPF_WIRE_CLIENT, message);
    if (result != DPF_EMPTY) {
        hush(one->bell);
        return result;
    }
    /* A byte without a message is left of one that came before its byte did; after it there may be a new one. More such bytes
     * than messages fit are no server's: it may not keep the caller here. */
    for (uint32_t i = 0; result == DPF_EMPTY && i < one->ring.capacity && hush(one->bell); i++) {
        result = dpf_ring_receive(&one->ring, DPF_WIRE_CLIENT, message);
    }
    return result;
}

/* Hands a slot back, with the lock; whether the server found no room before and waits for a word. */
static bool hand_back(dpf_client_ring *one, uint32_t slot) {
    uint32_t seen = dpf_bell_value(one->ring.producer_bell);
    dpf_ring_release(&one->ring, DPF_WIRE_CLIENT, slot); /* rings that bell for a producer that starves */
    one->ring.wake = 0;
    return dpf_bell_value(one->ring.producer_bell) != seen;
}

/* Whether a stop came after this piece of sound was made. */
static bool is_stopped(dpf_client *client, const dpf_client_ring *one, const dpf_descriptor *message) {
    return one == &client->rings[DPF_WIRE_SOUND] && dpf_requests_cancelled(&client->arena.requests, client->key, message->turn);
}

/* The oldest message that was not stopped; DPF_EMPTY also when more than fit at once had to be passed over: look again. */
static dpf_result take_wanted(dpf_client *client, dpf_client_ring *one, dpf_descriptor *message) {
    bool awaited = false, wanted = false;
    pthread_mutex_lock(&one->lock);
    dpf_result result = DPF_CORRUPT;
    for (uint32_t i = 0; i <= one->ring.capacity && result != DPF_EMPTY && !wanted; i++) {
        result = take(one, message);
        wanted = result == DPF_OK && !is_stopped(client, one, message);
        if (result == DPF_OK && !wanted) {
            awaited |= hand_back(one, message->slot);
            one->skipped++;
        }
    }
    pthread_mutex_unlock(&one->lock);
    if (awaited) ring_server(client);
    return wanted ? DPF_OK : DPF_EMPTY;
}

/* Sleeps until the ring's bell, the end of the session or the deadline. */
static void sleep_until(dpf_client *client, dpf_client_ring *one, uint64_t deadline) {
    struct pollfd reasons[3] = {
        {.fd = one->bell, .events = POLLIN},
        {.fd = client->hang, .events = POLLIN},
        {.fd = client->socket, .events = POLLIN | POLLRDHUP},
    };
    poll(reasons, 3, dpf_client_left_ms(deadline));
}

static int next(dpf_client *client, uint32_t ring, dpf_descriptor *message, int timeout_ms) {
    dpf_client_ring *one = &client->rings[ring];
    uint64_t deadline = dpf_client_deadline(timeout_ms);
    for (;;) {
        int status = dpf_client_state(client); /* before the look: what was sent before the end is still found */
        if (status == DPF_CLIENT_CLOSED) return status;
        if (take_wanted(client, one, message) == DPF_OK) return DPF_CLIENT_OK;
        if (status != DPF_CLIENT_OK) return status;
        if (deadline != 0 && dpf_now_ns() >= deadline) return DPF_CLIENT_TIMEOUT;
        sleep_until(client, one, deadline);
    }
}

static int done(dpf_client *client, uint32_t ring, uint32_t slot, uint32_t generation) {
    dpf_client_ring *one = &client->rings[ring];
    pthread_mutex_lock(&one->lock);
    bool ours = dpf_ring_leases(&one->ring, DPF_WIRE_CLIENT, slot, generation);
    bool awaited = ours && hand_back(one, slot);
    pthread_mutex_unlock(&one->lock);
    if (awaited) ring_server(client);
    return ours ? DPF_CLIENT_OK : DPF_CLIENT_BAD;
}

int dpf_client_next_event(dpf_client *client, dpf_client_event *event, int timeout_ms) {
    if (client == NULL || event == NULL) return DPF_CLIENT_BAD;
    dpf_client_ring *one = &client->rings[DPF_WIRE_EVENTS];
    dpf_descriptor message;
    memset(event, 0, sizeof *event);
    int status = next(client, DPF_WIRE_EVENTS, &message, timeout_ms);
    if (status != DPF_CLIENT_OK) return status;
    unsigned char *payload = dpf_ring_slot(&one->ring, message.slot) + message.offset;
    dpf_wire_event head;
    if (message.nbytes >= sizeof head) memcpy(&head, payload, sizeof head);
    if (message.nbytes < sizeof head || head.text_bytes >= message.nbytes - sizeof head || payload[sizeof head + head.text_bytes] != 0) {
        done(client, DPF_WIRE_EVENTS, message.slot, message.generation);
        return DPF_CLIENT_PROTOCOL;
    }
    *event = (dpf_client_event){
        .kind = message.kind, .number = (uint32_t)message.request, .code = head.code, .at_ms = head.at_ms, .sent_ns = message.captured_ns,
        .text = (const char *)payload + sizeof head, .text_bytes = head.text_bytes, .more = head.more, .slot = message.slot,
        .generation = message.generation,
    };
    return DPF_CLIENT_OK;
}

int dpf_client_event_done(dpf_client *client, dpf_client_event *event) {
    if (client == NULL || event == NULL || event->text == NULL) return DPF_CLIENT_BAD;
    event->text = NULL;
    return done(client, DPF_WIRE_EVENTS, event->slot, event->generation);
}

int dpf_client_next_sound(dpf_client *client, dpf_client_sound *sound, int timeout_ms) {
    if (client == NULL || sound == NULL) return DPF_CLIENT_BAD;
    dpf_client_ring *one = &client->rings[DPF_WIRE_SOUND];
    dpf_descriptor message;
    memset(sound, 0, sizeof *sound);
    int status = next(client, DPF_WIRE_SOUND, &message, timeout_ms);
    if (status != DPF_CLIENT_OK) return status;
    if (message.offset % I16_BYTES != 0) {
        done(client, DPF_WIRE_SOUND, message.slot, message.generation);
        return DPF_CLIENT_PROTOCOL;
    }
    *sound = (dpf_client_sound){
        .samples = (const int16_t *)(const void *)(dpf_ring_slot(&one->ring, message.slot) + message.offset),
        .count = message.nbytes / I16_BYTES, .hz = client->output_hz, .number = (uint32_t)message.request,
        .last = (message.flags & DPF_LAST) != 0, .sent_ns = message.captured_ns, .slot = message.slot, .generation = message.generation,
    };
    return DPF_CLIENT_OK;
}

int dpf_client_sound_done(dpf_client *client, dpf_client_sound *sound) {
    if (client == NULL || sound == NULL || sound->samples == NULL) return DPF_CLIENT_BAD;
    sound->samples = NULL;
    return done(client, DPF_WIRE_SOUND, sound->slot, sound->generation);
}

int dpf_client_read_stats(dpf_client *client, dpf_client_stats *stats, size_t bytes) {
    if (client == NULL || stats == NULL || bytes < sizeof *stats) return DPF_CLIENT_BAD;
    dpf_ring_stats sent, events, sound;
    dpf_ring_read_stats(&client->rings[DPF_WIRE_MICROPHONE].ring, &sent);
    dpf_ring_read_stats(&client->rings[DPF_WIRE_EVENTS].ring, &events);
    dpf_ring_read_stats(&client->rings[DPF_WIRE_SOUND].ring, &sound);
    dpf_client_ring *one = &client->rings[DPF_WIRE_SOUND];
    pthread_mutex_lock(&one->lock);
    uint64_t skipped = one->skipped;
    pthread_mutex_unlock(&one->lock);
    *stats = (dpf_client_stats){.pieces_sent = sent.sent, .copies = sent.copies, .copied_bytes = sent.copied_bytes,
                                .full = sent.refused, .events = events.received, .sounds = sound.received,
                                .sounds_copied = sound.copies, .sound_bytes_copied = sound.copied_bytes, .skipped = skipped};
    return DPF_CLIENT_OK;
}
