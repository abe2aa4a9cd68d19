/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring protocol of ../src/ring.c and ring_reclaim.c for spin (spinroot.com): one producer, CONSUMERS consumers,
 * a supervisor, and a killer that ends any of them between any two accesses to shared memory, also while it sleeps, and
 * makes the supervisor begin a reclaim anew at any step. ./check runs the variants and the seeded faults.
 *
 * Every load, store and compare-and-swap of the C code is one step here; what only tests look at (ghosts) changes with
 * the step it belongs to. Memory is sequentially consistent, as it is there (ring_words.h). Shorter than the C code:
 * an entry is written in one step, because nobody uses what it reads there before `tail` moves; positions never overflow.
 *
 * Checked: what a consumer reads is what was sent, from receive to release (so no slot has two owners); messages come
 * in order, each once; one that was published is received, or dropped by policy, or was in the hands of a consumer
 * that died; when nobody can move any more (so also: nobody sleeps through a wake-up) all messages are sent, none is
 * unread and every slot is free; every run ends, so recovery does.
 */
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef CONSUMERS
#define CONSUMERS 1
#endif
#ifndef MESSAGES
#define MESSAGES 3
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef CAPACITY
#define CAPACITY 2
#endif
#define SIDES (CONSUMERS + 1) /* 0 .. CONSUMERS - 1 the places, CONSUMERS the producer */
#define PRODUCER CONSUMERS
#define NOBODY 0

/* --- shared memory --- */
byte hold_owner[SLOTS], hold_generation[SLOTS], last[SLOTS];
byte lease_owner[SLOTS * CONSUMERS], leases[SLOTS * CONSUMERS]; /* of a slot and a place: AT(slot, place) */
byte tail, head[CONSUMERS];
byte entry_slot[CAPACITY], entry_generation[CAPACITY], entry_message[CAPACITY], entry_loan[CAPACITY];
bool starved;
typedef Bell { byte value; byte waiters; byte epoch; bool asleep };
Bell bells[SIDES]; /* of each side; `asleep` is the kernel's side of the futex */
byte port[SIDES];
byte data[SLOTS]; /* the payload: the number of its loan */

/* --- ghosts --- */
byte next = 1;          /* the next message's number; a number that was never published is skipped */
byte loans = 1;         /* the next loan's number */
byte published;
byte received[CONSUMERS], dropped[CONSUMERS], lost[CONSUMERS]; /* bit m: that happened to message m at this place */
byte newest_received[CONSUMERS];
byte owner[SIDES]; /* the living incarnation of each side, or NOBODY */
byte owners;
byte dead, kills, restarts;
byte killed;            /* the incarnation that must end now */
bool finished;          /* the producer has sent everything */
byte in_hand[CONSUMERS]; /* the message a consumer holds beyond its head + 1 */

#define BIT(m) (1 << (m))
#define AT(s, place) ((s) * CONSUMERS + (place))

/* A step for each consumer; loops over a variable would multiply the states. */
#if CONSUMERS == 1
#define EACH_PLACE(step) step(0)
#else
#define EACH_PLACE(step) step(0); step(1)
#endif

inline ring_bell(which) {
    bells[which].value++;
    if
    :: bells[which].waiters > 0 -> bells[which].asleep = false
    :: else
    fi
}

inline wait_bell(which, seen, epoch) {
    do
    :: bells[which].value != seen -> break
    :: else ->
        atomic { epoch = bells[which].epoch; bells[which].waiters++ };
        atomic { if :: bells[which].value == seen -> bells[which].asleep = true :: else fi };
        !bells[which].asleep;
        atomic {
            if
            :: bells[which].epoch == epoch && bells[which].waiters > 0 -> bells[which].waiters--
            :: else
            fi
        }
    od
}

#define SEE_QUEUED(place) used = used || low > head[place]
#define SEE_LEASED(place) used = used || lease_owner[AT(found, place)] != NOBODY

/* slot_free and the compare-and-swap behind it, for each slot in turn; `found` is SLOTS when there is none */
inline take_free_slot(me, found, generation, low, high, used) {
    found = 0;
    do
    :: found == SLOTS -> break
    :: else ->
        if
        :: atomic { hold_owner[found] == NOBODY -> generation = hold_generation[found]; used = false };
            low = last[found];
            high = tail;
            d_step { low = (low < high -> low : high); high = 0 };
#ifdef FAULT_LEASE_FIRST
            EACH_PLACE(SEE_LEASED);
            EACH_PLACE(SEE_QUEUED);
#else
            EACH_PLACE(SEE_QUEUED);
            EACH_PLACE(SEE_LEASED);
#endif
            low = 0;
            if
            :: atomic {
                !used && hold_owner[found] == NOBODY && hold_generation[found] == generation ->
                    generation++;
                    hold_owner[found] = me;
                    hold_generation[found] = generation
               };
               break
            :: else
            fi
        :: else
        fi;
        atomic { used = false; generation = 0; found++ }
    od
}

