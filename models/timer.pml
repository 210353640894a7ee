/* SPDX-License-Identifier: Apache-2.0
 *
 * Stop and reset against fire: time/timer.cc (timer_core), sched/timers.cc (arm, disarm, fire_due, to_service). One
 * timer, a user that stops and resets it, a receiver, two Ms that fire what is due (anything armed may be due), and
 * the end of the run, which moves timers from the P's heap to the service's. A timer with a channel is armed by who
 * first waits for it (before_wait), and who only looks takes what is due himself (take_due).
 *
 * Proves: after stop or reset has returned nothing older is received, no function of an arming that was stopped runs,
 * one that was not runs once; the timer is in one heap at most and is taken out under that heap's lock; its count is
 * balanced: nobody touches it once it is gone, and gone it is in the end.
 *
 * variant channel: -DFUNC=0 -DPERIOD=0
 * variant func: -DFUNC=1 -DPERIOD=0
 * variant ticker: -DFUNC=0 -DPERIOD=1
 * mutant 1 (assert): a late firing does not look at the number of the arming
 * mutant 2 (assert): stop leaves the value in the cell
 * mutant 3 (assert): keep counts up from zero
 * mutant 4 (assert) in func: stop keeps the count of the arming that it has prevented
 * mutant 5 (assert) in func: stop gives up that count though the firing is under way
 * mutant 6 (assert): disarm does not look whether the timer has moved to another heap
 * mutant 7 (assert): the last handle goes without disarming
 * mutant 8 (assert) in ticker: who takes a value himself does not change the number
 * mutant 9 (assert): he leaves the timer in its heap
 */
#define STEPS 2   /* of the user */
#define ARMINGS 9 /* start, stop and take_due all count up */

bit c_lock;                  /* chan_core::lock_ */
byte number, value;          /* timer_core::number; the cell holds the number of the arming that sent it, 0: empty */
bit pending;
bit in_heap;                 /* timer_core::armed */
byte periods = PERIOD;       /* how often a ticker arms itself again */
bit h_lock[2];               /* timer_home::lock of the P (0) and of the service (1) */
byte home;                   /* timer::home */
bit placed;                  /* timer::place != 0 */
byte seq;                    /* durable_timer::seq */
byte refs = 2;               /* chan_core::refs_: user, receiver */
bit gone;

byte over;                   /* all armings up to this one were stopped, and the call has returned */
bit armed[ARMINGS], prevented[ARMINGS], ran[ARMINGS];
bit user_done;

#define ALIVE assert(!gone)
#define LOCK atomic { c_lock == 0 -> ALIVE; c_lock = 1 }
#define UNLOCK atomic { ALIVE; c_lock = 0 }

/* arm: on a P, or without one, or on a P after the run has ended and begun again */
inline arm(n) {
  if :: a = 0 :: a = 1 fi;
  atomic { h_lock[a] == 0 -> h_lock[a] = 1 };
  atomic { ALIVE; assert(!placed); placed = 1; home = a; seq = n };
  atomic { h_lock[a] = 0; a = 0 }
}

inline disarm(was) {
  do
  :: a = home;
     atomic { h_lock[a] == 0 -> h_lock[a] = 1 };
#ifndef MUTANT_6
     if :: home != a -> h_lock[a] = 0 :: else -> break fi
#else
     break
#endif
  od;
  atomic { assert(!placed || home == a); was = placed; placed = 0 };
  atomic { h_lock[a] = 0; a = 0 }
}

inline release() {
  atomic { ALIVE; assert(refs > 0); refs--; z = (refs == 0) };
  if
  :: z ->
#ifndef MUTANT_7
    disarm(z);
#endif
    atomic { ALIVE; gone = 1; z = 0 }
  :: else
  fi
}

/* start, under the channel's lock */
inline start() {
  atomic { ALIVE; number++; armed[number] = 1; pending = 1; refs = refs + FUNC };
  if
  :: true -> in_heap = 1; arm(number)  /* a function's; or somebody waits */
  :: !FUNC
  fi
}

