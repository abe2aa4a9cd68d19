/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/ring.h - one link: fixed-size slots of tensor bytes and a ring of 64-byte descriptors, in memory both sides map.
 *
 * Takes bytes written in place by one producer and shows them, in place, to each of its consumers (1 to 6): every consumer
 * gets every message. It copies no payload, allocates nothing, takes no lock and calls nothing: it is the same code in a
 * stage, in a head unit and in firmware.
 *
 *     producer: dpf_ring_loan   -> write into dpf_ring_slot -> dpf_ring_send            (or dpf_ring_abandon)
 *     consumer: dpf_ring_receive -> read from dpf_ring_slot -> dpf_ring_release
 *
 * Ownership. A slot is in use while any of these three is true, and free otherwise; nothing else is recorded:
 *   held    `hold` names an owner: the producer has it on loan (and may still write);
 *   queued  min(last, tail) > the head of any place, where `last` is 1 + the position of the newest descriptor naming it;
 *   leased  `lease[place]` names an owner and a count above 0: that place's consumer reads it.
 * A place is one consumer's seat: it keeps its position while nobody sits there, so messages wait for the successor.
 * A slot passes from held to queued to leased; each step sets the next word before it clears the one before, and the
 * producer reads them in the same order, so a slot in use never looks free, at whatever instruction a side dies.
 *
 * Growing slots. A descriptor with DPF_PARTIAL shows the first bytes and keeps the loan: the producer writes on behind
 * them and sends again. The slot is freed when the loan and every lease on it have ended.
 *
 * Death. `dpf_ring_reclaim(ring, owner)` ends every loan and lease of a dead owner. Messages the dead producer sent stay
 * readable; messages the dead consumer had leased are lost with it, those it had not leased wait for its successor. It
 * may be repeated, and may die itself and be repeated. The owner must really be dead (pidfd): a living process whose
 * owner is reclaimed gets DPF_STALE from its next call, but may still be writing through a pointer it kept.
 *
 * Threads. One producer per ring and one consumer per place at a time (`dpf_ring_attach_*` enforces it); each calls from one
 * thread at a time. `dpf_ring_reclaim` may run beside both.
 *
 * Wake-ups. Calls that make the other side's work possible ring its bell and set a bit in `ring->wake` when it sleeps;
 * the caller then runs `dpf_ring_wake` (dpf/posix.h) or its own doorbell, and clears the bit. The producer's bell is
 * rung only after a call of the producer answered DPF_FULL.
 *
 * A hostile peer can write anything anywhere in the arena at any time. It can then destroy, repeat or invent messages of
 * the links it shares, fill them up or wake the other side for nothing. It cannot make these functions read or write
 * outside the arena, loop without bound, or return a descriptor whose slot, offset, size, rank, dtype or shape do not
 * fit: `dpf_ring` is a private copy of the geometry, and every value read from shared memory is checked after it
 * was copied out and before it is used. It can change payload bytes while they are read: a consumer that does not trust
 * its producer must copy what it decides upon.
 */
#ifndef DPF_RING_H
#define DPF_RING_H

#include "dpf/base.h"
#include "dpf/bell.h"

enum { DPF_RANK_MAX = 3, DPF_PLACES = 6, DPF_DTYPES = 14 };

/* Bits of dpf_descriptor.flags. */
enum { DPF_LAST = 1, DPF_CANCELLED = 2, DPF_ERROR = 4, DPF_PARTIAL = 8, DPF_FLAGS = 15 };

/* What dpf_ring_loan does when no slot is free: wait and fail answer DPF_FULL (the caller waits), newest drops. */
typedef enum dpf_policy { DPF_POLICY_BLOCK = 0, DPF_POLICY_FAIL = 1, DPF_POLICY_NEWEST = 2 } dpf_policy;

/* One message. Positions and sizes in bytes, times in CLOCK_MONOTONIC nanoseconds, 0 = none. */
typedef struct dpf_descriptor {
    uint64_t request;     /* request key (dpf/requests.h) */
    uint64_t captured_ns; /* when the first sample of the payload was captured */
    uint64_t deadline_ns; /* after this the answer is useless */
    uint32_t slot;
    uint32_t generation; /* of the slot; set by the loan */
    uint32_t sequence;   /* position in this ring modulo 2^32; set by dpf_ring_send */
    uint32_t turn;
    uint32_t offset; /* of the payload in the slot */
    uint32_t nbytes; /* of the payload */
    uint32_t shape[DPF_RANK_MAX];
    uint8_t dtype;        /* index into dpfedge.tensors.DTYPES; 0 = bytes of no dtype */
    uint8_t rank_urgency; /* rank in bits 0-3, urgency (RFC 9218, 0 = most urgent) in bits 4-7 */
    uint8_t kind;         /* what the stages call it; links do not look at it */
    uint8_t flags;
} dpf_descriptor;

