/* SPDX-License-Identifier: Apache-2.0
 *
 * The wake protocol: core/idle.h, sched/find_work.cc, sched/worker.cc, sched/schedule.cc (put_next, put_local,
 * refill_from_global). Two Ps, three Ms, a plain thread.
 *
 * Proves: when nothing moves any more, no goroutine is runnable while a P is idle. Any goroutine may compute for
 * ever, so 'somebody will come by later' does not count. Also that the idle word agrees with the idle list.
 *
 * Memory: the owner's store of tail waits in a store buffer (pend) until it drains, a read-modify-write or a
 * fence. A load that overtakes an earlier change of the idle word is a mutant: it is what a dropped fence allows.
 *
 * variant g2: -DFROM_G=2 -DFROM_PLAIN=0
 * variant g1_plain1: -DFROM_G=1 -DFROM_PLAIN=1
 * variant plain2: -DFROM_G=0 -DFROM_PLAIN=2
 * variant batch: -DFROM_G=0 -DFROM_PLAIN=1 -DBATCH=2 -DALL_ASLEEP
 * mutant 1 (assert): no fence between put_local and the look at the idle word
 * mutant 2 (assert): no second look after the P is given up
 * mutant 3 (assert): the second look is taken before the idle word changes
 * mutant 4 (assert): a waker that finds no idle P leaves no note
 * mutant 5 (assert): a spinner that finds work does not wake the next
 * mutant 6 (assert) in plain2: a batch from the global queue reaches the ring only after the lock is given up
 * mutant 7 (assert): one that is displaced from runnext is on its way to the ring without a mark (moving)
 * mutant 8 (assert) in plain2: a claimed spinner without a P takes its claim back and leaves no note
 * mutant 9 (assert): a thread that does not exist yet is counted as spinning
 * mutant 10 (assert) in batch: nor is it when it comes
 */
#define NP 2
#define NM 3
/* FROM_G: how many are made ready by goroutines, after the first one; FROM_PLAIN: how often by a thread without a P,
 * BATCH at once, as a close does. ALL_ASLEEP: nobody runs, and no thread has been made yet. */
#ifndef BATCH
#define BATCH 1
#endif
#define NONE 9

byte idle_ps, spinning;  /* idle_word */
bit need;
bit lock_;               /* sched.lock; held over several steps in refill_from_global only, elsewhere one step */
byte globq;              /* sched.runq */
bit p_idle[NP];          /* idle_p_list and idle_mask */
byte m_idle[NM];         /* 1: on idle_m_list; 2: not made yet. Ms are alike, so the first will do */
#define IDLE(k) (m_idle[k] == 1)
byte nextp[NM];          /* M::nextp + 1; 0: none. Stands for the note, too */
bit asked[NP];           /* a thread for this P was asked of the thread-maker */

/* One ring a P: what matters is how many; the order is runq.pml's. */
byte head[NP], tail[NP], pend[NP];
bit runnext[NP];
bit moving[NP], unmark[NP];  /* basic_runq::moving; its clearing, behind the stores of tail in the buffer */
byte work = FROM_G;

/* A read-modify-write, a lock and a fence drain the store buffer of the P's M. */
#define DRAINED(p) (p == NONE || (pend[p] == 0 && !unmark[p]))
#define FREE (lock_ == 0 && DRAINED(p))

inline take_idle_p(q) {  /* under lock */
  if
  :: p_idle[0] -> p_idle[0] = 0; q = 0
  :: !p_idle[0] && p_idle[1] -> p_idle[1] = 0; q = 1
  :: else -> q = NONE
  fi
}

/* The caller has the locals p, q. */
inline start_spinner() {
  atomic {
    FREE ->
    if
    :: IDLE(0) -> m_idle[0] = 0; nextp[0] = q + 1
    :: IDLE(1) && !IDLE(0) -> m_idle[1] = 0; nextp[1] = q + 1
    :: IDLE(2) && !IDLE(1) && !IDLE(0) -> m_idle[2] = 0; nextp[2] = q + 1
    :: else ->
#ifndef MUTANT_9
      assert(spinning > 0); spinning--;  /* it looks for work when it exists */
#endif
      asked[q] = 1
    fi;
    q = NONE
  }
}

