/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/client.h against a server in a thread: refusals, order, room, stops and ends; many threads at once, and a child, are in client_threads.c.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "client_threads.h"

static fake_server server;
fake_session session;
static fake_mood mood;

static void *accept_one(void *unused) {
    fake_accept(&server, mood, &session);
    return unused;
}

static int open_with(dpf_client_options *options, fake_mood next, dpf_client **client, char *why, size_t room) {
    pthread_t thread;
    mood = next;
    CHECK(pthread_create(&thread, NULL, accept_one, NULL) == 0);
    int status = dpf_client_open(options, client, why, room);
    CHECK(pthread_join(thread, NULL) == 0);
    return status;
}

static dpf_client_options plain(void) {
    dpf_client_options options;
    dpf_client_options_init(&options, sizeof options);
    options.socket = server.path;
    return options;
}

dpf_client *open_one(void) {
    dpf_client_options options = plain();
    dpf_client *client;
    char why[256] = "";
    CHECK(open_with(&options, FAKE_KIND, &client, why, sizeof why) == DPF_CLIENT_OK);
    return client;
}

static void test_refusals_are_named(void) {
    static const struct {
        fake_mood mood;
        int status;
        const char *words;
    } CASES[] = {
        {FAKE_BUSY, DPF_CLIENT_BUSY, "every session is taken; allowed 8"},
        {FAKE_OTHER_VERSION, DPF_CLIENT_VERSION, "version 2"},
        {FAKE_NONSENSE, DPF_CLIENT_PROTOCOL, "no welcome"},
        {FAKE_NO_FDS, DPF_CLIENT_SYSTEM, "1 of 3"},
        {FAKE_BAD_ARENA, DPF_CLIENT_PROTOCOL, "no session's"},
        {FAKE_SILENT_END, DPF_CLIENT_GONE, "the server left"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        dpf_client_options options = plain();
        dpf_client *client;
        char why[256] = "";
        CHECK(open_with(&options, CASES[i].mood, &client, why, sizeof why) == CASES[i].status);
        CHECK(client == NULL && strstr(why, CASES[i].words) != NULL);
        if (CASES[i].mood == FAKE_NO_FDS || CASES[i].mood == FAKE_BAD_ARENA) fake_close(&session);
    }
    CHECK(open_with(&(dpf_client_options){.bytes = sizeof(dpf_client_options), .socket = server.path}, FAKE_BUSY, &(dpf_client *){NULL}, NULL, 0) ==
          DPF_CLIENT_BUSY);
}

static void test_arguments_are_checked(void) {
    dpf_client_options options = plain();
    dpf_client *client;
    char why[128], long_path[300], tiny[4];
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = 0;
    options.socket = "/nowhere/there.native";
    CHECK(dpf_client_open(&options, &client, why, sizeof why) == DPF_CLIENT_NO_SERVER && strstr(why, "/nowhere/there.native") != NULL);
    CHECK(dpf_client_open(&options, &client, tiny, sizeof tiny) == DPF_CLIENT_NO_SERVER && tiny[3] == 0);
    options.socket = long_path;
    CHECK(dpf_client_open(&options, &client, why, sizeof why) == DPF_CLIENT_BAD);
    options = plain();
    options.flags = 1024;
    CHECK(dpf_client_open(&options, &client, why, sizeof why) == DPF_CLIENT_BAD);
    options = plain();
    options.bytes = 8;
    CHECK(dpf_client_open(&options, &client, why, sizeof why) == DPF_CLIENT_BAD);
    CHECK(dpf_client_open(NULL, &client, why, sizeof why) == DPF_CLIENT_BAD && dpf_client_open(&options, NULL, NULL, 0) == DPF_CLIENT_BAD);
    CHECK(dpf_client_push(NULL, NULL, 0, 0) == DPF_CLIENT_BAD && dpf_client_stop(NULL, 0) == DPF_CLIENT_BAD);
    CHECK(dpf_client_next_event(NULL, NULL, 0) == DPF_CLIENT_BAD && dpf_client_event_fd(NULL) == -1);
    dpf_client_close(NULL);
    dpf_client_hang_up(NULL);
    CHECK(strcmp(dpf_client_status_text(DPF_CLIENT_GONE), "the server is gone") == 0);
    CHECK(dpf_client_status_text(1) != NULL && dpf_client_status_text(-999) != NULL);
    CHECK(dpf_client_version() >> 16 == DPF_CLIENT_MAJOR);
}

/* Where a client looks that is told nothing: `why` names the place. */
static void looks_in(const char *given, const char *run, const char *home, const char *temporary, const char *expected) {
    static const char *const NAMES[] = {"DPFEDGE_NATIVE", "XDG_RUNTIME_DIR", "DPFEDGE_HOME", "TMPDIR"};
    const char *const values[] = {given, run, home, temporary};
    char why[256] = "";
    dpf_client_options options = plain();
    dpf_client *client;
    options.socket = NULL;
    for (int i = 0; i < 4; i++) CHECK(values[i] == NULL ? unsetenv(NAMES[i]) == 0 : setenv(NAMES[i], values[i], 1) == 0);
    CHECK(dpf_client_open(&options, &client, why, sizeof why) == DPF_CLIENT_NO_SERVER);
    CHECK(strncmp(why, expected, strlen(expected)) == 0);
}

static void test_the_place_of_the_socket(void) {
    char private[64];
    snprintf(private, sizeof private, "/nowhere/dpfedge-%u/serve-8080.native", (unsigned)getuid());
    looks_in("/nowhere/x.native", "/run", "/home", "/tmp", "/nowhere/x.native: ");
    looks_in("", "/nowhere", "/home", "/tmp", "/nowhere/dpfedge/serve-8080.native: ");
    looks_in(NULL, "", "/nowhere", "/tmp", "/nowhere/run/serve-8080.native: ");
    looks_in(NULL, NULL, NULL, "/nowhere", private);
}

static void test_options_reach_the_server(void) {
    dpf_client_options options = plain();
    dpf_client *client;
    options.flags = DPF_CLIENT_BY_HAND | DPF_CLIENT_TEXT_ONLY;
    options.input_hz = 48000;
    options.silence_ms = 700;
    options.instructions = "Be brief.";
    CHECK(open_with(&options, FAKE_KIND, &client, NULL, 0) == DPF_CLIENT_OK);
    CHECK(session.hello.flags == 3 && session.hello.input_hz == 48000 && session.hello.silence_ms == 700);
    CHECK(session.hello.instructions_bytes == 9 && strcmp(session.instructions, "Be brief.") == 0);
    CHECK(dpf_client_output_hz(client) == 22050);
    dpf_client_close(client);
    fake_close(&session);
}

static void test_samples_and_commands_arrive_in_order(void) {
    dpf_client *client = open_one();
    dpf_client_room room;
    dpf_descriptor message;
    dpf_client_stats stats;
    int16_t samples[3000];
    for (int i = 0; i < 3000; i++) samples[i] = (int16_t)i;
    CHECK(dpf_client_push(client, samples, 3000, 0) == DPF_CLIENT_OK);
    CHECK(dpf_client_loan(client, &room, 0) == DPF_CLIENT_OK && room.count == 2048);
    room.samples[0] = 77;
    CHECK(dpf_client_send(client, &room, 1) == DPF_CLIENT_OK);
    CHECK(dpf_client_send(client, &room, 1) == DPF_CLIENT_BAD); /* twice */
    CHECK(dpf_client_loan(client, &room, 0) == DPF_CLIENT_OK && dpf_client_send(client, &room, 0) == DPF_CLIENT_OK);
    CHECK(dpf_client_commit(client, 0) == DPF_CLIENT_OK && dpf_client_clear(client, 0) == DPF_CLIENT_OK);
    const unsigned char *at = fake_receive(&session, DPF_WIRE_MICROPHONE, &message);
    CHECK(message.kind == DPF_WIRE_SAMPLES && message.nbytes == 4096 && memcmp(at, samples, 4096) == 0);
    fake_release(&session, DPF_WIRE_MICROPHONE, &message);
    at = fake_receive(&session, DPF_WIRE_MICROPHONE, &message);
    CHECK(message.nbytes == 1904 && memcmp(at, samples + 2048, 1904) == 0);
    at = fake_receive(&session, DPF_WIRE_MICROPHONE, &message);
    CHECK(message.nbytes == 2 && at[0] == 77);
    CHECK(fake_receive(&session, DPF_WIRE_MICROPHONE, &message) != NULL && message.kind == DPF_WIRE_COMMIT);
    CHECK(fake_receive(&session, DPF_WIRE_MICROPHONE, &message) != NULL && message.kind == DPF_WIRE_CLEAR);
    CHECK(dpf_client_read_stats(client, &stats, sizeof stats) == DPF_CLIENT_OK && stats.copies == 2 && stats.copied_bytes == 6000);
    CHECK(dpf_client_say(client, "", 0, 0) == DPF_CLIENT_BAD && dpf_client_say(client, "x", DPF_WIRE_SAY_MAX + 1, 0) == DPF_CLIENT_BAD);
    CHECK(dpf_client_say(client, "hello", 5, 0) == DPF_CLIENT_OK && dpf_client_respond(client, 0) == DPF_CLIENT_OK);
    CHECK(dpf_client_cancel(client, 0) == DPF_CLIENT_OK);
    at = fake_receive(&session, DPF_WIRE_MICROPHONE, &message);
    CHECK(message.kind == DPF_WIRE_SAY && message.nbytes == 5 && memcmp(at, "hello", 5) == 0);
    CHECK(fake_receive(&session, DPF_WIRE_MICROPHONE, &message) != NULL && message.kind == DPF_WIRE_RESPOND);
    CHECK(fake_receive(&session, DPF_WIRE_MICROPHONE, &message) != NULL && message.kind == DPF_WIRE_CANCEL);
    dpf_client_close(client);
    CHECK(fake_receive(&session, DPF_WIRE_MICROPHONE, &message) == NULL);
    fake_close(&session);
}

static void *drain_slowly(void *unused) {
    dpf_descriptor message;
    usleep(30000);
    while (fake_receive(&session, DPF_WIRE_MICROPHONE, &message) != NULL) fake_release(&session, DPF_WIRE_MICROPHONE, &message);
    return unused;
}

static void test_a_full_ring_is_waited_for(void) {
    dpf_client *client = open_one();
    dpf_client_stats stats;
    pthread_t thread;
    int16_t sample = 1;
    for (int i = 0; i < 64; i++) CHECK(dpf_client_push(client, &sample, 1, 0) == DPF_CLIENT_OK);
    CHECK(dpf_client_push(client, &sample, 1, 0) == DPF_CLIENT_TIMEOUT);
    CHECK(dpf_client_push(client, &sample, 1, 20) == DPF_CLIENT_TIMEOUT);
    CHECK(pthread_create(&thread, NULL, drain_slowly, NULL) == 0);
    CHECK(dpf_client_push(client, &sample, 1, -1) == DPF_CLIENT_OK);
    CHECK(dpf_client_read_stats(client, &stats, sizeof stats) == DPF_CLIENT_OK && stats.pieces_sent == 65 && stats.full >= 2);
    dpf_client_close(client);
    CHECK(pthread_join(thread, NULL) == 0);
    fake_close(&session);
}

static void test_events_are_read_in_place_and_in_order(void) {
    dpf_client *client = open_one();
    dpf_client_event event, other;
    struct pollfd readable = {.fd = dpf_client_event_fd(client), .events = POLLIN};
    CHECK(dpf_client_next_event(client, &event, 0) == DPF_CLIENT_TIMEOUT && dpf_client_next_event(client, &event, 10) == DPF_CLIENT_TIMEOUT);
    CHECK(poll(&readable, 1, 0) == 0);
    CHECK(fake_event(&session, DPF_CLIENT_TRANSCRIPT, 1, 0, "turn left"));
    CHECK(fake_event(&session, DPF_CLIENT_ANSWER_DONE, 2, DPF_CLIENT_TOO_LONG, ""));
    CHECK(poll(&readable, 1, 0) == 1);
    CHECK(dpf_client_next_event(client, &event, -1) == DPF_CLIENT_OK && event.kind == DPF_CLIENT_TRANSCRIPT && event.number == 1);
    CHECK(strcmp(event.text, "turn left") == 0 && event.text_bytes == 9 && event.at_ms == 40 && event.more == 0);
    CHECK(poll(&readable, 1, 0) == 1); /* one more is there */
    CHECK(dpf_client_next_event(client, &other, 0) == DPF_CLIENT_OK && other.code == DPF_CLIENT_TOO_LONG && other.text[0] == 0);
    CHECK(strcmp(event.text, "turn left") == 0); /* ours until it is handed back */
    CHECK(dpf_client_event_done(client, &event) == DPF_CLIENT_OK && dpf_client_event_done(client, &event) == DPF_CLIENT_BAD);
    CHECK(dpf_client_event_done(client, &other) == DPF_CLIENT_OK);
    CHECK(dpf_client_next_event(client, &event, 0) == DPF_CLIENT_TIMEOUT && poll(&readable, 1, 0) == 0);
    dpf_client_close(client);
    fake_close(&session);
}

static void test_a_server_without_room_is_told_of_some(void) {
    dpf_client *client = open_one();
    dpf_client_event event;
    struct pollfd rung = {.fd = session.socket, .events = POLLIN};
    for (int i = 0; i < 16; i++) CHECK(fake_event(&session, DPF_CLIENT_WORDS, 1, 0, "word"));
    CHECK(dpf_client_next_event(client, &event, 0) == DPF_CLIENT_OK && dpf_client_event_done(client, &event) == DPF_CLIENT_OK);
    CHECK(poll(&rung, 1, 0) == 0); /* nobody asked */
    CHECK(fake_event(&session, DPF_CLIENT_WORDS, 1, 0, "word") && !fake_event(&session, DPF_CLIENT_WORDS, 1, 0, "word"));
    CHECK(dpf_client_next_event(client, &event, 0) == DPF_CLIENT_OK && dpf_client_event_done(client, &event) == DPF_CLIENT_OK);
    CHECK(poll(&rung, 1, 0) == 1);
    CHECK(fake_event(&session, DPF_CLIENT_WORDS, 1, 0, "word"));
    dpf_client_close(client);
    fake_close(&session);
}

/* More bytes on a bell than messages fit into its ring: a look reads so many and no more, and what comes is found. */
static void test_a_server_that_rings_for_nothing_keeps_nobody(void) {
    enum { RINGS = 3000 };
    dpf_client *client = open_one();
    dpf_client_sound sound;
    char bytes[RINGS] = {0};
    int left = 0;
    CHECK(write(session.bells[1], bytes, RINGS) == RINGS);
    CHECK(dpf_client_next_sound(client, &sound, 0) == DPF_CLIENT_TIMEOUT);
    CHECK(ioctl(session.bells[1], FIONREAD, &left) == 0 && left == RINGS - (int)session.rings[DPF_WIRE_SOUND].capacity);
    CHECK(fake_sound(&session, 0, 1, 5, 100, true));
    CHECK(dpf_client_next_sound(client, &sound, -1) == DPF_CLIENT_OK && sound.samples[0] == 5);
    CHECK(dpf_client_sound_done(client, &sound) == DPF_CLIENT_OK);
    dpf_client_close(client);
    fake_close(&session);
}

static void test_a_stop_throws_away_what_was_made(void) {
    dpf_client *client = open_one();
    dpf_client_sound sound;
    dpf_client_stats stats;
    dpf_descriptor message;
    dpf_wire_stop stop;
    CHECK(fake_sound(&session, 0, 1, 5, 100, false) && fake_sound(&session, 0, 1, 6, 100, false));
    CHECK(dpf_client_next_sound(client, &sound, -1) == DPF_CLIENT_OK && sound.count == 100 && sound.samples[99] == 5 && sound.hz == 22050);
    CHECK(dpf_client_sound_done(client, &sound) == DPF_CLIENT_OK);
    for (uint32_t i = 0; i < 12; i++) { /* more than there is room to say: the bound needs none */
        CHECK(dpf_client_stop(client, 1234) == DPF_CLIENT_OK);
        CHECK(dpf_requests_cancelled(&session.arena.requests, session.key, i));
        CHECK(!dpf_requests_cancelled(&session.arena.requests, session.key, i + 1));
    }
    CHECK(fake_sound(&session, 11, 1, 7, 100, true)); /* made before the server saw it */
    CHECK(fake_sound(&session, 12, 2, 8, 50, true));
    CHECK(dpf_client_next_sound(client, &sound, -1) == DPF_CLIENT_OK && sound.number == 2 && sound.samples[0] == 8 && sound.last == 1);
    CHECK(dpf_client_sound_done(client, &sound) == DPF_CLIENT_OK);
    CHECK(dpf_client_read_stats(client, &stats, sizeof stats) == DPF_CLIENT_OK && stats.skipped == 2);
    for (uint32_t i = 0; i < 8; i++) {
        memcpy(&stop, fake_receive(&session, DPF_WIRE_STOPS, &message), sizeof stop);
        CHECK(message.nbytes == sizeof stop && stop.heard_ms == 1234 && stop.before == i + 1);
        fake_release(&session, DPF_WIRE_STOPS, &message);
    }
    CHECK(dpf_client_respond(client, 0) == DPF_CLIENT_OK);
    CHECK(fake_receive(&session, DPF_WIRE_MICROPHONE, &message) != NULL && message.kind == DPF_WIRE_RESPOND && message.turn == 12);
    dpf_client_close(client);
    fake_close(&session);
}

static void test_the_end_of_the_server_is_named(void) {
    dpf_client *client = open_one();
    dpf_client_event event;
    dpf_client_sound sound;
    int16_t sample = 1;
    CHECK(fake_event(&session, DPF_CLIENT_ERROR, 0, 503, "the server is shutting down"));
    fake_close(&session);
    CHECK(dpf_client_state(client) == DPF_CLIENT_GONE);
    CHECK(dpf_client_next_event(client, &event, -1) == DPF_CLIENT_OK && event.code == 503);
    CHECK(dpf_client_next_event(client, &event, -1) == DPF_CLIENT_GONE && dpf_client_next_sound(client, &sound, -1) == DPF_CLIENT_GONE);
    CHECK(dpf_client_push(client, &sample, 1, -1) == DPF_CLIENT_GONE && dpf_client_stop(client, 0) == DPF_CLIENT_GONE);
    CHECK(dpf_client_say(client, "x", 1, -1) == DPF_CLIENT_GONE);
    dpf_client_close(client);
}

static void *wait_for_sound(void *client) {
    dpf_client_sound sound;
    return (void *)(intptr_t)dpf_client_next_sound(client, &sound, -1);
}

static void *wait_for_room(void *client) {
    int16_t sample = 1;
    int status;
    do {
        status = dpf_client_push(client, &sample, 1, -1);
    } while (status == DPF_CLIENT_OK);
    return (void *)(intptr_t)status;
}

static void waiting_threads_end(bool hang_up, int expected) {
    dpf_client *client = open_one();
    pthread_t threads[2];
    void *status;
    CHECK(pthread_create(&threads[0], NULL, wait_for_sound, client) == 0 && pthread_create(&threads[1], NULL, wait_for_room, client) == 0);
    usleep(20000);
    if (hang_up) {
        dpf_client_hang_up(client);
        dpf_client_hang_up(client);
    } else {
        shutdown(session.socket, 2);
    }
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], &status) == 0 && (intptr_t)status == expected);
    dpf_client_close(client);
    fake_close(&session);
}

