/* SPDX-License-Identifier: Apache-2.0
 *
 * maps.h - what user space and the routing programs share: the table of dpf/route.h as arrays, settings, counters.
 *
 * `dpfedge/routing/kernel/` knows these layouts; `README.md` is normative. Fixed numbers here, no code.
 */
#ifndef DPF_EBPF_MAPS_H
#define DPF_EBPF_MAPS_H

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "dpf/route.h"

enum {
    RH_INSTANCES = 1024,     /* of each buffer */
    RH_SOCKETS = 65536,      /* that the short-cut knows at once */
    RH_LEVEL = 0x445046,     /* "DPF": the level of our socket options */
    RH_KEY = 1,              /* setsockopt: the key of the session, as dpf_route_key writes it */
    RH_KEY_WORDS = 32,       /* 8 bytes each: room for DPF_ROUTE_KEY_MOST */
    RH_INET = 2,             /* AF_INET and AF_INET6, which no header of the kernel's interface names */
    RH_INET6 = 10
};

/* An address of a context, of IPv4 as ::ffff:a.b.c.d. The verifier takes a context's fields at fixed places only: volatile
 * and the empty asm keep the compiler from making one load of two, at a computed place. */
#define RH_LOAD(to, field)                                   \
    do {                                                     \
        __u32 rh_word = *(const volatile __u32 *)&(field);   \
        __asm__ volatile("" : "+r"(rh_word));                \
        (to) = rh_word;                                      \
    } while (0)
#define RH_IP(to, six, ip4, ip6)                             \
    do {                                                     \
        if (six) {                                           \
            RH_LOAD((to)[0], (ip6)[0]);                      \
            RH_LOAD((to)[1], (ip6)[1]);                      \
            RH_LOAD((to)[2], (ip6)[2]);                      \
            RH_LOAD((to)[3], (ip6)[3]);                      \
        } else {                                             \
            (to)[0] = 0u, (to)[1] = 0u;                      \
            (to)[2] = bpf_htonl(0xFFFFu);                    \
            RH_LOAD((to)[3], ip4);                           \
        }                                                    \
    } while (0)

typedef struct rh_address { /* IPv4 as ::ffff:a.b.c.d; all in network byte order */
    __u32 ip[4];
    __u16 port;
    __u16 protocol; /* of a listening socket; 0 elsewhere */
} rh_address;

typedef struct rh_instance {
    __u32 ip; /* 0: not by IPv4 */
    __u16 port;
    __u16 zero;
} rh_instance;

typedef struct rh_instances {
    rh_instance at[RH_INSTANCES];
} rh_instances;

typedef struct rh_addresses {
    rh_address at[RH_INSTANCES]; /* as ::ffff:a.b.c.d where the instance is named by IPv4 */
} rh_addresses;

typedef struct rh_settings {
    __u64 key_seed;
    __u32 ip4; /* the service's addresses, network byte order; port 0: none of that family */
    __u16 port4;
    __u16 port6;
    __u32 ip6[4];
    __u32 short_cut; /* 0: messages take the usual way */
    __u32 zero;
} rh_settings;

typedef struct rh_scratch {
    __u64 word[RH_KEY_WORDS];
} rh_scratch;

/* Of a socket. Its key is hashed here: what a processor has of its own may be another task's halfway, after a preemption. */
typedef struct rh_session {
    __u64 hash;
    __u32 keyed; /* 0: nobody gave it a key */
    __u32 asked; /* 1: it has sent datagrams to the service */
    rh_scratch key;
} rh_session;

typedef struct rh_counters {
    __u64 routed;     /* connections and datagrams sent to an instance */
    __u64 keyless;    /* of these, by user and cgroup */
    __u64 nobody;     /* refused: no instance, or none of that address family */
    __u64 keys;       /* taken */
    __u64 bad_keys;   /* refused */
    __u64 answered;   /* datagrams whose sender became the service again */
    __u64 received;   /* connections and datagrams that sk_lookup gave to a socket */
    __u64 joined;     /* sockets that the short-cut may use */
    __u64 redirected; /* messages that went from socket to socket */
    __u64 redirected_bytes;
    __u64 usual; /* messages of joined sockets that went the usual way */
} rh_counters;

typedef struct rh_pair { /* a connection, seen from one end; ports in host byte order */
    __u32 local[4];
    __u32 remote[4];
    __u32 local_port;
    __u32 remote_port;
} rh_pair;

/* 2^16 slots unless the loader makes the values larger, and `rh_shift` smaller with them. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __uint(value_size, 2 << DPF_ROUTE_BITS);
} rh_table SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, rh_instances);
} rh_inst SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, rh_addresses);
} rh_inst6 SEC(".maps");

/* Each of these is an array of one element, too, but the programs have its address: nothing is looked up. */
const volatile __u32 rh_shift SEC(".rodata.rh_shift") = 64u - DPF_ROUTE_BITS; /* what of a hash is no slot */
volatile __u64 rh_gen SEC(".data.rh_gen") = 0u;
rh_settings rh_set SEC(".data.rh_set") = {0u, 0u, 0u, 0u, {0u, 0u, 0u, 0u}, 0u, 0u};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, rh_counters);
} rh_count SEC(".maps");

/* The asm, different for each counter, keeps the compiler from adding to several at one place with a computed pointer. */
#define RH_COUNT(counters, field, by)                                                                 \
    do {                                                                                              \
        (counters)->field += (by);                                                                    \
        __asm__ volatile("" : : "i"(__builtin_offsetof(rh_counters, field)) : "memory");              \
    } while (0)

static __always_inline rh_counters *rh_counted(void) {
    __u32 zero = 0u;
    return bpf_map_lookup_elem(&rh_count, &zero);
}

/* The owner of a hash and the buffer that says so; both are of one generation. A program is gone before the publisher
 * fills that buffer again: it waits for a grace period of RCU. */
static __always_inline __u32 rh_owner(__u64 hash, __u32 *buffer) {
    *buffer = (__u32)(rh_gen & 1u);
    const __u16 *table = bpf_map_lookup_elem(&rh_table, buffer);
    if (table == 0) return DPF_ROUTE_NONE;
    __u32 owner = dpf_route_read(&table[hash >> rh_shift]);
    return (owner < RH_INSTANCES) ? owner : DPF_ROUTE_NONE;
}

static __always_inline const rh_instance *rh_find4(__u64 hash) {
    __u32 buffer, owner = rh_owner(hash, &buffer);
    if (owner >= RH_INSTANCES) return 0;
    const rh_instances *all = bpf_map_lookup_elem(&rh_inst, &buffer);
    return ((all != 0) && (all->at[owner].ip != 0u)) ? &all->at[owner] : 0;
}

static __always_inline const rh_address *rh_find6(__u64 hash) {
    __u32 buffer, owner = rh_owner(hash, &buffer);
    if (owner >= RH_INSTANCES) return 0;
    const rh_addresses *all = bpf_map_lookup_elem(&rh_inst6, &buffer);
    return ((all != 0) && (all->at[owner].port != 0u)) ? &all->at[owner] : 0;
}

#endif
