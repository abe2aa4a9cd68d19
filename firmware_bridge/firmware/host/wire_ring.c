/* SPDX-License-Identifier: Apache-2.0
 *
 * The doorbell of a core that works on the rings itself: one byte on the session's socket.
 */
#include <sys/socket.h>

#include "host.h"
#include "port.h"

bool dpf_fw_host_link(uint32_t index) {
    const dpf_client *client = dpf_fw_this.clients[index];
    dpf_fw_this.wires[index] = client->socket;
    return dpf_fw_link_open(&dpf_fw_this.core.instances[index].link, client->base, client->nbytes, client->key) == DPF_OK;
}

void dpf_fw_port_doorbell(uint32_t session) {
    /* a full queue means that the server has not looked yet and will */
    (void)!send(dpf_fw_this.wires[session], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void dpf_fw_host_listen(void) {}