static void test_waiting_threads_are_woken(void) {
    waiting_threads_end(true, DPF_CLIENT_CLOSED);
    waiting_threads_end(false, DPF_CLIENT_GONE);
}

static fake_server second;

static void *come_late(void *unused) {
    usleep(150000);
    fake_listen(&second, server.path);
    fake_accept(&second, FAKE_KIND, &session);
    return unused;
}

static void test_a_server_that_comes_back_is_waited_for(void) {
    dpf_client_options options = plain();
    dpf_client *client;
    pthread_t thread;
    fake_end(&server);
    CHECK(dpf_client_open(&options, &client, NULL, 0) == DPF_CLIENT_NO_SERVER);
    CHECK(pthread_create(&thread, NULL, come_late, NULL) == 0);
    options.wait_ms = 60000;
    CHECK(dpf_client_open(&options, &client, NULL, 0) == DPF_CLIENT_OK);
    CHECK(pthread_join(thread, NULL) == 0);
    dpf_client_close(client);
    fake_close(&session);
    fake_end(&second);
}

int main(void) {
    char folder[] = "/tmp/dpfedge-client-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/test.native", folder);
    fake_listen(&server, path);
    test_refusals_are_named();
    test_arguments_are_checked();
    test_the_place_of_the_socket();
    test_options_reach_the_server();
    test_samples_and_commands_arrive_in_order();
    test_a_full_ring_is_waited_for();
    test_events_are_read_in_place_and_in_order();
    test_a_server_without_room_is_told_of_some();
    test_a_server_that_rings_for_nothing_keeps_nobody();
    test_a_stop_throws_away_what_was_made();
    test_the_end_of_the_server_is_named();
    test_a_forked_child_does_not_hold_the_session();
    test_waiting_threads_are_woken();
    test_many_threads();
    test_a_server_that_comes_back_is_waited_for();
    rmdir(folder);
    puts("client: ok");
    return 0;
}
