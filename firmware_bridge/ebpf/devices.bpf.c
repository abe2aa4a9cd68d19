/* SPDX-License-Identifier: Apache-2.0
 *
 * devices.bpf.c - which processes open which devices: device numbers in, who opened them how often and when out.
 *
 * The kernel asks a cgroup's device programs at every open of a device; this one notes it and allows what it is asked.
 * It reads no structure of the kernel. Whether a process has the device open still is for /proc to say: nobody is asked at
 * a close, and a child inherits without an open.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

enum { RH_WATCHED = 256, RH_OPENERS = 4096, RH_ALLOW = 1 };

typedef struct rh_device {
    __u32 major;
    __u32 minor;
} rh_device;

typedef struct rh_opener {
    __u32 process;
    rh_device device;
} rh_opener;

typedef struct rh_opens {
    __u64 count;
    __u64 last_ns; /* CLOCK_MONOTONIC */
} rh_opens;

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, RH_WATCHED);
    __type(key, rh_device);
    __type(value, __u32);
} rh_watched SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH); /* those who opened one long ago make room */
    __uint(max_entries, RH_OPENERS);
    __type(key, rh_opener);
    __type(value, rh_opens);
} rh_openers SEC(".maps");

SEC("cgroup/dev") int rh_device_opened(struct bpf_cgroup_dev_ctx *ctx) {
    __u32 type = ctx->access_type & 0xFFFFu, access = ctx->access_type >> 16u;
    rh_device device = {ctx->major, ctx->minor};
    if ((type != BPF_DEVCG_DEV_CHAR) || ((access & (BPF_DEVCG_ACC_READ | BPF_DEVCG_ACC_WRITE)) == 0u)) return RH_ALLOW;
    if (bpf_map_lookup_elem(&rh_watched, &device) == 0) return RH_ALLOW;
    rh_opener who = {(__u32)(bpf_get_current_pid_tgid() >> 32u), device};
    rh_opens *known = bpf_map_lookup_elem(&rh_openers, &who);
    if (known != 0) {
        __sync_fetch_and_add(&known->count, 1u);
        known->last_ns = bpf_ktime_get_ns();
    } else {
        rh_opens first = {1u, bpf_ktime_get_ns()}; /* without a name: that helper wants CAP_PERFMON */
        bpf_map_update_elem(&rh_openers, &who, &first, BPF_NOEXIST);
    }
    return RH_ALLOW;
}

char rh_licence[] SEC("license") = "Dual BSD/GPL";
