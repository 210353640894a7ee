// SPDX-License-Identifier: Apache-2.0
// G: a goroutine. Cells come from a type-stable slab (never unmapped, DESIGN 3), so that a stale
// pointer can always be looked at; the generation, raised at every exit, tells a late waker that
// its goroutine is gone.
//
// Fields are grouped by who may touch them. What a switch needs stands in the first two cache
// lines.
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

struct alignas(64) G {
  // -- the switch. Owned by the M that runs it; while it does not run, by whoever took it off its
  // queue.
  void* sp = nullptr;  // saved stack pointer; prefetches read it racily, through atomic_ref
  atomic<std::uint32_t> status{static_cast<std::uint32_t>(g_status::idle)};
  int saved_errno = 0;
  atomic<M*> m{nullptr};  // set while running (G2)
  eh_state eh;
  std::uintptr_t top = 0;  // where the first frame starts: the closure lies just below
  G* next = nullptr;       // free list

  // -- who it is. Written by the spawner before it is published, constant while it lives. (The
  // closure and its function travel in the first switch frame, see make_context.)
  alignas(64) std::uint64_t goid = 0;
  std::uint64_t run_id =
      0;  // the run() it belongs to; another one: left behind, must never run again
  std::uint64_t parent = 0;          // goid of the creator
  const void* created_at = nullptr;  // return address in the creator

  // -- its own. Written by the goroutine itself; waiting_on is cleared by the one who wakes it.
  const void* waiting_on = nullptr;  // G4: what park() was given; null unless waiting
  local_node* locals = nullptr;
  atomic<std::uint32_t> generation{0};  // anybody may read
  wait_reason reason = wait_reason::none;
  bool special = false;  // its stack is not of the default size
  bool named = false;
  bool exiting = false;  // goexit has begun; catching it does not help
  bool exit_put_off =
      false;  // a handler was left by throwing something else: goes on when that is caught
  bool is_main = false;
  bool trimmed = false;  // free: its stack was looked at since its last use

  // -- rarely touched from here on.
  alignas(64) stack stk;
  M* locked_m = nullptr;  // M6: the only M that may run it
  char name[32] = {};     // copied from spawn_options, cut off
  // goexit: the exception object of the forced unwind; no allocation when memory has run out.
  _Unwind_Exception unwind{};
  std::uintptr_t unwind_cfa = 0;          // the frame it has reached
  std::uint8_t audit_mark = 0;            // audit(), with the world stopped
  [[no_unique_address]] rt::fiber fiber;  // what sanitizers keep for this stack

  g_status state() const noexcept {
    return static_cast<g_status>(status.load(memory_order_acquire) &
                                 ~scan_bit);  // with move/cas below
  }

  // A change by the only one who may leave `from` (see status.h). Release: whoever next takes this
  // goroutine over reads the status with acquire (state(), cas_status) or gets it through a queue,
  // which orders too.
  void move_status(g_status from, g_status to) noexcept {
#if defined(WEFT_DEV)
    if (!legal_edge(from, to) || !try_status(from, to)) bad_status(from, to);
#else
    (void)from;
    status.store(static_cast<std::uint32_t>(to), memory_order_release);
#endif
  }
  // A change that may meet another: true if it was ours.
  bool try_status(g_status from, g_status to) noexcept {
    auto expect = static_cast<std::uint32_t>(from);
    return status.compare_exchange_strong(expect, static_cast<std::uint32_t>(to),
                                          memory_order_acq_rel, memory_order_acquire);
  }
  [[noreturn]] void bad_status(g_status from, g_status to) const noexcept;
};

static_assert(offsetof(G, goid) == 64 && offsetof(G, stk) == 128, "a spawn touches two lines");
static_assert(sizeof(G) <= 384, "a million goroutines count on this");

}  // namespace weft::rt
