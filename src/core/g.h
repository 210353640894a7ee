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
struct bubble;
class local_table;

// goexit's progress.
enum class exit_state : std::uint8_t {
  none,
  begun,    // catching it does not help
  put_off,  // a handler was left by throwing something else: goes on when that is caught
};

// A run that never is: whose members a bubble has left behind (G::run_id).
inline constexpr std::uint32_t abandoned_run = UINT32_MAX;

// What a bound goroutine is tied to: the M that it is locked to (M6), or its bubble, by which it
// has an M (B1). One word, because G is full; atomic, because at its end a bubble looks at
// everybody's.
class tie {
 public:
  M* locked_m() const noexcept {
    const std::uintptr_t w = word_.load(memory_order_relaxed);
    return (w & to_bubble) == 0 ? reinterpret_cast<M*>(w) : nullptr;
  }
  bubble* its_bubble() const noexcept {
    const std::uintptr_t w = word_.load(memory_order_relaxed);
    return (w & to_bubble) != 0 ? reinterpret_cast<bubble*>(w - to_bubble) : nullptr;
  }
  void set(M* m) noexcept {
    word_.store(reinterpret_cast<std::uintptr_t>(m), memory_order_relaxed);
  }
  void set(bubble* b) noexcept {
    word_.store(reinterpret_cast<std::uintptr_t>(b) + to_bubble, memory_order_relaxed);
  }
  void clear() noexcept { word_.store(0, memory_order_relaxed); }

 private:
  static constexpr std::uintptr_t to_bubble = 1;
  atomic<std::uintptr_t> word_{0};
};

// The run() that a goroutine belongs to. Written by its spawner before it is published, and by a
// bubble that leaves it behind; atomic, because pictures of the whole slab (runtime_stats, the
// tracer) look at cells that are just being given out. Nothing is ordered by it.
class run_number {
 public:
  operator std::uint32_t() const noexcept {  // NOLINT(google-explicit-constructor)
    return word_.load(memory_order_relaxed);
  }
  run_number& operator=(std::uint32_t run) noexcept {
    word_.store(run, memory_order_relaxed);
    return *this;
  }

 private:
  atomic<std::uint32_t> word_{0};
};

struct alignas(64) G {
  static constexpr unsigned bubbled_bit = 4;  // of attention, over an exit_state

  // -- the switch: one cache line. Owned by the M that runs it; while it does not run, by whoever
  // took it off its queue.
  void* sp = nullptr;  // saved stack pointer; null: not begun yet. Prefetches read it racily,
                       // through atomic_ref
  atomic<std::uint16_t> status{static_cast<std::uint16_t>(g_status::idle)};
  wait_reason reason = wait_reason::none;
  std::uint8_t attention : 3 = 0;  // goexit's progress, and whether it is a member of a bubble
  bool durable : 1 = false;        // of one: only its bubble can wake it
  bool kept : 1 = false;     // waits for a P in place, on the thread that it runs on (sched.kept)
  bool bound : 1 = false;    // only one M may run it: it is locked to that thread (M6)
  bool timed : 1 = false;    // of a bubble: its wait for a mutex ends at a time (bubble.h)
  bool sampled : 1 = false;  // `traced` says when it became runnable (sched/latency.h)
  int saved_errno = 0;
  atomic<M*> m{nullptr};  // set while running (G2)
  eh_state eh;
  // G4: what park() was given; cleared by the one who wakes it. Atomic for the audit alone: one
  // without a P parks in a stopped world too.
  atomic<const void*> waiting_on{nullptr};
  std::uint64_t goid = 0;
  run_number run_id;  // another one than the current: left behind, never runs again
  atomic<std::uint32_t> generation{0};  // anybody may read

  // -- how it starts: the second line. Written by the spawner before it is published.
  static constexpr std::size_t closure_size = 40;
  std::uint64_t parent = 0;                     // goid of the creator
  const void* created_at = nullptr;             // return address in the creator
  alignas(16) char closure[closure_size] = {};  // what it runs; larger ones lie on its stack
  void (*run)(void*) = nullptr;

  // -- its own.
  stack stk;  // from its first switch to its end
  local_table* locals = nullptr;
  tie tied;                   // whose it is, if it is bound
  std::uint32_t locks = 0;    // calls of lock_os_thread that are not undone
  atomic<bool> named{false};  // pictures of a stopped world look at one that ends without a P
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

  M* locked_m() const noexcept { return tied.locked_m(); }  // M6: the only M that may run it
  bubble* its_bubble() const noexcept { return tied.its_bubble(); }
  // At a call that may park there is more to do than to look at the P.
  bool wants_attention() const noexcept { return attention != 0; }
  exit_state exiting() const noexcept { return static_cast<exit_state>(attention & ~bubbled_bit); }
  void set_exiting(exit_state s) noexcept {
    attention =
        static_cast<std::uint8_t>((attention & bubbled_bit) | static_cast<unsigned>(s)) & 7U;
  }
  bool bubbled() const noexcept { return (attention & bubbled_bit) != 0; }  // and so bound too
  void set_bubbled(bool b) noexcept {
    attention = static_cast<std::uint8_t>((attention & ~bubbled_bit) | (b ? bubbled_bit : 0U)) & 7U;
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
