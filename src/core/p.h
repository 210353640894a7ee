// SPDX-License-Identifier: Apache-2.0
// P: the right to run goroutines, and the resources that go with it. Ps are made once and never
// freed; ids are dense, a P with id >= procs is dead (P5).
//
// Fields by owner: 'owner' is the M that holds the P.
#pragma once

#include <cstdint>

#include "base/atomic.h"
#include "base/histogram.h"
#include "base/random.h"
#include "core/g_pool.h"
#include "core/runq.h"
#include "core/status.h"
#include "os/mutex.h"
#include "timer/heap.h"

namespace weft::rt {

struct M;

inline constexpr std::uint32_t max_procs = 1024;

// P::preempt. The first two end the slice; the second one sends the P to the global queue first.
// The third is m0's, which runs nobody but main (run.cc): main goes on elsewhere, at once.
inline constexpr std::uint32_t preempt_slice = 1, preempt_for_global = 2, preempt_leave_m0 = 3;

// Timers armed on a P. Anybody may fire what is due, under the lock.
struct timer_home {
  mutex lock{lock_rank::timer};
  timer_heap heap;                       // under lock
  atomic<std::int64_t> earliest{never};  // its top; written under lock
};

struct alignas(64) P {
  // -- anybody reads, owner writes.
  atomic<p_status> status{p_status::dead};
  std::uint32_t id = 0;
  atomic<M*> m{nullptr};               // P1: points back
  atomic<std::uint32_t> schedtick{0};  // one up at each time slice; sysmon watches it
  atomic<std::uint32_t> preempt{
      0};  // set by sysmon and stop-the-world: give way at the next call that may park
  atomic<bool> orphan{false};  // its run is over; its M must never run again
  // -- owner only.
  std::uint32_t until_global = 61;  // rounds until the global queue is looked at first
  std::uint32_t kept_due = 0;   // how many that wait in place have a turn in this round of yields
  bool kept_turn = false;       // whose turn it was then: of those that wait in place
  bool kept_first = false;      // yield owes it to one of them
  std::uint32_t round_end = 0;  // ring index behind the last batch from the global queue, see yield
  std::uint64_t goid_next = 0, goid_end = 0;
  random rng;
  M* last_m = nullptr;             // who ran this P before the world stopped
  std::uint64_t traced = 0;        // last stamp in the trace
  std::uint32_t until_sample = 1;  // wake-ups until one is timed (sched/latency.h)
  // -- under the scheduler lock.
  P* idle_next = nullptr;
  // -- statistics: owner writes, anybody reads.
  struct counters {
    atomic<std::uint64_t> created{0}, exited{0}, steals{0}, parks{0}, gave_way{0}, handoffs{0},
        preemptions{0};
    time_histogram latency;  // from runnable to running; sampled

    // How often a goroutine left this P: whatever runs ends by one of these.
    std::uint64_t switches() const noexcept {
      return parks.load(memory_order_relaxed) + gave_way.load(memory_order_relaxed) +
             exited.load(memory_order_relaxed);
    }
  } count;

  // -- owner only: what goroutines are made of.
  g_cache free_gs;
  block_cache blocks;
  chan_cache chans;
  large_chan_cache large_chans;
  stack_cache stacks;
  alignas(64) timer_home timers;
  alignas(64) runq rq;

  runq_owner<runq> owner() noexcept { return runq_owner<runq>(rq); }
  runq_thief<runq> thief() noexcept { return runq_thief<runq>(rq); }
};

// A statistic that only the owner writes: no locked instruction.
inline void bump(atomic<std::uint64_t>& c, std::uint64_t by = 1) noexcept {
  c.store(c.load(memory_order_relaxed) + by, memory_order_relaxed);
}

}  // namespace weft::rt
