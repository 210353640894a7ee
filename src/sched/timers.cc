// SPDX-License-Identifier: Apache-2.0
// See timers.h. Who fires a timer:
//   - the P it was armed on, each time its M comes through find_work;
//   - a thief, in the last pass over all Ps, if the P is busy;
//   - when every P is idle, the M that went to sleep with the deadline (worker.cc, 'the watcher');
//   - while Ps are busy and nobody comes by, sysmon sees the deadline pass and sends the P through
//   find_work;
//   - the service thread, if it was armed without a P or its run is over.
//
// `earliest` mirrors the heap's top so that all of them can look without the lock: it is written
// under the lock, read anywhere. A reader that misses a change by an instant is one of several, and
// sysmon is the last of them.
//
// Runs on goroutine stacks (arm, disarm), g0 (run_timers). Lock: the heap's own, rank timer.
#include "sched/timers.h"

#include "base/chaos.h"
#include "os/thread.h"
#include "sched/bubble.h"
#include "sched/netpoll.h"
#include "sched/tracing.h"
#include "sched/waiter.h"

namespace weft::rt {

namespace {

// h.lock is held.
void push(timer_home& h, timer* t) noexcept {
  t->home.store(&h, memory_order_relaxed);
  h.heap.push(t);
  h.earliest.store(h.heap.earliest(), memory_order_seq_cst);  // with the watcher's second look
                                                              // (worker.cc) and service_main's
}

// The M in the poller may sleep past a timer that was armed by an M which then computes on.
// Partner: sleep_in_poller, which claims the place before it looks at the timers.
void tell_poller(std::int64_t when) noexcept {
  if (netpoll.held.load(memory_order_seq_cst) &&
      when < sched.watch_until.load(memory_order_seq_cst))
    poll_interrupt();
}

}  // namespace

namespace {

// On the bubble's own thread; nobody need be told.
void arm_in(bubble* b, timer* t) noexcept {
  b->timers.lock.lock();
  push(b->timers, t);
  b->timers.lock.unlock();
}

}  // namespace

void arm(timer* t, std::int64_t when, const G* g) noexcept {
  const in_runtime in;
  M* m = current_m();
  P* p = m != nullptr ? hold_p(m) : nullptr;
  t->when = when;
  if (bubble* b = bubble_of(m)) [[unlikely]] {
    arm_in(b, t);
    return;
  }
  P* to = p != nullptr ? p : p_at(0);
  if (to == nullptr) return;  // abandoned with its run, which is g's
  timer_home& h = to->timers;
  h.lock.lock();
  // Without a P the run may end under us. It changes its number before it drops its timers
  // (clear_world): so they go with it, or we see that it is over. Then g never runs again, and what
  // t would touch may be gone in the next run.
  const bool over = p == nullptr && g->run_id != sched.run_id.load(memory_order_relaxed);
  if (!over) push(h, t);
  h.lock.unlock();
  if (over) return;
  chaos::point("timer.arm");
  tell_poller(when);
  // One who has lost its P will not look at the timers before it sleeps: somebody else must.
  if (p == nullptr) fence_and_wake();
}

namespace {

// The home changes when Ps are cut off, and at the end of a run; a thread without a P runs on
// meanwhile.
bool take_out(timer* t) noexcept {
  for (;;) {
    timer_home* h = t->home.load(memory_order_acquire);
    if (h == nullptr) return false;  // never armed, or taken out by an earlier call
    chaos::point("timer.disarm");
    h->lock.lock();
    if (t->home.load(memory_order_relaxed) != h) {
      h->lock.unlock();
      continue;
    }
    const bool pending = t->place != 0;
    if (pending) {
      h->heap.remove(t);
      // Relaxed: it can only grow. Who reads the old value looks for nothing, once.
      h->earliest.store(h->heap.earliest(), memory_order_relaxed);
      // Nobody who fires has it: the next disarm need not wait for one. One that has been popped
      // keeps its home, under whose lock it may still be looked at (keep).
      t->home.store(nullptr, memory_order_release);  // with the acquire above: t may go now
    }
    h->lock.unlock();
    return pending;
  }
}

}  // namespace

bool disarm(timer* t) noexcept { return take_out(t); }

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
    thread_note never_woken;
    while (never_woken.sleep_until(deadline == never ? -1 : deadline)) {
    }
    return;
  }
  sleeper s;
  s.g = m->curg;
  s.until = deadline;
  s.fixed = true;
  s.fire = [](timer* t) noexcept { return static_cast<sleeper*>(t)->g; };
  park(
      [](void*, void* arg) {
        auto* self = static_cast<sleeper*>(arg);
        if (self->until != never) arm(self, self->until, self->g);
      },
      &s, why);
}

