/* SPDX-License-Identifier: Apache-2.0
 *
 * route.bpf.c - the kernel sends what is addressed to the service to an instance: connect(2), and datagrams, of a cgroup.
 *
 * In: the published table (maps.h), a session's key by setsockopt. Out: another destination address, and counters. It reads
 * no structure of the kernel, so one object fits every kernel from 5.15 on. What arrives is receive.bpf.c's business.
 */
#include "key.h"

enum { RH_REFUSE = 0, RH_PASS = 1, RH_TCP = 6 };

struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, rh_session);
} rh_sessions SEC(".maps");

/* Every instance's address, for those who see an address and ask whether it is one. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 2 * RH_INSTANCES);
    __type(key, rh_address);
    __type(value, __u32);
} rh_known SEC(".maps");

/* ---- the key of a session, by setsockopt ---- */

SEC("cgroup/setsockopt") int rh_option(struct bpf_sockopt *ctx) {
    if ((ctx->level != RH_LEVEL) || (ctx->optname != RH_KEY)) return RH_PASS;
    __u32 nbytes;
    __s32 given = ctx->optlen; /* below 0: a program like this one, of another cgroup above or below, took the key already */
    rh_counters *count = rh_counted();
    if ((count == 0) || (ctx->sk == 0)) return RH_REFUSE;
    if ((given >= 0) && ((given < DPF_ROUTE_KEY_LEAST) || (given > DPF_ROUTE_KEY_MOST))) goto refuse;
    rh_session *session = bpf_sk_storage_get(&rh_sessions, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
    if (session == 0) goto refuse;
    rh_key_take(&session->key, ctx->optval, ctx->optval_end); /* the kernel has locked the socket */
    nbytes = rh_key_length(&session->key);
    if ((nbytes < DPF_ROUTE_KEY_LEAST) || (nbytes > DPF_ROUTE_KEY_MOST)) goto refuse;
    if ((given >= 0) && (nbytes != (__u32)given)) goto refuse;
    session->hash = rh_key_hash(&session->key, nbytes, rh_set.key_seed);
    session->keyed = 1u;
    RH_COUNT(count, keys, 1u);
    ctx->optlen = -1; /* no other layer is asked */
    return RH_PASS;
refuse:
    RH_COUNT(count, bad_keys, 1u);
    return RH_REFUSE;
}

/* ---- where a connection or a datagram goes ---- */

/* Without a key: all sockets of one user in one cgroup go to one instance. */
static __always_inline __u64 rh_keyless(__u64 seed) {
    __u64 who[2] = {bpf_get_current_cgroup_id(), bpf_get_current_uid_gid() & 0xFFFFFFFFu};
    return dpf_xxh64(who, sizeof who, seed);
}

static __always_inline __u64 rh_hash(const rh_session *session, __u64 seed, rh_counters *count) {
    if ((session != 0) && (session->keyed != 0u)) return session->hash;
    RH_COUNT(count, keyless, 1u);
    return rh_keyless(seed);
}

static __always_inline bool rh_is_service(const rh_address *to) {
    if ((to->ip[0] == 0u) && (to->ip[1] == 0u) && (to->ip[2] == bpf_htonl(0xFFFFu)))
        return (rh_set.port4 != 0u) && (to->ip[3] == rh_set.ip4) && (to->port == rh_set.port4);
    return (rh_set.port6 != 0u) && (to->port == rh_set.port6) && (to->ip[0] == rh_set.ip6[0]) && (to->ip[1] == rh_set.ip6[1]) &&
           (to->ip[2] == rh_set.ip6[2]) && (to->ip[3] == rh_set.ip6[3]);
}

static __always_inline int rh_to4(struct bpf_sock_addr *ctx, bool datagram) {
    if ((ctx->user_ip4 != rh_set.ip4) || ((__u16)ctx->user_port != rh_set.port4) || (rh_set.port4 == 0u))
        return RH_PASS;
    rh_counters *count = rh_counted();
    if (count == 0) return RH_REFUSE;
    rh_session *session = bpf_sk_storage_get(&rh_sessions, ctx->sk, 0, datagram ? BPF_SK_STORAGE_GET_F_CREATE : 0);
    const rh_instance *to = rh_find4(rh_hash(session, rh_set.key_seed, count));
    if (to == 0) {
        RH_COUNT(count, nobody, 1u);
        return RH_REFUSE;
    }
    ctx->user_ip4 = to->ip;
    ctx->user_port = to->port;
    if (datagram && (session != 0)) session->asked = 1u;
    RH_COUNT(count, routed, 1u);
    return RH_PASS;
}

/* An IPv6 socket may also name an IPv4 service, as ::ffff:a.b.c.d. */
static __always_inline int rh_to6(struct bpf_sock_addr *ctx, bool datagram) {
    rh_address asked = {{0u, 0u, 0u, 0u}, (__u16)ctx->user_port, 0u};
    RH_IP(asked.ip, true, ctx->user_ip4, ctx->user_ip6);
    if (!rh_is_service(&asked)) return RH_PASS;
    rh_counters *count = rh_counted();
    if (count == 0) return RH_REFUSE;
    rh_session *session = bpf_sk_storage_get(&rh_sessions, ctx->sk, 0, datagram ? BPF_SK_STORAGE_GET_F_CREATE : 0);
    const rh_address *to = rh_find6(rh_hash(session, rh_set.key_seed, count));
    /* the kernel does not send an IPv6 socket's datagram to an IPv4 address that a program put there */
    if ((to == 0) || (datagram && (to->ip[0] == 0u) && (to->ip[1] == 0u) && (to->ip[2] == bpf_htonl(0xFFFFu)))) {
        RH_COUNT(count, nobody, 1u);
        return RH_REFUSE;
    }
    ctx->user_ip6[0] = to->ip[0];
    ctx->user_ip6[1] = to->ip[1];
    ctx->user_ip6[2] = to->ip[2];
    ctx->user_ip6[3] = to->ip[3];
    ctx->user_port = to->port;
    if (datagram && (session != 0)) session->asked = 1u;
    RH_COUNT(count, routed, 1u);
    return RH_PASS;
}

SEC("cgroup/connect4") int rh_connect4(struct bpf_sock_addr *ctx) { return rh_to4(ctx, false); }
SEC("cgroup/connect6") int rh_connect6(struct bpf_sock_addr *ctx) { return rh_to6(ctx, false); }
SEC("cgroup/sendmsg4") int rh_sendmsg4(struct bpf_sock_addr *ctx) { return rh_to4(ctx, true); }
SEC("cgroup/sendmsg6") int rh_sendmsg6(struct bpf_sock_addr *ctx) { return rh_to6(ctx, true); }

/* ---- an answer comes from whom was asked ---- */

static __always_inline bool rh_asked(struct bpf_sock_addr *ctx) {
    const rh_session *session = bpf_sk_storage_get(&rh_sessions, ctx->sk, 0, 0);
    return (session != 0) && (session->asked != 0u);
}

SEC("cgroup/recvmsg4") int rh_recvmsg4(struct bpf_sock_addr *ctx) {
    if (!rh_asked(ctx)) return RH_PASS;
    rh_address from = {{0u, 0u, bpf_htonl(0xFFFFu), ctx->user_ip4}, (__u16)ctx->user_port, 0u};
    rh_counters *count = rh_counted();
    if ((count != 0) && (rh_set.port4 != 0u) && (bpf_map_lookup_elem(&rh_known, &from) != 0)) {
        ctx->user_ip4 = rh_set.ip4;
        ctx->user_port = rh_set.port4;
        RH_COUNT(count, answered, 1u);
    }
    return RH_PASS;
}

SEC("cgroup/recvmsg6") int rh_recvmsg6(struct bpf_sock_addr *ctx) {
    if (!rh_asked(ctx)) return RH_PASS;
    rh_address from = {{0u, 0u, 0u, 0u}, (__u16)ctx->user_port, 0u};
    RH_IP(from.ip, true, ctx->user_ip4, ctx->user_ip6);
    rh_counters *count = rh_counted();
    if ((count != 0) && (rh_set.port6 != 0u) && (bpf_map_lookup_elem(&rh_known, &from) != 0)) {
        ctx->user_ip6[0] = rh_set.ip6[0];
        ctx->user_ip6[1] = rh_set.ip6[1];
        ctx->user_ip6[2] = rh_set.ip6[2];
        ctx->user_ip6[3] = rh_set.ip6[3];
        ctx->user_port = rh_set.port6;
        RH_COUNT(count, answered, 1u);
    }
    return RH_PASS;
}

/* ---- receiving: a socket for the address of an instance that is served here ---- */

struct {
    __uint(type, BPF_MAP_TYPE_SOCKHASH);
    __uint(max_entries, 2 * RH_INSTANCES);
    __type(key, rh_address);
    __type(value, __u64);
} rh_listen SEC(".maps");

/* What comes from a host without these programs is for the service itself, and has no key: the sender's address decides. */
SEC("sk_lookup") int rh_receive(struct bpf_sk_lookup *ctx) {
    rh_counters *count = rh_counted();
    if (count == 0) return SK_PASS;
    bool six = ctx->family == RH_INET6;
    rh_address to = {{0u, 0u, 0u, 0u}, bpf_htons((__u16)ctx->local_port), 0u};
    __u32 from[4];
    RH_IP(to.ip, six, ctx->local_ip4, ctx->local_ip6);
    RH_IP(from, six, ctx->remote_ip4, ctx->remote_ip6);
    if (rh_is_service(&to)) {
        __u64 sender[2] = {(__u64)from[0] | (__u64)from[1] << 32u, (__u64)from[2] | (__u64)from[3] << 32u};
        const rh_address *instance = rh_find6(dpf_xxh64(sender, sizeof sender, rh_set.key_seed));
        if (instance == 0) {
            RH_COUNT(count, nobody, 1u);
            return SK_PASS;
        }
        to = *instance;
    }
    to.protocol = (__u16)ctx->protocol;
    struct bpf_sock *socket = bpf_map_lookup_elem(&rh_listen, &to);
    if (socket == 0) return SK_PASS;
    if (bpf_sk_assign(ctx, socket, 0) == 0) RH_COUNT(count, received, 1u);
    bpf_sk_release(socket);
    return SK_PASS;
}

/* ---- the short-cut: what one end of a connection sends goes into the other's queue ---- */

struct {
    __uint(type, BPF_MAP_TYPE_SOCKHASH);
    __uint(max_entries, RH_SOCKETS);
    __type(key, rh_pair);
    __type(value, __u64);
} rh_peers SEC(".maps");

enum { RH_UNDECIDED = 0, RH_SHORT = 1, RH_USUAL = 2 };

/* Which way the first message of a socket went: the rest follows it, or bytes could overtake each other. */
struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, __u32);
} rh_way SEC(".maps");

