/* SPDX-License-Identifier: Apache-2.0
 *
 * The run queue: core/runq.h, and put_next, put_local (sched/schedule.cc), steal_from (sched/find_work.cc). The ring
 * has 4 places instead of 256; the counters start just below their wrap-around.
 *
 * Variant steal: an owner that puts, overflows and takes; a thief that robs it; a second thief that robs either.
 * Variant next: one thief that comes twice, and an owner that puts into runnext, too. Both prove: each goroutine runs once or is in the global queue, none is lost, none runs twice (G3), the ring
 * never holds more than it can (R1). Every access is a step of its own. Orders that a missing acquire or release
 * would allow are mutants.
 *
 * Variant empty: while the owner displaces one runnext by the next and somebody steals the new one, empty() never
 * says that there is nothing (RUN-02). The owner's stores of tail and moving go through a store buffer.
 *
 * variant steal: -DSTEAL -DTHIEVES=2 -DNEXT=0 -DNG=5 -DFILLED=3
 * variant next: -DSTEAL -DTHIEVES=1 -DNEXT=1 -DNG=6 -DFILLED=1
 * variant empty: -DEMPTY
 * mutant 1 (assert): put stores tail before the slot (no release)
 * mutant 2 (assert): a thief reads the slots after its CAS of head
 * mutant 3 (assert): the owner takes with a store of head, not a CAS
 * mutant 4 (assert) in next: runnext is displaced by a load and a store, not an exchange
 * mutant 5 (assert): the overflow takes its half with a store of head
 * mutant 6 (assert): a thief publishes the one that it runs, too
 * mutant 7 (assert): put lets one too many in
 * mutant 8 (assert) in empty: empty() does not look at moving
 * mutant 9 (assert) in empty: empty() does not look at tail again
 * mutant 10 (assert) in empty: moving is cleared before the displaced one is in the ring
 */
#define CAP 4
#define START 254
#define LEN(h, t) ((t - h) & 255)

#ifdef STEAL  /* FILLED: how many are in the ring at the start */
#define NQ 3

byte head[NQ] = START, tail[NQ] = START;
byte slots[NQ * CAP];  /* of all rings */
#define SLOT(q, i) slots[(q) * CAP + (i) % CAP]
byte runnext;  /* of the owner's; thieves' stay empty */
bit ran[NG + 1], global[NG + 1];

#define RUN(g) assert(g != 0 && !ran[g] && !global[g]); ran[g] = 1

/* runq_owner::put. `ok`: there was room. */
inline put(x) {
  h = head[0];
#ifdef MUTANT_7
  ok = LEN(h, tail[0]) <= CAP;
#else
  ok = LEN(h, tail[0]) < CAP;
#endif
  if
  :: ok ->
#ifdef MUTANT_1
    tail[0] = tail[0] + 1;
    SLOT(0, tail[0] - 1) = x
#else
    SLOT(0, tail[0]) = x;
    atomic { tail[0] = tail[0] + 1; assert(LEN(head[0], tail[0]) <= CAP) }
#endif
  :: else
  fi;
  h = 0
}

/* put_local: the oldest half and the new one to the global queue if the ring is full */
inline put_local(x) {
  do
  :: put(x);
     if :: ok -> break :: else fi;
     h = head[0];
     if
     :: LEN(h, tail[0]) / 2 == CAP / 2 ->
       a = SLOT(0, h); b = SLOT(0, h + 1);
       atomic {
#ifndef MUTANT_5
         if :: head[0] == h ->
#endif
         head[0] = h + 2;
         assert(!ran[a] && !ran[b] && !ran[x] && !global[a] && !global[b] && a != b);
         global[a] = 1; global[b] = 1; global[x] = 1; ok = 1;
#ifndef MUTANT_5
         :: else fi;
#endif
         a = 0; b = 0
       };
       if :: ok -> break :: else fi
     :: else
     fi
  od;
  atomic { h = 0; ok = 0 }
}

/* runq_owner::take of ring q, whose owner the caller is */
inline take(q) {
  h = head[q];
  do
  :: h == tail[q] -> g = 0; break
  :: else ->
    g = SLOT(q, h);
#ifdef MUTANT_3
    head[q] = h + 1;
    break
#else
    if
    :: atomic { head[q] == h -> head[q] = h + 1 }; break
    :: atomic { head[q] != h -> h = head[q] }
    fi
#endif
  od;
  h = 0
}

inline take_next() {
  if
  :: runnext != 0 -> atomic { g = runnext; runnext = 0 }
  :: else
  fi
}