#ifdef NEWEST
#define SEE_OLDEST(place) low = (head[place] < low -> head[place] : low)
#define DROP(place)                                                                                              \
    if                                                                                                           \
    :: atomic { low < high && head[place] == low -> dropped[place] = dropped[place] | BIT(entry_message[low % CAPACITY]); head[place]++ } \
    :: else                                                                                                      \
    fi

inline drop_oldest(low, high) {
    high = tail;
    low = high;
    EACH_PLACE(SEE_OLDEST);
    EACH_PLACE(DROP);
    atomic { low = 0; high = 0 }
}
#endif

inline send(me, slot, generation, loan, keep, position) {
    position = tail;
    d_step {
        entry_slot[position % CAPACITY] = slot;
        entry_generation[position % CAPACITY] = generation;
        entry_message[position % CAPACITY] = next;
        entry_loan[position % CAPACITY] = loan;
        next++
    };
#ifndef FAULT_LAST_AFTER_TAIL
    last[slot] = position + 1;
#endif
    atomic { tail = position + 1; published = published | BIT(entry_message[position % CAPACITY]) };
#ifdef FAULT_LAST_AFTER_TAIL
    last[slot] = position + 1;
#endif
    if
    :: keep
    :: else ->
        atomic {
            assert(hold_owner[slot] == me && hold_generation[slot] == generation);
            hold_owner[slot] = NOBODY
        }
    fi;
    position = 0;
    EACH_PLACE(ring_bell)
}

proctype Producer(byte me) {
    byte slot, generation, loan, seen, epoch, low, high;
    bool used;
    {
        atomic { assert(port[PRODUCER] == NOBODY); port[PRODUCER] = me };
        do
        :: next > MESSAGES -> break
        :: else ->
            seen = bells[PRODUCER].value;
            take_free_slot(me, slot, generation, low, high, used);
#ifdef NEWEST
            if
            :: slot == SLOTS -> drop_oldest(low, high); take_free_slot(me, slot, generation, low, high, used)
            :: else
            fi;
#endif
            if
            :: slot == SLOTS ->
                starved = true;
#ifdef FAULT_NO_SECOND_LOOK
                skip
#else
                take_free_slot(me, slot, generation, low, high, used)
#endif
            :: else
            fi;
            if
            :: slot == SLOTS -> wait_bell(PRODUCER, seen, epoch)
            :: else ->
                atomic { loan = loans; loans++; data[slot] = loan };
#ifdef PARTIAL
                send(me, slot, generation, loan, true, low);
#endif
                send(me, slot, generation, loan, false, low)
            fi
        od;
        finished = true
    } unless {
        atomic { killed == me -> killed = NOBODY; owner[PRODUCER] = NOBODY; dead = me }
    }
}

inline freed() {
    if
    :: starved ->
        if
        :: atomic { starved -> starved = false }; ring_bell(PRODUCER)
        :: else
        fi
    :: else
    fi
}

inline release(me, at) {
    atomic {
        assert(lease_owner[at] == me && leases[at] > 0);
        leases[at]--;
        if :: leases[at] == 0 -> lease_owner[at] = NOBODY :: else fi
    };
    freed()
}

