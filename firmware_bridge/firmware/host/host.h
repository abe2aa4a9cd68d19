/* SPDX-License-Identifier: Apache-2.0
 *
 * host.h - what the files of the host port share.
 */
#ifndef DPF_FW_HOST_H
#define DPF_FW_HOST_H

#include "client_parts.h"
#include "dsp.h"

typedef struct dpf_fw_host {
    dpf_fw_core core;
    dpf_client *clients[DPF_FW_SESSIONS]; /* how each session came about; only its memory and its socket are used */
    int wires[DPF_FW_SESSIONS];           /* what the doorbell rings: the server's socket, or the stand-in for /dev/rpmsg */
    dpf_fw_dsp *dsp;
    int16_t *captured, *played;
} dpf_fw_host;

/* The one host of this process: the hooks of port.h know no other. */
extern dpf_fw_host dpf_fw_this;

/* Gives up every system call but those of a tick: waiting, ringing, reading frames, ending. False: refused. */
bool dpf_fw_lock_down(void);

/* Opens the link of session `index`, whose client is there; false when it cannot be. */
bool dpf_fw_host_link(uint32_t index);

/* What came on the wires. */
void dpf_fw_host_listen(void);

#endif
