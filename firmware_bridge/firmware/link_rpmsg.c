/* SPDX-License-Identifier: Apache-2.0
 *
 * link.h over frames of descriptors. The arena is touched only where samples lie; every place is checked against its size.
 */
#include "link.h"

#include "port.h"

enum { I16_BYTES = 2 };

static void push(dpf_fw_item *items, uint32_t room, dpf_fw_fifo *fifo, const dpf_fw_item *item, uint32_t *refused) {
    if (fifo->count >= room) {
        (*refused)++;
    } else {
        items[(fifo->first + fifo->count) % room] = *item;
        fifo->count++;
    }
}

static bool pop(const dpf_fw_item *items, uint32_t room, dpf_fw_fifo *fifo, dpf_fw_item *item) {
    bool got = fifo->count != 0u;
    if (got) {
        *item = items[fifo->first];
        fifo->first = (fifo->first + 1u) % room;
        fifo->count--;
    }
    return got;
}

/* An answer to the bridge. There is room for it: it only ever answers what it was given, and that is bounded. */
static void answer(dpf_fw_link *link, const dpf_fw_item *item) {
    push(link->out, DPF_FW_OUT, &link->outgoing, item, &link->corrupt);
    link->due = true;
}

void dpf_fw_link_open(dpf_fw_link *link, void *base, uint32_t nbytes) {
    link->base = (unsigned char *)base;
    link->nbytes = nbytes;
    link->bound = 0u;
    link->heard_ms = 0u;
    link->sequence = 0u;
    link->due = true; /* the bridge lends places when it hears of this core */
    link->place = (dpf_fw_fifo){0u, 0u};
    link->sound = (dpf_fw_fifo){0u, 0u};
    link->event = (dpf_fw_fifo){0u, 0u};
    link->outgoing = (dpf_fw_fifo){0u, 0u};
    link->corrupt = 0u;
    link->full = 0u;
}

/* Whether samples lie there. */
static bool inside(const dpf_fw_link *link, const dpf_fw_item *item) {
    return (item->offset <= link->nbytes) && (item->nbytes <= link->nbytes - item->offset) &&
           (item->offset % (uint32_t)I16_BYTES == 0u);
}

static void accept(dpf_fw_link *link, const dpf_fw_item *item) {
    if ((item->kind == (uint8_t)DPF_FW_ITEM_PLACE) && inside(link, item)) {
        push(link->places, DPF_FW_PLACES, &link->place, item, &link->corrupt);
    } else if ((item->kind == (uint8_t)DPF_FW_ITEM_SOUND) && inside(link, item)) {
        push(link->sounds, DPF_FW_SOUNDS, &link->sound, item, &link->corrupt);
    } else if (item->kind == (uint8_t)DPF_FW_ITEM_EVENT) {
        push(link->events, DPF_FW_EVENTS, &link->event, item, &link->corrupt);
    } else {
        link->corrupt++;
    }
}

void dpf_fw_link_receive(dpf_fw_link *link, const unsigned char *frame, uint32_t nbytes) {
    dpf_fw_frame_head head;
    if (dpf_fw_frame_read_head(frame, nbytes, &head)) {
        if (head.bound > link->bound) link->bound = head.bound;
        for (uint32_t i = 0u; i < head.count; i++) {
            dpf_fw_item item;
            dpf_fw_frame_read_item(frame, i, &item);
            accept(link, &item);
        }
    } else {
        link->corrupt++;
    }
}

uint32_t dpf_fw_link_frame(const dpf_fw_link *link, unsigned char *frame) {
    uint32_t most = (uint32_t)DPF_FW_RPMSG_ITEMS;
    dpf_fw_frame_head head = {.sequence = link->sequence, .bound = link->bound, .heard_ms = link->heard_ms};
    uint32_t nbytes = 0u;
    head.count = (link->outgoing.count < most) ? link->outgoing.count : most;
    if (link->due || (head.count != 0u)) {
        nbytes = dpf_fw_frame_write_head(frame, &head);
        for (uint32_t i = 0u; i < head.count; i++) {
            dpf_fw_frame_write_item(frame, i, &link->out[(link->outgoing.first + i) % (uint32_t)DPF_FW_OUT]);
        }
    }
    return nbytes;
}

