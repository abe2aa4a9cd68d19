/* SPDX-License-Identifier: Apache-2.0
 *
 * The firmware as a Linux process: `dpf-firmware DSP.bin [--socket PATH[=NAME]]... [--route FILE --model M --user U
 * --session-ms T] [--barge-in] [--by-hand]`.
 *
 * Before the first tick it does what a boot loader and Linux would: it opens its sessions (dpf/client.h), maps the converter
 * (dsp.h) and the routing table, and gives the rest of the system up (lock_down.c). From then on a tick of 10 ms is ppoll and
 * dpf_fw_tick. It ends with the converter's samples, or when its page says so.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host.h"
#include "phrases.h"
#include "port.h"

enum { WAIT_MS = 10000 };
#define BLOCK_NS 10000000u

dpf_fw_host dpf_fw_this;

uint64_t dpf_fw_port_now_ns(void) {
    return dpf_now_ns();
}

void dpf_fw_port_clean(const void *from, uint32_t nbytes) {
    (void)from, (void)nbytes; /* one coherent memory */
}

void dpf_fw_port_invalidate(const void *from, uint32_t nbytes) {
    (void)from, (void)nbytes;
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fprintf(stderr, "dpf-firmware: ");
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    exit(2);
}

static void *map_file(const char *path, int protection, uint64_t *nbytes) {
    int fd = open(path, (protection & PROT_WRITE) != 0 ? O_RDWR | O_CLOEXEC : O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) fail("%s: %m", path);
    void *base = mmap(NULL, (size_t)info.st_size, protection, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) fail("%s: %m", path);
    close(fd);
    *nbytes = (uint64_t)info.st_size;
    return base;
}

static void map_dsp(const char *path) {
    uint64_t nbytes;
    unsigned char *base = map_file(path, PROT_READ | PROT_WRITE, &nbytes);
    dpf_fw_this.dsp = (dpf_fw_dsp *)(void *)base;
    if (nbytes < DPF_FW_DSP_PAGE || dpf_fw_this.dsp->magic != DPF_FW_DSP_MAGIC) fail("%s: no converter (host/dsp.h)", path);
    uint64_t capacity = dpf_fw_this.dsp->capacity;
    if (capacity > (nbytes - DPF_FW_DSP_PAGE) / 4) fail("%s: shorter than it says", path);
    dpf_fw_this.captured = (int16_t *)(void *)(base + DPF_FW_DSP_PAGE);
    dpf_fw_this.played = dpf_fw_this.captured + capacity;
}

static void add_session(char *text, uint32_t flags) {
    dpf_fw_core *core = &dpf_fw_this.core;
    dpf_client_options options;
    char why[512] = "";
    char *name = strchr(text, '=');
    if (core->instance_count == DPF_FW_SESSIONS) fail("more than %d sessions", DPF_FW_SESSIONS);
    if (name != NULL) *name++ = 0;
    dpf_client_options_init(&options, sizeof options);
    options.socket = text;
    options.output_hz = DPF_FW_HZ;
    options.flags = flags;
    options.wait_ms = WAIT_MS;
    dpf_client **client = &dpf_fw_this.clients[core->instance_count];
    if (dpf_client_open(&options, client, why, sizeof why) != DPF_CLIENT_OK) fail("%s: %s", text, why);
    if (!dpf_fw_host_link(core->instance_count)) fail("%s: the session cannot be used", text);
    core->instances[core->instance_count].name = name == NULL ? "" : name;
    core->instances[core->instance_count].name_bytes = name == NULL ? 0 : (uint32_t)strlen(name);
    core->instance_count++;
}

static void obey(uint32_t command) {
    if (command == DPF_FW_DSP_FLUSH) dpf_fw_flush(&dpf_fw_this.core);
    if (command == DPF_FW_DSP_CLEAR) dpf_fw_clear(&dpf_fw_this.core);
    if (command == DPF_FW_DSP_STOP) dpf_fw_stop(&dpf_fw_this.core);
}

static void wait_until(uint64_t due) {
    uint64_t now = dpf_now_ns();
    if (now < due) {
        struct timespec left = {.tv_sec = (time_t)((due - now) / 1000000000u), .tv_nsec = (long)((due - now) % 1000000000u)};
        ppoll(NULL, 0, &left, NULL);
    }
}

