/* SPDX-License-Identifier: Apache-2.0
 *
 * Preemption that keeps threads (DESIGN 4, rules 1, 2 and 5): sched/preempt.cc, sched/locked.cc, sched/detach.cc. A
 * signal stops a thread wherever it stands; its goroutine is runnable, but on that thread only, and its P goes to
 * another. Three goroutines that compute and use malloc, at most three Ms: all there from the start (SPARES idle
 * ones), or the last to be made by the thread-maker, which needs malloc's lock like the others; whoever is stopped
 * inside malloc holds it meanwhile.
 *
 * Proves: everybody comes to an end: no P is without an M while work waits, nobody waits for a lock whose holder
 * gets no P, nothing hangs when there are no threads left to be made. Ps are neither lost nor doubled; a kept
 * goroutine is resumed by its own thread; user code of one that was detached does not enter the scheduler without a P.
 * sysmon's signals are limited (SIGNALS), so 'it will be tried again' proves nothing.
 *
 * variant one_p: -DNP=1 -DSPARES=2 -DSIGNALS=3
 * variant two_p: -DNP=2 -DSPARES=1 -DSIGNALS=2
 * variant no_spare: -DNP=1 -DSPARES=0 -DSIGNALS=2
 * mutant 1 (end) in no_spare: a P whose thread is stopped is meant for a thread that does not exist yet (rule 1)
 * mutant 2 (assert): whoever takes a kept goroutine out of the queue runs it itself
 * mutant 3 (end): the handler stops the thread inside the runtime, too (rule 5)
 * mutant 4 (assert): whoever hands its P to a kept thread goes on with it
 * mutant 5 (end): one that sleeps on a lock keeps its P (rule 2)
 * mutant 6 (assert): one that comes back without its P goes on into the scheduler
 * mutant 7 (end): a detached thread that comes back is not queued
 */
#define NM 3
#define NG 3
#define NONE 9

bit lock_;                  /* sched.lock */
byte globq = NG - NP;       /* goroutines that have not begun */
byte idle_ps;
bit m_idle[NM];             /* idle_m_list */
bit nextp[NM];              /* M::nextp */
byte kept[NM] = NONE;       /* sched.kept, oldest first */
bit has_p[NM];              /* M::hold: owned */
bit sig[NM];                /* signalled, not yet handled */
bit asleep[NM];             /* in the kernel, on malloc's lock */
bit computes[NM];           /* user code, outside the runtime */
bit malloc_lock;
bit spare_wanted;
byte budget = SIGNALS;
byte ended;                 /* goroutines */

#define LOCK atomic { lock_ == 0 -> lock_ = 1 }
#define UNLOCK lock_ = 0
#define WAITS (globq > 0 || kept[0] != NONE)
#define PS (has_p[0] + has_p[1] + has_p[2] + nextp[0] + nextp[1] + nextp[2] + idle_ps)

inline keep(m) {
  if
  :: kept[0] == NONE -> kept[0] = m
  :: else -> assert(kept[1] == NONE); kept[1] = m
  fi
}
inline oldest(x) { x = kept[0]; kept[0] = kept[1]; kept[1] = NONE }
inline latest(x) { if :: kept[1] != NONE -> x = kept[1]; kept[1] = NONE :: else -> x = kept[0]; kept[0] = NONE fi }
inline idle_m(x) {
  x = 0;
  do :: x < NM && !m_idle[x] -> x++ :: else -> break od;
  if :: x < NM -> m_idle[x] = 0 :: else -> x = NONE fi
}

/* stop_for_others: in the handler, or on the way out of the runtime */
inline stop_for_others() {
  LOCK;
  atomic {
    sig[me] = 0;
    idle_m(x);
    if :: x == NONE && kept[0] != NONE -> oldest(x) :: else fi;
    if
    :: x != NONE -> has_p[me] = 0; keep(me); nextp[x] = 1; assert(PS == NP)
    :: else -> spare_wanted = 1;  /* nobody there to take the P: sysmon asks again */
#ifdef MUTANT_1
      has_p[me] = 0; keep(me); idle_ps++; x = me
#endif
    fi
  };
  UNLOCK;
  if
  :: x != NONE -> x = NONE; sleep_kept()
  :: else
  fi
}

inline sleep_kept() {
  atomic { computes[me] = 0; nextp[me] -> nextp[me] = 0; has_p[me] = 1; computes[me] = 1 }
}

#define MAYBE_STOP if :: sig[me] && has_p[me] -> stop_for_others() :: !sig[me] || !has_p[me] fi