proctype Consumer(byte me, place) {
    byte slot, generation, message, loan, seen, epoch, position, end;
    {
        atomic { assert(port[place] == NOBODY); port[place] = me };
        do
        :: true ->
            seen = bells[place].value;
again:
            position = head[place];
            end = tail;
            if
            :: position == end -> wait_bell(place, seen, epoch)
            :: else ->
                slot = entry_slot[position % CAPACITY];
                d_step {
                    generation = entry_generation[position % CAPACITY];
                    message = entry_message[position % CAPACITY];
                    loan = entry_loan[position % CAPACITY]
                };
#ifndef FAULT_HEAD_BEFORE_LEASE
                atomic {
                    assert(lease_owner[AT(slot, place)] == NOBODY || lease_owner[AT(slot, place)] == me);
                    lease_owner[AT(slot, place)] = me;
                    leases[AT(slot, place)]++
                };
#endif
                if
                :: atomic {
                    head[place] == position ->
                        head[place]++;
                        in_hand[place] = message;
                        assert(message > newest_received[place]);
                        newest_received[place] = message
                   }
                :: else -> release(me, AT(slot, place)); goto again
                fi;
#ifdef FAULT_HEAD_BEFORE_LEASE
                atomic { lease_owner[AT(slot, place)] = me; leases[AT(slot, place)]++ };
#endif
                assert(hold_generation[slot] == generation);
                assert(data[slot] == loan);
                assert(!(received[place] & BIT(message)));
                /* the payload is read until the release, and stays what it was */
                atomic {
                    assert(data[slot] == loan);
                    received[place] = received[place] | BIT(message);
                    in_hand[place] = 0
                };
                release(me, AT(slot, place))
            fi
        od
    } unless {
        atomic {
            killed == me ->
                killed = NOBODY;
                lost[place] = lost[place] | (in_hand[place] -> BIT(in_hand[place]) : 0);
                in_hand[place] = 0;
                owner[place] = NOBODY;
                dead = me
        }
    }
}

inline start(side) {
    owners++;
    owner[side] = owners;
    if
    :: side == PRODUCER -> run Producer(owners)
    :: else -> run Consumer(owners, side)
    fi
}

/* What whoever supervises does with a death: reclaim, which may itself be cut short and repeated, then a successor. */
#define CLEAR_LEASE(place)                                                                                       \
    if                                                                                                           \
    :: atomic { lease_owner[AT(slot, place)] == dead -> lease_owner[AT(slot, place)] = NOBODY; leases[AT(slot, place)] = 0 } \
    :: else                                                                                                      \
    fi
#define DETACH(side) if :: atomic { port[side] == dead -> port[side] = NOBODY } :: else fi
#define RESET(side)                                                                                              \
    atomic { bells[side].epoch++; bells[side].waiters = 0 };                                                     \
    bells[side].value++;                                                                                         \
    bells[side].asleep = false

active proctype Supervisor() {
    byte slot, was, end;
    atomic {
        start(PRODUCER);
        EACH_PLACE(start)
    };
    do
    :: dead != NOBODY ->
begin:
        slot = 0;
        do
        :: slot == SLOTS -> break
        :: restarts < 1 -> restarts++; goto begin
        :: else ->
            was = last[slot];
            end = tail;
            if
            :: hold_owner[slot] == dead && was > end ->
                if :: atomic { last[slot] == was -> last[slot] = end } :: else fi
            :: else
            fi;
            atomic { was = 0; end = 0 };
            if :: atomic { hold_owner[slot] == dead -> hold_owner[slot] = NOBODY } :: else fi;
            EACH_PLACE(CLEAR_LEASE);
            slot++
        od;
        DETACH(PRODUCER);
        EACH_PLACE(DETACH);
        if :: restarts < 1 -> restarts++; goto begin :: true fi;
#ifndef FAULT_NO_BELL
        RESET(PRODUCER);
        EACH_PLACE(RESET);
#endif
        atomic {
            slot = 0;
            dead = NOBODY;
            if
            :: owner[PRODUCER] == NOBODY -> start(PRODUCER)
            :: owner[0] == NOBODY -> start(0)
#if CONSUMERS > 1
            :: owner[1] == NOBODY -> start(1)
#endif
            fi
        }
    od
}

#define KILL(side)                                                                                               \
    atomic {                                                                                                     \
        kills < KILLS && killed == NOBODY && dead == NOBODY && owner[side] != NOBODY && !(side == PRODUCER && finished) -> \
            killed = owner[side];                                                                                \
            kills++                                                                                              \
    }

active proctype Killer() {
    do
    :: KILL(PRODUCER)
    :: KILL(0)
#if CONSUMERS > 1
    :: KILL(1)
#endif
    :: break
    od
}

active proctype Monitor() {
    byte slot, i;
    timeout;
    assert(finished);
    do
    :: i == CONSUMERS -> break
    :: else ->
        assert(head[i] == tail);
        assert(published == (received[i] | dropped[i] | lost[i]));
        assert(!(received[i] & dropped[i]) && !(received[i] & lost[i]) && !(dropped[i] & lost[i]));
        slot = 0;
        do
        :: slot == SLOTS -> break
        :: else -> assert(hold_owner[slot] == NOBODY && lease_owner[AT(slot, i)] == NOBODY); slot++
        od;
        i++
    od
}
