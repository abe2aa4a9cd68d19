/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/firmware_rig.h.
 */
#include "firmware_rig.h"

#include "port.h"
#ifdef DPF_FW_RPMSG
#include "bridge.h"
#endif

enum { TEMPLATE = 50 };

rig the_rig;

/* ---- a phrase ---- */

static int8_t template_frames[TEMPLATE][DPF_FW_DIMS];
static dpf_fw_template templates[1] = {{template_frames, TEMPLATE, 9, -400}};
static int8_t fillers[2][DPF_FW_DIMS];
const dpf_fw_phrases RIG_PHRASES = {templates, 1, fillers, 2};

/* Six tones of 100 ms, square waves: rich in harmonics, and no division of the clock that music has. */
int16_t rig_phrase(uint32_t sample) {
    static const uint32_t HALF[6] = {29, 11, 37, 7, 53, 17};
    uint32_t tone = sample / 1600;
    if (tone >= 6) return 0;
    return sample / HALF[tone] % 2 == 0 ? 3000 : -3000;
}

/* Takes the template from what the ear hears of the phrase. */
static void learn(void) {
    static dpf_fw_features ear;
    static bool learnt;
    dpf_fw_frame frame;
    int16_t hop[DPF_FW_HOP];
    uint32_t count = 0;
    if (learnt) return;
    learnt = true;
    dpf_fw_features_init(&ear);
    for (uint32_t i = 0; count < TEMPLATE; i++) {
        for (uint32_t at = 0; at < DPF_FW_HOP; at++) hop[at] = i < 20 ? 0 : rig_phrase((i - 20) * DPF_FW_HOP + at);
        if (!dpf_fw_features_push(&ear, hop, &frame) || i < 24) continue;
        memcpy(template_frames[count++], frame.dims, sizeof frame.dims);
    }
}

/* ---- sessions ---- */

static const char STAGE_NAMES[2][DPF_NAME_BYTES] = {"client", "server"};

static void make_session(rig_session *session) {
    static const uint32_t SLOTS[DPF_WIRE_RINGS] = {16, 4, 16, 16};
    static const uint64_t BYTES[DPF_WIRE_RINGS] = {4096, 64, 256, 1024};
    dpf_link_spec links[DPF_WIRE_RINGS];
    memset(links, 0, sizeof links);
    for (uint32_t i = 0; i < DPF_WIRE_RINGS; i++) {
        bool up = i < DPF_WIRE_EVENTS;
        links[i] = (dpf_link_spec){.producer = up ? 0 : 1, .places = 1, .consumer = {up ? 1 : 0}, .slots = SLOTS[i],
                                   .policy = DPF_POLICY_FAIL, .slot_bytes = BYTES[i]};
        snprintf(links[i].name, sizeof links[i].name, "ring%u", i);
    }
    dpf_arena_spec spec = {.name = "session", .stages = STAGE_NAMES, .links = links, .stage_count = 2, .link_count = DPF_WIRE_RINGS,
                           .requests = 1, .page = 4096};
    session->base = new_arena(&spec, &session->nbytes);
    CHECK(dpf_arena_open(session->base, session->nbytes, &session->arena) == DPF_OK);
    CHECK(dpf_requests_open(&session->arena.requests, 3, 1, &session->key) == DPF_OK);
    for (uint32_t i = 0; i < DPF_WIRE_RINGS; i++) {
        CHECK(dpf_arena_ring(&session->arena, i, &session->rings[i]) == DPF_OK);
        CHECK((i < DPF_WIRE_EVENTS ? dpf_ring_attach_consumer(&session->rings[i], 0, DPF_WIRE_SERVER)
                                   : dpf_ring_attach_producer(&session->rings[i], DPF_WIRE_SERVER)) == DPF_OK);
    }
    session->rung = 0;
}

#ifdef DPF_FW_RPMSG
static dpf_fw_bridge bridges[RIG_SESSIONS];

/* Both ways, a wire of two buffers: what does not fit waits for the next tick. */
static void carry(uint32_t session) {
    dpf_fw_link *link = &the_rig.core.instances[session].link;
    unsigned char frame[DPF_FW_RPMSG_BYTES];
    uint32_t nbytes = dpf_fw_link_frame(link, frame);
    if (nbytes != 0) {
        dpf_fw_link_sent(link, frame);
        dpf_fw_bridge_receive(&bridges[session], frame, nbytes, 2);
    }
    for (int i = 0; i < 2 && (nbytes = dpf_fw_bridge_frame(&bridges[session], frame)) != 0; i++) {
        dpf_fw_link_receive(link, frame, nbytes);
    }
    if (dpf_fw_bridge_due(&bridges[session])) the_rig.sessions[session].rung++;
}

static void open_link(uint32_t session) {
    rig_session *one = &the_rig.sessions[session];
    CHECK(dpf_fw_bridge_open(&bridges[session], one->base, one->nbytes, one->key) == DPF_OK);
    dpf_fw_link_open(&the_rig.core.instances[session].link, one->base, (uint32_t)one->nbytes);
    carry(session);
}

void dpf_fw_port_doorbell(uint32_t session) {
    (void)session; /* the wire is looked at in every tick */
}
#else
static void carry(uint32_t session) {
    (void)session;
}