/* halt, under the channel's lock; w: will not fire, z: gives up its count */
inline halt() {
  atomic { ALIVE; w = (pending || value != 0); n = number; pending = 0; number++;
#ifndef MUTANT_2
    value = 0
#endif
  };
  if :: in_heap -> in_heap = 0; disarm(z) :: else -> z = 0 fi;
#ifdef MUTANT_5
  z = w;
#endif
  z = z && FUNC
}

inline after_halt() {
  atomic {
    over = (over > n -> over : n);
    if
    :: FUNC && w -> assert(!prevented[n] && !ran[n]); prevented[n] = 1
    :: else
    fi;
    w = 0; n = 0
  };
#ifdef MUTANT_4
  z = 0;
#endif
  if :: z -> atomic { ALIVE; assert(refs > 1); refs--; z = 0 } :: else fi  /* our handle is another */
}

proctype user() {
  byte a, n, steps = STEPS;
  bit w, z;
  LOCK; start(); UNLOCK;
  do
  :: steps > 0 ->
    steps--;
    LOCK;
    halt();
    if
    :: steps > 0 -> start()  /* reset */
    :: true
    fi;
    UNLOCK;
    after_halt()
  :: true -> break
  od;
  release();
  user_done = 1
}

inline before_wait() {
  if
  :: pending && value == 0 && !in_heap -> in_heap = 1; arm(number)
  :: else
  fi
}

inline take_due() {
  if
  :: pending && value == 0 ->
#ifndef MUTANT_8
    number++;
#endif
#ifndef MUTANT_9
    if :: in_heap -> disarm(z) :: else fi;
#endif
    atomic {
      z = 0;
      in_heap = 0;
      if :: periods > 0 -> periods-- :: else -> pending = 0 fi;
      value = number
    }
  :: else
  fi
}

proctype receiver() {
  byte a;
  bit z;
  do
  :: atomic { c_lock == 0 && value != 0 -> assert(value > over); value = 0 }
  :: !FUNC -> LOCK; before_wait(); UNLOCK
  :: !FUNC -> LOCK; take_due(); UNLOCK
  :: break
  od;
  release()
}

/* fire_due of either heap, then fired() without the lock */
proctype firer() {
  byte a, h, armed_as;
  bit z, ok;
end:
  do
  :: atomic { placed && h_lock[home] == 0 -> h = home; h_lock[h] = 1; placed = 0 };
     atomic {
       ALIVE;
       armed_as = seq;
       if
       :: FUNC -> ok = 1  /* the arming's count */
#ifdef MUTANT_3
       :: !FUNC -> refs++; ok = 1
#else
       :: !FUNC && refs > 0 -> refs++; ok = 1
       :: !FUNC && refs == 0 -> ok = 0
#endif
       fi
     };
     atomic { h_lock[h] = 0; h = 0 };
     if
     :: ok ->  /* deliver */
       LOCK;
       atomic {
         ALIVE;
#ifdef MUTANT_1
         ok = 1;
#else
         ok = (number == armed_as && pending);
#endif
         if
         :: ok && periods == 0 -> pending = 0
         :: else
         fi;
         if :: ok -> in_heap = 0 :: else fi;
         if :: ok && !FUNC && value == 0 -> value = armed_as :: else fi
       };
       if
       :: ok && periods > 0 -> periods--; in_heap = 1; arm(armed_as)
       :: else
       fi;
       UNLOCK;
       if :: ok && FUNC -> atomic { assert(!ran[armed_as] && !prevented[armed_as]); ran[armed_as] = 1 } :: else fi;
       release()
     :: else
     fi;
     atomic { ok = 0; armed_as = 0 }
  od
}

/* to_service: with both locks */
proctype end_of_run() {
  if
  :: atomic { h_lock[0] == 0 -> h_lock[0] = 1 };
     atomic { h_lock[1] == 0 -> h_lock[1] = 1 };
     if :: placed && home == 0 -> ALIVE; home = 1 :: else fi;
     h_lock[1] = 0;
     h_lock[0] = 0
  :: true
  fi
}

proctype monitor() {
  timeout ->
  assert(user_done && gone && refs == 0);
  assert(!FUNC || (ran[1] + prevented[1] == armed[1] && ran[3] + prevented[3] == armed[3]))
}

init { atomic { run user(); run receiver(); run firer(); run firer(); run end_of_run(); run monitor() } }
