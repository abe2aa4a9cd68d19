/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.bpf.c - what the routing programs do, in programs that bpf_prog_test_run can run, beside one that does nothing.
 *
 * Programs of cgroup hooks cannot be run by hand: these are of the kind `tc` with the same inline code. They are not shipped
 * to be attached; tests/bench/bench_route_kernel.py measures them, and the unit tests compare their answers.
 */
#include "key.h"

typedef struct rh_bench_session {
    __u64 nbytes;
    rh_scratch key;
} rh_bench_session;

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, rh_bench_session);
} rh_bench SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, rh_session);
} rh_sessions SEC(".maps");

/* Of the socket that bpf_prog_test_run makes for its runs. */
static __always_inline rh_session *rh_session_of(struct __sk_buff *with) {
    struct bpf_sock *sk = with->sk;
    if (sk == 0) return 0;
    sk = bpf_sk_fullsock(sk);
    return (sk != 0) ? bpf_sk_storage_get(&rh_sessions, sk, 0, BPF_SK_STORAGE_GET_F_CREATE) : 0;
}

static __always_inline bool rh_given(__u64 *hash) {
    __u32 zero = 0u;
    const rh_bench_session *given = bpf_map_lookup_elem(&rh_bench, &zero);
    if ((given == 0) || (given->nbytes < DPF_ROUTE_KEY_LEAST) || (given->nbytes > DPF_ROUTE_KEY_MOST)) return false;
    *hash = rh_key_hash(&given->key, (__u32)given->nbytes, rh_set.key_seed);
    return true;
}

/* What setsockopt(2) does: the key's hash into the socket. */
static __always_inline bool rh_keep(rh_session *session, rh_counters *count) {
    if (!rh_given(&session->hash)) return false;
    session->keyed = 1u;
    RH_COUNT(count, keys, 1u);
    return true;
}

/* What connect(2) does with a hash: the table of the generation, the instance, the counter. Its port. */
static __always_inline int rh_route(__u64 hash, rh_counters *count) {
    if (rh_set.port4 == 0u) return 0;
    const rh_instance *to = rh_find4(hash);
    if (to == 0) return 0;
    RH_COUNT(count, routed, 1u);
    return bpf_ntohs(to->port);
}

SEC("tc") int rh_empty(struct __sk_buff *with) {
    (void)with;
    return 0;
}

SEC("tc") int rh_bench_key(struct __sk_buff *with) {
    rh_session *session = rh_session_of(with);
    rh_counters *count = rh_counted();
    if ((session == 0) || (count == 0) || !rh_keep(session, count)) return 0;
    return (int)(session->hash >> 48u);
}

SEC("tc") int rh_bench_connect(struct __sk_buff *with) {
    rh_session *session = rh_session_of(with);
    rh_counters *count = rh_counted();
    if ((session == 0) || (count == 0)) return 0;
    if ((session->keyed == 0u) && !rh_keep(session, count)) return 0; /* of a million runs the first one */
    return rh_route(session->hash, count);
}

/* The pure function, from key to instance, without a socket. */
SEC("tc") int rh_bench_pure(struct __sk_buff *with) {
    __u64 hash;
    rh_counters *count = rh_counted();
    (void)with;
    return ((count != 0) && rh_given(&hash)) ? rh_route(hash, count) : 0;
}

/* Both in one, which no hook runs. */
SEC("tc") int rh_bench_full(struct __sk_buff *with) {
    rh_session *session = rh_session_of(with);
    rh_counters *count = rh_counted();
    if ((session == 0) || (count == 0) || !rh_keep(session, count)) return 0;
    return rh_route(session->hash, count);
}

char rh_licence[] SEC("license") = "Dual BSD/GPL";
