// SPDX-License-Identifier: Apache-2.0
// What runs next: the loop of an M (on g0), what pick_next (next.h; on the leaving goroutine's
// stack) does not find at once, and yield.
//
// Order (DESIGN 1): every 61st round the global queue; runnext, which shares the time slice of
// whoever made it ready; the ring; then find_work.
//
// yield promises that everybody else who is runnable has a turn before the caller comes round
// again. Within one ring that is plain FIFO. With more goroutines than the ring holds the rest are
// in the global queue, and going round the ring alone would starve them. So a P remembers where the
// last batch from the global queue ends (round_end): once the head is past it, everything in the
// ring has had its turn since, and the whole ring is exchanged for the next batch under one lock. A
// yield therefore costs 1/128 of a lock and not one lock (Go puts every yield there).
#include <utility>

#include "base/chaos.h"
#include "sched/bubble.h"
#include "sched/next.h"
#include "sched/park.h"
#include "sched/switch.h"
#include "sched/unwind.h"

namespace weft::rt {

constinit sched_state sched;

namespace {

constexpr std::uint32_t global_every = 61;

std::uint32_t batch_size(std::uint32_t queued) noexcept {  // R7: min(128, n, n/procs + 1)
  const std::uint32_t ps = nprocs();                       // 0 between runs: one left behind
  const std::uint32_t share = ps != 0 ? queued / ps + 1 : queued;
  std::uint32_t n = share < queued ? share : queued;
  return n < runq::capacity / 2 ? n : runq::capacity / 2;
}

G* one_from_global() noexcept {
  G* g = nullptr;
  sched.lock.lock();
  sched.runq.pop(&g, 1);
  sched.lock.unlock();
  return g;
}

void new_slice(P* p) noexcept {
  p->schedtick.store(p->schedtick.load(memory_order_relaxed) + 1, memory_order_relaxed);
}

void yield_commit(void* gp, void*) noexcept {
  G* g = static_cast<G*>(gp);
  P* p = current_m()->p;
  g->move_status(g_status::running, g_status::runnable);
  if (chaos::flip("force.migrate")) {
    put_global(g);
    return;
  }
  put_local(p, g);
  if (nprocs() != 1) fence_and_wake();  // one P: nobody to wake; changes only in a stopped world
}

bool round_is_over(P* p) noexcept {
  const auto left = static_cast<std::int32_t>(p->round_end - p->rq.head.load(memory_order_relaxed));
  return left <= 0;
}

}  // namespace

void put_shuffled(P* p, G* g) noexcept {
  put_local(p, g);
  fence_and_wake();
}

// R5: whoever is displaced from runnext goes to the ring. No fence is needed for it: it was
// announced when it became runnext, and while it is on its way a second look sees the mark
// (find_work.cc; runq.h, moving).
void put_displaced(P* p, G* g) noexcept {
  chaos::point("runq.displaced");
  put_local(p, g);
  p->owner().settled();
  wake();
}

void put_overflow(P* p, G* g) noexcept {
  auto own = p->owner();
  while (!own.put(g)) {
    // R6: the oldest half and the new one to the global queue, under one lock.
    G* batch[runq::capacity / 2 + 1];
    std::uint32_t n = own.take_half(batch);
    if (n == 0) continue;  // thieves have made room
    batch[n++] = g;
    chaos::point("runq.overflow");
    sched.lock.lock();
    sched.runq.push(batch, n);
    sched.overflows += 1;
    sched.overflowed += n;
    sched.lock.unlock();
    return;
  }
}

void refill_from_global(P* p) noexcept {
  auto own = p->owner();
  G* out[runq::capacity];
  G* in[runq::capacity / 2];
  const std::uint32_t nout = own.take_all(out);
  chaos::point("runq.refill");
  sched.lock.lock();
  if (nout != 0) sched.runq.push(out, nout);
  const std::uint32_t nin = sched.runq.pop(in, batch_size(sched.runq.size_hint()));
  // Under the lock: an M that gives up takes it before its second look, so it finds the batch in
  // the one queue or in the other, never on its way (models/wake.pml).
  if (nin != 0) own.put_all(in, nin);
  sched.lock.unlock();
  p->round_end = p->rq.tail.load(memory_order_relaxed);
}

// On this P. The clock is only asked if there is one at all.
static bool timer_is_due(const P* p) noexcept {
  const std::int64_t t = p->timers.earliest.load(memory_order_relaxed);
  return t != never && t <= nanotime();
}

G* pick_fairly(M* m, P* p) noexcept {
  // Those who only pass the P to and fro never come through find_work, which fires timers and gives
  // the P to one of those in place.
  if (sched.kept.size_hint() != 0 || timer_is_due(p)) {
    p->until_global = 1;
    return nullptr;
  }
  p->until_global = global_every;
  if (sched.runq.size_hint() != 0) {
    if (G* g = one_from_global()) {
      new_slice(p);
      return unless_bound(m, g);
    }
  }
  if (G* g = p->owner().take_next()) return unless_bound(m, g);
  return take_local(m, p);
}

G* take_local(M* m, P* p) noexcept {
  auto own = p->owner();
  G* g = own.take();
  if (g == nullptr) return nullptr;
  new_slice(p);
  own.prefetch();
  return unless_bound(m, g);
}

namespace {

// Under the lock: if our run has ended meanwhile (abandon), g's thread may have ended too, and its
// M may be another's by now.
[[gnu::noinline]] void give_to_locked(M* m, G* g) noexcept {
  sched.lock.lock();
  const bool over = m->p->orphan.load(memory_order_relaxed);
  if (!over) wake_locked(g->locked_m(), release_p(m));
  sched.lock.unlock();
  if (over) sleep_for_good();
}

}  // namespace

void worker_main(M* m) noexcept {
  for (;;) {
    enter_sched(m);
    if (m->locked_g != nullptr) {
      G* g = m->drives != nullptr ? next_in_bubble(m) : wait_locked(m) ? m->locked_g : nullptr;
      if (g == nullptr) break;
      run_on(m, g);
      continue;
    }
    if (m->dying) break;
    if (m->p == nullptr) {  // lost in a system call, or handed to another
      stop_m(m);
      continue;
    }
    G* g = m->handed != nullptr ? std::exchange(m->handed, nullptr) : find_work(m);
    if (g == nullptr) continue;
    if (g->bound) {
      give_to_locked(m, g);
    } else {
      run_on(m, g);
    }
  }
  end_m(m);
}

// Everybody in the ring has had a turn: now those in the global queue, and those that wait in
// place.
static void new_round(P* p) noexcept {
  p->kept_due = sched.kept.size_hint();
  if (sched.runq.size_hint() != 0) {
    refill_from_global(p);
  } else {
    p->round_end = p->rq.tail.load(memory_order_relaxed);
  }
}

static void give_way(M* m, G* g, P* p) noexcept {
  if (work_queued() && round_is_over(p)) new_round(p);
  if (p->kept_due != 0) [[unlikely]] {
    --p->kept_due;
    if (sched.kept.size_hint() != 0) {
      p->kept_first = true;  // g0 hands the P over
      bump(p->count.gave_way);
      leave_for_g0(m, g, yield_commit, g, nullptr);
      return;
    }
  }
  auto own = p->owner();
  G* next = nullptr;
  // Those who only yield never come through find_work, which fires timers: one of them goes there
  // now and then, and at once if it is alone.
  if (p->count.gave_way.load(memory_order_relaxed) % 64 != 0 || !timer_is_due(p)) {
    next = own.take_next();
    if (next == nullptr) {
      next = own.take();
      if (next == nullptr && !timer_is_due(p)) return;  // nobody else wants this P
      if (next != nullptr) {
        new_slice(p);
        own.prefetch();
      }
    }
  }
  bump(p->count.gave_way);
  if (next == nullptr) [[unlikely]] {
    leave_for_g0(m, g, yield_commit, g, nullptr);
    return;
  }
  if (next->bound) [[unlikely]] {
    m->handed = next;
    leave_for_g0(m, g, yield_commit, g, nullptr);
  } else {
    leave_for(m, g, next, yield_commit, g, nullptr);
  }
}

void yield_g() {
  {
    G* g = current_g();
    if (g->exiting() != exit_state::none) [[unlikely]]
      resume_goexit(g);
  }
  enter_rt();
  M* m = current_m();
  G* g = m->curg;
  P* p = hold_p(m);
  if (p == nullptr) [[unlikely]] {
    if (g->bubbled()) {
      yield_in_bubble(m, g);
    } else if (!wait_for_p(m, g)) {  // others have had their turns meanwhile
      sleep_for_good();
    }
  } else if (m->on_system_stack) [[unlikely]] {
    // Nobody else may use this stack.
  } else if (p->preempt.load(memory_order_relaxed) != 0 || g->bound) [[unlikely]] {
    if (g->bubbled()) {
      yield_in_bubble(m, g);
    } else {
      // The slice is over for runnext too; it must stand before us in the ring.
      if (G* next = p->owner().take_next()) put_local(p, next);
      bump(p->count.gave_way);
      // And those who wait elsewhere have their turn before us, as in give_way.
      if (work_queued() && round_is_over(p)) new_round(p);
      leave(m, g, yield_commit, g, nullptr);  // pick_next declines: by way of g0
    }
  } else {
    give_way(m, g, p);
  }
  leave_rt();
}

}  // namespace weft::rt
