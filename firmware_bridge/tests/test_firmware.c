/* SPDX-License-Identifier: Apache-2.0
 *
 * The firmware's tasks: what the microphone hears arrives, what is sent is played, stops stop, buttons flush, the table routes.
 * Built twice: on the rings, and behind a bridge that speaks rpmsg (DPF_FW_RPMSG).
 */
#include "dpf/table.h"
#include "firmware_rig.h"
#include "session.h"

static int16_t ramp[DPF_FW_BLOCK];

static const int16_t *next_ramp(uint32_t tick) {
    for (uint32_t i = 0; i < DPF_FW_BLOCK; i++) ramp[i] = (int16_t)(tick * DPF_FW_BLOCK + i);
    return ramp;
}

/* Reads samples from session 0 until a message of another kind, or none; their number. The samples must go on from `*next`. */
static uint32_t read_samples(uint16_t *next, uint8_t *kind) {
    dpf_descriptor message;
    const unsigned char *payload;
    uint32_t count = 0;
    *kind = 0;
    while (*kind == 0 && rig_receive(0, DPF_WIRE_MICROPHONE, &message, &payload)) {
        for (uint32_t i = 0; i < message.nbytes / 2; i++) {
            int16_t sample;
            memcpy(&sample, payload + 2 * i, 2);
            CHECK((uint16_t)sample == (*next)++);
        }
        count += message.nbytes / 2;
        if (message.kind != DPF_WIRE_SAMPLES) *kind = message.kind;
        rig_release(0, DPF_WIRE_MICROPHONE, &message);
    }
    return count;
}

static void test_microphone(void) {
    uint16_t next = 0;
    uint8_t kind;
    uint32_t count = 0;
    rig_start(1, NULL, 0);
    for (uint32_t tick = 0; tick < 400; tick++) {
        rig_tick(next_ramp(tick));
        count += read_samples(&next, &kind);
        CHECK(kind == 0);
    }
    CHECK(count == 400 * DPF_FW_BLOCK && the_rig.core.counters.sent == count && the_rig.core.counters.unsent == 0);
    CHECK(the_rig.sessions[0].rung != 0);
}

/* A flush sends what is held, then the commit behind it; a clear drops it. */
static void test_flush_and_clear(void) {
    uint16_t next = 0;
    uint8_t kind = 0;
    uint32_t count = 0;
    rig_start(1, NULL, 0);
    for (uint32_t tick = 0; tick < 6; tick++) rig_tick(next_ramp(tick));
    dpf_fw_flush(&the_rig.core);
    for (uint32_t tick = 6; tick < 12 && kind != DPF_WIRE_COMMIT; tick++) {
        rig_tick(next_ramp(tick));
        count += read_samples(&next, &kind);
    }
    CHECK(kind == DPF_WIRE_COMMIT && count == 7 * DPF_FW_BLOCK);
    rig_tick(next_ramp(100));
    dpf_fw_clear(&the_rig.core);
    for (uint32_t tick = 0; tick < 3 && kind != DPF_WIRE_CLEAR; tick++) {
        rig_tick(next_ramp(101 + tick));
        CHECK(read_samples(&next, &kind) == 0);
    }
    CHECK(kind == DPF_WIRE_CLEAR);
}

/* A server that reads nothing: samples are dropped and counted, and nothing else happens. */
static void test_nobody_reads(void) {
    rig_start(1, NULL, 0);
    for (uint32_t tick = 0; tick < 400; tick++) rig_tick(next_ramp(tick));
    CHECK(the_rig.core.counters.unsent > 0);
    CHECK(the_rig.core.counters.sent + the_rig.core.counters.unsent + the_rig.core.filled == 400 * DPF_FW_BLOCK);
}

