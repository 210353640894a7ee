// SPDX-License-Identifier: Apache-2.0
// See timers.h. Who fires a timer:
//   - the P it was armed on, each time its M comes through find_work;
//   - a thief, in the last pass over all Ps, if the P is busy;
//   - when every P is idle, the M that went to sleep with the deadline (worker.cc, 'the watcher');
//   - while Ps are busy and nobody comes by, sysmon sees the deadline pass and sends the P through
//   find_work.
//
// `earliest` mirrors the heap's top so that all of them can look without the lock: it is written
// under the lock, read anywhere. A reader that misses a change by an instant is one of several, and
// sysmon is the last of them.
//
// Runs on goroutine stacks (arm, disarm), g0 (run_timers). Lock: the heap's own, rank timer.
#include "sched/timers.h"

#include "sched/park.h"

namespace weft::rt {

void arm(timer* t, std::int64_t when) noexcept {
  timer_home& h = current_m()->p->timers;
  t->when = when;
  t->home = &h;
  h.lock.lock();
  h.heap.push(t);
  h.earliest.store(h.heap.earliest(),
                   memory_order_seq_cst);  // with the watcher's second look (worker.cc)
  h.lock.unlock();
}

bool disarm(timer* t) noexcept {
  timer_home& h = *t->home;  // changes only in a stopped world, and we are running
  h.lock.lock();
  const bool pending = t->place != 0;
  if (pending) {
    h.heap.remove(t);
    h.earliest.store(h.heap.earliest(), memory_order_seq_cst);
  }
  h.lock.unlock();
  return pending;
}

namespace {

struct sleeper : timer {
  G* g = nullptr;
  std::int64_t until = never;
};

}  // namespace

// The commit arms: the goroutine is saved by then, and fires under the lock that arm takes.
void sleep_until(std::int64_t deadline, wait_reason why) {
  M* m = current_m();
  if (m == nullptr || m->curg == nullptr) {
    note never_woken;
    while (never_woken.sleep_until(deadline == never ? -1 : deadline)) {
    }
    return;
  }
  sleeper s;
  s.g = m->curg;
  s.until = deadline;
  s.fire = [](timer* t) noexcept { ready(static_cast<sleeper*>(t)->g); };
  park(
      [](void*, void* arg) {
        auto* self = static_cast<sleeper*>(arg);
        if (self->until != never) arm(self, self->until);
      },
      &s, why);
}

bool run_timers(P* p, std::int64_t now) noexcept {
  timer_home& h = p->timers;
  if (h.earliest.load(memory_order_relaxed) > now) return false;
  bool any = false;
  h.lock.lock();
  while (timer* t = h.heap.pop_due(now)) {
    any = true;
    t->fire(t);
  }
  h.earliest.store(h.heap.earliest(), memory_order_seq_cst);
  h.lock.unlock();
  return any;
}

std::int64_t earliest_timer() noexcept {
  std::int64_t least = never;
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    const P* p = p_at(i);
    if (p == nullptr) continue;
    const std::int64_t t = p->timers.earliest.load(memory_order_seq_cst);
    if (t < least) least = t;
  }
  return least;
}

void move_timers(P* from, P* to) noexcept {
  while (timer* t = from->timers.heap.pop()) {
    t->home = &to->timers;
    to->timers.heap.push(t);
  }
  from->timers.earliest.store(never, memory_order_seq_cst);
  to->timers.earliest.store(to->timers.heap.earliest(), memory_order_seq_cst);
}

void drop_timers(P* p) noexcept {
  p->timers.lock.lock();
  while (p->timers.heap.pop() != nullptr) {
  }
  p->timers.earliest.store(never, memory_order_seq_cst);
  p->timers.lock.unlock();
}

}  // namespace weft::rt
