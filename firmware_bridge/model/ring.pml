/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring protocol of ../src/ring.c and ring_reclaim.c for spin (spinroot.com): one producer, one consumer, a
 * supervisor, and a killer that ends either side between any two accesses to shared memory, also while it sleeps, and
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
#ifndef MESSAGES
#define MESSAGES 3
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef CAPACITY
#define CAPACITY 2
#endif
#define NOBODY 0

/* --- shared memory --- */
byte hold_owner[SLOTS], hold_generation[SLOTS], last[SLOTS], lease_owner[SLOTS], leases[SLOTS];
byte tail, head;
byte entry_slot[CAPACITY], entry_generation[CAPACITY], entry_message[CAPACITY], entry_loan[CAPACITY];
bool starved;
typedef Bell { byte value; byte waiters; byte epoch; bool asleep };
Bell bells[2]; /* 0 the producer's, 1 the consumer's; `asleep` is the kernel's side of the futex */
byte port[2];
byte data[SLOTS]; /* the payload: the number of its loan */

/* --- ghosts --- */
byte next = 1;          /* the next message's number; a number that was never published is skipped */
byte loans = 1;         /* the next loan's number */
byte published, received, dropped, lost; /* bit m: that happened to message m */
byte newest_received;
byte owner[2] = { 1, 2 }; /* the living incarnation of each side, or NOBODY */
byte owners = 2;
byte dead, kills, restarts;
byte killed;            /* the incarnation that must end now */
bool finished;          /* the producer has sent everything */
byte in_hand;           /* the message the consumer holds beyond its head + 1 */

#define BIT(m) (1 << (m))
#define USED(s) ((last[s] < tail -> last[s] : tail) > head)

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

/* slot_free and the compare-and-swap behind it, for each slot in turn; `found` is SLOTS when there is none */
inline take_free_slot(me, found, generation, low, high, leased) {
    found = 0;
    do
    :: found == SLOTS -> break
    :: else ->
        if
        :: atomic { hold_owner[found] == NOBODY -> generation = hold_generation[found] };
#ifdef FAULT_LEASE_FIRST
            leased = lease_owner[found];
#endif
            low = last[found];
            high = tail;
            low = (low < high -> low : high);
            if
            :: low > head
            :: else ->
#ifndef FAULT_LEASE_FIRST
                leased = lease_owner[found];
#endif
                if
                :: atomic {
                    leased == NOBODY && hold_owner[found] == NOBODY && hold_generation[found] == generation ->
                        generation++;
                        hold_owner[found] = me;
                        hold_generation[found] = generation
                   };
                   break
                :: else
                fi
            fi
        :: else
        fi;
        found++
    od
}

#ifdef NEWEST
inline drop_oldest(low, high) {
    low = head;
    high = tail;
    if
    :: high == low
    :: else ->
        if
        :: atomic { head == low -> dropped = dropped | BIT(entry_message[low % CAPACITY]); head++ }
        :: else
        fi
    fi
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
    ring_bell(1)
}

proctype Producer(byte me) {
    byte slot, generation, loan, seen, epoch, low, high, leased;
    {
        atomic { assert(port[0] == NOBODY); port[0] = me };
        do
        :: next > MESSAGES -> break
        :: else ->
            seen = bells[0].value;
            take_free_slot(me, slot, generation, low, high, leased);
#ifdef NEWEST
            if
            :: slot == SLOTS -> drop_oldest(low, high); take_free_slot(me, slot, generation, low, high, leased)
            :: else
            fi;
#endif
            if
            :: slot == SLOTS ->
                starved = true;
#ifdef FAULT_NO_SECOND_LOOK
                skip
#else
                take_free_slot(me, slot, generation, low, high, leased)
#endif
            :: else
            fi;
            if
            :: slot == SLOTS -> wait_bell(0, seen, epoch)
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
        atomic { killed == me -> killed = NOBODY; owner[0] = NOBODY; dead = me }
    }
}

inline freed() {
    if
    :: starved ->
        if
        :: atomic { starved -> starved = false }; ring_bell(0)
        :: else
        fi
    :: else
    fi
}