static void test_loudspeaker(void) {
    int16_t next = 1, sent = 1;
    rig_start(1, NULL, 0);
    for (uint32_t tick = 0; tick < 300; tick++) {
        while (sent < 20000 && rig_sound(0, 0, 1, sent, 333, sent + 333 >= 20000)) sent = (int16_t)(sent + 333);
        rig_tick(NULL);
        for (uint32_t i = 0; i < DPF_FW_BLOCK && the_rig.played[i] != 0 && next < sent; i++) CHECK(the_rig.played[i] == next++);
    }
    CHECK(next == sent && the_rig.core.counters.played == (uint64_t)(sent - 1) && the_rig.core.counters.answers == 1);
}

static void fill_sound(uint32_t epoch, uint32_t answer) {
    while (rig_sound(0, epoch, answer, 1000, 500, false)) {}
}

static bool silent(uint32_t from) {
    for (uint32_t i = from; i < DPF_FW_BLOCK; i++) {
        if (the_rig.played[i] != 0) return false;
    }
    return true;
}

/* The phrase silences, in the tick that hears it, whatever the server does; sound of a later epoch is played. */
static void test_stop_phrase(void) {
    dpf_descriptor message;
    const unsigned char *payload;
    dpf_wire_stop stop;
    rig_start(1, NULL, 0);
    for (int i = 0; i < 10; i++) rig_tick(NULL);
    fill_sound(0, 1);
    for (int i = 0; i < 5; i++) rig_tick(NULL);
    CHECK(!silent(0));
    uint32_t ticks = 0;
    int16_t block[DPF_FW_BLOCK];
    while (the_rig.core.counters.stops == 0) {
        fill_sound(0, 1);
        for (uint32_t i = 0; i < DPF_FW_BLOCK; i++) block[i] = rig_phrase(ticks * DPF_FW_BLOCK + i);
        rig_tick(block);
        CHECK(++ticks < 100);
    }
    CHECK(ticks < RIG_PHRASE_MS / 10 && the_rig.core.counters.heard == 9);
    CHECK(silent(40) && the_rig.core.counters.stopped > 0); /* the fade is 40 samples */
    for (int i = 0; i < 50; i++) {
        fill_sound(0, 1);
        rig_tick(NULL);
        CHECK(silent(0));
    }
    CHECK(dpf_requests_cancelled(&the_rig.sessions[0].arena.requests, the_rig.sessions[0].key, 0));
    CHECK(!dpf_requests_cancelled(&the_rig.sessions[0].arena.requests, the_rig.sessions[0].key, 1));
    CHECK(rig_receive(0, DPF_WIRE_STOPS, &message, &payload));
    memcpy(&stop, payload, sizeof stop);
    CHECK(stop.before == 1 && stop.heard_ms > 10 * ticks && stop.heard_ms < 10 * ticks + 60);
    fill_sound(1, 2);
    rig_tick(NULL);
    rig_tick(NULL);
    CHECK(!silent(0));
}

/* What the answer itself says is not a person's. */
static void test_own_voice(void) {
    uint32_t sent = 0;
    int16_t echo[DPF_FW_BLOCK] = {0};
    rig_start(1, NULL, 0);
    for (uint32_t tick = 0; tick < 150; tick++) {
        dpf_ring *ring = &the_rig.sessions[0].rings[DPF_WIRE_SOUND];
        dpf_descriptor message = {.request = 1, .nbytes = 2 * DPF_FW_BLOCK, .dtype = 7, .rank_urgency = 1, .shape = {DPF_FW_BLOCK}};
        if (tick >= 20 && dpf_ring_loan(ring, DPF_WIRE_SERVER, &message.slot, &message.generation) == DPF_OK) {
            int16_t *samples = (int16_t *)(void *)dpf_ring_slot(ring, message.slot);
            for (uint32_t i = 0; i < DPF_FW_BLOCK; i++) samples[i] = rig_phrase(sent++);
            CHECK(dpf_ring_send(ring, DPF_WIRE_SERVER, &message, false) == DPF_OK);
        }
        rig_tick(echo);
        memcpy(echo, the_rig.played, sizeof echo);
    }
    CHECK(the_rig.core.counters.own == 1 && the_rig.core.counters.stops == 0);
}