static void tick(dpf_fw_dsp *dsp, uint64_t number, uint64_t due) {
    static int16_t captured[DPF_FW_BLOCK], played[DPF_FW_BLOCK];
    uint64_t began = dpf_now_ns();
    memcpy(captured, dpf_fw_this.captured + number * DPF_FW_BLOCK, sizeof captured);
    dpf_fw_host_listen();
    dpf_fw_tick(&dpf_fw_this.core, captured, played);
    memcpy(dpf_fw_this.played + number * DPF_FW_BLOCK, played, sizeof played);
    uint64_t ended = dpf_now_ns();
    if (ended - began > dsp->longest_ns) dsp->longest_ns = ended - began;
    if (ended > due && ended - due > dsp->late_ns) dsp->late_ns = ended - due;
    dsp->counters = dpf_fw_this.core.counters;
    dsp->chosen = dpf_fw_this.core.chosen < dpf_fw_this.core.instance_count ? dpf_fw_this.core.chosen : UINT32_MAX;
    atomic_store(&dsp->tick, number + 1);
}

static void run(dpf_fw_dsp *dsp) {
    uint64_t start = dpf_now_ns(), ticks = dsp->capacity / DPF_FW_BLOCK;
    bool ended = false;
    atomic_store(&dsp->start_ns, start);
    for (uint64_t number = 0; number < ticks && !ended; number++) {
        /* a block is there when its last sample was captured */
        uint64_t due = start + (number + 1) * BLOCK_NS;
        wait_until(due);
        tick(dsp, number, due);
        uint32_t command = atomic_exchange(&dsp->command, DPF_FW_DSP_NONE);
        ended = command == DPF_FW_DSP_END;
        obey(command);
    }
}

static void report(const dpf_fw_dsp *dsp) {
    const dpf_fw_counters *c = &dsp->counters;
    char line[512];
    int size = snprintf(line, sizeof line,
                        "ticks %llu, sent %llu ms, unsent %llu ms, played %llu ms, answers %u, stops %u (phrase %u), own %u, "
                        "moves %u, longest tick %llu us\n",
                        (unsigned long long)c->ticks, (unsigned long long)c->sent / 16, (unsigned long long)c->unsent / 16,
                        (unsigned long long)c->played / 16, c->answers, c->stops, c->heard, c->own, c->moves,
                        (unsigned long long)dsp->longest_ns / 1000);
    (void)!write(STDOUT_FILENO, line, (size_t)size);
}

int main(int count, char **words) {
    dpf_fw_config config = {.phrases = &DPF_FW_PHRASES, .cancel_echo = true, .model = "", .user = ""};
    uint32_t flags = DPF_CLIENT_NO_BARGE_IN; /* the stop lane decides what ends an answer */
    char *sockets[DPF_FW_SESSIONS];
    int socket_count = 0;
    if (count < 2) fail("usage: dpf-firmware DSP.bin [--socket PATH[=NAME]]... [--route FILE --model M --user U --session-ms T]");
    for (int i = 2; i < count; i++) {
        bool more = i + 1 < count;
        if (strcmp(words[i], "--barge-in") == 0) {
            flags &= ~(uint32_t)DPF_CLIENT_NO_BARGE_IN;
        } else if (strcmp(words[i], "--by-hand") == 0) {
            flags |= DPF_CLIENT_BY_HAND;
        } else if (strcmp(words[i], "--socket") == 0 && more && socket_count < DPF_FW_SESSIONS) {
            sockets[socket_count++] = words[++i];
        } else if (strcmp(words[i], "--route") == 0 && more) {
            config.route = map_file(words[++i], PROT_READ, &config.route_bytes);
        } else if (strcmp(words[i], "--model") == 0 && more) {
            config.model = words[++i];
        } else if (strcmp(words[i], "--user") == 0 && more) {
            config.user = words[++i];
        } else if (strcmp(words[i], "--session-ms") == 0 && more) {
            config.session_ms = strtoull(words[++i], NULL, 10);
        } else {
            fail("%s: not known, or without its value", words[i]);
        }
    }
    config.model_bytes = (uint32_t)strlen(config.model);
    config.user_bytes = (uint32_t)strlen(config.user);
    map_dsp(words[1]);
    if (!dpf_fw_core_init(&dpf_fw_this.core, &config)) fail("the phrases, the table or the ids are impossible");
    for (int i = 0; i < socket_count; i++) add_session(sockets[i], flags);
    if (!dpf_fw_lock_down()) fail("seccomp: %m");
    run(dpf_fw_this.dsp);
    report(dpf_fw_this.dsp);
    _exit(0);
}
