/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for a descriptor: poll/desc.h (wait_slot), sched/fd_wait.cc (poll_wait), sched/netpoll.cc (reports, deadlines,
 * poll_evict). One direction of one descriptor: a reader that reads until it has what it wants, its time is up or the
 * descriptor is closed; data that arrives (edge-triggered: one report a change); a deadline that is set, moved and
 * fires; a close. All of them come, or not, at any time.
 *
 * Proves: the reader is woken at most once a wait and only when it has published itself; nobody touches its record
 * afterwards; it never sleeps though there is data, its time is up or the descriptor is closed (a stuck process);
 * a deadline that was moved or taken away does not end its wait, and `expired` is said only while it is true.
 *
 * Memory: the slot's word changes by read-modify-writes only. `info` (expired, closing) changes by a store of the one
 * who closes or whose timer fires, which waits in a store buffer; that it is a seq_cst read-modify-write in the code
 * stands here as waiting until the buffer is empty (mutant 3 does not).
 *
 * mutant 1 (end): `preparing` is said by a store, over a report that has come
 * mutant 2 (end): info is looked at before `preparing` is said, not after
 * mutant 3 (end): close calls notify while its store of info is still buffered
 * mutant 4 (end): publish is a store, not a CAS from `preparing`
 * mutant 5 (end): a report that finds nobody is dropped
 * mutant 6 (assert): a late timer does not look at its number
 * mutant 7 (end): a deadline that fires while the reader prepares leaves the slot alone
 * mutant 8 (end): one that was woken waits again without trying: finish has thrown the report away
 */
mtype = { nil, ready, preparing, waiter };
mtype = { none, expired, closed };

mtype slot = nil;             /* wait_slot::word_ */
mtype info = none;            /* fd_desc::info */
bit closing;                  /* the same, for close: it stays */
mtype buffered = none;        /* the closer's or the timer's store of info, still in its buffer; both have the lock */
bit lock_;                    /* fd_desc::lock */
byte number;                  /* fd_deadline::number */
byte armed;                   /* the number the timer is armed with; 0: not armed */
byte due;                     /* the deadline that counts: its number; 0: none */
byte bytes;                   /* in the kernel */
bit coming, edge;             /* data will come; the kernel has a report for us */
bit alive, woken;             /* the reader's record; its park */
bit got, ended;               /* the reader: data; an error */

#define LOCK atomic { lock_ == 0 -> lock_ = 1 }

inline wake() {
  if :: w -> atomic { assert(alive && !woken); woken = 1; w = 0 } :: else fi
}

/* wait_slot::notify(true) */
inline notify_came() {
  atomic {
#ifdef MUTANT_5
    if :: slot == nil :: else -> w = (slot == waiter); slot = ready fi
#else
    w = (slot == waiter);
    slot = ready
#endif
  };
  wake()
}

/* notify(false); the waking comes after the lock */
inline notify_gone() {
  atomic {
    if
    :: slot == ready || slot == nil
#ifdef MUTANT_7
    :: slot == preparing
#else
    :: slot == preparing -> slot = nil
#endif
    :: slot == waiter -> slot = nil; w = 1
    fi
  }
}

active proctype reader() {
  mtype was = nil;
again:
  /* forget, then the call */
  atomic { if :: slot == ready -> slot = nil :: else fi };
  atomic { if :: bytes > 0 -> bytes--; got = 1; goto done :: else fi };
  /* poll_wait */
wait:
  if :: closing || info == expired -> goto error :: else fi;
#ifdef MUTANT_1
  slot = preparing;
#else
  atomic {
    if
    :: slot == ready -> slot = nil; goto again
    :: else -> assert(slot == nil); slot = preparing
    fi
  };
#endif
#ifndef MUTANT_2
  if :: closing || info == expired -> atomic { slot = nil; goto error } :: else fi;
#endif
  /* park: the commit publishes, or refuses */
  atomic { alive = 1; woken = 0 };
#ifdef MUTANT_4
  slot = waiter;
#else
  atomic { if :: slot == preparing -> slot = waiter :: else -> goto awake fi };
#endif
  woken == 1;
awake:
  alive = 0;
  atomic { was = slot; slot = nil };
#ifdef MUTANT_8
  goto wait;
#else
  if :: was == ready -> goto again :: else -> goto wait fi;
#endif

error:
  ended = 1;
done:
}

/* The kernel: data comes, and a report that whoever polls takes. */
active proctype peer() {
  if
  :: coming = 1; bytes++; edge = 1
  :: true
  fi
}

active proctype poller() {
  bit w;
end:
  do
  :: edge -> edge = 0; notify_came()
  od
}

/* Sets a deadline, then moves it or takes it away; closes in the end. */
active proctype owner() {
  bit w;
  byte again = 1;
set:
  LOCK;
  atomic { number++; armed = number; due = number };
  lock_ = 0;
  if
  :: again == 1 ->
    again = 0;
    LOCK;
    /* disarm; what has fired already may be on its way, with the old number */
    atomic { number++; armed = 0; due = 0 };
    info = none;
    lock_ = 0;
    if :: goto set :: true fi
  :: true
  fi;
  if :: coming -> goto out :: true fi;  /* without data it must close: somebody has to end the wait */
  /* poll_evict */
  LOCK;
  atomic { number++; armed = 0; buffered = closed };
#ifndef MUTANT_3
  buffered == none;
#endif
  notify_gone();
  atomic { buffered == none -> lock_ = 0 };
  wake();
out:
}

/* The timer: popped under the heap's lock, then fired() with the number it was armed with, perhaps late. */
active proctype timer() {
  byte seq;
  bit w;
end:
  do
  :: atomic { armed != 0 -> seq = armed; armed = 0 };
     LOCK;
     if
#ifdef MUTANT_6
     :: true ->
#else
     :: seq == number ->
#endif
       atomic { assert(due == seq); buffered = expired };
       buffered == none;
       notify_gone()
#ifndef MUTANT_6
     :: else
#endif
     fi;
     lock_ = 0;
     wake();
     seq = 0
  od
}

active proctype store_buffer() {
end:
  do
  :: atomic { buffered == closed -> buffered = none; closing = 1 }
  :: atomic { buffered == expired -> buffered = none; info = expired }
  od
}

/* The reader comes to an end: the close comes in any case. */
active proctype comes_to_an_end() {
  got || ended
}
