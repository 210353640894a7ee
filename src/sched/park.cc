// SPDX-License-Identifier: Apache-2.0
// park, ready and the direct switch.
//
// Runs on the goroutine's own stack until the switch; commits run on the stack that is entered. A
// goroutine that leaves goes straight to the next one if that is at hand (pick_next), and through
// g0 otherwise: an M must never sleep on a stack that another may resume, so everything that can
// block is on g0 (find_work).
//
// Rejected: always going through g0 (Go). It costs a second switch, and the scheduler's stack lines
// and ours take turns in the cache.
#include "sched/park.h"

#include "base/chaos.h"
#include "sched/bubble.h"
#include "sched/latency.h"
#include "sched/next.h"
#include "sched/switch.h"
#include "sched/tracing.h"
#include "sched/unwind.h"

namespace weft::rt {
namespace {

[[gnu::always_inline]] inline void switch_to(M* m, G* from, G* to, weft_commit commit, void* a,
                                             void* b) noexcept {
  m->ts.exchange(from->eh, from->saved_errno, to->eh, to->saved_errno);
  enter_sched(m);  // for the commit
  chaos::point("park.commit");
  fiber_switch(from->fiber, to->fiber, false, &from->sp, to->sp, commit, a, b);
  leave_sched();
  // Here `from` goes on, perhaps on another M: nothing read before the switch may be used.
}

// The same to one that has perhaps not begun yet.
[[gnu::always_inline]] inline void begin_or_switch(M* m, G* from, G* to, weft_commit commit,
                                                   void* a, void* b) noexcept {
  if (to->sp != nullptr) {
    switch_to(m, from, to, commit, a, b);
  } else if constexpr (fibers_are_tracked) {
    begin(m->p, to);
    switch_to(m, from, to, commit, a, b);
  } else {
    const std::uintptr_t top = bind_stack(m->p, to);
    m->ts.exchange(from->eh, from->saved_errno, to->eh, to->saved_errno);
    enter_sched(m);
    weft_start(&from->sp, top, commit, a, b, goroutine_main, to);
    leave_sched();
  }
}

// From here to the switch the common case is inlined into its few callers: each frame between the
// switch and the user's code is a return that the processor predicts wrongly when the one who comes
// back parked elsewhere than the one who left. What is rarer is out of line, as a last call.

[[gnu::noinline]] void go_to_rare(M* m, G* g, G* next, weft_commit commit, void* a,
                                  void* b) noexcept {
  trace_switch(m, g, next);
  g->m.store(nullptr, memory_order_relaxed);
  sample_run(m->p, next);
  begin_running(m, next);
  begin_or_switch(m, g, next, commit, a, b);
}

[[gnu::always_inline]] inline void go_to(M* m, G* g, G* next, weft_commit commit, void* a,
                                         void* b) noexcept {
  if (tracing() || next->sp == nullptr || next->sampled) [[unlikely]] {
    go_to_rare(m, g, next, commit, a, b);
    return;
  }
  g->m.store(nullptr, memory_order_relaxed);
  begin_running(m, next);
  switch_to(m, g, next, commit, a, b);
}

[[gnu::noinline]] void go_on_rare(M* m, G* g, weft_commit commit, void* a, void* b) noexcept {
  P* p = hold_p(m);
  if (g->bubbled()) park_in_bubble(g);
  // A locked goroutine's thread runs nobody else.
  if (G* next = p != nullptr && !g->bound ? pick_next(m, p) : nullptr) {
    go_to(m, g, next, commit, a, b);
  } else {
    leave_for_g0(m, g, commit, a, b);
  }
}

// To whoever is next. At once if that is runnext and nothing stands against it.
[[gnu::always_inline]] inline void go_on(M* m, G* g, weft_commit commit, void* a,
                                         void* b) noexcept {
  P* p = p_at_hand(m);
  if (p != nullptr && !g->bound && p->preempt.load(memory_order_relaxed) == 0 &&
      p->until_global > 1) [[likely]] {
    if (G* next = p->owner().take_next()) [[likely]] {
      --p->until_global;
      if (!next->bound) [[likely]] {
        go_to(m, g, next, commit, a, b);
        return;
      }
      m->handed = next;
      leave_for_g0(m, g, commit, a, b);
      return;
    }
  }
  go_on_rare(m, g, commit, a, b);
}

}  // namespace

void run_on(M* m, G* to) noexcept {
  sample_run(m->p, to);
  begin_running(m, to);
  trace_run(m, to);
  begin_or_switch(m, &m->g0, to, nullptr, nullptr, nullptr);
}

void leave_for(M* m, G* g, G* next, weft_commit commit, void* a, void* b) noexcept {
  go_to(m, g, next, commit, a, b);
}

void leave_for_g0(M* m, G* g, weft_commit commit, void* a, void* b) noexcept {
  trace_leave(m, g);
  g->m.store(nullptr, memory_order_relaxed);
  m->curg = nullptr;
  switch_to(m, g, &m->g0, commit, a, b);
}

void leave(M* m, G* g, weft_commit commit, void* a, void* b) noexcept { go_on(m, g, commit, a, b); }

G* prepare_to_leave(M* m, G* g, G* next) noexcept {
  trace_exit(m, g, next);
  g->m.store(nullptr, memory_order_relaxed);
  if (next != nullptr) {
    if (next->sp == nullptr) begin(m->p, next);
    sample_run(m->p, next);
    begin_running(m, next);
  } else {
    m->curg = nullptr;
    next = &m->g0;
  }
  m->ts.set(next->eh, next->saved_errno);
  enter_sched(m);
  return next;
}

namespace {

[[gnu::always_inline]] inline void park_here(park_commit commit, void* arg, wait_reason why) {
  enter_rt();
  M* m = current_m();
  G* g = m->curg;
  if (m->on_system_stack) [[unlikely]]
    fatal("a call that parks inside on_system_stack");
  WEFT_DEBUG_ASSERT(g != nullptr &&
                    ranks_held() <= 1);  // keeps G5: at most the lock that commit releases
  g->reason = why;
  g->waiting_on.store(arg != nullptr ? arg : g, memory_order_relaxed);
  g->eh.since = sched.seconds.load(memory_order_relaxed);
  if (P* p = hold_p(m)) [[likely]] {
    bump(p->count.parks);
  } else {  // it has been lost since maybe_preempt
    sched.foreign_parks.fetch_add(1, memory_order_relaxed);
  }
  g->move_status(g_status::running, g_status::waiting);
  chaos::point("park.status");
  go_on(m, g, commit, g, arg);
  leave_rt();
}

[[gnu::noinline]] void park_timed(park_commit commit, void* arg, wait_reason why) {
  const std::int64_t since = nanotime();
  park_here(commit, arg, why);
  note_blocked(why, since);
}

}  // namespace

void park(park_commit commit, void* arg, wait_reason why) {
  if (sched.block_rate.load(memory_order_relaxed) != 0) [[unlikely]] {
    park_timed(commit, arg, why);
    return;
  }
  park_here(commit, arg, why);
}

void refuse(void* gp) noexcept { ready(static_cast<G*>(gp)); }

namespace {

// A goroutine that waits is taken off its list by one waker, so nobody else leaves this state
// (status.h); a second waker is a bug, and the look finds it out. True: g is to be queued, which is
// another one if it was the first of a bubble that slept.
[[gnu::always_inline]] inline bool make_runnable(G*& g) noexcept {
  if (g->run_id != sched.run_id.load(memory_order_relaxed)) [[unlikely]]
    return false;  // left behind by a run that is over; the id changes under the lock, or in a
                   // stopped world
  g->waiting_on.store(nullptr, memory_order_relaxed);
  const g_status s = g->state();
  if (s != g_status::waiting && s != g_status::leaked) [[unlikely]]
    g->bad_status(g_status::waiting, g_status::runnable);
  WEFT_DEBUG_ASSERT(s != g_status::leaked);  // else the leak finder has raised a false alarm
  if (g->bubbled()) [[unlikely]] {
    g = ready_in_bubble(g);
    return g != nullptr;
  }
  g->move_status(s, g_status::runnable);
  trace_ready(g);
  return true;
}

// From a thread without a P. Status and queue change together under the lock, so that an audit
// never sees one without the other (a stopped world does not stop plain threads).
void ready_foreign(G* g) noexcept {
  stop_if_left_behind();
  chaos::point("ready.foreign");
  sched.lock.lock();
  if (make_runnable(g)) sched.runq.push(g);
  sched.lock.unlock();
  fence_and_wake();
}

}  // namespace

[[gnu::noinline]] static void ready_rare(G* g) noexcept {
  M* m = current_m();
  P* p = m != nullptr ? hold_p(m) : nullptr;
  if (p != nullptr) {
    const std::uint32_t was = enter_sched(m);
    if (make_runnable(g)) {
      sample_ready(p, g);
      put_next(p, g);
    }
    leave_sched(m, was);
  } else {
    ready_foreign(g);
  }
  leave_rt();
}

void ready(G* g) noexcept {
  enter_rt();
  M* m = current_m();
  P* p = p_at_hand(m);
  if (p == nullptr || p->until_sample == 1 || tracing() || g->state() != g_status::waiting ||
      g->bubbled() || g->run_id != sched.run_id.load(memory_order_relaxed)) [[unlikely]] {
    ready_rare(g);
    return;
  }
  --p->until_sample;
  chaos::point("ready.found");
  const std::uint32_t was = enter_sched(m);
  g->waiting_on.store(nullptr, memory_order_relaxed);
  g->move_status(g_status::waiting, g_status::runnable);
  chaos::point("ready.status");
  put_next(p, g);
  leave_sched(m, was);
  leave_rt();
}

// One queue operation, one barrier and at most one wake-up for all: the M that is woken wakes the
// next one if it finds more than it can run (stop_spinning).
void ready(G** gs, std::uint32_t n) noexcept {
  if (n == 0) return;
  for (std::uint32_t i = 0; i < n; ++i) __builtin_prefetch(gs[i], 1);
  const in_runtime in;
  M* m = current_m();
  P* p = m != nullptr ? hold_p(m) : nullptr;
  const auto make_all = [gs, n, p]() noexcept {
    std::uint32_t k = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (!make_runnable(gs[i])) continue;
      if (p != nullptr) sample_ready(p, gs[i]);
      gs[k++] = gs[i];
    }
    return k;
  };
  if (p == nullptr) stop_if_left_behind();
  const std::uint32_t was = p != nullptr ? enter_sched(m) : 0;
  if (p != nullptr && p->owner().room() >= n) {
    p->owner().put_all(gs, make_all());
  } else {  // as in ready_foreign, and in put_local
    sched.lock.lock();
    sched.runq.push(gs, make_all());
    sched.lock.unlock();
  }
  if (p != nullptr) leave_sched(m, was);
  fence_and_wake();
}