void dpf_fw_link_sent(dpf_fw_link *link, const unsigned char *frame) {
    uint32_t count = frame[3];
    link->outgoing.first = (link->outgoing.first + count) % (uint32_t)DPF_FW_OUT;
    link->outgoing.count -= count;
    link->sequence++;
    link->due = link->outgoing.count != 0u;
}

uint32_t dpf_fw_link_bound(const dpf_fw_link *link) {
    return link->bound;
}

uint32_t dpf_fw_link_stop(dpf_fw_link *link, uint32_t heard_ms) {
    if (link->bound != UINT32_MAX) link->bound++;
    link->heard_ms = heard_ms;
    link->due = true;
    return link->bound;
}

int16_t *dpf_fw_link_place(dpf_fw_link *link, uint32_t *room) {
    int16_t *place = 0;
    if (link->place.count != 0u) {
        const dpf_fw_item *item = &link->places[link->place.first];
        place = (int16_t *)(void *)(link->base + item->offset);
        *room = item->nbytes / (uint32_t)I16_BYTES;
    } else {
        link->full++;
    }
    return place;
}

void dpf_fw_link_samples(dpf_fw_link *link, uint32_t count, uint64_t captured_ns) {
    dpf_fw_item item;
    if (pop(link->places, DPF_FW_PLACES, &link->place, &item)) {
        dpf_fw_port_clean(link->base + item.offset, count * (uint32_t)I16_BYTES);
        item.kind = (uint8_t)DPF_FW_ITEM_SAMPLES;
        item.nbytes = count * (uint32_t)I16_BYTES;
        item.captured_ns = captured_ns;
        answer(link, &item);
    }
}

bool dpf_fw_link_command(dpf_fw_link *link, uint8_t kind) {
    dpf_fw_item item;
    bool sent = pop(link->places, DPF_FW_PLACES, &link->place, &item);
    if (sent) {
        item.kind = (uint8_t)DPF_FW_ITEM_COMMAND;
        item.code = kind;
        item.nbytes = 0u;
        answer(link, &item);
    }
    return sent;
}

bool dpf_fw_link_sound(dpf_fw_link *link, dpf_fw_sound *sound) {
    dpf_fw_item item;
    bool got = pop(link->sounds, DPF_FW_SOUNDS, &link->sound, &item);
    if (got) {
        const unsigned char *at = link->base + item.offset;
        dpf_fw_port_invalidate(at, item.nbytes);
        sound->samples = (const int16_t *)(const void *)at;
        sound->count = item.nbytes / (uint32_t)I16_BYTES;
        sound->answer = (uint32_t)item.request;
        sound->epoch = item.turn;
        sound->slot = item.slot;
        sound->last = (item.flags & (uint8_t)DPF_FW_ITEM_LAST) != 0u;
    }
    return got;
}

void dpf_fw_link_sound_done(dpf_fw_link *link, const dpf_fw_sound *sound) {
    dpf_fw_item item; /* field by field: a compiler may make a call of an initialiser */
    item.request = 0u;
    item.captured_ns = 0u;
    item.slot = sound->slot;
    item.offset = 0u;
    item.nbytes = 0u;
    item.turn = 0u;
    item.generation = 0u;
    item.code = 0u;
    item.kind = (uint8_t)DPF_FW_ITEM_SOUND_DONE;
    item.flags = 0u;
    answer(link, &item);
}

bool dpf_fw_link_event(dpf_fw_link *link, dpf_fw_event *event) {
    dpf_fw_item item;
    bool got = pop(link->events, DPF_FW_EVENTS, &link->event, &item);
    if (got) {
        event->kind = item.code;
        event->number = (uint32_t)item.request;
        item.kind = (uint8_t)DPF_FW_ITEM_EVENT_DONE;
        answer(link, &item);
    }
    return got;
}

bool dpf_fw_link_due(dpf_fw_link *link) {
    return link->due;
}
