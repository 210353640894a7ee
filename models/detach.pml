/* SPDX-License-Identifier: Apache-2.0
 *
 * The detach handshake of DESIGN 5: sysmon takes the P from a thread that sleeps in a call nobody announced, without
 * the thread's help. The thread marks the way into the runtime by a plain store and a plain load; sysmon pays for
 * the barrier of both (membarrier).
 *
 * Proves: the thread and the P's new owner are never both inside (the thread between its check and its leaving), no
 * store of the thread into the P lands after the P was taken, and nobody is stuck. A signal handler may enter at any
 * point of the thread. Inside, the thread may lend its P for a while (p_lent) and look again; sysmon reads the two
 * words one after the other.
 *
 * Memory. Variant tso: the thread's stores leave a FIFO buffer in order (x86-64). Variant pso: they leave it in any
 * order, but for a release, which waits for all before it (aarch64). A read-modify-write drains the buffer, and
 * membarrier waits for that.
 *
 * variant tso: -DREORDER=0
 * variant pso: -DREORDER=1
 * mutant 1 (assert): no membarrier
 * mutant 2 (assert): the thread looks at the state before it marks in_rt
 * mutant 3 (assert) in pso: in_rt is cleared without release
 * mutant 4 (assert): sysmon looks at in_rt before it says DETACHING
 * mutant 5 (assert): a thread that finds DETACHING goes on without taking it back
 * mutant 6 (assert): sysmon says DETACHED by a store
 * mutant 7 (assert): a handler that came inside the runtime clears in_rt when it leaves
 * mutant 8 (assert): who has lent the P goes on without another look
 * mutant 9 (assert): who has lent the P looks before it takes lent back
 * mutant 10 (assert) in pso: the P is lent without release
 */
mtype = { OWNED, DETACHING, DETACHED };
mtype = { rt, rt_release, lend, lend_release, data };  /* what a buffered store is for */

mtype state = OWNED;  /* of the P, as its M sees it */
byte in_rt, lent;     /* in memory; how deep */
byte p_data;          /* anything that belongs to the P: 1 by the thread, 2 by the new owner */
chan buffer = [4] of { mtype, byte };

bit thread_inside, owner_inside;  /* between check and leave */
bit p_free;                       /* the new owner has done with the P */

#define ALONE assert(!(thread_inside && owner_inside))
#define ROUNDS 2
#define TRIES 2

/* ok: the P is ours */
inline check() {
  if
  :: atomic { state == OWNED -> ok = 1 }
#ifdef MUTANT_5
  :: atomic { state == DETACHING -> ok = 1 }
#else
  :: atomic { state == DETACHING && empty(buffer) -> state = OWNED; ok = 1 }
#endif
  :: atomic { state == DETACHED -> ok = 0 }
  fi
}

/* The signal handler enters like an M, and leaves in_rt as it was. It cannot wait for a P. */
inline handler(was) {
  if
  :: true
  :: handlers > 0 ->
    handlers--;
    buffer ! rt, was + 1;
    check();
    if
    :: ok -> nested = thread_inside; atomic { thread_inside = 1; ALONE }; buffer ! data, 1; thread_inside = nested
    :: else
    fi;
#ifdef MUTANT_7
    buffer ! rt_release, 0;
#else
    buffer ! rt_release, was;
#endif
    atomic { ok = 0; nested = 0 }
  fi
}

