// SPDX-License-Identifier: Apache-2.0
// Ps: stopping and starting the world, and changing how many there are.
//
// To stop the world is to collect every P: the caller's own, the idle ones from their list, those
// of system calls, and the running ones, whose Ms give them up at the next call that may park or,
// after 100 µs, in the handler of a signal (asked again until they have). While it is stopped no
// goroutine runs, no queue changes, and only the caller may touch Ps. Without a run the world is
// stopped too: that is how the process starts, and what a run ends with.
//
// One stop at a time: world_sem is a semaphore on which goroutines park (a thread lock would
// deadlock: the next one waiting for it would hold the P that the first one waits for).
//
// Runs on the caller's stack. No allocation between stop and start (DESIGN 4.3).
#include "sched/procs.h"

#include "base/chaos.h"
#include "core/steal_order.h"
#include "os/cgroup.h"
#include "os/cpu.h"
#include "os/thread.h"
#include "sched/park.h"
#include "sched/sched.h"
#include "sched/timers.h"
#include "sched/tracing.h"
#include "sched/waiter.h"
#include "stack/stack.h"

namespace weft::rt {

extern steal_order steal_ways;

constinit parking_lock world_sem{lock_rank::world};

namespace {

constinit slab<P> ps;
constinit cpu_limit container;  // under limit_lock
constinit mutex limit_lock{lock_rank::leaf};

constexpr std::int64_t nudge_ns = 100'000;

// Who has been running, since when, by its own clock; one stop at a time, so one table.
struct runner {
  const M* m = nullptr;
  std::int64_t cpu = 0;
};
constinit runner runners[max_procs];

// Whether some thread has computed for cpu_ns since it was first seen here, and has not come to a
// stop.
bool somebody_computes_on(std::int64_t cpu_ns) noexcept {
  for (std::uint32_t i = 0; i < nprocs(); ++i) {
    const P* p = p_at(i);
    const M* m = p->status.load(memory_order_relaxed) == p_status::running
                     ? p->m.load(memory_order_acquire)  // with acquire_p
                     : nullptr;
    if (m == nullptr) {
      runners[i] = {};
    } else if (runners[i].m != m) {
      runners[i] = {m, thread_cpu_ns(m->tid.load(memory_order_relaxed))};  // Ms are type-stable
    } else if (thread_cpu_ns(m->tid.load(memory_order_relaxed)) - runners[i].cpu >= cpu_ns) {
      return true;
    }
  }
  return false;
}

void mark_stopped(P* p) noexcept {  // under lock; keeps P4
  p->status.store(p_status::stopped, memory_order_relaxed);
  if (--sched.stop_wait == 0) sched.stop_note.wake();
}

// Under lock. Ps of system calls, and of threads that do not exist yet. Who comes back meanwhile
// has to wait for a P.
void take_ps_of_absent() noexcept {
  while (P* p = take_promised_p()) {
    p->status.store(p_status::stopped, memory_order_relaxed);
    --sched.stop_wait;
  }
  for (std::uint32_t i = 0; i < nprocs(); ++i) {
    M* m = p_at(i)->m.load(memory_order_acquire);  // with acquire_p
    if (m == nullptr) continue;
    if (P* p = take_from_syscall(m)) {
      p->status.store(p_status::stopped, memory_order_relaxed);
      --sched.stop_wait;
    }
  }
}

// Under lock. No signal to one that sleeps in the kernel: its call would come back short, or (where
// we use CPU timers) never hear it. It sleeps on without its P.
bool stop_sleeper(M* m) noexcept {
  if (!asleep_in_kernel(m)) return false;
  P* p = take_from_sleeper(m);
  if (p == nullptr) return false;
  if (sched.preempt.load(memory_order_relaxed)) arm_cpu_timer(m, 1'000'000);
  p->status.store(p_status::stopped, memory_order_relaxed);
  --sched.stop_wait;
  return true;
}

// Those that have not heard. True: all are stopped.
bool stop_the_rest() noexcept {
  sched.lock.lock();
  const bool waited = sched.stop_wait != 0;
  take_ps_of_absent();
  for (std::uint32_t i = 0; sched.stop_wait != 0 && i < nprocs(); ++i) {
    P* p = p_at(i);
    M* m = p->m.load(memory_order_acquire);  // with acquire_p
    if (m == nullptr || p->status.load(memory_order_relaxed) != p_status::running) continue;
    if (!stop_sleeper(m) && sched.preempt.load(memory_order_relaxed)) ask_to_stop(m);
  }
  const bool done = sched.stop_wait == 0;
  sched.lock.unlock();
  return done && waited;
}

}  // namespace

void set_preempt_all() noexcept {
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    P* p = p_at(i);
    // seq_cst, after `stopping` was set: partner of end_of_slice in find_work.cc.
    if (p->status.load(memory_order_relaxed) == p_status::running)
      p->preempt.store(1, memory_order_seq_cst);
  }
}

