/* SPDX-License-Identifier: Apache-2.0
 *
 * A head unit in C: sound from a file in the place of a microphone, what is heard and answered on stdout, the answer's sound in a file in the
 * place of a loudspeaker. Three threads, as a head unit has: one for the microphone, one for the loudspeaker, one for the rest.
 *
 *     head_unit QUESTION.pcm ANSWER.pcm [RATE [SOCKET]]      i16 mono; RATE is the question's, 16000 when it is not given
 */
#include <dpf/client.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SILENCE_MS = 1500, WAIT_MS = 60000 };

typedef struct head_unit {
    dpf_client *client;
    FILE *question, *answer;
    unsigned rate;
} head_unit;

static void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Every 20 ms what was spoken since, straight into the shared memory; silence behind it. */
static void *microphone(void *argument) {
    head_unit *unit = argument;
    const size_t step = unit->rate / 50;
    size_t silence = unit->rate * (size_t)SILENCE_MS / 1000;
    dpf_client_room room;
    while (dpf_client_loan(unit->client, &room, 1000) == DPF_CLIENT_OK) {
        size_t count = fread(room.samples, sizeof *room.samples, step, unit->question);
        for (; count < step && silence != 0; silence--) room.samples[count++] = 0;
        if (dpf_client_send(unit->client, &room, (uint32_t)count) != DPF_CLIENT_OK || count == 0) break;
        sleep_ms(20);
    }
    return NULL;
}

/* What is to be heard, until the answer's sound has ended. */
static void *loudspeaker(void *argument) {
    head_unit *unit = argument;
    dpf_client_sound sound;
    uint32_t last = 0;
    while (!last && dpf_client_next_sound(unit->client, &sound, -1) == DPF_CLIENT_OK) {
        fwrite(sound.samples, sizeof *sound.samples, sound.count, unit->answer);
        last = sound.last;
        dpf_client_sound_done(unit->client, &sound);
    }
    return NULL;
}

static const char *const NAMES[] = {"?", "speech started", "speech stopped", "words", "heard", "answering", "says", "done", "error"};

/* Prints what happens, until the answer is complete; 0 when it is. */
static int follow(dpf_client *client) {
    dpf_client_event event;
    int status;
    while ((status = dpf_client_next_event(client, &event, WAIT_MS)) == DPF_CLIENT_OK) {
        uint32_t kind = event.kind, code = event.code;
        printf("%s: %s\n", NAMES[kind <= DPF_CLIENT_ERROR ? kind : 0], event.text);
        dpf_client_event_done(client, &event);
        if (kind == DPF_CLIENT_ANSWER_DONE) return code == DPF_CLIENT_COMPLETED ? 0 : 1;
        if (kind == DPF_CLIENT_ERROR) return 1;
    }
    fprintf(stderr, "head_unit: %s\n", dpf_client_status_text(status));
    return 1;
}

static int converse(head_unit *unit) {
    pthread_t threads[2];
    dpf_client_stats stats;
    pthread_create(&threads[0], NULL, microphone, unit);
    pthread_create(&threads[1], NULL, loudspeaker, unit);
    int result = follow(unit->client);
    if (result != 0) dpf_client_hang_up(unit->client); /* wakes both threads */
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    dpf_client_read_stats(unit->client, &stats, sizeof stats);
    printf("copies here: %llu of %llu pieces sent\n", (unsigned long long)stats.copies, (unsigned long long)stats.pieces_sent);
    return result;
}

int main(int count, char **words) {
    if (count < 3) {
        fprintf(stderr, "usage: head_unit QUESTION.pcm ANSWER.pcm [RATE [SOCKET]]\n");
        return 2;
    }
    head_unit unit = {.question = fopen(words[1], "rb"), .answer = fopen(words[2], "wb"), .rate = count > 3 ? (unsigned)atoi(words[3]) : 16000};
    if (unit.question == NULL || unit.answer == NULL) {
        perror(unit.question == NULL ? words[1] : words[2]);
        return 1;
    }
    char why[512];
    dpf_client_options options;
    dpf_client_options_init(&options, sizeof options);
    options.input_hz = unit.rate;
    options.socket = count > 4 ? words[4] : NULL;
    options.wait_ms = 10000; /* the server may still be starting */
    if (dpf_client_open(&options, &unit.client, why, sizeof why) != DPF_CLIENT_OK) {
        fprintf(stderr, "head_unit: %s\n", why);
        return 1;
    }
    printf("the answer is played at %u Hz\n", dpf_client_output_hz(unit.client));
    int result = converse(&unit);
    dpf_client_close(unit.client);
    fclose(unit.question);
    fclose(unit.answer);
    return result;
}
