/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of rpmsg.h to bytes and back.
 */
#include "rpmsg.h"

static void put(unsigned char *to, uint64_t value, uint32_t nbytes) {
    for (uint32_t i = 0u; i < nbytes; i++) {
        to[i] = (unsigned char)(value >> (8u * i));
        __asm__ volatile("" ::: "memory");
    }
}

static uint64_t get(const unsigned char *from, uint32_t nbytes) {
    uint64_t value = 0u;
    for (uint32_t i = 0u; i < nbytes; i++) value |= (uint64_t)from[i] << (8u * i);
    return value;
}

static uint32_t get32(const unsigned char *from) {
    return (uint32_t)get(from, 4u);
}

static uint32_t frame_bytes(uint32_t count) {
    return (uint32_t)DPF_FW_RPMSG_HEAD + count * (uint32_t)DPF_FW_RPMSG_ITEM;
}

uint32_t dpf_fw_frame_write_head(unsigned char *frame, const dpf_fw_frame_head *head) {
    put(frame, DPF_FW_RPMSG_MAGIC, 2u);
    put(frame + 2, DPF_FW_RPMSG_VERSION, 1u);
    put(frame + 3, head->count, 1u);
    put(frame + 4, head->sequence, 4u);
    put(frame + 8, head->bound, 4u);
    put(frame + 12, head->heard_ms, 4u);
    return frame_bytes(head->count);
}

bool dpf_fw_frame_read_head(const unsigned char *frame, uint32_t nbytes, dpf_fw_frame_head *head) {
    bool good = (nbytes >= (uint32_t)DPF_FW_RPMSG_HEAD) && (get(frame, 2u) == (uint64_t)DPF_FW_RPMSG_MAGIC) &&
                (frame[2] == (unsigned char)DPF_FW_RPMSG_VERSION);
    if (good) {
        head->count = frame[3];
        head->sequence = get32(frame + 4);
        head->bound = get32(frame + 8);
        head->heard_ms = get32(frame + 12);
        good = (head->count <= (uint32_t)DPF_FW_RPMSG_ITEMS) && (nbytes >= frame_bytes(head->count));
    }
    return good;
}

void dpf_fw_frame_write_item(unsigned char *frame, uint32_t index, const dpf_fw_item *item) {
    unsigned char *at = frame + frame_bytes(index);
    at[0] = item->kind;
    at[1] = item->flags;
    put(at + 2, item->code, 2u);
    put(at + 4, item->slot, 4u);
    put(at + 8, item->offset, 4u);
    put(at + 12, item->nbytes, 4u);
    put(at + 16, item->turn, 4u);
    put(at + 20, item->generation, 4u);
    put(at + 24, item->request, 8u);
    put(at + 32, item->captured_ns, 8u);
}

void dpf_fw_frame_read_item(const unsigned char *frame, uint32_t index, dpf_fw_item *item) {
    const unsigned char *at = frame + frame_bytes(index);
    item->kind = at[0];
    item->flags = at[1];
    item->code = (uint16_t)get(at + 2, 2u);
    item->slot = get32(at + 4);
    item->offset = get32(at + 8);
    item->nbytes = get32(at + 12);
    item->turn = get32(at + 16);
    item->generation = get32(at + 20);
    item->request = get(at + 24, 8u);
    item->captured_ns = get(at + 32, 8u);
}
