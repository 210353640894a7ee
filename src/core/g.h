// SPDX-License-Identifier: Apache-2.0
// G: a goroutine. Cells come from a type-stable slab (never unmapped, DESIGN 3), so that a stale
// pointer can always be looked at; the generation, raised at every exit, tells a late waker that
// its goroutine is gone.
//
// A goroutine that has not begun has no stack: it waits in the queues as two cache lines, its
// closure in the second, and gets a stack from the P that first runs it (spawn.cc). A burst of a
// million spawns therefore needs as many stacks as run at once, and those are warm.
//
// Fields are grouped by who touches them when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unwind.h>

#include "base/atomic.h"
#include "base/fatal.h"
#include "context/context.h"
#include "context/fiber.h"
#include "context/thread_state.h"
#include "core/status.h"
#include "stack/stack.h"

namespace weft::rt {

struct M;
struct local_node;

// goexit's progress.
enum class exit_state : std::uint8_t {
  none,
  begun,    // catching it does not help
  put_off,  // a handler was left by throwing something else: goes on when that is caught
};

struct alignas(64) G {
  // -- the switch: one cache line. Owned by the M that runs it; while it does not run, by whoever
  // took it off its queue.
  void* sp = nullptr;  // saved stack pointer; null: not begun yet. Prefetches read it racily,
                       // through atomic_ref
  atomic<std::uint16_t> status{static_cast<std::uint16_t>(g_status::idle)};
  wait_reason reason = wait_reason::none;
  exit_state exiting : 4 = exit_state::none;
  bool kept : 1 = false;     // waits for a P in place, on the thread that it runs on (sched.kept)
  bool bound : 1 = false;    // only one M may run it: it is locked to that thread (M6)
  bool sampled : 1 = false;  // `traced` says when it became runnable (sched/latency.h)
  int saved_errno = 0;
  atomic<M*> m{nullptr};  // set while running (G2)
  eh_state eh;
  const void* waiting_on = nullptr;  // G4: what park() was given; cleared by the one who wakes it
  std::uint64_t goid = 0;
  std::uint32_t run_id = 0;  // the run() it belongs to; another one: left behind, never runs again
  atomic<std::uint32_t> generation{0};  // anybody may read

  // -- how it starts: the second line. Written by the spawner before it is published.
  static constexpr std::size_t closure_size = 40;
  std::uint64_t parent = 0;                     // goid of the creator
  const void* created_at = nullptr;             // return address in the creator
  alignas(16) char closure[closure_size] = {};  // what it runs; larger ones lie on its stack
  void (*run)(void*) = nullptr;

  // -- its own.
  stack stk;  // from its first switch to its end
  local_node* locals = nullptr;
  M* locked_m = nullptr;    // M6: the only M that may run it
  std::uint32_t locks = 0;  // calls of lock_os_thread that are not undone
  bool named = false;
  bool is_main = false;
  std::uint8_t audit_mark = 0;  // audit(), with the world stopped
  bool slow_calls = false;      // its last announced call lasted (sched/syscall.cc); a hint
  std::uint64_t traced = 0;     // last stamp and state in the trace (sched/tracing.cc)
  [[no_unique_address]] rt::fiber fiber;  // what sanitizers keep for this stack

  // -- rarely touched from here on.
  char name[32] = {};  // copied from spawn_options, cut off
  // goexit: the exception object of the forced unwind; no allocation when memory has run out.
  _Unwind_Exception unwind{};

  g_status state() const noexcept {
    return static_cast<g_status>(status.load(memory_order_acquire) &
                                 static_cast<std::uint16_t>(~scan_bit));  // with move/cas below
  }

  // A change by the only one who may leave `from` (see status.h). Release: whoever next takes this
  // goroutine over reads the status with acquire (state(), cas_status) or gets it through a queue,
  // which orders too.
  void move_status(g_status from, g_status to) noexcept {
#if defined(WEFT_DEV)
    if (!legal_edge(from, to) || !try_status(from, to)) bad_status(from, to);
#else
    (void)from;
    status.store(static_cast<std::uint16_t>(to), memory_order_release);
#endif
  }
  // A change that may meet another: true if it was ours.
  bool try_status(g_status from, g_status to) noexcept {
    auto expect = static_cast<std::uint16_t>(from);
    return status.compare_exchange_strong(expect, static_cast<std::uint16_t>(to),
                                          memory_order_acq_rel, memory_order_acquire);
  }
  [[noreturn]] void bad_status(g_status from, g_status to) const noexcept;
};

static_assert(offsetof(G, parent) == 64 && offsetof(G, stk) == 128, "a switch touches one line");
#if !defined(WEFT_TSAN) && !defined(WEFT_ASAN)
static_assert(sizeof(G) == 256, "a million goroutines count on this");
#endif

}  // namespace weft::rt
