// SPDX-License-Identifier: Apache-2.0
// M: a thread that runs goroutines. Type-stable like G. g0 is the thread's own stack: schedule and
// find_work run there; it is a G only so that the switch and the dumps can treat it alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <pthread.h>

#include "base/atomic.h"
#include "base/random.h"
#include "context/thread_state.h"
#include "core/g.h"
#include "core/p.h"
#include "os/note.h"
#include "os/section.h"
#include "os/signal_stack.h"
#include "trace/ring.h"

namespace weft::rt {

// Whose the P in M::p is (DESIGN 5). Only the M itself leaves `owned`, but for sysmon's try, and it
// looks at the word only while it is inside the runtime (os/section.h).
//
//   owned ──enter_syscall──► syscall ──exit_syscall──► owned          the M, a store and a CAS
//   syscall ──► taking ──► detached                                   sysmon, stop-the-world; the
//   M, if its calls last
//   owned ──► detaching ──► taking ──► detached                       sysmon; the M is asleep in
//   the kernel
//             detaching ──► owned                                     the M: it has come back in
//             time
//   detached ──► owned, with p null                                   the M, when it notices
//   any ──► left                                                      its run is over
enum class hold_state : std::uint32_t { owned, syscall, detaching, taking, detached, left };

struct alignas(64) M {
  // -- its own thread only (others read under the stopped world).
  P* p = nullptr;            // G2, P1; good while hold is owned; read by others in `taking`
  G* curg = nullptr;         // the goroutine it runs; null while it schedules
  bubble* drives = nullptr;  // it runs the members of this bubble and nobody else
  atomic<hold_state> hold{hold_state::owned};
  atomic<bool> strays{false};         // runs without a P that it has lost, until it gets one
  atomic<std::uint64_t> syscalls{0};  // announced ones; sysmon sees whether it is still the same
  thread_state ts;                    // where this thread keeps its exception globals and errno
  atomic<bool> spinning{false};       // counted in the idle word (M2, M3)
  bool is_m0 = false;                 // runs only main, until main first parks (DESIGN 4.3)
  G* locked_g = nullptr;              // M6
  G* handed = nullptr;                // taken from a queue, but not ours to run here
  bool dying = false;            // its thread ends at the next look: a locked goroutine has ended
  bool on_system_stack = false;  // the goroutine stands on g0's stack for a while
  std::uint32_t in_sched = 0;  // > 0 while in scheduler context: no malloc here (dev builds check)
  random rng;
  std::int64_t gave_p = 0;  // when it last handed its P on in an announced call; 0: kept it since
  G g0;
  const void* g0_top = nullptr;  // the frames of its thread below here are the scheduler's
  sigset_t mask_before{};
  signal_stack signals;  // installed while the thread is ours

  // -- written by whoever starts it, before the wake-up.
  P* nextp = nullptr;
  bool spare = false;  // made without a P in mind
  note park;

  // -- under the scheduler lock.
  M* idle_next = nullptr;
  bool on_idle_list = false;
  bool kept = false;  // waits for a P with its goroutine, in place (sched.kept); M1 does not hold
  bool waits_locked = false;  // sleeps until its locked goroutine runs
  atomic<M*> kept_next{nullptr};
  M* kept_prev = nullptr;
  std::int64_t idle_since = 0, kept_since = 0;

  // -- signals: sysmon and stop-the-world ask, the handler answers (preempt.cc).
  atomic<std::uint32_t> evaded{0};   // so often the signal met it inside libc, and it was let go on
  const void* stopped_at = nullptr;  // the handler's ucontext_t while it is stopped there
  atomic<bool> frozen{false};        // for good, for the report of a dying process
  atomic<thread_words*> words{nullptr};  // its thread's, for sysmon
  atomic<bool> leaving{false};           // its run is over, and it has not come to its last stop
  std::int64_t leaving_cpu =
      0;                      // how much CPU time it had used when that began; set under the lock
  atomic<int> cpu_timer{-1};  // the kernel's number; made by the first who needs it

  // -- its thread, with a P or under traces.lock.
  trace_ring trace;

  // -- set once.
  std::uint32_t id = 0;
  atomic<pid_t> tid{0};  // by its thread; 0: not there yet
  M* all_next = nullptr;
  M* make_next = nullptr;  // thread-maker's list of requests; of free Ms
};

}  // namespace weft::rt
