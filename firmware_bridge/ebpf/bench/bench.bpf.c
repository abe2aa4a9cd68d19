/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.bpf.c - what the routing programs do, in programs that bpf_prog_test_run can run, beside one that does nothing.
 *
 * Programs of cgroup hooks cannot be run by hand: these are socket filters with the same inline code. They are not shipped
 * to be attached; tests/bench/bench_route_kernel.py measures them, and the unit tests compare their answers.
 */
#include "key.h"

typedef struct rh_bench_session {
    __u64 nbytes;
    __u64 hash;
    rh_scratch key;
} rh_bench_session;

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, rh_bench_session);
} rh_bench SEC(".maps");

SEC("socket") int rh_empty(struct __sk_buff *with) {
    (void)with;
    return 0;
}

/* What connect(2) costs: the service asked for, the table of the generation, the instance, the counter. Its port. */
static __always_inline int rh_route(const rh_bench_session *session, bool hashed) {
    const rh_settings *set = rh_setting();
    rh_counters *count = rh_counted();
    if ((set == 0) || (count == 0) || (set->port4 == 0u)) return 0;
    __u64 hash = session->hash;
    if (!hashed) {
        if ((session->nbytes < DPF_ROUTE_KEY_LEAST) || (session->nbytes > DPF_ROUTE_KEY_MOST)) return 0;
        hash = rh_key_hash(&session->key, (__u32)session->nbytes, set->key_seed);
    }
    const rh_instance *to = rh_find4(hash);
    if (to == 0) return 0;
    RH_COUNT(count, routed, 1u);
    return bpf_ntohs(to->port);
}

SEC("socket") int rh_bench_connect(struct __sk_buff *with) {
    __u32 zero = 0u;
    const rh_bench_session *session = bpf_map_lookup_elem(&rh_bench, &zero);
    (void)with;
    return (session != 0) ? rh_route(session, true) : 0;
}

/* What setsockopt(2) costs, once for a socket: the key hashed and kept. Its table slot. */
SEC("socket") int rh_bench_key(struct __sk_buff *with) {
    __u32 zero = 0u;
    rh_bench_session *session = bpf_map_lookup_elem(&rh_bench, &zero);
    const rh_settings *set = rh_setting();
    rh_counters *count = rh_counted();
    (void)with;
    if ((session == 0) || (set == 0) || (count == 0)) return 0;
    if ((session->nbytes < DPF_ROUTE_KEY_LEAST) || (session->nbytes > DPF_ROUTE_KEY_MOST)) return 0;
    session->hash = rh_key_hash(&session->key, (__u32)session->nbytes, set->key_seed);
    RH_COUNT(count, keys, 1u);
    return (int)(session->hash >> 48u);
}

/* All of it in one: the key too, which setsockopt(2) hashes once for a socket. */
SEC("socket") int rh_bench_full(struct __sk_buff *with) {
    __u32 zero = 0u;
    const rh_bench_session *session = bpf_map_lookup_elem(&rh_bench, &zero);
    (void)with;
    return (session != 0) ? rh_route(session, false) : 0;
}

char rh_licence[] SEC("license") = "Dual BSD/GPL";
