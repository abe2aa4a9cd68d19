/* SPDX-License-Identifier: Apache-2.0
 *
 * The rings of session.h.
 */
#include "session.h"

#include "client_wire.h"
#include "port.h"

enum {
    I16 = 7,
    I16_BYTES = 2,
    URGENCY = 3,
    SLOTS_MOST = 256, /* of a ring: a search for a free one is a part of a tick */
    CORRUPT_MOST = 4  /* messages without sense that one call passes over */
};

/* Whether a ring is one that a tick has time for. The arena was checked; this is about its size. */
static bool small(const dpf_ring *ring) {
    return (ring->count <= (uint32_t)SLOTS_MOST) && (ring->policy != (uint32_t)DPF_POLICY_NEWEST) && (ring->places == 1u);
}

static dpf_result open_rings(dpf_fw_session *session) {
    dpf_ring *const rings[DPF_WIRE_RINGS] = {&session->microphone, &session->stops, &session->events, &session->sound};
    dpf_result result = DPF_OK;
    for (uint32_t i = 0u; (i < (uint32_t)DPF_WIRE_RINGS) && (result == DPF_OK); i++) {
        result = dpf_arena_ring(&session->arena, i, rings[i]);
        if ((result == DPF_OK) && !small(rings[i])) result = DPF_BAD;
        if (result == DPF_OK) {
            result = (i < (uint32_t)DPF_WIRE_EVENTS) ? dpf_ring_attach_producer(rings[i], DPF_WIRE_CLIENT)
                                                     : dpf_ring_attach_consumer(rings[i], 0u, DPF_WIRE_CLIENT);
        }
    }
    if ((result == DPF_OK) && (session->stops.slot_bytes < sizeof(dpf_wire_stop))) result = DPF_BAD;
    return result;
}

dpf_result dpf_fw_session_open(dpf_fw_session *session, void *base, uint64_t nbytes, uint64_t key) {
    dpf_result result = dpf_arena_open(base, nbytes, &session->arena);
    session->key = key;
    session->due = false;
    session->corrupt = 0u;
    session->full = 0u;
    if ((result == DPF_OK) && (session->arena.ring_count != (uint32_t)DPF_WIRE_RINGS)) result = DPF_BAD;
    if ((result == DPF_OK) && !dpf_requests_live(&session->arena.requests, key, NULL, NULL)) result = DPF_STALE;
    return (result == DPF_OK) ? open_rings(session) : result;
}

uint32_t dpf_fw_session_bound(const dpf_fw_session *session) {
    /* the key's place was checked when the session was opened */
    return (uint32_t)atomic_load_explicit(&session->arena.requests.entry[session->key & 0xFFFFu].word, memory_order_seq_cst);
}

static bool loan(dpf_fw_session *session, dpf_ring *ring, uint32_t *slot, uint32_t *generation) {
    bool got = dpf_ring_loan(ring, DPF_WIRE_CLIENT, slot, generation) == DPF_OK;
    if (!got) session->full++;
    return got;
}

bool dpf_fw_session_loan(dpf_fw_session *session, uint32_t *slot, uint32_t *generation) {
    return loan(session, &session->microphone, slot, generation);
}

/* A message without samples. Field by field: a compiler may make a call of an initialiser. */
static void plain(dpf_descriptor *message, uint8_t kind, uint32_t nbytes, uint64_t captured_ns) {
    message->captured_ns = captured_ns;
    message->deadline_ns = 0u;
    message->sequence = 0u;
    message->offset = 0u;
    message->nbytes = nbytes;
    for (uint32_t i = 0u; i < (uint32_t)DPF_RANK_MAX; i++) message->shape[i] = 0u;
    message->dtype = 0u;
    message->rank_urgency = (uint8_t)(URGENCY << 4u);
    message->kind = kind;
    message->flags = 0u;
}

/* The server sleeps in its event loop, not on its bell: a doorbell of the port wakes it. */
static void send(dpf_fw_session *session, dpf_ring *ring, dpf_descriptor *message) {
    message->request = session->key;
    message->turn = dpf_fw_session_bound(session);
    if (dpf_ring_send(ring, DPF_WIRE_CLIENT, message, false) != DPF_OK) session->corrupt++;
    ring->wake = 0u;
    session->due = true;
}

void dpf_fw_session_stop(dpf_fw_session *session, uint32_t before, uint32_t heard_ms, uint64_t now_ns) {
    dpf_descriptor message;
    plain(&message, 1u, (uint32_t)sizeof(dpf_wire_stop), now_ns);
    /* The bound first, which needs no room and nobody's help: from here on nothing older is played. */
    (void)dpf_requests_cancel(&session->arena.requests, session->key, before);
    if (loan(session, &session->stops, &message.slot, &message.generation)) {
        dpf_wire_stop *stop = (dpf_wire_stop *)(void *)dpf_ring_slot(&session->stops, message.slot);
        stop->heard_ms = heard_ms;
        stop->before = before;
        dpf_fw_port_clean(stop, sizeof *stop);
        send(session, &session->stops, &message);
    }
    session->due = true;
}

void dpf_fw_session_send(dpf_fw_session *session, uint32_t slot, uint32_t generation, uint8_t kind, uint32_t count,
                         uint64_t captured_ns) {
    dpf_descriptor message;
    plain(&message, kind, count * (uint32_t)I16_BYTES, captured_ns);
    message.slot = slot;
    message.generation = generation;
    if (count != 0u) {
        message.shape[0] = count;
        message.dtype = (uint8_t)I16;
        message.rank_urgency |= 1u;
        dpf_ring_count_copy(&session->microphone, message.nbytes); /* out of the buffer that the converter fills */
    }
    send(session, &session->microphone, &message);
}

bool dpf_fw_session_take(dpf_fw_session *session, dpf_ring *ring, dpf_descriptor *message) {
    dpf_result result = DPF_CORRUPT;
    for (uint32_t i = 0u; (i < (uint32_t)CORRUPT_MOST) && (result == DPF_CORRUPT); i++) {
        result = dpf_ring_receive(ring, DPF_WIRE_CLIENT, message);
        if (result == DPF_CORRUPT) session->corrupt++;
    }
    return result == DPF_OK;
}

bool dpf_fw_session_aligned(const dpf_descriptor *message) {
    return (message->offset % (uint32_t)I16_BYTES) == 0u;
}

bool dpf_fw_session_give_back(dpf_fw_session *session, dpf_ring *ring, uint32_t slot) {
    uint32_t seen = dpf_bell_value(ring->producer_bell);
    bool was = dpf_ring_release(ring, DPF_WIRE_CLIENT, slot) == DPF_OK; /* rings that bell for a producer that starves */
    if (dpf_bell_value(ring->producer_bell) != seen) session->due = true;
    ring->wake = 0u;
    return was;
}
