/* SPDX-License-Identifier: Apache-2.0
 *
 * park and ready with the deferred commit: sched/park.cc, sched/waiter.h, sync/wait_list.h (block and
 * block_unlocked). Two goroutines wait on a semaphore, two Ms run them, a plain thread releases.
 *
 * Proves: a goroutine is resumed only when it is completely saved and nobody stands on its stack; ready finds it
 * waiting, once a park; nobody touches the record on its stack after it could go on; no wake-up is lost (a
 * goroutine that waits for ever while there was a release for it is a stuck process).
 *
 * mutant 1 (assert): the list is unlocked before the switch, not by the commit
 * mutant 2 (assert): the status becomes 'waiting' only after the commit
 * mutant 3 (assert): with no next goroutine at hand the M looks for work on the stack it should have left
 * mutant 4 (end): meet by a look and a store instead of an exchange
 * mutant 5 (assert): the waker looks at the record after it has passed the meeting first
 * mutant 6 (assert): block_unlocked without the meeting: the waker readies at once
 */
#define NG 2
#define NM 2
#define ROUNDS 2
#define NONE 9

mtype = { running, runnable, waiting, dead };

mtype status[NG] = runnable;  /* G::status */
bit queued[NG] = 1;           /* in a run queue (G3) */
bit saved[NG] = 1;            /* G::sp is good */
byte on[NG];                  /* how many Ms stand on its stack */
byte rounds[NG] = ROUNDS;
bit inside[NG];               /* its wait has begun */

bit mu;                       /* waiting::mu */
byte list[NG] = NONE;         /* the wait list, first in, first out */
byte permits;
bit alive[NG];                /* the record on the goroutine's stack */
bit meets[NG], met[NG];       /* waiting::meets, met */

#define LOCK atomic { mu == 0 -> mu = 1 }

inline ready(x) {
  atomic { assert(status[x] == waiting); status[x] = runnable };
  atomic { assert(!queued[x]); queued[x] = 1 }
}

/* weft_switch: from here on nobody is on the old stack, and commit runs on the new one */
inline leave_stack(x) {
  atomic { assert(on[x] == 1); on[x] = 0; saved[x] = 1 }
}

inline enter_stack(x) {
  atomic { assert(saved[x] && on[x] == 0); on[x] = 1; saved[x] = 0 }
}

inline begin_running(x) {
  atomic { assert(status[x] == runnable); status[x] = running }
}

inline take(x) {
  if
  :: atomic { queued[0] -> queued[0] = 0; x = 0 }
  :: atomic { queued[1] -> queued[1] = 0; x = 1 }
  fi
}

proctype M() {
  byte g = NONE, next = NONE, seen;

on_g0:
end_idle:
  take(g);
  begin_running(g);
  enter_stack(g);
on_g:
  if
  :: inside[g] -> atomic { assert(alive[g]); alive[g] = 0; inside[g] = 0; rounds[g] = rounds[g] - 1 }; goto on_g
  :: !inside[g] && rounds[g] == 0 ->
    status[g] = dead;
    atomic { leave_stack(g); g = NONE; goto on_g0 }
  :: else
  fi;
  /* one wait */
  LOCK;
  if
  :: permits > 0 -> permits--; mu = 0; atomic { rounds[g] = rounds[g] - 1; goto on_g }
  :: else
  fi;
  atomic {
    alive[g] = 1; inside[g] = 1; met[g] = 0;
    if :: list[0] == NONE -> list[0] = g :: else -> assert(list[1] == NONE); list[1] = g fi;
    if :: meets[g] = 0 :: meets[g] = 1 fi
  };
  if
  :: meets[g] -> mu = 0  /* block_unlocked: whoever comes now may come before we have parked */
  :: else
  fi;
#ifdef MUTANT_1
  if :: !meets[g] -> mu = 0 :: else fi;
#endif
  /* park */
#ifndef MUTANT_2
  status[g] = waiting;
#endif
  if  /* pick_next: straight to the next one, or to g0 */
  :: take(next); begin_running(next)
  :: next = NONE
  fi;
#ifdef MUTANT_3
  if :: next != NONE -> leave_stack(g) :: else fi;
#else
  leave_stack(g);
#endif
  if :: next != NONE -> enter_stack(next) :: else fi;
  /* the commit */
  if
  :: !meets[g] ->
#ifdef MUTANT_1
    skip
#else
    mu = 0
#endif
  :: meets[g] ->
#ifdef MUTANT_4
    seen = met[g];
    met[g] = 1;
#else
    atomic { assert(alive[g]); seen = met[g]; met[g] = 1 };
#endif
    if :: seen -> ready(g) :: else fi;
    seen = 0
  fi;
#ifdef MUTANT_2
  status[g] = waiting;
#endif
  atomic { g = next; next = NONE; if :: g == NONE -> goto on_g0 :: else -> goto on_g fi }
}

/* Releases: to the first in the list, or for whoever comes. */
active proctype plain_thread() {
  byte left = NG * ROUNDS, w = NONE, seen;
  do
  :: left > 0 ->
    LOCK;
    atomic { left--; w = list[0]; list[0] = list[1]; list[1] = NONE };
    if :: w == NONE -> permits++ :: else fi;
    mu = 0;
    if
    :: w == NONE
    :: w != NONE && !meets[w] -> ready(w)
    :: w != NONE && meets[w] ->
#ifdef MUTANT_6
      ready(w)
#else
#ifdef MUTANT_4
      seen = met[w];
      met[w] = 1;
#else
      atomic { assert(alive[w]); seen = met[w]; met[w] = 1 };
#endif
#ifdef MUTANT_5
      assert(alive[w]);
#endif
      if :: seen -> ready(w) :: else fi
#endif
    fi;
    atomic { w = NONE; seen = 0 }
  :: left == 0 -> break
  od;
  /* everybody has been released, so everybody comes to an end */
  status[0] == dead && status[1] == dead
}

init { atomic { run M(); run M() } }
