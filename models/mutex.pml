/* SPDX-License-Identifier: Apache-2.0
 *
 * weft::mutex with starvation hand-off: include/weft/sync.hpp (lock, unlock), sync/mutex.cc, sync/wait_list.cc. Three
 * threads or goroutines lock and unlock; one of them twice, one with a deadline. Clocks are replaced by choice: a
 * waiter may have starved or not, the deadline may pass at any time, a newcomer may spin or not.
 *
 * Proves: mutual exclusion; nobody sleeps for ever (a stuck process); X1 and X2 whenever the queue's lock is free;
 * X4: once everybody has had the mutex and the last unlock has returned it may be destroyed, and nobody touches it.
 *
 * mutant 1 (end): one that goes back to sleep leaves `woken` set (X3)
 * mutant 2 (assert): the hand-off frees the word as well
 * mutant 3 (assert): a waiter whose time is up does not clear `waiters` (X2)
 * mutant 4 (assert): unlock frees the word first and then looks whom to wake (X4)
 * mutant 5 (end): `waiters` is set without looking whether the mutex is still locked
 * mutant 6 (end): unlock loses the race for the word and does not put the waiter back
 * mutant 7 (end): `woken` stays when its claimant takes the mutex
 */
#define NT 3
#define LOCKED 1
#define WOKEN 2
#define STARVING 4
#define WAITERS 8
#define NONE 9
#define WAKES_NOBODY(w) ((w) == LOCKED || ((w) & (LOCKED | WOKEN | STARVING)) == (LOCKED | WOKEN))

byte word;                      /* mutex::word_ */
byte queue[NT - 1] = NONE;      /* mutex::queue_; one of them holds the mutex */
bit mu;                         /* waiting::mu */
bit granted[NT], thrown_out[NT], asleep[NT];
bit expired;                    /* waiting::expired of the one with a deadline: NT - 1 */
bit armed, firing;              /* its alarm */
byte inside;                    /* who holds the mutex: how many */
byte calls;                     /* lock calls that have not returned; -> 0 */
bit gone;                       /* destroyed */

#define ALIVE assert(!gone)
#define LOCK_MU atomic { mu == 0 -> mu = 1 }
/* keeps X1, X2: what holds whenever nobody is changing the queue */
#define UNLOCK_MU atomic { \
    assert(gone || ((word & WAITERS) != 0) == (queue[0] != NONE)); \
    assert(gone || (word & STARVING) == 0 || ((word & LOCKED) != 0 && queue[0] != NONE)); \
    mu = 0 }

inline push_back(x) {
  if
  :: queue[0] == NONE -> queue[0] = x
  :: else -> assert(queue[1] == NONE); queue[1] = x
  fi
}
inline push_front(x) { assert(queue[1] == NONE); queue[1] = queue[0]; queue[0] = x }
inline pop_front() { queue[0] = queue[1]; queue[1] = NONE }