inline wake() {
  if  /* idle.load() */
  :: spinning == 0 && (idle_ps != 0 || !need) ->
    atomic {  /* claim_spinner */
      DRAINED(p) ->
      if
      :: spinning != 0 || (idle_ps == 0 && need)
      :: spinning == 0 && idle_ps != 0 -> spinning = 1; q = NP
      :: spinning == 0 && idle_ps == 0 && !need
#ifndef MUTANT_4
         -> need = 1
#endif
      fi
    };
    if
    :: q == NP ->
      atomic {
        FREE ->
        take_idle_p(q);
        if
        :: q != NONE -> idle_ps--
        :: else ->  /* unclaim_spinner */
          spinning--;
#ifndef MUTANT_8
          need = 1
#endif
        fi
      };
      if :: q != NONE -> start_spinner() :: else fi
    :: else
    fi
  :: else
  fi
}

/* Into the ring; overflow is runq.pml's. */
#define PUT_LOCAL(p) pend[p] = pend[p] + 1

inline put_next() {
  atomic {  /* the mark before the exchange, which drains it */
    DRAINED(p) -> n = runnext[p]; runnext[p] = 1;
#ifndef MUTANT_7
    moving[p] = n
#endif
  };
  if :: n -> d_step { PUT_LOCAL(p); unmark[p] = moving[p]; n = 0 } :: else fi;
  wake()
}

/* basic_runq::empty: head and tail, runnext, moving, tail again */
inline looks_empty(v) {
  do
  :: d_step { t = tail[v]; seen = head[v] != t };
     n = runnext[v];
     n = n || moving[v];
     if :: t == tail[v] -> break :: else fi
  od;
  atomic { seen = seen || n; t = 0; n = 0 }
}

inline second_look() {
  seen = (globq != 0);
  if :: !seen -> looks_empty(0) :: else fi;
  if :: !seen -> looks_empty(1) :: else fi
}

/* worker.cc: a new thread comes as a spinner. */
inline begin() {
#ifndef MUTANT_10
  atomic { if :: 2 * spinning < NP - idle_ps -> spinning++; spin = 1 :: else fi }
#else
  skip
#endif
}

#define FIRST_ASLEEP (m_idle[me] && (me < 1 || !m_idle[0]) && (me < 2 || !m_idle[1]))

