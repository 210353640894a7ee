/* SPDX-License-Identifier: Apache-2.0
 *
 * blocking(f) against retake: sched/syscall.cc (enter_syscall, exit_syscall, settle_hold, take_from_syscall), sysmon.
 * No lock on the fast path; the M keeps its P over the call until somebody takes it (M4). One P, two Ms, and a second
 * goroutine that waits for the P. The first makes two calls; each may be fast, slow, or never return.
 *
 * The word M::hold decides. Entering is a release store of `syscall`; leaving is a CAS syscall -> owned, which means
 * that the P is still ours; taking is a CAS syscall -> taking, then `detached`. Both CAS cannot win.
 *
 * Proves: the P has one user at a time, and none of the first one's stores into the P lands after it was taken; the
 * waiting goroutine runs even if the call never returns; the one that comes back without a P runs again.
 *
 * Memory: stores leave the buffer of the first M in any order, but for a release; a CAS and a lock drain it.
 *
 * mutant 1 (assert): `syscall` is stored without release
 * mutant 2 (assert): leaving is a look and a store, not a CAS
 * mutant 3 (assert): taking is a look and a store, not a CAS
 * mutant 4 (end): one that comes back without a P queues its goroutine and wakes nobody
 * mutant 5 (end): a P without work goes onto the idle list without another look at the global queue
 * mutant 6 (assert): the P is handed on before the word says that it is taken
 */
mtype = { owned, syscall, taking, detached };

mtype hold = owned;          /* M::hold of the first M */
bit for_ever;                /* its call does not return */
bit p_idle;                  /* the P is on the idle list; under lock */
bit lock_;                   /* sched.lock */
bit queued_1, queued_2 = 1;  /* in the global queue; under lock */
bit first_uses, other_uses;  /* the P */
bit done_1, done_2;
bit start;                   /* the other M is given the P */
bit pending_data, pending_hold;  /* the first M's store buffer */

#define ALONE assert(!(first_uses && other_uses))
#define LOCK atomic { lock_ == 0 -> lock_ = 1 }  /* the first M has nothing buffered when it comes to one */
/* fence_and_wake, or an M that has made work visible: an idle P gets an M */
#define WAKE atomic { lock_ == 0 -> if :: p_idle -> p_idle = 0; start = 1 :: else fi }

active proctype first() {
  byte calls = 2;
  first_uses = 1;
  do
  :: calls > 0 ->
    calls--;
    /* enter_syscall */
    atomic { ALONE; pending_data = 1 };  /* the last that it does with the P */
    atomic { first_uses = 0; pending_hold = 1 };
    /* the call */
    if
    :: true
    :: for_ever = 1; goto out
    fi;
    /* exit_syscall: settle_hold */
#ifdef MUTANT_2
    if :: pending_hold || hold == syscall :: hold == taking || hold == detached -> goto slow fi;
    atomic { !pending_hold -> hold = owned; first_uses = 1; ALONE }
#else
    if
    :: atomic { !pending_data && !pending_hold && hold == syscall -> hold = owned; first_uses = 1; ALONE }
    :: hold == detached -> goto slow  /* while it says `taking` we spin */
    fi
#endif
  :: else -> atomic { done_1 = 1; first_uses = 0; goto give_up }
  od;

slow:  /* exit_slow: an idle P, else the global queue */
  LOCK;
  if
  :: p_idle -> atomic { p_idle = 0; lock_ = 0 }
  :: else ->
    lock_ = 0;
    atomic { lock_ == 0 -> queued_1 = 1 };  /* requeue_commit */
#ifndef MUTANT_4
    WAKE;
#endif
    goto out
  fi;
  atomic { hold = owned; first_uses = 1; ALONE };
  atomic { done_1 = 1; first_uses = 0 };
give_up:  /* its P goes to whoever waits, or onto the idle list */
  LOCK;
  if :: queued_2 -> start = 1 :: else -> p_idle = 1 fi;
  lock_ = 0;
out:
}

active proctype store_buffer() {
end:
  do
  :: atomic { pending_data -> assert(!other_uses); pending_data = 0 }
#ifdef MUTANT_1
  :: atomic { pending_hold -> pending_hold = 0; hold = syscall }
#else
  :: atomic { pending_hold && !pending_data -> pending_hold = 0; hold = syscall }
#endif
  od
}

/* Takes the P of a call that lasts, if somebody wants to run. */
active proctype sysmon() {
end:
  do
  :: hold == syscall && queued_2 ->
#ifdef MUTANT_3
     if :: hold == syscall -> hold = taking :: else -> goto end fi;
#else
#ifdef MUTANT_6
     start = 1;
#endif
     if
     :: atomic { hold == syscall -> hold = taking }
     :: atomic { hold != syscall -> goto end }
     fi;
#endif
     hold = detached;
     start = 1
  od
}

/* Another M: comes with the P, runs what it finds, and gives up. */
active proctype other() {
  byte g;
end:
  do
  :: atomic { start -> start = 0; other_uses = 1; ALONE };
     do
     :: g = 0;
        LOCK;
        if
        :: queued_2 -> queued_2 = 0; g = 2
        :: queued_1 -> queued_1 = 0; g = 1
        :: !queued_1 && !queued_2
        fi;
        lock_ = 0;
        if
        :: g == 1 -> assert(hold == detached); done_1 = 1
        :: g == 2 -> done_2 = 1
        :: else -> break
        fi
     od;
     /* give_up */
     LOCK;
#ifndef MUTANT_5
     if
     :: queued_1 || queued_2 -> start = 1
     :: else -> p_idle = 1
     fi;
#else
     p_idle = 1;
#endif
     atomic { other_uses = 0; lock_ = 0 }
  od
}

active proctype everybody_ran() {
  done_2 && (done_1 || for_ever)
}