void stop_p(M* m) noexcept {
  if (m->spinning.exchange(false, memory_order_relaxed)) sched.idle.stop_spinning();
  P* p = release_p(m);
  chaos::point("stw.stop_p");
  sched.lock.lock();
  if (!sched.stopping.load(memory_order_relaxed)) {
    // It has started again meanwhile. Nobody else knows of p: take it back.
    sched.lock.unlock();
    acquire_p(m, p);
    return;
  }
  mark_stopped(p);
  put_idle_m(m);  // in one piece: a world that starts again at once gives p back to us (STW-03)
  sched.lock.unlock();
  sleep_idle(m);
}

bool wait_stopped(P* own, stop_limit limit) noexcept {
  sched.lock.lock();
  sched.stop_note.clear();
  sched.stop_wait = nprocs();
  sched.stopping.store(true, memory_order_seq_cst);
  set_preempt_all();
  if (own != nullptr) {
    own->status.store(p_status::stopped, memory_order_relaxed);
    --sched.stop_wait;
  }
  while (P* p = take_idle_p()) {
    sched.idle.take_p(false);
    p->status.store(p_status::stopped, memory_order_relaxed);
    --sched.stop_wait;
  }
  take_ps_of_absent();
  const bool wait = sched.stop_wait != 0;
  sched.lock.unlock();
  chaos::point("stw.begin");
  if (!wait) return true;
  for (runner& r : runners) r = {};
  const std::int64_t began = nanotime();
  for (;;) {
    const std::int64_t now = nanotime();
    if (sched.stop_note.sleep_until(now + nudge_ns)) return true;
    set_preempt_all();
    chaos::point("stw.rest");
    if (stop_the_rest()) return true;
    if (limit.wall_ns < 0) continue;
    // The clock on the wall says little of a thread that the kernel has not let run.
    if (now - began >= limit.wall_ns || somebody_computes_on(limit.cpu_ns)) return false;
  }
}

// keeps P5: what is cut off is drained first.
std::uint32_t resize(std::uint32_t n) noexcept {
  const std::uint32_t old = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    P* p = p_at(i);
    if (p == nullptr) {
      p = ps.allocate();
      p->id = i;
      p->rng = random(static_cast<std::uint64_t>(nanotime()) + i);
      sched.allp[i].store(p, memory_order_release);  // with p_at
    }
    if (i >= old) p->status.store(p_status::stopped, memory_order_relaxed);
  }
  for (std::uint32_t i = n; i < old; ++i) {
    P* p = p_at(i);
    G* gs[runq::capacity + 1];
    auto own = p->owner();
    std::uint32_t k = 0;
    if (G* g = own.take_next()) gs[k++] = g;
    k += own.take_all(gs + k);
    sched.lock.lock();
    sched.runq.push(gs, k);
    sched.lock.unlock();
    flush_free(p, 0);
    move_timers(p, p_at(0));
    p->preempt.store(0, memory_order_relaxed);
    p->last_m = nullptr;
    p->status.store(p_status::dead, memory_order_relaxed);
  }
  sched.procs.store(n, memory_order_relaxed);
  trace_event(trace_kind::procs, n);
  steal_ways.reset(n);
  return old;
}

stopped_world::stopped_world() {
  if (const M* m = current_m();
      m != nullptr && m->curg != nullptr &&
      (m->hold.load(memory_order_relaxed) != hold_state::owned || m->p == nullptr))
    preempt_slow();  // for a P, which one that is left behind never gets
  world_sem.lock(wait_reason::world);
  if (left_behind(current_m())) {  // it ended while we waited, or came here without a P
    world_sem.unlock();
    sleep_for_good();
  }
  enter_rt();  // until the end: our P stays ours
  stopped_ = sched.active.load(memory_order_acquire);
  if (!stopped_) return;
  const std::int64_t asked = nanotime();
  wait_stopped(own_p());
  since_ = nanotime();
  sched.stop_times.add(since_ - asked);
  trace_event(trace_kind::world, 1);
}