static __always_inline bool rh_is_local(const rh_pair *pair) { /* one address, or two of 127.0.0.0/8 */
    if ((pair->local[0] != pair->remote[0]) || (pair->local[1] != pair->remote[1]) || (pair->local[2] != pair->remote[2]))
        return false;
    bool mapped = (pair->local[0] == 0u) && (pair->local[1] == 0u) && (pair->local[2] == bpf_htonl(0xFFFFu));
    __u32 net = bpf_htonl(0xFF000000u), loop = bpf_htonl(0x7F000000u);
    return (pair->local[3] == pair->remote[3]) ||
           (mapped && ((pair->local[3] & net) == loop) && ((pair->remote[3] & net) == loop));
}

SEC("sockops") int rh_established(struct bpf_sock_ops *ctx) {
    bool active = ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB;
    if (!active && (ctx->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)) return 0;
    /* bytes that left with the SYN are on the usual way already */
    if ((rh_set.short_cut == 0u) || (ctx->data_segs_out != 0u)) return 0;
    bool six = ctx->family == RH_INET6;
    rh_pair pair = {{0u, 0u, 0u, 0u}, {0u, 0u, 0u, 0u}, ctx->local_port, bpf_ntohl(ctx->remote_port)};
    RH_IP(pair.local, six, ctx->local_ip4, ctx->local_ip6);
    RH_IP(pair.remote, six, ctx->remote_ip4, ctx->remote_ip6);
    rh_address server = {{0u, 0u, 0u, 0u}, bpf_htons((__u16)(active ? pair.remote_port : pair.local_port)), 0u};
    server.ip[0] = pair.remote[0], server.ip[1] = pair.remote[1], server.ip[2] = pair.remote[2];
    server.ip[3] = active ? pair.remote[3] : pair.local[3];
    if (!rh_is_local(&pair) || (bpf_map_lookup_elem(&rh_known, &server) == 0)) return 0;
    rh_counters *count = rh_counted();
    if ((bpf_sock_hash_update(ctx, &rh_peers, &pair, BPF_NOEXIST) == 0) && (count != 0)) RH_COUNT(count, joined, 1u);
    return 0;
}

