// SPDX-License-Identifier: Apache-2.0
// See bubble.h for what a bubble is. This file is its driver.
//
// The M sleeps in wait_locked, as for any locked goroutine, in two cases: it has to give its P up
// (the slice is over, the world stops, it has lost the P in a call), then it queues the carrier
// itself and comes back when that one's turn comes; or only an outsider can go on, then whoever
// wakes a member queues the carrier (asleep). In both the carrier stands in for the bubble in the
// scheduler's queues, and is put to rest again when the M is back (B1: members never stand there).
//
// next_in_bubble and fire_due run on g0 (fire_due_here on a member's stack); join, park and ready
// on the caller's; open, drive and close on the carrier's. The bubble's lock is a leaf.
#include "sched/bubble.h"

#include <utility>

#include "sched/latency.h"
#include "sched/park.h"
#include "sched/switch.h"
#include "sched/timers.h"
#include "sched/tracing.h"
#include "sched/waiter.h"
#include "weft/detail/bubble.hpp"

namespace weft::rt {

// Cells are type-stable: a timer that outlives its bubble may look at its home (take_out).
constinit slab<bubble> bubbles;

namespace {

constexpr std::int64_t epoch = 946'684'800'000'000'000;  // 2000-01-01 00:00 UTC
// At a call that may park, one in so many takes its chance with the others.
constexpr std::uint32_t pass_every = 2;

constinit mutex cells_lock{lock_rank::g_table};
constinit bubble* free_cells = nullptr;
constinit std::uint32_t last_id = 0;

void uncount(bubble* b) noexcept {  // under cells_lock
  if (std::exchange(b->live, false))
    weft::detail::live_bubbles.fetch_sub(1, std::memory_order_relaxed);
}

bool from_outside(const bubble* b) noexcept { return bubble_of(current_m()) != b; }

// Waits that nobody outside could end, whatever they are on.
bool always_durable(wait_reason why) noexcept {
  using enum wait_reason;
  return why == sleep || why == chan_receive_nil || why == chan_send_nil ||
         why == select_no_cases || why == select_nil_cases || why == sync_cond_wait ||
         why == synctest_wait;
}

bool is_mutex(wait_reason why) noexcept {
  using enum wait_reason;
  return why == sync_mutex_lock || why == sync_rwmutex_rlock || why == sync_rwmutex_lock;
}

// The bubble's lock. Without a P a thread does not stop with the world; then the scheduler lock
// too, so that an audit never sees a status without its queue.
class order_lock {
 public:
  explicit order_lock(bubble* b) noexcept : b_(b), no_p_(current_m()->p == nullptr) {
    if (no_p_) sched.lock.lock();
    b_->lock.lock();
  }
  order_lock(const order_lock&) = delete;
  order_lock& operator=(const order_lock&) = delete;
  ~order_lock() {
    b_->lock.unlock();
    if (no_p_) sched.lock.unlock();
  }