inline release(me, slot) {
    atomic {
        assert(lease_owner[slot] == me && leases[slot] > 0);
        leases[slot]--;
        if :: leases[slot] == 0 -> lease_owner[slot] = NOBODY :: else fi
    };
    freed()
}

proctype Consumer(byte me) {
    byte slot, generation, message, loan, seen, epoch, position, end;
    {
        atomic { assert(port[1] == NOBODY); port[1] = me };
        do
        :: true ->
            seen = bells[1].value;
again:
            position = head;
            end = tail;
            if
            :: position == end -> wait_bell(1, seen, epoch)
            :: else ->
                slot = entry_slot[position % CAPACITY];
                d_step {
                    generation = entry_generation[position % CAPACITY];
                    message = entry_message[position % CAPACITY];
                    loan = entry_loan[position % CAPACITY]
                };
#ifndef FAULT_HEAD_BEFORE_LEASE
                atomic {
                    assert(lease_owner[slot] == NOBODY || lease_owner[slot] == me);
                    lease_owner[slot] = me;
                    leases[slot]++
                };
#endif
                if
                :: atomic {
                    head == position ->
                        head++;
                        in_hand = message;
                        assert(message > newest_received);
                        newest_received = message
                   }
                :: else -> release(me, slot); goto again
                fi;
#ifdef FAULT_HEAD_BEFORE_LEASE
                atomic { lease_owner[slot] = me; leases[slot]++ };
#endif
                assert(hold_generation[slot] == generation);
                assert(data[slot] == loan);
                assert(!(received & BIT(message)));
                /* the payload is read until the release, and stays what it was */
                atomic {
                    assert(data[slot] == loan);
                    received = received | BIT(message);
                    in_hand = 0
                };
                release(me, slot)
            fi
        od
    } unless {
        atomic {
            killed == me ->
                killed = NOBODY;
                lost = lost | (in_hand -> BIT(in_hand) : 0);
                in_hand = 0;
                owner[1] = NOBODY;
                dead = me
        }
    }
}

/* What whoever supervises does with a death: reclaim, which may itself be cut short and repeated, then a successor. */
active proctype Supervisor() {
    byte slot, was, end, side;
    atomic { run Producer(1); run Consumer(2) };
    do
    :: dead != NOBODY ->
        side = (owner[0] == NOBODY -> 0 : 1);
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
            if :: atomic { hold_owner[slot] == dead -> hold_owner[slot] = NOBODY } :: else fi;
            if :: atomic { lease_owner[slot] == dead -> lease_owner[slot] = NOBODY; leases[slot] = 0 } :: else fi;
            slot++
        od;
        if :: atomic { port[0] == dead -> port[0] = NOBODY } :: else fi;
        if :: atomic { port[1] == dead -> port[1] = NOBODY } :: else fi;
        if :: restarts < 1 -> restarts++; goto begin :: true fi;
#ifndef FAULT_NO_BELL
        side = 0;
        do
        :: side == 2 -> break
        :: else ->
            atomic { bells[side].epoch++; bells[side].waiters = 0 };
            bells[side].value++;
            bells[side].asleep = false;
            side++
        od;
#endif
        atomic {
            side = (owner[0] == NOBODY -> 0 : 1);
            owners++;
            owner[side] = owners;
            dead = NOBODY;
            if
            :: side == 0 && !finished -> run Producer(owners)
            :: side == 0 && finished -> owner[0] = NOBODY
            :: else -> run Consumer(owners)
            fi
        }
    od
}

active proctype Killer() {
    do
    :: atomic { kills < KILLS && killed == NOBODY && dead == NOBODY && owner[0] != NOBODY && !finished -> killed = owner[0]; kills++ }
    :: atomic { kills < KILLS && killed == NOBODY && dead == NOBODY && owner[1] != NOBODY -> killed = owner[1]; kills++ }
    :: break
    od
}

active proctype Monitor() {
    byte slot;
    timeout;
    assert(finished);
    assert(head == tail);
    assert(published == (received | dropped | lost));
    assert(!(received & dropped) && !(received & lost) && !(dropped & lost));
    do
    :: slot == SLOTS -> break
    :: else -> assert(hold_owner[slot] == NOBODY && lease_owner[slot] == NOBODY && !USED(slot)); slot++
    od
}
