/* SPDX-License-Identifier: Apache-2.0
 *
 * rpmsg.h - frames of descriptors, for cores that cannot use the arena's rings themselves.
 *
 * An rpmsg buffer has 512 bytes, 16 of them rpmsg's own header: 496 are left. A frame is 16 bytes and up to 12 descriptors of 40:
 * 496 exactly. Samples are never in a frame; a descriptor says where they lie in memory that both sides see. All numbers are
 * little-endian on the wire, whatever the byte order of the core. Frames are read byte by byte: a buffer needs no alignment.
 *
 *     frame       0 u16 magic 0x4644 "DF" | 2 u8 version 1 | 3 u8 count | 4 u32 sequence | 8 u32 bound | 12 u32 heard ms
 *     descriptor  0 u8 kind | 1 u8 flags | 2 u16 code | 4 u32 slot | 8 u32 offset | 12 u32 nbytes | 16 u32 turn |
 *                 20 u32 generation | 24 u64 request | 32 u64 captured ns
 *
 * `bound` is in every frame, both ways, and only ever rises: a stop needs no descriptor, no slot and no queue, and cannot be lost
 * with one. `offset` counts from the beginning of the arena.
 */
#ifndef DPF_FW_RPMSG_H
#define DPF_FW_RPMSG_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DPF_FW_RPMSG_BYTES = 496,
    DPF_FW_RPMSG_HEAD = 16,
    DPF_FW_RPMSG_ITEM = 40,
    DPF_FW_RPMSG_ITEMS = (DPF_FW_RPMSG_BYTES - DPF_FW_RPMSG_HEAD) / DPF_FW_RPMSG_ITEM,
    DPF_FW_RPMSG_MAGIC = 0x4644,
    DPF_FW_RPMSG_VERSION = 1
};

/* Kinds of descriptors. To the core: a slot of the microphone to fill, sound, an event. From it: the answers to them. */
enum {
    DPF_FW_ITEM_PLACE = 1,      /* slot, offset, nbytes, generation: fill it */
    DPF_FW_ITEM_SOUND = 2,      /* slot, offset, nbytes, turn (its epoch), request (its answer), flags */
    DPF_FW_ITEM_EVENT = 3,      /* code (its kind), request (its number) */
    DPF_FW_ITEM_SAMPLES = 4,    /* slot, generation, nbytes, captured */
    DPF_FW_ITEM_COMMAND = 5,    /* slot, generation, code (2 commit, 3 clear) */
    DPF_FW_ITEM_SOUND_DONE = 6, /* slot */
    DPF_FW_ITEM_EVENT_DONE = 7
};

enum { DPF_FW_ITEM_LAST = 1 }; /* flags */

typedef struct dpf_fw_item {
    uint64_t request;
    uint64_t captured_ns;
    uint32_t slot;
    uint32_t offset;
    uint32_t nbytes;
    uint32_t turn;
    uint32_t generation;
    uint16_t code;
    uint8_t kind;
    uint8_t flags;
} dpf_fw_item;

typedef struct dpf_fw_frame_head {
    uint32_t sequence;
    uint32_t bound;
    uint32_t heard_ms;
    uint32_t count;
} dpf_fw_frame_head;

/* Writes the head of a frame of `head->count` items, at most DPF_FW_RPMSG_ITEMS; the bytes of the frame. */
uint32_t dpf_fw_frame_write_head(unsigned char *frame, const dpf_fw_frame_head *head);
void dpf_fw_frame_write_item(unsigned char *frame, uint32_t index, const dpf_fw_item *item);

/* Reads a head; false unless it is one, of this version, and the frame has as many bytes as its items need. */
bool dpf_fw_frame_read_head(const unsigned char *frame, uint32_t nbytes, dpf_fw_frame_head *head);
void dpf_fw_frame_read_item(const unsigned char *frame, uint32_t index, dpf_fw_item *item);

#ifdef __cplusplus
}
#endif

#endif