 private:
  bubble* b_;
  bool no_p_;
};

// -- the carrier in the scheduler's queues

void carrier_runnable(bubble* b) noexcept {
  b->carrier->waiting_on.store(nullptr, memory_order_relaxed);
  b->carrier->move_status(g_status::waiting, g_status::runnable);
  trace_ready(b->carrier);
}

// Until it is the carrier's turn. False: never, the run is over.
bool await_carrier(M* m, bubble* b) noexcept {
  if (!wait_locked(m)) return false;
  G* g = b->carrier;
  sample_run(m->p, g);
  g->move_status(g_status::runnable, g_status::running);
  trace_run(m, g);
  g->waiting_on.store(b, memory_order_relaxed);
  g->move_status(g_status::running, g_status::waiting);
  trace_stop(m, g, trace_state::waiting);
  return true;
}

// Gives the P up, if there is one, and comes back with one.
bool await_turn(M* m, bubble* b) noexcept {
  sched.lock.lock();
  const bool over = b->carrier->run_id != sched.run_id.load(memory_order_relaxed);
  if (!over) {
    carrier_runnable(b);
    sched.runq.push(b->carrier);
  }
  sched.lock.unlock();
  if (!over) fence_and_wake();
  return await_carrier(m, b);
}

// -- time

// Fires what is due, in an order of the seed. Without the heap's lock: plain timers lie on the
// stacks of members, and none of them runs meanwhile.
void fire_due(bubble* b) noexcept {
  b->due.clear();
  b->timers.lock.lock();
  while (timer* t = b->timers.heap.pop_due(b->now)) {
    if (!t->durable) {
      b->due.push({t, 0});
      continue;
    }
    auto* d = static_cast<durable_timer*>(t);
    if (d->keep(d)) b->due.push({d, d->seq});
  }
  b->timers.earliest.store(b->timers.heap.earliest(), memory_order_relaxed);
  b->timers.lock.unlock();
  for (std::size_t left = b->due.size(); left != 0; --left) {
    const std::size_t i = left == 1 ? 0 : b->rng.below(static_cast<std::uint32_t>(left));
    const bubble::due_timer x = b->due[i];
    b->due[i] = b->due[left - 1];
    if (x.t->durable) {
      auto* d = static_cast<durable_timer*>(x.t);
      d->fired(d, x.seq, b->now);
    } else if (G* g = x.t->fire(x.t)) {
      ready(g);
    }
  }
}

bool any_due(const bubble* b) noexcept {
  return b->timers.earliest.load(memory_order_relaxed) <= b->now;
}

// -- commits, on g0

// Under the bubble's lock.
void stay_runnable(G* g) noexcept {
  g->move_status(g_status::running, g_status::runnable);
  M* m = current_m();
  if (m->p == nullptr) trace_stop(m, g, trace_state::runnable);  // else trace_leave has done it
}

void requeue_commit(void* gp, void*) noexcept {
  G* g = static_cast<G*>(gp);
  bubble* b = g->its_bubble();
  const order_lock hold(b);
  stay_runnable(g);
  b->order.add(g);
}

void yield_commit(void* gp, void*) noexcept {
  G* g = static_cast<G*>(gp);
  bubble* b = g->its_bubble();
  const order_lock hold(b);
  stay_runnable(g);
  b->order.add_behind(g);
}

void resume_commit(void* gp, void*) noexcept {
  G* g = static_cast<G*>(gp);
  bubble* b = g->its_bubble();
  const order_lock hold(b);
  stay_runnable(g);
  b->resume = g;
}

// -- who goes on

// The seed's choice; null: nobody is runnable. Not inlined, like take_waiter: the locks are
// thread-local counts, and the driver goes through calls of which a tool cannot know that they do
// not switch.
[[gnu::noinline]] G* take_runnable(bubble* b, bool* needs_outsider) noexcept {
  b->lock.lock();
  G* g = b->order.take(b->rng);
  *needs_outsider = b->asleep = g == nullptr && b->active != b->timed;
  b->lock.unlock();
  return g;
}

// All are durably blocked: the one in testing::wait, if there is one.
[[gnu::noinline]] G* take_waiter(bubble* b) noexcept {
  if (b->active != 0) return nullptr;  // those who wait for a mutex are not
  G* g = std::exchange(b->waiter, nullptr);
  if (g == nullptr) return nullptr;
  b->lock.lock();
  ++b->active;
  b->lock.unlock();
  g->durable = false;
  g->waiting_on.store(nullptr, memory_order_relaxed);
  g->move_status(g_status::waiting, g_status::runnable);
  trace_ready(g);
  return g;
}

}  // namespace

// -- members

void join_bubble(bubble* b, G* g) noexcept {
  g->tied.set(b);
  g->bound = true;
  g->set_bubbled(true);
  g->durable = false;
  g->goid = ++b->goids;
  if (g->goid == 1) b->root = g;
  const order_lock hold(b);
  ++b->members;
  ++b->active;
  g->move_status(g_status::dead, g_status::runnable);
  trace_spawn(g);
  b->order.add(g);
}

void leave_bubble(G* g) noexcept {
  bubble* b = g->its_bubble();
  if (b->root == g) b->root = nullptr;
  if (std::exchange(g->locks, 0) != 0) b->spoiled = true;
  b->lock.lock();
  --b->members;
  --b->active;
  b->lock.unlock();
}

void park_in_bubble(G* g) noexcept {
  if (always_durable(g->reason)) g->durable = true;
  g->timed = g->timed && !g->durable && is_mutex(g->reason);
  if (!g->durable && !g->timed) return;
  bubble* b = g->its_bubble();
  b->lock.lock();
  if (g->durable) --b->active;
  if (g->timed) ++b->timed;
  b->lock.unlock();
}

G* ready_in_bubble(G* g) noexcept {
  bubble* b = g->its_bubble();
  if (g->durable && from_outside(b))
    fatal("semaphore wake of synctest goroutine from outside bubble");
  b->lock.lock();
  if (g->durable) {
    g->durable = false;
    ++b->active;
  }
  if (g->timed) {
    g->timed = false;
    --b->timed;
  }
  g->move_status(g->state(), g_status::runnable);
  trace_ready(g);
  b->order.add(g);
  const bool sleeps = std::exchange(b->asleep, false);
  if (sleeps) carrier_runnable(b);
  b->lock.unlock();
  return sleeps ? b->carrier : nullptr;
}

void yield_in_bubble(M* m, G* g) noexcept {
  if (!m->on_system_stack) leave_for_g0(m, g, yield_commit, g, nullptr);
}

void pass_in_bubble(bool over) noexcept {
  enter_rt();
  M* m = current_m();
  G* g = m->curg;
  bubble* b = g->its_bubble();
  if (!m->on_system_stack) {
    // The coin first: whether the slice is over is none of the seed's business.
    b->lock.lock();
    const bool others = !b->order.empty();
    b->lock.unlock();
    if (others && b->rng.below(pass_every) == 0) {
      leave_for_g0(m, g, requeue_commit, g, nullptr);
    } else if (over) {
      leave_for_g0(m, g, resume_commit, g, nullptr);
    }
  }
  leave_rt();
}

// -- the driver

G* next_in_bubble(M* m) noexcept {
  bubble* b = m->drives;
  for (;;) {
    P* p = hold_p(m);
    if (p != nullptr && p->orphan.load(memory_order_acquire)) sleep_for_good();  // with abandon
    if (p == nullptr || p->preempt.load(memory_order_relaxed) != 0 ||
        sched.stopping.load(memory_order_seq_cst)) {
      if (await_turn(m, b)) continue;
      break;
    }
    if (G* g = std::exchange(b->resume, nullptr)) return g;
    if (any_due(b)) fire_due(b);
    bool needs_outsider = false;
    if (G* g = take_runnable(b, &needs_outsider)) return g;
    if (needs_outsider) {  // whoever wakes a member queues the carrier
      if (await_carrier(m, b)) continue;
      break;
    }
    if (G* g = take_waiter(b)) return g;
    const std::int64_t next = b->timers.earliest.load(memory_order_relaxed);
    if (b->root == nullptr || next == never) {  // nobody will ever go on
      m->drives = nullptr;
      carrier_runnable(b);
      return b->carrier;
    }
    b->now = next;
  }
  m->drives = nullptr;
  return nullptr;
}

void fire_due_here() noexcept {
  const in_runtime in;
  if (bubble* b = bubble_of(current_m()); b != nullptr && any_due(b)) fire_due(b);
}

// -- beginning and end

bubble* open_bubble(std::uint64_t seed) noexcept {
  const in_runtime in;
  cells_lock.lock();
  bubble* b = free_cells;
  if (b != nullptr) {
    free_cells = b->next;
  } else {
    b = bubbles.allocate();
  }
  b->id = ++last_id;
  b->live = true;
  weft::detail::live_bubbles.fetch_add(1, std::memory_order_relaxed);
  cells_lock.unlock();
  M* m = current_m();
  b->carrier = m->curg;
  b->rng = random(random(seed).next());  // seeds are small numbers, one after the other
  b->now = epoch;
  b->goids = 0;
  b->spoiled = false;
  m->drives = b;
  return b;
}

void drive_bubble(bubble* b) {
  park([](void*, void*) {}, b, wait_reason::synctest_run);
}

std::size_t close_bubble(bubble* b) noexcept {
  const std::size_t left = std::exchange(b->members, 0);
  if (left != 0) {
    sched.gs.for_each([b](G& g) {
      if (g.its_bubble() == b) g.run_id = abandoned_run;
    });
    sched.left_behind.fetch_add(left, memory_order_relaxed);
  }
  // Durable timers may have handles outside; plain ones belong to those who are left behind.
  b->due.clear();
  b->timers.lock.lock();
  while (timer* t = b->timers.heap.pop()) {
    // Kept before it loses its home: without one it is not looked for here by its last handle.
    if (auto* d = static_cast<durable_timer*>(t); t->durable && d->keep(d)) b->due.push({t, 0});
    t->home.store(nullptr, memory_order_release);  // with take_out
  }
  b->timers.earliest.store(never, memory_order_relaxed);
  b->timers.lock.unlock();
  for (std::size_t i = 0; i < b->due.size(); ++i) {
    auto* d = static_cast<durable_timer*>(b->due[i].t);
    d->dropped(d);
  }
  if (void* n = std::exchange(b->network, nullptr)) b->drop_network(n);
  b->root = nullptr;
  b->waiter = nullptr;
  b->active = b->timed = 0;
  b->order.clear();
  cells_lock.lock();
  uncount(b);
  if (left == 0) b->next = std::exchange(free_cells, b);  // else dumps may ask those for it
  cells_lock.unlock();
  return left;
}

namespace {

// -- under the scheduler lock.
constinit bubble_wait* waits = nullptr;
constinit bool closed_to_joiners = false;
constinit waiter* last_out = nullptr;  // waits for the joiners to be gone

}  // namespace

void close_to_joiners() {
  waiter w;
  w.wait(
      [](void* g, void* arg) {
        sched.lock.lock();
        closed_to_joiners = true;
        const bool gone = waits == nullptr;
        if (!gone) last_out = static_cast<waiter*>(arg);
        sched.lock.unlock();
        if (gone) refuse(g);
      },
      &w, wait_reason::synctest_run);
}

void open_to_joiners() noexcept {
  sched.lock.lock();
  closed_to_joiners = false;
  sched.lock.unlock();
}

bool begin_wait(bubble_wait* w) noexcept {
  sched.lock.lock();
  const bool on = sched.active.load(memory_order_relaxed) && !closed_to_joiners;
  if (on) {
    w->next = waits;
    waits = w;
  }
  sched.lock.unlock();
  return on;
}

bool carry_for(bubble_wait* w) noexcept {
  sched.lock.lock();
  const bool wanted = w->at == bubble_wait::stage::begun;
  if (wanted) w->at = bubble_wait::stage::carried;
  sched.lock.unlock();
  return wanted;
}

void end_wait(bubble_wait* w) noexcept {
  const in_runtime inside;  // until it is awake
  sched.lock.lock();
  const bool wanted = w->at == bubble_wait::stage::carried;
  waiter* host = nullptr;
  if (wanted) {
    w->at = bubble_wait::stage::done;
    bubble_wait** at = &waits;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    if (waits == nullptr) host = std::exchange(last_out, nullptr);
  }
  sched.lock.unlock();
  if (wanted) w->woken.wake();
  if (host != nullptr) host->wake();
}

void end_bubbles() noexcept {
  while (bubble_wait* w = waits) {
    waits = w->next;
    w->carried_in_vain = w->at == bubble_wait::stage::carried;
    w->at = bubble_wait::stage::over;
    w->woken.wake();
  }
  cells_lock.lock();
  bubbles.for_each([](bubble& b) { uncount(&b); });
  cells_lock.unlock();
}

bool wait_in_bubble(bubble* b) {
  if (b->waiter != nullptr) return false;
  b->waiter = current_g();
  park([](void*, void*) {}, b, wait_reason::synctest_wait);
  return true;
}

}  // namespace weft::rt

namespace weft::detail {

constinit atomic<std::uint32_t> live_bubbles{0};

std::uint32_t find_bubble() noexcept { return rt::current_bubble(); }
std::int64_t now_ns() noexcept { return rt::clock_now(); }

}  // namespace weft::detail
