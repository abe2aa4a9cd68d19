/* SPDX-License-Identifier: Apache-2.0
 *
 * The wire of a core that speaks rpmsg, and the process that bridges it to the session.
 *
 * A socket of packets stands in for /dev/rpmsgN: it carries whole messages in their order, of 496 bytes at most, and refuses
 * when its buffers are taken. On a board the bridge's half of this file runs on Linux with that device in the socket's place.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bridge.h"
#include "host.h"
#include "port.h"

enum { PATIENCE_MS = 10 };

/* ---- the core's side ---- */

void dpf_fw_port_doorbell(uint32_t session) {
    dpf_fw_link *link = &dpf_fw_this.core.instances[session].link;
    unsigned char frame[DPF_FW_RPMSG_BYTES];
    bool more = true;
    while (more) {
        uint32_t nbytes = dpf_fw_link_frame(link, frame);
        more = nbytes != 0 && send(dpf_fw_this.wires[session], frame, nbytes, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)nbytes;
        if (more) dpf_fw_link_sent(link, frame);
    }
}

void dpf_fw_host_listen(void) {
    unsigned char frame[DPF_FW_RPMSG_BYTES];
    for (uint32_t i = 0; i < dpf_fw_this.core.instance_count; i++) {
        ssize_t nbytes;
        while ((nbytes = recv(dpf_fw_this.wires[i], frame, sizeof frame, MSG_DONTWAIT)) > 0) {
            dpf_fw_link_receive(&dpf_fw_this.core.instances[i].link, frame, (uint32_t)nbytes);
        }
    }
}

/* ---- the bridge's side ---- */

static void hush(int pipe) {
    char bytes[64];
    struct pollfd rung = {.fd = pipe, .events = POLLIN};
    while (poll(&rung, 1, 0) == 1 && (rung.revents & POLLIN) != 0 && read(pipe, bytes, sizeof bytes) > 0) {}
}

/* Everything there is to carry now; false when the core is gone. */
static bool carry(dpf_fw_bridge *bridge, int wire, unsigned char *frame, uint32_t *waiting) {
    unsigned char come[DPF_FW_RPMSG_BYTES];
    ssize_t nbytes;
    while ((nbytes = recv(wire, come, sizeof come, MSG_DONTWAIT)) > 0) {
        dpf_fw_bridge_receive(bridge, come, (uint32_t)nbytes, dpf_now_ns());
    }
    if (nbytes == 0) return false;
    for (;;) {
        if (*waiting == 0) *waiting = dpf_fw_bridge_frame(bridge, frame);
        if (*waiting == 0) return true;
        if (send(wire, frame, *waiting, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return errno == EAGAIN;
        *waiting = 0;
    }
}

__attribute__((noreturn)) static void serve(const dpf_client *client, int wire) {
    static dpf_fw_bridge bridge;
    unsigned char frame[DPF_FW_RPMSG_BYTES];
    uint32_t waiting = 0;
    struct pollfd reasons[4] = {
        {.fd = wire, .events = POLLIN},
        {.fd = client->socket, .events = POLLRDHUP},
        {.fd = client->rings[DPF_WIRE_EVENTS].bell, .events = POLLIN},
        {.fd = client->rings[DPF_WIRE_SOUND].bell, .events = POLLIN},
    };
    if (dpf_fw_bridge_open(&bridge, client->base, client->nbytes, client->key) != DPF_OK) _exit(1);
    while (carry(&bridge, wire, frame, &waiting)) {
        if (dpf_fw_bridge_due(&bridge)) (void)!send(client->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        poll(reasons, 4, PATIENCE_MS); /* a slot of the microphone that became free rings nothing here */
        for (int i = 2; i < 4; i++) hush(reasons[i].fd);
        if ((reasons[1].revents & (POLLRDHUP | POLLHUP)) != 0) break;
    }
    _exit(0);
}

bool dpf_fw_host_link(uint32_t index) {
    const dpf_client *client = dpf_fw_this.clients[index];
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
    pid_t core = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != core) _exit(1);
        close(ends[0]);
        serve(client, ends[1]);
    }
    close(ends[1]);
    dpf_fw_this.wires[index] = ends[0];
    dpf_fw_link_open(&dpf_fw_this.core.instances[index].link, client->base, (uint32_t)client->nbytes);
    return child > 0;
}
