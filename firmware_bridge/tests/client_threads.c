/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/client.h from many threads at once: what every one of them sends or reads is counted. And beside a forked child.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "client_threads.h"

enum { PUSHES = 400, EVENTS = 600 };
static DPF_ATOMIC(uint32_t) heard, told, played;

static void *push_many(void *client) {
    int16_t samples[320];
    memset(samples, 3, sizeof samples);
    for (int i = 0; i < PUSHES; i++) CHECK(dpf_client_push(client, samples, 320, -1) == DPF_CLIENT_OK);
    return NULL;
}

static void *read_events(void *client) {
    dpf_client_event event;
    int status;
    while ((status = dpf_client_next_event(client, &event, -1)) == DPF_CLIENT_OK) {
        CHECK(strcmp(event.text, "word") == 0);
        atomic_fetch_add(&told, 1);
        CHECK(dpf_client_event_done(client, &event) == DPF_CLIENT_OK);
    }
    CHECK(status == DPF_CLIENT_CLOSED);
    return NULL;
}

static void *read_sound(void *client) {
    dpf_client_sound sound;
    int status;
    while ((status = dpf_client_next_sound(client, &sound, -1)) == DPF_CLIENT_OK) {
        CHECK(sound.samples[0] == sound.samples[sound.count - 1]);
        atomic_fetch_add(&played, 1);
        CHECK(dpf_client_sound_done(client, &sound) == DPF_CLIENT_OK);
    }
    CHECK(status == DPF_CLIENT_CLOSED);
    return NULL;
}

static void *stop_sometimes(void *client) {
    for (int i = 0; i < 50; i++) {
        CHECK(dpf_client_stop(client, DPF_CLIENT_HEARD_UNKNOWN) == DPF_CLIENT_OK);
        usleep(500);
    }
    return NULL;
}

static void *serve_microphone(void *unused) {
    dpf_descriptor message;
    while (fake_receive(&session, DPF_WIRE_MICROPHONE, &message) != NULL) {
        if (message.kind == DPF_WIRE_SAMPLES) atomic_fetch_add(&heard, message.nbytes / 2);
        fake_release(&session, DPF_WIRE_MICROPHONE, &message);
    }
    return unused;
}

static void *serve_events(void *unused) {
    for (int i = 0; i < EVENTS;) {
        if (fake_event(&session, DPF_CLIENT_ANSWER_TEXT, 1, 0, "word")) i++;
        if (i % 3 == 0) fake_sound(&session, (uint32_t)i / 12, 1, (int16_t)i, 64, false);
    }
    return unused;
}

void test_many_threads(void) {
    dpf_client *client = open_one();
    pthread_t serving[2], pushing[2], stopping, reading[4];
    CHECK(pthread_create(&serving[0], NULL, serve_microphone, NULL) == 0 && pthread_create(&serving[1], NULL, serve_events, NULL) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&pushing[i], NULL, push_many, client) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&reading[i], NULL, i < 2 ? read_events : read_sound, client) == 0);
    CHECK(pthread_create(&stopping, NULL, stop_sometimes, client) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(pushing[i], NULL) == 0);
    CHECK(pthread_join(stopping, NULL) == 0 && pthread_join(serving[1], NULL) == 0);
    while (atomic_load(&told) < EVENTS || atomic_load(&heard) < 2 * PUSHES * 320) usleep(1000);
    dpf_client_hang_up(client);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(reading[i], NULL) == 0);
    CHECK(pthread_join(serving[0], NULL) == 0);
    CHECK(atomic_load(&told) == EVENTS && atomic_load(&heard) == 2 * PUSHES * 320);
    dpf_client_close(client);
    fake_close(&session);
}

/* A forked child has copies of the descriptors: its close ends nothing, and its parent's ends the session all the same. */
void test_a_forked_child_does_not_hold_the_session(void) {
    dpf_client *client = open_one();
    struct pollfd end = {.fd = session.socket, .events = POLLIN | POLLRDHUP};
    int closed[2], status;
    char byte;
    CHECK(pipe(closed) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dpf_client_close(client);
        _exit(write(closed[1], "", 1) != 1);
    }
    CHECK(read(closed[0], &byte, 1) == 1 && dpf_client_state(client) == DPF_CLIENT_OK && poll(&end, 1, 0) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
    dpf_client_close(client);
    CHECK(poll(&end, 1, 10000) == 1 && (end.revents & POLLRDHUP) != 0);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    CHECK(close(closed[0]) == 0 && close(closed[1]) == 0);
    fake_close(&session);
}