void begin_sample(P* p, G* g) noexcept {
  p->until_sample = sample_period;
  if (tracing()) return;
  g->traced = static_cast<std::uint64_t>(nanotime()) << 3 | sample_mark;
  g->sampled = true;
}

void end_sample(P* p, G* g) noexcept {
  g->sampled = false;
  if ((g->traced & 7) != sample_mark) return;  // a trace has begun
  p->count.latency.add(nanotime() - static_cast<std::int64_t>(g->traced >> 3), sample_period);
  g->traced = 0;
}

namespace {

// Runs next, on the M that gets the P. m0 marks no P any more: it has none.
void go_on_elsewhere(void* gp, void*) noexcept {
  G* g = static_cast<G*>(gp);
  P* p = current_m()->p;
  std::uint32_t why = preempt_leave_m0;
  p->preempt.compare_exchange_strong(why, 0, memory_order_relaxed);
  g->move_status(g_status::running, g_status::runnable);
  put_next(p, g);
}

// main does not lose its turn by leaving the first thread: behind goroutines that compute it would
// wait for a slice or more before it has done anything.
void leave_m0() noexcept {
  enter_rt();
  M* m = current_m();
  G* g = m->curg;
  if (P* p = hold_p(m); p == nullptr) {
    // It has been lost meanwhile; park knows what to do.
  } else if (g->bound) {  // m0 is its thread, and runs nobody else anyway
    std::uint32_t why = preempt_leave_m0;
    p->preempt.compare_exchange_strong(why, 0, memory_order_relaxed);
  } else {
    bump(p->count.gave_way);
    leave_for_g0(m, g, go_on_elsewhere, g, nullptr);
  }
  leave_rt();
}

}  // namespace

void preempt_slow() {
  M* m = current_m();
  G* g = m->curg;
  enter_rt();
  // Not where an element of a channel is moved or destroyed, under its lock: as in exit_slow.
  if (own_words()->in_rt.load(memory_order_relaxed) != 1) {
    leave_rt();
    return;
  }
  if (hold_p(m) == nullptr && !wait_for_p(m, g)) sleep_for_good();
  const std::uint32_t why = m->on_system_stack ? 0 : m->p->preempt.load(memory_order_relaxed);
  const bool over = why != 0;
  if (over) bump(m->p->count.preemptions);
  leave_rt();
  if (g->exiting() != exit_state::none) [[unlikely]]
    resume_goexit(g);
  if (g->bubbled()) [[unlikely]] {
    pass_in_bubble(over);
  } else if (why == preempt_leave_m0) {
    leave_m0();
  } else if (over) {
    yield_g();
  }
}

}  // namespace weft::rt
