/* SPDX-License-Identifier: Apache-2.0
 *
 * link_rpmsg.h - a session over frames of descriptors (rpmsg.h); bridge.h is the other side, on Linux.
 */
#ifndef DPF_FW_LINK_RPMSG_H
#define DPF_FW_LINK_RPMSG_H

#include "rpmsg.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DPF_FW_PLACES = 8,  /* slots of the microphone that the bridge lends ahead: 320 ms */
    DPF_FW_SOUNDS = 16, /* pieces of sound that the bridge hands over ahead */
    DPF_FW_EVENTS = 8,  /* events that it tells ahead */
    DPF_FW_OUT = 40     /* answers that wait for a frame: places, sounds and events have one each */
};

typedef struct dpf_fw_fifo {
    uint32_t first;
    uint32_t count;
} dpf_fw_fifo;

typedef struct dpf_fw_link {
    unsigned char *base; /* the arena, as this core sees it */
    uint32_t nbytes;
    uint32_t bound;
    uint32_t heard_ms;
    uint32_t sequence;
    bool due;
    dpf_fw_item places[DPF_FW_PLACES];
    dpf_fw_item sounds[DPF_FW_SOUNDS];
    dpf_fw_item events[DPF_FW_EVENTS];
    dpf_fw_item out[DPF_FW_OUT];
    dpf_fw_fifo place, sound, event, outgoing;
    uint32_t corrupt; /* frames and descriptors that made no sense */
    uint32_t full;    /* times that there was no room */
} dpf_fw_link;

/* Makes the link; `base` and `nbytes` are the memory that offsets count in. */
void dpf_fw_link_open(dpf_fw_link *link, void *base, uint32_t nbytes);

/* A frame came, of any bytes. */
void dpf_fw_link_receive(dpf_fw_link *link, const unsigned char *frame, uint32_t nbytes);

/* Writes the next frame into `frame` (DPF_FW_RPMSG_BYTES); its bytes, 0 when there is nothing to say. Call
 * dpf_fw_link_sent when rpmsg took it; if it has no buffer free, ask again later. */
uint32_t dpf_fw_link_frame(const dpf_fw_link *link, unsigned char *frame);
void dpf_fw_link_sent(dpf_fw_link *link, const unsigned char *frame);

#ifdef __cplusplus
}
#endif

#endif