DPF_ASSERT(sizeof(dpf_descriptor) == 64, "descriptor layout");
DPF_ASSERT(offsetof(dpf_descriptor, slot) == 24 && offsetof(dpf_descriptor, sequence) == 32, "descriptor layout");
DPF_ASSERT(offsetof(dpf_descriptor, offset) == 40 && offsetof(dpf_descriptor, shape) == 48, "descriptor layout");
DPF_ASSERT(offsetof(dpf_descriptor, dtype) == 60 && offsetof(dpf_descriptor, flags) == 63, "descriptor layout");

/* A place in the descriptor ring: the descriptor as words, so that a torn read is defined and thrown away. */
typedef struct dpf_entry {
    DPF_ATOMIC(uint64_t) word[8];
} dpf_entry;

DPF_ASSERT(sizeof(dpf_entry) == sizeof(dpf_descriptor), "entry layout");

/* The state of one slot. Words of two halves: low 32 bits owner (0 = nobody), high 32 bits generation or count. */
typedef struct dpf_slot_state {
    DPF_ATOMIC(uint64_t) hold;              /* producer: owner | generation << 32 */
    DPF_ATOMIC(uint64_t) last;              /* producer: 1 + position of the newest descriptor naming this slot */
    DPF_ATOMIC(uint64_t) lease[DPF_PLACES]; /* consumers: owner | count << 32; one word for each place */
} dpf_slot_state;

DPF_ASSERT(sizeof(dpf_slot_state) == DPF_LINE, "slot state layout");
DPF_ASSERT(offsetof(dpf_slot_state, lease) == 16, "slot state layout");

/* The process that has a port, in the words of dpf/posix.h. The protocol never looks at it. */
typedef struct dpf_process {
    DPF_ATOMIC(uint32_t) owner; /* whom the other words describe; any other owner is unknown */
    DPF_ATOMIC(uint32_t) pid;
    DPF_ATOMIC(uint64_t) start; /* when it started: process ids come again */
    DPF_ATOMIC(uint64_t) space; /* where the process id holds: the pid namespace */
} dpf_process;

DPF_ASSERT(sizeof(dpf_process) == 24, "process layout");

/* What one consumer place writes. The producer moves `head` too when its policy is `newest`. */
typedef struct dpf_place {
    DPF_ATOMIC(uint64_t) head;     /* position of the next descriptor to receive */
    DPF_ATOMIC(uint64_t) received; /* counters: never read by the protocol */
    DPF_ATOMIC(uint64_t) corrupt;
    DPF_ATOMIC(uint32_t) owner;
    uint32_t reserved0;
    dpf_process process;
    uint64_t reserved1;
} dpf_place;

DPF_ASSERT(sizeof(dpf_place) == DPF_LINE && offsetof(dpf_place, process) == 32, "place layout");

/* The moving words of a ring. */
typedef struct dpf_control {
    DPF_ATOMIC(uint64_t) tail; /* producer: position of the next descriptor to send */
    DPF_ATOMIC(uint64_t) sent; /* counters of the producer: never read by the protocol */
    DPF_ATOMIC(uint64_t) dropped;
    DPF_ATOMIC(uint64_t) refused;
    DPF_ATOMIC(uint64_t) abandoned;
    DPF_ATOMIC(uint64_t) copies;
    DPF_ATOMIC(uint64_t) copied_bytes;
    DPF_ATOMIC(uint32_t) owner; /* of the producer */
    uint32_t reserved0;
    DPF_ATOMIC(uint32_t) starved; /* the producer wants its bell rung when something is freed */
    uint32_t reserved1;
    dpf_process process; /* of the producer */
    uint32_t reserved2[8];
    dpf_place place[DPF_PLACES];
} dpf_control;

DPF_ASSERT(sizeof(dpf_control) == 512, "control layout");
DPF_ASSERT(offsetof(dpf_control, owner) == 56, "control layout");
DPF_ASSERT(offsetof(dpf_control, process) == 72, "control layout");
DPF_ASSERT(offsetof(dpf_control, starved) == 64 && offsetof(dpf_control, place) == 128, "control layout");

/* Bits of dpf_ring.wake. */
enum { DPF_WAKE_PRODUCER = 1, DPF_WAKE_CONSUMER = 2 }; /* DPF_WAKE_CONSUMER << place */