stopped_world::~stopped_world() {
  if (stopped_) {
    const std::int64_t stood = nanotime() - since_;
    sched.stopped_ns.fetch_add(static_cast<std::uint64_t>(stood), memory_order_relaxed);
    sched.pauses.add(stood);
    sched.stops.fetch_add(1, memory_order_relaxed);
    trace_event(trace_kind::world, 0);
    start_ps(own_p());
  }
  leave_rt();
  world_sem.unlock();
}

int get_procs() noexcept {
  const std::uint32_t n = sched.active.load(memory_order_acquire)
                              ? nprocs()
                              : sched.wanted_procs.load(memory_order_relaxed);
  return n != 0 ? static_cast<int>(n) : automatic_procs();
}

int set_procs(int n, bool automatic) {
  if (n < 1) return get_procs();
  const std::uint32_t want =
      static_cast<std::uint32_t>(n) < max_procs ? static_cast<std::uint32_t>(n) : max_procs;
  if (sched.active.load(memory_order_acquire) && want == nprocs()) {
    sched.procs_auto.store(
        automatic,
        memory_order_relaxed);  // an explicit call, even to the same value, stops updates
    return static_cast<int>(want);
  }
  stopped_world w;
  const int old = get_procs();
  sched.procs_auto.store(automatic, memory_order_relaxed);
  if (!sched.active.load(memory_order_relaxed)) {
    sched.wanted_procs.store(automatic ? 0 : want, memory_order_relaxed);  // for the next run
    return old;
  }
  resize(want);
  M* m = current_m();
  if (m != nullptr && m->p != nullptr && m->p->id >= want) {
    // Our own P is gone; take the first instead, as it is nobody's now.
    trace_stop(m, m->curg, trace_state::syscall);
    P* gone = release_p(m);
    gone->status.store(p_status::dead, memory_order_relaxed);
    acquire_p(m, p_at(0));
    trace_back(m, m->curg);
  }
  return old;
}

int automatic_procs() noexcept {
  limit_lock.lock();
  const cpu_quota q = container.read().value;
  limit_lock.unlock();
  const int n = default_procs(online_cpus_allowed(), q);
  return n < static_cast<int>(max_procs) ? n : static_cast<int>(max_procs);
}

void follow_cpu_limit() noexcept {
  sched.ncpu.store(static_cast<std::uint32_t>(online_cpus_allowed()), memory_order_relaxed);
  if (!sched.procs_auto.load(memory_order_relaxed) || !sched.active.load(memory_order_relaxed))
    return;
  const int n = automatic_procs();
  if (static_cast<std::uint32_t>(n) == nprocs()) return;
  // A thread of ours that holds what goroutines may be waiting for: no deadlock meanwhile.
  begin_errand();
  set_procs(n, true);
  end_errand();
}

void start_ps(P* keep) noexcept {
  // Ps with work get an M at once, the rest go to the idle list; keep goes on where it is.
  P* busy = nullptr;
  const M* self = current_m();
  const bool on_m0 = self != nullptr && self->is_m0;
  sched.lock.lock();
  sched.stopping.store(false, memory_order_seq_cst);
  for (std::uint32_t i = nprocs(); i-- > 0;) {
    P* p = p_at(i);
    // m0's P keeps the flag: m0 runs nobody but main (run.cc).
    const bool ours = keep != nullptr && i == keep->id;
    p->preempt.store(ours && on_m0 ? preempt_leave_m0 : 0, memory_order_relaxed);
    if (ours) {
      p->status.store(p_status::running, memory_order_relaxed);
      continue;
    }
    p->status.store(p_status::idle, memory_order_relaxed);  // P4: none is stopped once we unlock
    if (!p->rq.empty()) {
      p->idle_next = busy;
      busy = p;
    } else if (M* m =
                   sched.kept.pop_front()) {  // first those who stopped in the middle of something
      give_p(m, p);
    } else {
      sched.idle.put_p();
      put_idle_p(p);
    }
  }
  sched.lock.unlock();
  chaos::point("stw.start");
  while (busy != nullptr) {
    P* p = busy;
    busy = p->idle_next;
    p->idle_next = nullptr;
    start_m(p, false);
  }
  if (sched.sysmon_waits.load(memory_order_seq_cst)) wake_sysmon();
  fence_and_wake();  // the global queue may hold what nobody was woken for
}

}  // namespace weft::rt