proctype owner() {
  byte i = FILLED + 1, h, g, a, b, x;
  bit ok;
  do
  :: i <= NG ->
    if
    :: put_local(i); i++
    :: NEXT ->
#ifdef MUTANT_4
      x = runnext; runnext = i;
#else
      atomic { x = runnext; runnext = i };
#endif
      i++;
      if :: x != 0 -> put_local(x); x = 0 :: else fi
    fi
  :: i > NG -> break
  :: i == NG ->  /* takes in the middle */
    take_next();
    if :: g == 0 -> take(0) :: else fi;
    if :: g != 0 -> atomic { RUN(g); g = 0 } :: else fi
  od;
  /* whatever is left */
  do
  :: take_next();
     if :: g == 0 -> take(0) :: else fi;
     if :: g != 0 -> atomic { RUN(g); g = 0 } :: else -> break fi
  od
}

/* Robs ring `victim` into `me`: runq_thief::grab_into and steal_from. */
inline rob(victim) {
  do
  :: h = head[victim];
     t = tail[victim];
     d_step { n = LEN(h, t); n = n - n / 2 };
     if
     :: n == 0 -> break
     :: n > CAP / 2  /* read at different moments */
     :: n > 0 && n <= CAP / 2 ->
#ifdef MUTANT_2
       if :: atomic { head[victim] == h -> head[victim] = h + n } :: atomic { head[victim] != h -> n = 0 } fi;
#endif
       if :: n > 0 -> SLOT(me, tail[me]) = SLOT(victim, h) :: else fi;
       if :: n > 1 -> SLOT(me, tail[me] + 1) = SLOT(victim, h + 1) :: else fi;
#ifdef MUTANT_2
       if :: n > 0 -> break :: else fi
#else
       if
       :: atomic { head[victim] == h -> head[victim] = h + n }; break
       :: head[victim] != h
       fi
#endif
     fi
  od;
  if
  :: n != 0 ->
    g = SLOT(me, tail[me] + n - 1);
#ifdef MUTANT_6
    tail[me] = tail[me] + n
#else
    tail[me] = tail[me] + n - 1
#endif
  :: else ->
    if
    :: victim == 0 && runnext != 0 ->
      g = runnext;
      if :: atomic { runnext == g -> runnext = 0 } :: atomic { runnext != g -> g = 0 } fi
    :: else
    fi
  fi;
  d_step { h = 0; t = 0; n = 0 }
}

proctype thief(byte me; byte tries) {
  byte h, t, n, g;
  do
  :: tries > 0 ->
    tries--;
    if
    :: rob(0)
    :: me == 2 -> rob(1)
    fi;
    do
    :: g != 0 -> atomic { RUN(g); g = 0 }; take(me)
    :: else -> break
    od
  :: tries == 0 -> break
  od
}

proctype monitor() {
  timeout ->
  d_step {
    assert(ran[1] + global[1] == 1 && ran[2] + global[2] == 1 && ran[3] + global[3] == 1);
    assert(ran[4] + global[4] == 1 && ran[5] + global[5] == 1 && ran[NG] + global[NG] == 1)
  }
}

init {
  d_step { SLOT(0, START) = 1; SLOT(0, START + 1) = 2; SLOT(0, START + 2) = 3; tail[0] = START + FILLED };
  atomic {
    run owner(); run monitor();
    if :: THIEVES == 1 -> run thief(1, 2) :: else -> run thief(1, 1); run thief(2, 1) fi
  }
}
#endif

#ifdef EMPTY
byte head = START, tail = START;
byte runnext = 1;  /* announced when it came here */
bit moving;
chan buffer = [4] of { byte };  /* stores on their way: of tail, of moving */
#define ADD_TAIL 1
#define MARK 2
#define UNMARK 3

active proctype owner() {
  byte i = 2;
  do
  :: i <= 4 ->
    buffer ! MARK;
    atomic { empty(buffer) -> runnext = i };
#ifdef MUTANT_10
    buffer ! UNMARK;
    buffer ! ADD_TAIL;
#else
    buffer ! ADD_TAIL;
    buffer ! UNMARK;
#endif
    i++
  :: else -> break
  od
}

active proctype store_buffer() {
end:
  do
  :: atomic { buffer ? ADD_TAIL -> tail = tail + 1 }
  :: atomic { buffer ? UNMARK -> moving = 0 }
  :: atomic { buffer ? MARK -> moving = 1 }
  od
}

/* Takes runnext at any time, but the first one: without that there is always one. */
active proctype thief() {
end:
  do
  :: atomic { runnext > 1 -> runnext = 0 }
  od
}

active proctype looker() {
  byte t;
  bit n;
end:
  do
  :: t = tail;
     n = (runnext != 0);
#ifndef MUTANT_8
     n = n || moving;
#endif
#ifdef MUTANT_9
     assert(head != t || n)
#else
     if
     :: t == tail -> assert(head != t || n)
     :: else
     fi
#endif
  od
}
#endif
