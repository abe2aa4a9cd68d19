/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptors between rpmsg and a session's rings (bridge.h).
 */
#include "bridge.h"

#include "client_wire.h"

enum { I16_BYTES = 2 };

dpf_result dpf_fw_bridge_open(dpf_fw_bridge *bridge, void *base, uint64_t nbytes, uint64_t key) {
    bridge->places = 0u;
    bridge->sounds = 0u;
    bridge->events = 0u;
    bridge->told = 0u;
    bridge->sequence = 0u;
    bridge->hello = false;
    bridge->refused = 0u;
    return (nbytes <= UINT32_MAX) ? dpf_fw_session_open(&bridge->session, base, nbytes, key) : DPF_BAD;
}

/* ---- from the core ---- */

static bool filled(dpf_fw_bridge *bridge, const dpf_fw_item *item) {
    dpf_fw_session *session = &bridge->session;
    bool samples = item->kind == (uint8_t)DPF_FW_ITEM_SAMPLES;
    bool command = (item->code == (uint16_t)DPF_WIRE_COMMIT) || (item->code == (uint16_t)DPF_WIRE_CLEAR);
    bool good = (bridge->places != 0u) &&
                dpf_ring_holds(&session->microphone, DPF_WIRE_CLIENT, item->slot, item->generation) &&
                (samples ? (item->nbytes <= session->microphone.slot_bytes) : command);
    if (good) {
        uint8_t kind = samples ? (uint8_t)DPF_WIRE_SAMPLES : (uint8_t)item->code;
        uint32_t count = samples ? (item->nbytes / (uint32_t)I16_BYTES) : 0u;
        dpf_fw_session_send(session, item->slot, item->generation, kind, count, item->captured_ns);
        bridge->places--;
    }
    return good;
}

static bool played(dpf_fw_bridge *bridge, const dpf_fw_item *item) {
    bool good = (bridge->sounds != 0u) && dpf_fw_session_give_back(&bridge->session, &bridge->session.sound, item->slot);
    if (good) bridge->sounds--;
    return good;
}

static bool obey(dpf_fw_bridge *bridge, const dpf_fw_item *item) {
    bool good = false;
    if ((item->kind == (uint8_t)DPF_FW_ITEM_SAMPLES) || (item->kind == (uint8_t)DPF_FW_ITEM_COMMAND)) {
        good = filled(bridge, item);
    } else if (item->kind == (uint8_t)DPF_FW_ITEM_SOUND_DONE) {
        good = played(bridge, item);
    } else if ((item->kind == (uint8_t)DPF_FW_ITEM_EVENT_DONE) && (bridge->events != 0u)) {
        bridge->events--;
        good = true;
    } else {
        /* nothing that a core says */
    }
    return good;
}

void dpf_fw_bridge_receive(dpf_fw_bridge *bridge, const unsigned char *frame, uint32_t nbytes, uint64_t now_ns) {
    dpf_fw_frame_head head;
    if (dpf_fw_frame_read_head(frame, nbytes, &head)) {
        bridge->hello = true;
        if (head.bound > dpf_fw_session_bound(&bridge->session)) {
            dpf_fw_session_stop(&bridge->session, head.bound, head.heard_ms, now_ns);
            bridge->told = head.bound;
        }
        for (uint32_t i = 0u; i < head.count; i++) {
            dpf_fw_item item;
            dpf_fw_frame_read_item(frame, i, &item);
            if (!obey(bridge, &item)) bridge->refused++;
        }
    } else {
        bridge->refused++;
    }
}

/* ---- to the core ---- */

static uint32_t offset_of(const dpf_fw_bridge *bridge, const dpf_ring *ring, uint32_t slot) {
    return (uint32_t)(dpf_ring_slot(ring, slot) - bridge->session.arena.base);
}

static bool lend(dpf_fw_bridge *bridge, dpf_fw_item *item) {
    dpf_fw_session *session = &bridge->session;
    bool got = (bridge->places < (uint32_t)DPF_FW_BRIDGE_PLACES) && dpf_fw_session_loan(session, &item->slot, &item->generation);
    if (got) {
        item->kind = (uint8_t)DPF_FW_ITEM_PLACE;
        item->offset = offset_of(bridge, &session->microphone, item->slot);
        item->nbytes = (uint32_t)session->microphone.slot_bytes;
        bridge->places++;
    }
    return got;
}

static bool hand_over(dpf_fw_bridge *bridge, dpf_fw_item *item) {
    dpf_fw_session *session = &bridge->session;
    dpf_descriptor message;
    bool got = (bridge->sounds < (uint32_t)DPF_FW_BRIDGE_SOUNDS) && dpf_fw_session_take(session, &session->sound, &message);
    if (got && !dpf_fw_session_aligned(&message)) {
        session->corrupt++;
        (void)dpf_fw_session_give_back(session, &session->sound, message.slot);
        got = false;
    }
    if (got) {
        item->kind = (uint8_t)DPF_FW_ITEM_SOUND;
        item->slot = message.slot;
        item->offset = offset_of(bridge, &session->sound, message.slot) + message.offset;
        item->nbytes = message.nbytes;
        item->turn = message.turn;
        item->request = message.request;
        item->flags = ((message.flags & (uint8_t)DPF_LAST) != 0u) ? (uint8_t)DPF_FW_ITEM_LAST : 0u;
        bridge->sounds++;
    }
    return got;
}

static bool tell(dpf_fw_bridge *bridge, dpf_fw_item *item) {
    dpf_fw_session *session = &bridge->session;
    dpf_descriptor message;
    bool got = (bridge->events < (uint32_t)DPF_FW_BRIDGE_EVENTS) && dpf_fw_session_take(session, &session->events, &message);
    if (got) {
        item->kind = (uint8_t)DPF_FW_ITEM_EVENT;
        item->code = message.kind;
        item->request = message.request;
        (void)dpf_fw_session_give_back(session, &session->events, message.slot);
        bridge->events++;
    }
    return got;
}

uint32_t dpf_fw_bridge_frame(dpf_fw_bridge *bridge, unsigned char *frame) {
    dpf_fw_frame_head head = {.sequence = bridge->sequence, .bound = dpf_fw_session_bound(&bridge->session)};
    bool more = bridge->hello;
    uint32_t nbytes = 0u;
    while (more && (head.count < (uint32_t)DPF_FW_RPMSG_ITEMS)) {
        dpf_fw_item item = {0};
        more = hand_over(bridge, &item) || tell(bridge, &item) || lend(bridge, &item);
        if (more) {
            dpf_fw_frame_write_item(frame, head.count, &item);
            head.count++;
        }
    }
    if ((head.count != 0u) || (bridge->hello && (head.bound > bridge->told))) {
        nbytes = dpf_fw_frame_write_head(frame, &head);
        bridge->told = head.bound;
        bridge->sequence++;
    }
    return nbytes;
}

bool dpf_fw_bridge_due(dpf_fw_bridge *bridge) {
    bool due = bridge->session.due;
    bridge->session.due = false;
    return due;
}
