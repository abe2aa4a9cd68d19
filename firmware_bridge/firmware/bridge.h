/* SPDX-License-Identifier: Apache-2.0
 *
 * bridge.h - the Linux side of a core that speaks rpmsg: it works on the session's rings for that core.
 *
 * It lends the core slots of the microphone ahead, hands it pieces of sound, and does what its answers say. Samples stay where
 * they lie. What comes from the core is not trusted: an answer about a slot that it was not given is counted and dropped.
 */
#ifndef DPF_FW_BRIDGE_H
#define DPF_FW_BRIDGE_H

#include "rpmsg.h"
#include "session.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DPF_FW_BRIDGE_PLACES = 8, DPF_FW_BRIDGE_SOUNDS = 16, DPF_FW_BRIDGE_EVENTS = 8 };

typedef struct dpf_fw_bridge {
    dpf_fw_session session;
    uint32_t places, sounds, events; /* that the core has now */
    uint32_t told;                   /* the bound of the last frame */
    uint32_t sequence;
    bool hello;        /* the core was heard of */
    uint32_t refused; /* frames and answers that made no sense */
} dpf_fw_bridge;

/* As dpf_fw_session_open. */
dpf_result dpf_fw_bridge_open(dpf_fw_bridge *bridge, void *base, uint64_t nbytes, uint64_t key);

/* A frame of the core came. */
void dpf_fw_bridge_receive(dpf_fw_bridge *bridge, const unsigned char *frame, uint32_t nbytes, uint64_t now_ns);

/* Writes the next frame to the core (DPF_FW_RPMSG_BYTES); its bytes, 0 when there is nothing. What is in it is the core's
 * from now on: send it, whenever there is a buffer. */
uint32_t dpf_fw_bridge_frame(dpf_fw_bridge *bridge, unsigned char *frame);

/* Whether the server has to look since this was asked last. */
bool dpf_fw_bridge_due(dpf_fw_bridge *bridge);

#ifdef __cplusplus
}
#endif

#endif
