/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading without asking first: net/socket.h (retry, empty_), sched/netpoll.cc (look), poll/desc.h (wait_slot). A reader
 * of TCP that was given less than it had asked for waits for a report before it asks again, unless an end has been
 * reported. Two threads take reports from the kernel, which has one for a descriptor at a time, made anew by whatever
 * comes, and says what is there when it is taken.
 *
 * Proves: a reader that reads to the end gets there, wherever the bytes and the end come (else it is stuck).
 *
 * Memory: the slot's word changes by read-modify-writes only, but a report that finds it `ready` only looks. `ended` is a
 * store of the one who reports, which waits in a buffer of its own; that it and the look are seq_cst stands here as
 * waiting until the buffer is empty (mutant 2 does not).
 *
 * mutant 1 (end): a short read means empty, whatever has been reported
 * mutant 2 (end): the report looks at the slot while its store of `ended` is still buffered
 * mutant 3 (end): who waits first forgets what has been reported
 * mutant 4 (end): a read that got all it asked for leaves the mark of the last one
 * mutant 5 (end): a report that finds nobody is dropped
 */
mtype = { nil, ready, preparing, waiter };

#define MESSAGES 3
#define BUFFER 2

mtype slot = nil;             /* wait_slot::word_ */
bit ended;                    /* fd_desc::ended */
bit buffered[2];              /* each reporter's store of it */
byte bytes;                   /* in the kernel */
bit fin, listed;              /* the peer's end; the kernel has a report for us */
bit woken;                    /* the reader's park */

active proctype peer() {
  byte n;
  do
  :: n < MESSAGES -> atomic { bytes++; listed = 1; n++ }
  :: n > 0 -> break
  od;
  atomic { fin = 1; listed = 1 }
}

/* look(); the kernel takes it off its list first, and then says what is there. */
proctype reporter(byte me) {
  bit r, f, w;
end:
  do
  :: atomic { listed -> listed = 0 };
     atomic { r = (bytes > 0 || fin); f = fin };
     if
     :: f ->
       buffered[me] = 1;
#ifndef MUTANT_2
       buffered[me] == 0
#endif
     :: else
     fi;
     if
     :: r ->
       if
       :: atomic { slot == ready }
#ifdef MUTANT_5
       :: atomic { slot == nil }
       :: atomic { slot == preparing || slot == waiter -> w = (slot == waiter); slot = ready };
#else
       :: atomic { slot != ready -> w = (slot == waiter); slot = ready };
#endif
          if :: w -> atomic { woken = 1; w = 0 } :: else fi
       fi
     :: else
     fi;
     atomic { r = 0; f = 0 }
  od
}

active proctype store_buffers() {
end:
  do
  :: atomic { buffered[0] -> buffered[0] = 0; ended = 1 }
  :: atomic { buffered[1] -> buffered[1] = 0; ended = 1 }
  od
}

active proctype reader() {
  mtype was = nil;
  bit empty_;                 /* net_fd::empty_ */
  bit short_, first;
read:
  atomic { first = empty_; empty_ = 0 };
#ifdef MUTANT_4
  atomic { empty_ = first };
#endif
  if
  :: first ->
#ifdef MUTANT_3
     atomic { if :: slot == ready -> slot = nil :: else fi };
#endif
     goto wait
  :: else -> atomic { if :: slot == ready -> slot = nil :: else fi }  /* forget */
  fi;
call:
  atomic {
    if
    :: bytes >= BUFFER -> bytes = bytes - BUFFER; short_ = 0
    :: bytes > 0 && bytes < BUFFER -> bytes = 0; short_ = 1
    :: bytes == 0 && fin -> goto done
    :: bytes == 0 && !fin -> goto wait
    fi
  };
#ifdef MUTANT_1
  if :: short_ -> empty_ = 1 :: else fi;
#else
  if :: short_ -> empty_ = !ended :: else fi;
#endif
  goto read;
wait:
  atomic {
    if
    :: slot == ready -> slot = nil; goto call
    :: else -> assert(slot == nil); slot = preparing
    fi
  };
  atomic { woken = 0; if :: slot == preparing -> slot = waiter :: else -> goto awake fi };
  woken == 1;
awake:
  atomic { was = slot; slot = nil };
  if :: was == ready -> goto call :: else -> goto wait fi;
done:
}

init {
  atomic { run reporter(0); run reporter(1) }
}