active proctype thread() {
  byte rounds = ROUNDS, handlers = 1, lends = 1;
  bit ok, nested;
  do
  :: rounds > 0 ->
    rounds--;
    handler(0);
    /* enter */
#ifdef MUTANT_2
    check();
    buffer ! rt, 1;
#else
    buffer ! rt, 1;
    handler(1);
    check();
#endif
    if
    :: !ok -> atomic { p_free && empty(buffer) -> p_free = 0; state = OWNED }
    :: else
    fi;
    /* inside */
    atomic { thread_inside = 1; ok = 0; ALONE };
    handler(1);
    buffer ! data, 1;
    if
    :: true
    :: lends > 0 ->
      lends--;
      thread_inside = 0;
#ifdef MUTANT_10
      buffer ! lend, 1;
#else
      buffer ! lend_release, 1;
#endif
      handler(1);
#ifdef MUTANT_9
      check();
      buffer ! lend, 0;
#else
      buffer ! lend, 0;
#ifdef MUTANT_8
      ok = 1;
#else
      check();
#endif
#endif
      if
      :: !ok -> atomic { p_free && empty(buffer) -> p_free = 0; state = OWNED }
      :: else
      fi;
      atomic { thread_inside = 1; ok = 0; ALONE };
      buffer ! data, 1
    fi;
    /* leave */
    thread_inside = 0;
#ifdef MUTANT_3
    buffer ! rt, 0
#else
    buffer ! rt_release, 0
#endif
  :: else -> break
  od
}

active proctype store_buffer() {
  byte v;
end:
  do
  :: atomic { buffer ? rt, v -> in_rt = v }
  :: atomic { buffer ? rt_release, v -> in_rt = v }
  :: atomic { buffer ? lend, v -> lent = v }
  :: atomic { buffer ? lend_release, v -> lent = v }
  :: atomic { buffer ? data, v -> assert(!owner_inside); p_data = 1 }
  /* past others, but not past a store to the same place */
  :: atomic { REORDER && buffer ?? [rt, 1] && !(buffer ?? [rt_release, 0]) && !(buffer ?? [rt, 0]) && !(buffer ?? [rt_release, 1]) && !(buffer ?? [rt, 2]) -> buffer ?? rt, 1; in_rt = 1 }
  :: atomic { REORDER && buffer ?? [rt, 2] && !(buffer ?? [rt, 1]) && !(buffer ?? [rt_release, 1]) -> buffer ?? rt, 2; in_rt = 2 }
  :: atomic { REORDER && buffer ?? [lend, 0] && !(buffer ?? [lend_release, 1]) && !(buffer ?? [lend, 1]) -> buffer ?? lend, 0; lent = 0 }
#ifdef MUTANT_10
  :: atomic { REORDER && buffer ?? [lend, 1] -> buffer ?? lend, 1; lent = 1 }
#endif
#ifdef MUTANT_3
  :: atomic { REORDER && buffer ?? [rt, 0] && !(buffer ?? [rt, 1]) -> buffer ?? rt, 0; in_rt = 0 }
#endif
  :: atomic { REORDER && buffer ?? [data, 1] -> buffer ?? data, 1; assert(!owner_inside); p_data = 1 }
  od
}

active proctype sysmon() {
  byte tries = TRIES;
  byte depth;
  bit inside, mine;
  do
  :: tries > 0 ->
    tries--;
#ifdef MUTANT_4
    depth = in_rt;
    inside = depth != lent;
#endif
    if
    :: atomic { state == OWNED -> state = DETACHING };
#ifndef MUTANT_1
       empty(buffer);  /* membarrier: at some moment from now on */
#endif
#ifndef MUTANT_4
       depth = in_rt;
       inside = depth != lent;
#endif
       if
       :: inside -> atomic { if :: state == DETACHING -> state = OWNED :: else fi }
       :: else ->
#ifdef MUTANT_6
         atomic { state = DETACHED; mine = 1 }
#else
         atomic { if :: state == DETACHING -> state = DETACHED; mine = 1 :: else fi }
#endif
       fi;
       if
       :: mine ->  /* the new owner */
         atomic { owner_inside = 1; ALONE; p_data = 2 };
         assert(p_data == 2);
         atomic { owner_inside = 0; mine = 0 };
         p_free = 1;
end_given:
         p_free == 0  /* never, if the thread has ended */
       :: else
       fi;
       atomic { inside = 0; depth = 0 }
    :: state != OWNED  /* the thread has not come back yet */
    fi
  :: else -> break
  od
}