/* A phrase over an answer that is as loud, in a room that the core has never heard: heard with the echo taken out, not without. */
static bool heard_over_the_answer(bool cancels) {
    static int16_t past[512 + DPF_FW_BLOCK]; /* what was played, the last block at its end */
    uint64_t state = 88172645463325252ull;
    uint32_t said = 0, sent = 0;
    int16_t captured[DPF_FW_BLOCK];
    rig_start(1, NULL, 0);
    the_rig.core.cancels = cancels;
    memset(past, 0, sizeof past);
    for (uint32_t tick = 0; tick < 400 && the_rig.core.counters.stops == 0; tick++) {
        dpf_ring *ring = &the_rig.sessions[0].rings[DPF_WIRE_SOUND];
        dpf_descriptor message = {.request = 1, .nbytes = 1000, .dtype = 7, .rank_urgency = 1, .shape = {500}};
        while (dpf_ring_loan(ring, DPF_WIRE_SERVER, &message.slot, &message.generation) == DPF_OK) {
            int16_t *samples = (int16_t *)(void *)dpf_ring_slot(ring, message.slot);
            for (uint32_t i = 0; i < 500; i++, sent++) samples[i] = (int16_t)((int32_t)(next_random(&state) % 8000) - 4000);
            CHECK(dpf_ring_send(ring, DPF_WIRE_SERVER, &message, false) == DPF_OK);
        }
        for (uint32_t i = 0; i < DPF_FW_BLOCK; i++) {
            const int16_t *now = past + 512 + i;
            int32_t room = (2 * now[0] + now[-50] - now[-200]) / 4;
            captured[i] = (int16_t)(room + (tick >= 250 ? rig_phrase(said++) : 0));
        }
        rig_tick(captured);
        memmove(past, past + DPF_FW_BLOCK, 512 * sizeof past[0]);
        memcpy(past + 512, the_rig.played, sizeof the_rig.played);
    }
    return the_rig.core.counters.stops == 1 && the_rig.core.counters.ticks > 250;
}

static void test_echo(void) {
    CHECK(heard_over_the_answer(true));
    CHECK(!heard_over_the_answer(false));
}

/* The session is closed under the firmware, or its word lies: what was stopped stays stopped. */
static void test_stop_without_a_session(void) {
    rig_start(1, NULL, 0);
    for (int i = 0; i < 10; i++) rig_tick(NULL);
    fill_sound(0, 1);
    rig_tick(NULL);
    CHECK(dpf_requests_close(&the_rig.sessions[0].arena.requests, the_rig.sessions[0].key) == DPF_OK);
    (void)rig_say_phrase();
    atomic_store(&the_rig.sessions[0].arena.requests.entry[0].word, 0);
    for (int i = 0; i < 20; i++) {
        fill_sound(0, 1);
        rig_tick(NULL);
        CHECK(silent(0));
    }
}

/* An arena that is no session's, of every kind, is refused; and one whose rings no tick has time to search. */
static void test_other_arenas(void) {
    static const char NAMES[2][DPF_NAME_BYTES] = {"client", "server"};
    for (uint32_t rings = 3; rings <= 5; rings++) {
        dpf_link_spec links[5];
        dpf_fw_session session;
        uint64_t nbytes, key;
        memset(links, 0, sizeof links);
        for (uint32_t i = 0; i < rings; i++) {
            links[i] = (dpf_link_spec){.producer = i < 2 ? 0 : 1, .places = 1, .consumer = {i < 2 ? 1 : 0}, .policy = DPF_POLICY_FAIL,
                                       .slots = rings == 4 && i == 1 ? 4096 : 4, .slot_bytes = 64};
            snprintf(links[i].name, sizeof links[i].name, "ring%u", i);
        }
        dpf_arena_spec spec = {.name = "other", .stages = NAMES, .links = links, .stage_count = 2, .link_count = rings, .requests = 1, .page = 4096};
        void *base = new_arena(&spec, &nbytes);
        dpf_arena arena;
        CHECK(dpf_arena_open(base, nbytes, &arena) == DPF_OK);
        CHECK(dpf_fw_session_open(&session, base, nbytes, 1 << 16) == (rings == 4 ? DPF_STALE : DPF_BAD)); /* no such request */
        CHECK(dpf_requests_open(&arena.requests, 3, 1, &key) == DPF_OK);
        CHECK(dpf_fw_session_open(&session, base, nbytes, key) == DPF_BAD);
        memset(base, 7, 64);
        CHECK(dpf_fw_session_open(&session, base, nbytes, key) == DPF_CORRUPT);
        free(base);
    }
}