/* One side's private view of a ring, filled in and checked by dpf_arena_ring. Copy it freely; share it never. */
typedef struct dpf_ring {
    dpf_control *control;
    dpf_entry *entries;
    dpf_slot_state *states;
    unsigned char *slots;
    dpf_bell *producer_bell;
    dpf_bell *consumer_bell[DPF_PLACES];
    uint64_t slot_bytes; /* usable bytes of a slot */
    uint64_t stride;     /* distance of two slots */
    uint64_t block_ns;   /* bound of a wait for space under DPF_POLICY_BLOCK */
    uint32_t count;      /* slots */
    uint32_t capacity;   /* descriptors, a power of two >= 4 * count: a final send always finds room */
    uint32_t policy;
    uint32_t places; /* consumers */
    uint32_t place;  /* the one this view receives for; set by dpf_ring_attach_consumer */
    uint32_t hint;   /* where the next search for a free slot begins */
    uint32_t wake;
    char name[DPF_NAME_BYTES];
} dpf_ring;

typedef struct dpf_ring_stats {
    uint64_t sent, received, dropped, refused, abandoned, corrupt, copies, copied_bytes; /* of all places together */
    uint32_t loaned, leased, depth; /* now: slots held, slots leased, descriptors unread by the slowest consumer */
} dpf_ring_stats;

DPF_BEGIN_C

/* Bytes of one element; 0 for a code that does not exist. */
uint32_t dpf_dtype_bytes(uint32_t dtype);

/* Bytes of the elements that rank, shape and dtype name; false when they are impossible or beyond 2^32 - 1. */
bool dpf_descriptor_bytes(const dpf_descriptor *descriptor, uint32_t *nbytes);

/* Takes a port for `owner` (not 0). DPF_TAKEN while another owner has it; taking one's own port again is fine. */
dpf_result dpf_ring_attach_producer(dpf_ring *ring, uint32_t owner);
dpf_result dpf_ring_attach_consumer(dpf_ring *ring, uint32_t place, uint32_t owner);

/* Gives a port of `owner` back; its loans and leases stay. */
void dpf_ring_detach_producer(dpf_ring *ring, uint32_t owner);
void dpf_ring_detach_consumer(dpf_ring *ring, uint32_t place, uint32_t owner);

/* Start of a slot, or NULL when the index is out of range. */
unsigned char *dpf_ring_slot(const dpf_ring *ring, uint32_t slot);

/* Borrows a free slot: DPF_OK with its index and generation, else DPF_FULL. Policy `newest` drops unread messages,
 * oldest first and for the consumers that have not read them only, until a slot is free; DPF_FULL then means that every slot is on loan or leased. */
dpf_result dpf_ring_loan(dpf_ring *ring, uint32_t owner, uint32_t *slot, uint32_t *generation);

/* Queues a descriptor for a slot on loan. Without DPF_PARTIAL the loan ends unless `keep` is set (a caller with
 * live pointers into the slot keeps it and abandons it later). DPF_FULL is possible for DPF_PARTIAL only: the bytes
 * are then shown by a later send. DPF_BAD: payload outside the slot or shape larger than the payload. */
dpf_result dpf_ring_send(dpf_ring *ring, uint32_t owner, const dpf_descriptor *descriptor, bool keep);

/* Ends a loan without a message; what was already sent from the slot stays readable. */
dpf_result dpf_ring_abandon(dpf_ring *ring, uint32_t owner, uint32_t slot, uint32_t generation);

/* Whether the loan is still the owner's. */
bool dpf_ring_holds(const dpf_ring *ring, uint32_t owner, uint32_t slot, uint32_t generation);

/* Whether this view's place has something unread: two reads, for a consumer that looks again and again. */
bool dpf_ring_ready(const dpf_ring *ring);

/* Takes the oldest unread message and a lease on its slot: DPF_OK, DPF_EMPTY or DPF_CORRUPT (one was skipped). */
dpf_result dpf_ring_receive(dpf_ring *ring, uint32_t owner, dpf_descriptor *descriptor);

/* Ends one lease on a slot; DPF_STALE when there is none, DPF_CORRUPT when somebody overwrites the lease on purpose. */
dpf_result dpf_ring_release(dpf_ring *ring, uint32_t owner, uint32_t slot);

/* Whether the owner has a lease on this generation of the slot. */
bool dpf_ring_leases(const dpf_ring *ring, uint32_t owner, uint32_t slot, uint32_t generation);

/* Ends all loans, leases and ports of a dead owner; returns how many loans and leases that were. */
uint32_t dpf_ring_reclaim(dpf_ring *ring, uint32_t owner);

/* Counts a loan the producer gave back unsent; abandoning alone is also how a kept loan ends after its message. */
void dpf_ring_count_abandon(dpf_ring *ring);

/* Counts one copy of payload bytes by the producer. */
void dpf_ring_count_copy(dpf_ring *ring, uint64_t nbytes);

/* Descriptors a place has not read; 0 when the positions make no sense or there is no such place. */
uint32_t dpf_ring_depth(const dpf_ring *ring, uint32_t place);

/* The depth of the slowest place. */
uint32_t dpf_ring_backlog(const dpf_ring *ring);

void dpf_ring_read_stats(const dpf_ring *ring, dpf_ring_stats *stats);

DPF_END_C

#endif