proctype M(byte me; byte p) {
  byte q = NONE, t, batch;
  bit spin, n, seen;

  if :: p == NONE -> goto asleep :: else fi;
running:  /* a goroutine */
  /* It ends, makes others ready, or computes for ever. */
  if
  :: goto find_work
  :: atomic { work > 0 -> work-- }; put_next(); goto running
  :: atomic { work > 0 && !unmark[p] -> work--; PUT_LOCAL(p) };
#ifndef MUTANT_1
     DRAINED(p);
#endif
     wake(); goto running
  :: goto for_ever
  fi;

find_work:
  /* end_of_slice: runnext loses its privilege, unannounced */
  if
  :: atomic { runnext[p] && DRAINED(p) -> runnext[p] = 0 }; PUT_LOCAL(p)
  :: true
  fi;
  /* fairness (at any time) or the local queue, then the global one */
  if
  :: atomic { globq != 0 && FREE -> globq--; goto found }
  :: true
  fi;
  atomic {  /* the owner sees its own buffered stores; its CAS of head drains them */
    tail[p] + pend[p] == head[p] || DRAINED(p) ->
    if
    :: runnext[p] && DRAINED(p) -> runnext[p] = 0; goto found
    :: !runnext[p] && tail[p] != head[p] -> head[p] = head[p] + 1; goto found
    :: else
    fi
  };
  if  /* a batch, one to run and the others into the ring */
  :: atomic { globq != 0 && FREE -> lock_ = 1; batch = (globq >= 2 -> 2 : 1); globq = globq - batch };
#ifdef MUTANT_6
     lock_ = 0;
#endif
     if :: batch == 2 -> PUT_LOCAL(p) :: else fi;
#ifndef MUTANT_6
     atomic { DRAINED(p) -> lock_ = 0 };
#endif
     atomic { batch = 0; goto found }
  :: globq == 0
  fi;
  atomic {  /* try_start_spinning, M7 */
    DRAINED(p) ->
    if
    :: spin
    :: !spin && 2 * spinning < NP - idle_ps -> spinning++; spin = 1
    :: else -> goto give_up
    fi
  };
  /* steal: half of the other ring, the last of it to run; or its runnext */
  if
  :: p_idle[1 - p]
  :: atomic { !p_idle[1 - p] && tail[1 - p] != head[1 - p] && DRAINED(p) ->
       batch = tail[1 - p] - head[1 - p]; batch = batch - batch / 2; head[1 - p] = head[1 - p] + batch };
     atomic { pend[p] = pend[p] + batch - 1; batch = 0; goto found }
  :: atomic { !p_idle[1 - p] && tail[1 - p] == head[1 - p] && runnext[1 - p] && DRAINED(p) };
     atomic { if :: runnext[1 - p] -> runnext[1 - p] = 0; goto found :: else fi }
  :: !p_idle[1 - p] && tail[1 - p] == head[1 - p] && !runnext[1 - p]
  fi;
  goto give_up;

found:
  if
  :: spin ->
    atomic { DRAINED(p) -> spin = 0; assert(spinning > 0); spinning-- };
#ifndef MUTANT_5
    wake()
#endif
  :: else
  fi;
  goto running;

give_up:
#ifdef MUTANT_3
  if :: spin -> second_look() :: else fi;
#endif
  atomic {
    FREE ->
    if
    :: globq != 0 -> goto find_work
    :: globq == 0 && !spin && need -> need = 0; spinning++; spin = 1; goto find_work
    :: else -> idle_ps++; if :: spin -> assert(spinning > 0); spinning-- :: else fi; p_idle[p] = 1; p = NONE
    fi
  };
  if
  :: spin ->
    spin = 0;
#ifdef MUTANT_2
    seen = 0;
#endif
#if !defined(MUTANT_2) && !defined(MUTANT_3)
    second_look();
#endif
    if
    :: seen ->
      atomic {
        seen = 0;
        FREE ->
        take_idle_p(p);
        if :: p != NONE -> idle_ps--; spinning++; spin = 1; goto find_work :: else -> need = 1 fi
      }
    :: else
    fi
  :: else
  fi;
  /* stop_m */
  atomic { lock_ == 0 -> m_idle[me] = 1 };
asleep:
  /* Brought a P; or none was idle, and the thread that was made for it is this one. */
end_asleep:
  if
  :: atomic { nextp[me] != 0 -> p = nextp[me] - 1; nextp[me] = 0; spin = 1 }
  :: atomic { asked[0] && lock_ == 0 && FIRST_ASLEEP -> asked[0] = 0; m_idle[me] = 0; p = 0 };
     begin()
  :: atomic { asked[1] && lock_ == 0 && FIRST_ASLEEP -> asked[1] = 0; m_idle[me] = 0; p = 1 };
     begin()
  fi;
  goto find_work;
for_ever:
}

/* Wakes by way of the global queue: ready_foreign. */
proctype plain_thread() {
  byte p = NONE, q = NONE;
  byte i = FROM_PLAIN;
  do
  :: atomic { i > 0 && lock_ == 0 -> i--; globq = globq + BATCH }; wake()
  :: i == 0 -> break
  od
}

proctype store_buffers() {
end:
  do
  :: d_step { pend[0] > 0 -> pend[0] = pend[0] - 1; tail[0] = tail[0] + 1 }
  :: d_step { pend[0] == 0 && unmark[0] -> unmark[0] = 0; moving[0] = 0 }
  :: d_step { pend[1] > 0 -> pend[1] = pend[1] - 1; tail[1] = tail[1] + 1 }
  :: d_step { pend[1] == 0 && unmark[1] -> unmark[1] = 0; moving[1] = 0 }
  od
}

/* When nothing moves any more. */
proctype monitor() {
  timeout ->
  assert(lock_ == 0 && spinning == 0);
  assert(idle_ps == p_idle[0] + p_idle[1]);
  assert(idle_ps == 0 || (globq == 0 && head[0] == tail[0] && head[1] == tail[1] && !runnext[0] && !runnext[1]))
}

init {
  atomic {
    p_idle[1] = 1; idle_ps = 1; m_idle[1] = 2; m_idle[2] = 2;
#ifdef ALL_ASLEEP
    p_idle[0] = 1; idle_ps = 2; m_idle[0] = 2;
    run M(0, NONE);
#else
    run M(0, 0);
#endif
    run M(1, NONE); run M(2, NONE);
    run plain_thread(); run store_buffers(); run monitor()
  }
}
