// SPDX-License-Identifier: Apache-2.0
// runtime_stats(): a picture of the running world, taken without stopping it. Each figure is right
// for some moment; sums of states need not add up. Linear in the number of goroutines ever alive at
// once.
#include "sched/sched.h"
#include "stack/stack.h"
#include "weft/debug.hpp"

namespace weft::debug {

using namespace rt;

namespace {

void add(histogram& to, const time_histogram& from) noexcept {
  static_assert(histogram::buckets == time_histogram::buckets);
  for (std::size_t i = 0; i < histogram::buckets; ++i)
    to.count[i] += from.n[i].load(memory_order_relaxed);
  to.sum_ns += from.sum_ns.load(memory_order_relaxed);
}

}  // namespace

stats runtime_stats() {
  stats s;
  s.goroutines = goroutine_count();
  s.created = sched.foreign_created.load(memory_order_relaxed);
  s.parks = sched.foreign_parks.load(memory_order_relaxed);
  for (const auto& slot : sched.allp) {
    P* p = slot.load(memory_order_acquire);
    if (p == nullptr) continue;
    s.created += p->count.created.load(memory_order_relaxed);
    s.steals += p->count.steals.load(memory_order_relaxed);
    s.parks += p->count.parks.load(memory_order_relaxed);
    s.preemptions += p->count.preemptions.load(memory_order_relaxed);
    s.switches += p->count.switches();
    s.handoffs += p->count.handoffs.load(memory_order_relaxed);
    add(s.latency, p->count.latency);
  }
  const std::uint32_t run = sched.run_id.load(memory_order_relaxed);
  sched.gs.for_each([&](const G& g) {
    const g_status st = g.state();
    if (st != g_status::dead && (g.run_id < run || g.run_id == abandoned_run))
      return;  // left behind
    switch (st) {
      case g_status::runnable:
        ++s.runnable;
        break;
      case g_status::running:
        ++s.running;
        break;
      case g_status::syscall:
        ++s.syscall;
        break;
      case g_status::waiting:
        ++s.waiting;
        break;
      case g_status::leaked:
        ++s.leaked;
        break;
      default:
        break;
    }
  });
  for (const M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next)
    s.syscalls += m->syscalls.load(memory_order_relaxed);
  s.threads = sched.mcount.load(memory_order_relaxed);
  sched.lock.lock();
  s.idle_threads = sched.nmidle;
  sched.lock.unlock();
  const idle_counts c = sched.idle.load();
  s.spinning = c.spinning;
  s.idle_procs = c.idle_ps;
  s.procs = nprocs();
  s.stops = sched.stops.load(memory_order_relaxed);
  s.stopped_ns = sched.stopped_ns.load(memory_order_relaxed);
  add(s.pauses, sched.pauses);
  add(s.stopping, sched.stop_times);
  s.mutex_wait_ns = sched.mutex_wait_ns.load(memory_order_relaxed);
  s.global_queue = sched.runq.size_hint();
  const stack_stats st = get_stack_stats();
  s.stacks = st.slots;
  s.free_stacks = st.free;
  return s;
}

}  // namespace weft::debug