proctype M(byte me; bit runs) {
  byte x = NONE;
  bit again;
  if :: runs -> goto user :: else -> goto idle fi;

find_work:  /* with a P */
  atomic { assert(has_p[me]); lock_ == 0 -> lock_ = 1 };
#ifdef MUTANT_3
  MAYBE_STOP;
#endif
  if
  :: kept[0] != NONE ->
    atomic {
      oldest(x);
#ifdef MUTANT_2
      assert(x == me);
#endif
      nextp[x] = 1; x = NONE;
#ifndef MUTANT_4
      has_p[me] = 0;
#endif
      assert(PS == NP)
    };
    atomic { m_idle[me] = 1; UNLOCK; goto idle }
  :: globq > 0 -> atomic { globq--; UNLOCK; goto user }
  :: !WAITS -> atomic { has_p[me] = 0; idle_ps++; m_idle[me] = 1; UNLOCK; goto idle }
  fi;

user:  /* a goroutine: computes, calls malloc, computes */
  computes[me] = 1;
  again = 1;
  do
  :: again ->
    again = 0;
    MAYBE_STOP;
    /* malloc */
    if
    :: atomic { malloc_lock == 0 -> malloc_lock = 1 }
    :: atomic { malloc_lock != 0 -> asleep[me] = 1; computes[me] = 0 };
       atomic { malloc_lock == 0 -> malloc_lock = 1; asleep[me] = 0; computes[me] = 1 }
    fi;
    MAYBE_STOP;
    malloc_lock = 0
  :: else -> break
  od;
  /* its end is a call of the runtime: with a P, or it waits for one */
  atomic { computes[me] = 0; sig[me] = 0 };
  if
  :: !has_p[me] ->
#ifndef MUTANT_6
    LOCK;
    if
    :: idle_ps > 0 -> atomic { idle_ps--; has_p[me] = 1; UNLOCK }
    :: else ->
#ifndef MUTANT_7
      keep(me);
#endif
      UNLOCK;
      sleep_kept();
      computes[me] = 0
    fi
#else
    skip
#endif
  :: else
  fi;
  atomic { ended++; goto find_work };

idle:
end_idle:
  atomic { nextp[me] -> nextp[me] = 0; has_p[me] = 1; assert(PS == NP) };
  goto find_work
}

active proctype sysmon() {
  byte x = NONE, i;
end:
  do
  /* a signal to one that computes while others wait */
  :: atomic { budget > 0 && WAITS && computes[0] && has_p[0] && !sig[0] -> budget--; sig[0] = 1 }
  :: atomic { budget > 0 && WAITS && computes[1] && has_p[1] && !sig[1] -> budget--; sig[1] = 1 }
  :: atomic { budget > 0 && WAITS && computes[2] && has_p[2] && !sig[2] -> budget--; sig[2] = 1 }
#ifndef MUTANT_5
  /* asleep in two samples: detach; its P goes to the one stopped last, else to an idle M */
  :: atomic { WAITS && lock_ == 0 && asleep[0] && has_p[0] -> i = 0; goto detach }
  :: atomic { WAITS && lock_ == 0 && asleep[1] && has_p[1] -> i = 1; goto detach }
  :: atomic { WAITS && lock_ == 0 && asleep[2] && has_p[2] -> i = 2;
detach:
       if :: kept[0] != NONE -> latest(x) :: else -> idle_m(x) fi;
       if
       :: x != NONE -> has_p[i] = 0; nextp[x] = 1; assert(PS == NP)
       :: else -> has_p[i] = 0; idle_ps++; spare_wanted = 1
       fi;
       x = NONE; i = 0
     }
#endif
  /* the wake rule: an idle P, work, an idle M */
  :: atomic { WAITS && lock_ == 0 && idle_ps > 0 && (m_idle[0] || m_idle[1] || m_idle[2]) ->
       x = 0;
       do :: !m_idle[x] -> x++ :: else -> break od;
       m_idle[x] = 0; idle_ps--; nextp[x] = 1; x = NONE }
  od
}

/* pthread_create takes malloc's lock. One more thread, and that is the cap. */
active proctype maker() {
end:
  SPARES == 0 && spare_wanted;
end_blocked:
  atomic { malloc_lock == 0 -> malloc_lock = 1 };
  malloc_lock = 0;
  atomic { lock_ == 0 -> m_idle[NM - 1] = 1 }
}

active proctype everybody() {
  ended == NG
}

init {
  atomic {
    has_p[0] = 1; run M(0, 1);
    if
    :: NP == 2 -> has_p[1] = 1; run M(1, 1)
    :: NP == 1 && SPARES == 2 -> m_idle[1] = 1; run M(1, 0)
    :: else
    fi;
    m_idle[2] = (SPARES > 0);
    run M(2, 0)
  }
}
