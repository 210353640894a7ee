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

#include "sched/latency.h"
#include "sched/sched.h"
#include "sched/switch.h"
#include "sched/tracing.h"
#include "sched/unwind.h"

namespace weft::rt {
namespace {

void switch_to(M* m, G* from, G* to, bool last, weft_commit commit, void* a, void* b) noexcept {
  m->ts.exchange(from->eh, from->saved_errno, to->eh, to->saved_errno);
  enter_sched(m);  // for the commit
  fiber_switch(from->fiber, to->fiber, last, &from->sp, to->sp, commit, a, b);
  leave_sched();
  // Here `from` goes on, perhaps on another M: nothing read before the switch may be used.
}

}  // namespace

// keeps G2: the status of `to` and the pointers change together, on the M that runs it.
void begin_running(M* m, G* to) noexcept {
  to->move_status(g_status::runnable, g_status::running);
  to->m.store(m, memory_order_relaxed);
  m->curg = to;
}

static void enter(M* m, G* to) noexcept {
  if (to->sp == nullptr) begin(m->p, to);
  sample_run(m->p, to);
  begin_running(m, to);
}

void run_on(M* m, G* to) noexcept {
  enter(m, to);
  trace_run(m, to);
  switch_to(m, &m->g0, to, false, nullptr, nullptr, nullptr);
}

void leave_for(M* m, G* g, G* next, weft_commit commit, void* a, void* b) noexcept {
  trace_switch(m, g, next);
  g->m.store(nullptr, memory_order_relaxed);
  enter(m, next);
  switch_to(m, g, next, false, commit, a, b);
}

void leave(M* m, G* g, weft_commit commit, void* a, void* b) noexcept {
  P* p = hold_p(m);
  if (p != nullptr && !g->bound) [[likely]] {  // a locked goroutine's thread runs nobody else
    if (G* next = pick_next(m, p)) {
      leave_for(m, g, next, commit, a, b);
      return;
    }
  }
  leave_for_g0(m, g, commit, a, b);
}

void leave_for_g0(M* m, G* g, weft_commit commit, void* a, void* b) noexcept {
  trace_leave(m, g);
  g->m.store(nullptr, memory_order_relaxed);
  m->curg = nullptr;
  switch_to(m, g, &m->g0, false, commit, a, b);
}

void leave_for_good(M* m, G* g, G* next, weft_commit commit, void* a, void* b) noexcept {
  trace_exit(m, g, next);
  g->m.store(nullptr, memory_order_relaxed);
  if (next != nullptr) {
    enter(m, next);
  } else {
    m->curg = nullptr;
    next = &m->g0;
  }
  switch_to(m, g, next, true, commit, a, b);
  __builtin_unreachable();
}

void park(park_commit commit, void* arg, wait_reason why) {
  enter_rt();
  M* m = current_m();
  G* g = m->curg;
  if (m->on_system_stack) [[unlikely]]
    fatal("a call that parks inside on_system_stack");
  WEFT_DEBUG_ASSERT(g != nullptr &&
                    ranks_held() <= 1);  // keeps G5: at most the lock that commit releases
  g->reason = why;
  g->waiting_on = arg != nullptr ? arg : g;
  g->eh.since = sched.seconds.load(memory_order_relaxed);
  if (P* p = hold_p(m)) bump(p->count.parks);  // without one: it has been lost since maybe_preempt
  g->move_status(g_status::running, g_status::waiting);
  leave(m, g, commit, g, arg);
  leave_rt();
}

void refuse(void* gp) noexcept { ready(static_cast<G*>(gp)); }

namespace {

// A goroutine that waits is taken off its list by one waker, so nobody else leaves this state
// (status.h); a second waker is a bug, and the look finds it out.
bool make_runnable(G* g) noexcept {
  if (g->run_id != sched.run_id.load(memory_order_relaxed)) [[unlikely]]
    return false;  // left behind by a run that is over; the id changes under the lock, or in a
                   // stopped world
  g->waiting_on = nullptr;
  const g_status s = g->state();
  if (s != g_status::waiting && s != g_status::leaked) [[unlikely]]
    g->bad_status(g_status::waiting, g_status::runnable);
  WEFT_DEBUG_ASSERT(s != g_status::leaked);  // else the leak finder has raised a false alarm
  g->move_status(s, g_status::runnable);
  trace_ready(g);
  return true;
}

// From a thread without a P. Status and queue change together under the lock, so that an audit
// never sees one without the other (a stopped world does not stop plain threads).
void ready_foreign(G* g) noexcept {
  stop_if_left_behind();
  sched.lock.lock();
  if (make_runnable(g)) sched.runq.push(g);
  sched.lock.unlock();
  fence_and_wake();
}

}  // namespace

void ready(G* g) noexcept {
  enter_rt();
  M* m = current_m();
  P* p = m != nullptr ? hold_p(m) : nullptr;
  if (p != nullptr) [[likely]] {
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

void ready(G** gs, std::uint32_t n) noexcept {
  const in_runtime in;
  M* m = current_m();
  P* p = m != nullptr ? hold_p(m) : nullptr;
  if (p == nullptr) {  // as in ready_foreign
    if (left_behind(m)) sleep_for_good();
    sched.lock.lock();
    for (std::uint32_t i = 0; i < n; ++i) {
      if (make_runnable(gs[i])) sched.runq.push(gs[i]);
    }
    sched.lock.unlock();
  } else {
    const std::uint32_t was = enter_sched(m);
    for (std::uint32_t i = 0; i < n; ++i) {
      if (!make_runnable(gs[i])) continue;
      sample_ready(p, gs[i]);
      put_local(p, gs[i]);
    }
    leave_sched(m, was);
  }
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

void preempt_slow() {
  M* m = current_m();
  G* g = m->curg;
  enter_rt();
  if (hold_p(m) == nullptr && !wait_for_p(m, g)) sleep_for_good();
  const bool over = m->p->preempt.load(memory_order_relaxed) != 0 && !m->on_system_stack;
  if (over) bump(m->p->count.preemptions);
  leave_rt();
  if (g->exiting != exit_state::none) [[unlikely]]
    resume_goexit(g);
  if (over) yield_g();
}

}  // namespace weft::rt
