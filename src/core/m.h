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
#include "os/signal_stack.h"

namespace weft::rt {

struct alignas(64) M {
  // -- its own thread only (others read under the stopped world).
  P* p = nullptr;                // G2, P1; read by others only when the world is stopped
  G* curg = nullptr;             // the goroutine it runs; null while it schedules
  thread_state ts;               // where this thread keeps its exception globals and errno
  atomic<bool> spinning{false};  // counted in the idle word (M2, M3)
  bool is_m0 = false;            // runs only main, until main first parks (DESIGN 4.3)
  G* locked_g = nullptr;         // M6
  P* old_p = nullptr;       // M4, M5: the P it had when it went into a system call or foreign code
  bool in_foreign = false;  // M5
  std::uint32_t in_sched = 0;  // > 0 while in scheduler context: no malloc here (dev builds check)
  random rng;
  G g0;
  signal_stack signals;  // installed while the thread is ours

  // -- written by whoever starts it, before the wake-up.
  P* nextp = nullptr;
  note park;

  // -- under the scheduler lock.
  M* idle_next = nullptr;
  bool on_idle_list = false;

  // -- set once.
  std::uint32_t id = 0;
  atomic<pid_t> tid{0};  // by its thread; 0: not there yet
  M* all_next = nullptr;
  M* make_next = nullptr;  // thread-maker's list of requests
};

}  // namespace weft::rt