SEC("sk_msg") int rh_message(struct sk_msg_md *msg) {
    rh_counters *count = rh_counted();
    __u32 *way = (msg->sk != 0) ? bpf_sk_storage_get(&rh_way, msg->sk, 0, BPF_SK_STORAGE_GET_F_CREATE) : 0;
    if ((count == 0) || (way == 0)) return SK_PASS;
    if ((rh_set.short_cut == 0u) || (*way == RH_USUAL)) {
        *way = RH_USUAL;
        RH_COUNT(count, usual, 1u);
        return SK_PASS;
    }
    bool six = msg->family == RH_INET6;
    rh_pair other = {{0u, 0u, 0u, 0u}, {0u, 0u, 0u, 0u}, bpf_ntohl(msg->remote_port), msg->local_port};
    RH_IP(other.local, six, msg->remote_ip4, msg->remote_ip6);
    RH_IP(other.remote, six, msg->local_ip4, msg->local_ip6);
    if (bpf_msg_redirect_hash(msg, &rh_peers, &other, BPF_F_INGRESS) == SK_PASS) {
        *way = RH_SHORT;
        RH_COUNT(count, redirected, 1u);
        RH_COUNT(count, redirected_bytes, msg->size);
    } else {
        *way = RH_USUAL;
        RH_COUNT(count, usual, 1u);
    }
    return SK_PASS; /* also without a peer: then the message takes the usual way */
}

char rh_licence[] SEC("license") = "Dual BSD/GPL";