static void open_link(uint32_t session) {
    rig_session *one = &the_rig.sessions[session];
    CHECK(dpf_fw_link_open(&the_rig.core.instances[session].link, one->base, one->nbytes, one->key) == DPF_OK);
}

void dpf_fw_port_doorbell(uint32_t session) {
    the_rig.sessions[session].rung++;
}
#endif

uint64_t dpf_fw_port_now_ns(void) {
    return 1000 + the_rig.core.counters.ticks * 10000000u;
}

void dpf_fw_port_clean(const void *from, uint32_t nbytes) {
    (void)from, (void)nbytes;
}

void dpf_fw_port_invalidate(const void *from, uint32_t nbytes) {
    (void)from, (void)nbytes;
}

void rig_end(void) {
    for (uint32_t i = 0; i < RIG_SESSIONS; i++) {
        free(the_rig.sessions[i].base);
        the_rig.sessions[i].base = NULL;
    }
}

void rig_start(uint32_t count, const void *route, uint64_t route_bytes) {
    static const char *const NAMES[RIG_SESSIONS] = {"a", "b"};
    dpf_fw_config config = {.phrases = &RIG_PHRASES, .route = route, .route_bytes = route_bytes, .model = "llm", .model_bytes = 3,
                            .user = "alice", .user_bytes = 5, .session_ms = 1735689600000};
    learn();
    rig_end();
    memset(&the_rig.core, 0, sizeof the_rig.core);
    CHECK(dpf_fw_core_init(&the_rig.core, &config));
    for (uint32_t i = 0; i < count; i++) {
        make_session(&the_rig.sessions[i]);
        open_link(i);
        the_rig.core.instances[i].name = NAMES[i];
        the_rig.core.instances[i].name_bytes = 1;
        the_rig.core.instance_count++;
    }
}

uint64_t *rig_table(uint64_t *nbytes) {
    *nbytes = dpf_route_map_bytes(8, 4);
    uint64_t *map = aligned_alloc(4096, *nbytes);
    CHECK(map != NULL);
    memset(map, 0, *nbytes);
    CHECK(dpf_route_map_format(map, *nbytes, 8, 4, DPF_ROUTE_KEY_SEED));
    return map;
}

void rig_tick(const int16_t *captured) {
    static const int16_t SILENCE[DPF_FW_BLOCK];
    dpf_fw_tick(&the_rig.core, captured == NULL ? SILENCE : captured, the_rig.played);
    for (uint32_t i = 0; i < the_rig.core.instance_count; i++) carry(i);
}

uint32_t rig_say_phrase(void) {
    uint32_t before = the_rig.core.counters.stops, ticks = 0;
    int16_t block[DPF_FW_BLOCK];
    while (the_rig.core.counters.stops == before) {
        for (uint32_t i = 0; i < DPF_FW_BLOCK; i++) block[i] = rig_phrase(ticks * DPF_FW_BLOCK + i);
        rig_tick(block);
        CHECK(++ticks < 200);
    }
    return ticks;
}

/* ---- the server ---- */

bool rig_sound(uint32_t session, uint32_t epoch, uint32_t answer, int16_t first, uint32_t count, bool last) {
    dpf_ring *ring = &the_rig.sessions[session].rings[DPF_WIRE_SOUND];
    dpf_descriptor message = {.request = answer, .turn = epoch, .nbytes = 2 * count, .dtype = 7, .rank_urgency = 1, .shape = {count},
                              .flags = last ? DPF_LAST : 0};
    if (dpf_ring_loan(ring, DPF_WIRE_SERVER, &message.slot, &message.generation) != DPF_OK) return false;
    int16_t *samples = (int16_t *)(void *)dpf_ring_slot(ring, message.slot);
    for (uint32_t i = 0; i < count; i++) samples[i] = (int16_t)(first + (int16_t)i);
    CHECK(dpf_ring_send(ring, DPF_WIRE_SERVER, &message, false) == DPF_OK);
    return true;
}

bool rig_receive(uint32_t session, uint32_t ring, dpf_descriptor *message, const unsigned char **payload) {
    dpf_ring *one = &the_rig.sessions[session].rings[ring];
    if (dpf_ring_receive(one, DPF_WIRE_SERVER, message) != DPF_OK) return false;
    *payload = dpf_ring_slot(one, message->slot) + message->offset;
    return true;
}

void rig_release(uint32_t session, uint32_t ring, const dpf_descriptor *message) {
    CHECK(dpf_ring_release(&the_rig.sessions[session].rings[ring], DPF_WIRE_SERVER, message->slot) == DPF_OK);
}

void rig_scribble(uint64_t *state, uint32_t session) {
    static const uint64_t BAD[] = {0, 1, 2, UINT64_MAX, UINT32_MAX, 1ull << 63, 1ull << 32, 0x0000000100000002ull};
    rig_session *one = &the_rig.sessions[session];
    uint64_t value = next_random(state) % 3 ? BAD[next_random(state) % 8] : next_random(state);
    uint64_t at = next_random(state) % (one->nbytes / 8);
    atomic_store_explicit((_Atomic uint64_t *)one->base + at, value, memory_order_relaxed);
}