static void publish(void *map, const uint16_t weights[2]) {
    static uint16_t table[1 << 8];
    static const char *const NAMES[2] = {"a", "b"};
    dpf_route_view view;
    dpf_route_entry entries[2];
    memset(entries, 0, sizeof entries);
    for (uint32_t slot = 0; slot < 1 << 8; slot++) table[slot] = weights[0] != 0 ? 0 : weights[1] != 0 ? 1 : DPF_ROUTE_NONE;
    for (uint32_t i = 0; i < 2; i++) {
        entries[i].flags = DPF_ROUTE_USED;
        entries[i].effective = weights[i];
        entries[i].name_bytes = 1;
        entries[i].name[0] = NAMES[i][0];
    }
    uint64_t nbytes = dpf_route_map_bytes(8, 4);
    CHECK(dpf_route_map_open(map, nbytes, &view) == DPF_ROUTE_OK);
    (void)dpf_route_map_publish(map, &view, table, entries, 2, 1);
}

static uint32_t samples_of(uint32_t session) {
    dpf_descriptor message;
    const unsigned char *payload;
    uint32_t count = 0;
    while (rig_receive(session, DPF_WIRE_MICROPHONE, &message, &payload)) {
        count += message.nbytes / 2;
        rig_release(session, DPF_WIRE_MICROPHONE, &message);
    }
    return count;
}

/* The published table says where the microphone goes; nobody healthy: nowhere, and the ear goes on hearing. */
static void test_route(void) {
    uint64_t nbytes, *map = rig_table(&nbytes);
    rig_start(2, map, nbytes);
    for (int i = 0; i < 30; i++) rig_tick(NULL);
    CHECK(samples_of(0) == 0 && samples_of(1) == 0 && the_rig.core.counters.unsent == 30 * DPF_FW_BLOCK);
    publish(map, (uint16_t[2]){1, 0});
    for (int i = 0; i < 30; i++) rig_tick(NULL);
    CHECK(samples_of(0) > 0 && samples_of(1) == 0);
    publish(map, (uint16_t[2]){0, 1});
    for (int i = 0; i < 30; i++) rig_tick(NULL);
    CHECK(samples_of(0) <= 20 * DPF_FW_BLOCK && samples_of(1) > 0 && the_rig.core.counters.moves == 2);
    CHECK(dpf_requests_cancelled(&the_rig.sessions[0].arena.requests, the_rig.sessions[0].key, 0)); /* it is told to be silent */
    dpf_route_map_end(map); /* another table took its place: what was chosen stays */
    for (int i = 0; i < 30; i++) rig_tick(NULL);
    CHECK(samples_of(0) == 0 && samples_of(1) > 0);
    free(map);
}

int main(void) {
    test_microphone();
    test_flush_and_clear();
    test_nobody_reads();
    test_loudspeaker();
    test_stop_phrase();
    test_own_voice();
    test_echo();
    test_stop_without_a_session();
    test_other_arenas();
    test_route();
    rig_end();
    printf("firmware: ok\n");
    return 0;
}