proctype T(byte me; byte rounds) {
  byte w, first = NONE;
  bit claimed, waited, starves, spun, ok, over;

next_round:
  if :: rounds == 0 -> goto done :: else -> rounds-- fi;
  /* lock: one fetch_or */
  atomic { ALIVE; w = word; word = word | LOCKED; if :: (w & LOCKED) == 0 -> goto holds :: else fi };
  /* lock_slow */
  atomic { ALIVE; w = word };
  do
  :: (w & LOCKED) == 0 ->
    atomic {
      ALIVE;
      if
      :: word == w ->
#ifdef MUTANT_7
        word = w | LOCKED; goto holds
#else
        word = (w | LOCKED) & ~(claimed -> WOKEN : 0); goto holds
#endif
      :: else -> w = word
      fi
    }
  :: (w & LOCKED) != 0 && (w & STARVING) == 0 && !starves && !spun ->
    spun = 1;
    atomic {
      if
      :: !claimed && (w & (WAITERS | WOKEN)) == WAITERS && word == w -> ALIVE; word = w | WOKEN; claimed = 1
      :: else
      fi
    };
    atomic { ALIVE; w = word }
  :: (w & LOCKED) != 0 ->
    if
    :: me == NT - 1 && !waited -> armed = 1
    :: else
    fi;
    LOCK_MU;
    /* In one step: on the queue, and no longer counted on. */
    atomic {
      ALIVE;
      w = word;
#ifdef MUTANT_5
      if
      :: w = w | LOCKED; word = word | (expired && me == NT - 1 -> 0 : WAITERS | (starves -> STARVING : 0))
      fi
#else
      if
      :: (w & LOCKED) != 0 ->
        word = word | (expired && me == NT - 1 -> 0 : WAITERS | (starves -> STARVING : 0));
#ifndef MUTANT_1
        word = word & ~(claimed -> WOKEN : 0)
#endif
      :: else
      fi
#endif
    };
    if
    :: (w & LOCKED) == 0 -> UNLOCK_MU
    :: (w & LOCKED) != 0 && me == NT - 1 && expired -> UNLOCK_MU; goto timed_out
    :: else ->
      atomic {
        if :: waited -> push_front(me) :: else -> push_back(me) fi;
        granted[me] = 0; asleep[me] = 1; w = 0
      };
      UNLOCK_MU;  /* by the commit */
      asleep[me] == 0;
      if
      :: granted[me] -> goto holds
      :: !granted[me] && thrown_out[me] -> goto timed_out
      :: else
      fi;
      atomic {
        claimed = 1; waited = 1; spun = 0;
        if :: starves = 1 :: true fi;
        ALIVE; w = word
      }
    fi
  od;

holds:
  atomic { assert(inside == 0); inside++; calls--; claimed = 0; waited = 0; starves = 0; spun = 0; w = 0 };
  if :: me == NT - 1 -> atomic { firing == 0 -> armed = 0 } :: else fi;
  inside--;
  /* unlock */
#ifdef MUTANT_4
  atomic { ALIVE; word = word & ~LOCKED };
  atomic { ALIVE; w = word | LOCKED };
  if :: w == LOCKED -> goto unlocked :: else fi;
  LOCK_MU;
  atomic {
    ALIVE;
    if
    :: queue[0] != NONE && (word & (LOCKED | WOKEN)) == 0 ->
      first = queue[0]; pop_front(); word = (word & ~(queue[0] == NONE -> WAITERS : 0)) | WOKEN
    :: else
    fi
  };
  UNLOCK_MU;
  if :: first != NONE -> atomic { asleep[first] = 0; first = NONE } :: else fi;
  goto unlocked;
#endif
  atomic { ALIVE; w = word };
  do
  :: WAKES_NOBODY(w) ->
    atomic { ALIVE; assert((w & LOCKED) != 0); if :: word == w -> word = w & ~LOCKED; goto unlocked :: else -> w = word fi }
  :: else ->
    LOCK_MU;
    atomic { ALIVE; first = queue[0]; w = word };
    if
    :: first == NONE ->
      word = word & ~(WAITERS | STARVING);
      UNLOCK_MU;
      atomic { ALIVE; w = word }
    :: first != NONE && (w & STARVING) != 0 ->
      atomic {
        pop_front();
        granted[first] = 1;
        if :: over = 1 :: over = (queue[0] == NONE) fi;
        ALIVE;
        word = word & ~((queue[0] == NONE -> WAITERS : 0) | (over -> STARVING : 0));
#ifdef MUTANT_2
        word = word & ~LOCKED;
#endif
        over = 0
      };
      UNLOCK_MU;
      atomic { asleep[first] = 0; goto unlocked }
    :: first != NONE && (w & STARVING) == 0 && (w & WOKEN) != 0 -> UNLOCK_MU  /* a spinner was faster */
    :: else ->
      atomic {
        ALIVE;
        pop_front();
        ok = (word == w);
        if
        :: ok -> word = (w & ~(LOCKED | (queue[0] == NONE -> WAITERS : 0))) | WOKEN
        :: else ->
#ifdef MUTANT_6
          word = word & ~(queue[0] == NONE -> WAITERS : 0)
#else
          push_front(first)
#endif
        fi
      };
      UNLOCK_MU;
      if :: ok -> atomic { ok = 0; asleep[first] = 0; goto unlocked } :: else fi
    fi
  od;

timed_out:
  atomic { calls--; assert(me == NT - 1); w = 0; claimed = 0; waited = 0; starves = 0; spun = 0 };
  atomic { firing == 0 -> armed = 0 };
  goto next_round;
unlocked:
  atomic {
    first = NONE; w = 0;
    if :: calls == 0 && inside == 0 && (word & LOCKED) == 0 -> gone = 1 :: else fi;
    goto next_round
  };
done:
}

/* The alarm: waiting::expire, for the last one. */
active proctype clock() {
  bit ours;
end:
  atomic { armed -> armed = 0; firing = 1 };
  LOCK_MU;
  atomic {
    expired = 1;
    if
    :: queue[0] == NT - 1 || queue[1] == NT - 1 ->
      ours = 1;
      thrown_out[NT - 1] = 1;
      if :: queue[0] == NT - 1 -> pop_front() :: else -> queue[1] = NONE fi;
#ifndef MUTANT_3
      if :: queue[0] == NONE -> ALIVE; word = word & ~(WAITERS | STARVING) :: else fi
#endif
    :: else
    fi
  };
  UNLOCK_MU;
  if :: ours -> asleep[NT - 1] = 0 :: else fi;
  firing = 0
}

init { atomic { calls = NT + 1; run T(0, 2); run T(1, 1); run T(2, 1) } }