namespace {

// Fires what is due in h, in batches: under the lock it is settled who is woken and which durable
// ones fire, outside it that is done. Whoever is to be woken waits until then: it is ours alone.
bool fire_due(timer_home& h, std::int64_t now) noexcept {
  struct due {
    durable_timer* t;
    std::uint64_t seq;
  };
  constexpr std::size_t batch = 64;
  due list[batch];
  G* wake[batch];
  bool any = false;
  for (;;) {
    std::size_t n = 0;
    std::uint32_t woken = 0;
    timer* t = nullptr;
    h.lock.lock();
    while (n < batch && woken < batch && (t = h.heap.pop_due(now)) != nullptr) {
      any = true;
      if (!t->durable) {
        if (G* g = t->fire(t)) wake[woken++] = g;
        continue;
      }
      auto* d = static_cast<durable_timer*>(t);
      if (d->keep(d)) list[n++] = {d, d->seq};
    }
    h.earliest.store(h.heap.earliest(), memory_order_seq_cst);
    h.lock.unlock();
    if (n + woken != 0) chaos::point("timer.due");
    if (n + woken != 0) trace_event(trace_kind::timers, n + woken);
    // Who was due first runs next, as soon as the others stand in the queue.
    if (woken > 1) ready(wake + 1, woken - 1);
    if (woken != 0) ready(wake[0]);
    for (std::size_t i = 0; i < n; ++i) {
      chaos::point("timer.fired");
      list[i].t->fired(list[i].t, list[i].seq, now);
    }
    if (t == nullptr) return any;
  }
}

// -- the service: for timers without a P

constinit timer_home service;
constinit note service_note;
constinit atomic<bool> service_on{false};
// Counts up when it begins to fire and when it has: odd between the heap and whom the timer is for.
constinit atomic<std::uint32_t> service_fires{0};

void service_main(void*) noexcept {
  for (;;) {
    service_note.clear();
    // The look comes after the clear: a wake-up from now on is kept. It must be a fence, for the
    // clear could pass the load otherwise, and wipe a wake-up out whose timer was not seen.
    // Partner: arm's wake, an exchange behind push's store.
    fence(memory_order_seq_cst);
    const std::int64_t t = service.earliest.load(memory_order_seq_cst);
    const std::int64_t now = nanotime();
    if (t <= now) {
      service_fires.fetch_add(1, memory_order_seq_cst);
      fire_due(service, now);
      service_fires.fetch_add(1, memory_order_seq_cst);
      if (sched.idle.load().idle_ps == nprocs()) check_dead();  // it may have woken nobody
    } else {
      service_note.sleep_until(t == never ? -1 : t);
    }
  }
}

void need_service() noexcept {
  if (service_on.load(memory_order_acquire) || service_on.exchange(true, memory_order_acq_rel))
    return;
  have_timers_made(service_main);
}

// Everything to the service but what lies on stacks, which is dropped with its goroutine. Both
// locks are held while one moves: a plain thread may be disarming it.
void to_service(timer_home& from) noexcept {
  bool any = false;
  from.lock.lock();
  service.lock.lock_beside();
  while (timer* t = from.heap.pop()) {
    if (!t->durable) continue;
    push(service, t);
    any = true;
  }
  from.earliest.store(never, memory_order_seq_cst);
  service.lock.unlock();
  from.lock.unlock();
  if (!any) return;
  need_service();
  service_note.wake();
}

}  // namespace

void arm(durable_timer* t, std::int64_t when, std::uint64_t seq) noexcept {
  const in_runtime in;
  if (t->bubble != 0) [[unlikely]] {
    t->when = when;
    t->seq = seq;
    arm_in(current_m()->drives, t);
    return;
  }
  P* p = own_p();
  const bool own = p != nullptr;
  timer_home& h = own ? p->timers : service;
  h.lock.lock();
  t->when = when;
  t->seq = seq;
  push(h, t);
  const bool first = h.heap.earliest() == when;
  h.lock.unlock();
  if (own) {
    tell_poller(when);
    return;
  }
  need_service();
  if (first) service_note.wake();
}

bool disarm(durable_timer* t) noexcept { return take_out(t); }

bool run_timers(P* p, std::int64_t now) noexcept {
  if (p->timers.earliest.load(memory_order_relaxed) > now) return false;
  return fire_due(p->timers, now);
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

bool timers_pending() noexcept {
  return earliest_timer() != never || service.earliest.load(memory_order_seq_cst) != never ||
         service_firings() % 2 != 0;
}

std::uint32_t service_firings() noexcept { return service_fires.load(memory_order_seq_cst); }

bool sleeps_for_ever(const G* g) noexcept {
  return static_cast<const sleeper*>(g->waiting_on.load(memory_order_relaxed))->until == never;
}

void move_timers(P* from, P* to) noexcept {
  from->timers.lock.lock();
  to->timers.lock.lock_beside();
  while (timer* t = from->timers.heap.pop()) push(to->timers, t);
  from->timers.earliest.store(never, memory_order_seq_cst);
  to->timers.lock.unlock();
  from->timers.lock.unlock();
}

void drop_timers(P* p) noexcept { to_service(p->timers); }

}  // namespace weft::rt
