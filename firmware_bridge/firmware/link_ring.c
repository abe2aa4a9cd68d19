/* SPDX-License-Identifier: Apache-2.0
 *
 * link.h over the arena's rings.
 */
#include "link.h"

#include "client_wire.h"
#include "port.h"

enum { I16_BYTES = 2 };

dpf_result dpf_fw_link_open(dpf_fw_link *link, void *base, uint64_t nbytes, uint64_t key) {
    link->held = false;
    return dpf_fw_session_open(&link->session, base, nbytes, key);
}

uint32_t dpf_fw_link_bound(const dpf_fw_link *link) {
    return dpf_fw_session_bound(&link->session);
}

uint32_t dpf_fw_link_stop(dpf_fw_link *link, uint32_t heard_ms) {
    uint32_t now = dpf_fw_link_bound(link);
    uint32_t before = (now == UINT32_MAX) ? now : (now + 1u);
    dpf_fw_session_stop(&link->session, before, heard_ms, dpf_fw_port_now_ns());
    return before;
}

int16_t *dpf_fw_link_place(dpf_fw_link *link, uint32_t *room) {
    dpf_ring *ring = &link->session.microphone;
    int16_t *place = NULL;
    if (link->held && !dpf_ring_holds(ring, DPF_WIRE_CLIENT, link->slot, link->generation)) link->held = false;
    if (!link->held) link->held = dpf_fw_session_loan(&link->session, &link->slot, &link->generation);
    if (link->held) {
        place = (int16_t *)(void *)dpf_ring_slot(ring, link->slot);
        *room = (uint32_t)(ring->slot_bytes / (uint64_t)I16_BYTES);
    }
    return place;
}

void dpf_fw_link_samples(dpf_fw_link *link, uint32_t count, uint64_t captured_ns) {
    if (link->held) {
        dpf_fw_port_clean(dpf_ring_slot(&link->session.microphone, link->slot), count * (uint32_t)I16_BYTES);
        dpf_fw_session_send(&link->session, link->slot, link->generation, (uint8_t)DPF_WIRE_SAMPLES, count, captured_ns);
        link->held = false;
    }
}

bool dpf_fw_link_command(dpf_fw_link *link, uint8_t kind) {
    uint32_t room;
    bool sent = dpf_fw_link_place(link, &room) != NULL;
    if (sent) {
        dpf_fw_session_send(&link->session, link->slot, link->generation, kind, 0u, dpf_fw_port_now_ns());
        link->held = false;
    }
    return sent;
}

bool dpf_fw_link_sound(dpf_fw_link *link, dpf_fw_sound *sound) {
    dpf_ring *ring = &link->session.sound;
    dpf_descriptor message;
    bool got = dpf_fw_session_take(&link->session, ring, &message);
    if (got && !dpf_fw_session_aligned(&message)) {
        link->session.corrupt++;
        (void)dpf_fw_session_give_back(&link->session, ring, message.slot);
        got = false;
    }
    if (got) {
        const unsigned char *at = dpf_ring_slot(ring, message.slot) + message.offset;
        dpf_fw_port_invalidate(at, message.nbytes);
        sound->samples = (const int16_t *)(const void *)at;
        sound->count = message.nbytes / (uint32_t)I16_BYTES;
        sound->answer = (uint32_t)message.request;
        sound->epoch = message.turn;
        sound->slot = message.slot;
        sound->last = (message.flags & (uint8_t)DPF_LAST) != 0u;
    }
    return got;
}

void dpf_fw_link_sound_done(dpf_fw_link *link, const dpf_fw_sound *sound) {
    (void)dpf_fw_session_give_back(&link->session, &link->session.sound, sound->slot);
}

bool dpf_fw_link_event(dpf_fw_link *link, dpf_fw_event *event) {
    dpf_ring *ring = &link->session.events;
    dpf_descriptor message;
    bool got = dpf_fw_session_take(&link->session, ring, &message);
    if (got) {
        event->kind = message.kind;
        event->number = (uint32_t)message.request;
        (void)dpf_fw_session_give_back(&link->session, ring, message.slot);
    }
    return got;
}

bool dpf_fw_link_due(dpf_fw_link *link) {
    bool due = link->session.due;
    link->session.due = false;
    return due;
}
