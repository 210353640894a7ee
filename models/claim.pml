/* SPDX-License-Identifier: Apache-2.0
 *
 * Select's claim: chan/wait.h (claim), chan/select.cc (wait, leave_all, alarm), chan/chan.cc (held_waiter, claim_first,
 * close_now). One select waits on channels 0 and 1; a sender on 0 whose move may throw comes twice, somebody closes 1,
 * a deadline passes.
 *
 * Proves: the select is woken exactly once, by the party that has the claim; at most one case has won, and none if
 * the deadline has; nobody touches the selection after it is gone (its locks, its records, its claim, its alarm); it
 * is never stuck: neither a deadline that falls into a move that throws nor a close that does is lost.
 *
 * variant deadline: -DDEADLINE=1 -DTHREAD=0
 * variant forever: -DDEADLINE=0 -DTHREAD=0
 * variant thread: -DDEADLINE=1 -DTHREAD=1
 * mutant 1 (end): give_back stores `open` over whatever is there
 * mutant 2 (assert): expire wakes though the claim is busy
 * mutant 3 (end): expire passes by a busy claim and leaves no mark
 * mutant 4 (assert): the woken one does not lock the channels whose records are gone already
 * mutant 5 (assert): the alarm is not disarmed
 * mutant 6 (assert): close wakes without the claim
 * mutant 7 (end) in forever: close passes by a busy claim
 * mutant 8 (assert) in thread: a thread whose time is up goes on though somebody has its claim
 */
#define NC 2
mtype = { open, taken, busy, expired };

mtype claim = open;          /* claim::state_ */
bit lock_[NC] = 1;           /* chan_core::lock_ */
bit queued[NC] = 1, won[NC]; /* chan_wait */
byte wakes;                  /* of the waiter */
bit armed, ringing, timed_out;
bit gone;                    /* the selection, on the stack of the waiter */
bit parked;                  /* a thread: it has unlocked */

#define LOCK(c) atomic { lock_[c] == 0 -> lock_[c] = 1 }
#define UNLOCK(c) lock_[c] = 0
#define ALIVE assert(!gone)

inline wake() {
  atomic { ALIVE; assert(wakes == 0); wakes++ }
}

/* claim::win: waits while a move is under way */
inline win(as, ok) {
  if
  :: atomic { claim == open -> ALIVE; claim = as; ok = 1 }
  :: atomic { claim == taken -> ALIVE; ok = 0 }
  fi
}

/* claim::expire */
inline expire(ours) {
  atomic {
    ALIVE;
    if
    :: claim == taken || claim == expired -> ours = 0
    :: claim == open -> claim = taken; ours = 1; timed_out = 1
    :: claim == busy ->
#ifdef MUTANT_2
      claim = expired; ours = 1
#else
#ifdef MUTANT_3
      ours = 0
#else
      claim = expired; ours = 0
#endif
#endif
    fi
  }
}

/* The M that the waiter has left: the commit, with both locks held. */
active proctype commit() {
#if DEADLINE && !THREAD
  armed = 1;
#endif
  atomic { ALIVE; UNLOCK(1) };
  atomic { ALIVE; UNLOCK(0); parked = 1 }
}

active proctype waiter() {
  byte c;
  bit ours;
#if THREAD
  if
  :: wakes == 1
  :: parked ->  /* its time is up, at any moment */
    expire(ours);
#ifndef MUTANT_8
    if :: ours :: else -> wakes == 1 fi
#endif
  fi;
#else
  wakes == 1;
#if DEADLINE
#ifndef MUTANT_5
  atomic { ringing == 0 -> armed = 0 };
#endif
#endif
#endif
  /* leave_all */
  do
  :: c < NC ->
#ifdef MUTANT_4
    if
    :: !queued[c]
    :: else ->
#endif
    LOCK(c);
    queued[c] = 0;
    UNLOCK(c);
#ifdef MUTANT_4
    fi;
#endif
    c++
  :: else -> break
  od;
  atomic {
    assert(won[0] + won[1] <= 1 && won[0] + won[1] + timed_out == 1);
    assert(claim == taken);
    gone = 1
  }
}

/* send_now, twice. The move throws or not. */
active proctype sender() {
  byte tries = 2;
  bit ok, ours;
  do
  :: tries > 0 ->
    tries--;
    LOCK(0);
    if
    :: !queued[0] -> UNLOCK(0)
    :: else ->
      ALIVE;
      win(busy, ok);
      if
      :: !ok -> queued[0] = 0; UNLOCK(0)
      :: ok ->
        if
        :: queued[0] = 0;  /* moved */
           atomic { ALIVE; won[0] = 1 };
           atomic { ALIVE; claim = taken };
           UNLOCK(0);
           wake()
        ::  /* it has thrown: give_back */
#ifdef MUTANT_1
           claim = open;
           ours = 0;
#else
           atomic { ALIVE; if :: claim == busy -> claim = open; ours = 0 :: else -> assert(claim == expired); ours = 1 fi };
           if :: ours -> atomic { claim = taken; timed_out = 1 } :: else fi;
#endif
           if :: ours -> wake() :: else fi;
           UNLOCK(0)
        fi
      fi;
      atomic { ok = 0; ours = 0 }
    fi
  :: else -> break
  od
}

active proctype closer() {
  bit ok;
#if DEADLINE
  if :: goto out :: true fi;  /* without a deadline it must come, else there may be nobody */
#endif
  LOCK(1);
  if
  :: queued[1] ->
    ALIVE;
    queued[1] = 0;
#ifdef MUTANT_6
    ok = 1;
#else
#ifdef MUTANT_7
    atomic { if :: claim == open -> claim = taken; ok = 1 :: else -> ok = 0 fi };
#else
    win(taken, ok);
#endif
#endif
    if :: ok -> ALIVE; won[1] = 1 :: else fi
  :: else
  fi;
  UNLOCK(1);
  if :: ok -> wake() :: else fi;
out:
}

#if DEADLINE && !THREAD
/* Under the heap's lock, which disarm takes, too: `ringing`. */
active proctype alarm() {
  bit ours;
end:
  atomic { armed -> armed = 0; ringing = 1 };
  expire(ours);
  if :: ours -> wake() :: else fi;
  ringing = 0
}
#endif
