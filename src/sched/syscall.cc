// SPDX-License-Identifier: Apache-2.0
// blocking(): system calls that are announced.
//
// On the way in the M marks its P as one that may be taken (a store); on the way out it takes the
// mark back (a CAS), and that is all if nobody has been faster. sysmon takes the P of a call that
// has lasted for more than one of its rounds if somebody wants to run, and hands it on (sysmon.cc);
// stop-the-world takes it at once. A goroutine whose last call lasted hands its P on by itself, if
// somebody wants to run: sysmon is late by one of its rounds and a thread's wake-up, and with many
// calls under way that is most of the time. One that comes back without its P takes an idle one;
// failing that its goroutine goes to the global queue and the thread to sleep. A goroutine that is
// locked to its thread waits in place.
//
// A call of weft inside f: hold_p finds the mark and takes it back, so the rest of f is an ordinary
// stretch of user code (detach.cc looks after that).
//
// Runs on the goroutine's stack; the commit of exit_slow on g0.
#include "base/chaos.h"
#include "sched/park.h"
#include "sched/sched.h"
#include "sched/switch.h"
#include "sched/tracing.h"
#include "weft/thread.hpp"

namespace weft::rt {
namespace {

constexpr std::int64_t long_call = 20'000;  // as sysmon sees it

void end_call(G* g) noexcept {
  if (g->state() == g_status::syscall) g->move_status(g_status::syscall, g_status::running);
}

// On g0, when the goroutine is saved: anybody may run it now.
void requeue_commit(void* gp, void*) noexcept {
  G* g = static_cast<G*>(gp);
  sched.lock.lock();
  g->move_status(g_status::running, g_status::runnable);
  const bool over = g->run_id != sched.run_id.load(memory_order_relaxed);
  trace_stop(current_m(), g, trace_state::runnable);
  if (!over) sched.runq.push(g);
  sched.lock.unlock();
  fence_and_wake();
}

// Under the lock, and so is the end of a run: one that is left behind takes no P of the next.
bool take_any_p(M* m) noexcept {
  sched.lock.lock();
  P* p = left_behind(m) || sched.ending.load(memory_order_relaxed) ? nullptr : take_free_p();
  sched.lock.unlock();
  if (p == nullptr) return false;
  acquire_p(m, p);
  trace_back(m, m->curg);
  return true;
}

// Into a call that will last: we are the first to take our own P.
void hand_on(M* m) noexcept {
  m->gave_p = 0;
  if (m->p->rq.empty() && !work_queued() && !chaos::flip("force.handoff")) return;
  if (P* p = take_from_syscall(m)) {
    m->gave_p = nanotime();
    hand_off(p);
  }
}

// A call that was made inside the runtime (a connection is closed by one that stops for good, or by
// a value that a channel destroys under its lock) does not end with a switch: the thread's count of
// in_rt would go with whoever came next, and so would the lock. It goes on without a P, and asks
// for one where it leaves the runtime (attend), as one does whose lent P was taken (detach.cc).
void exit_slow(M* m, G* g) noexcept {
  if (thread_words* t = own_words(); t->in_rt.load(memory_order_relaxed) != 1) {
    t->attention.store(1, memory_order_relaxed);
    return;
  }
  stop_if_left_behind();
  if (take_any_p(m)) return;
  if (g->bound || m->on_system_stack) {
    if (!wait_for_p(m, g)) sleep_for_good();
    return;
  }
  leave(m, g, requeue_commit, g, nullptr);  // there is no P, so: to g0
}

}  // namespace

bool settle(M* m) noexcept {
  for (;;) {
    hold_state s = m->hold.load(memory_order_acquire);
    switch (s) {
      case hold_state::owned:
        return true;
      case hold_state::syscall:  // a call of weft inside blocking()
      case hold_state::detaching:
        // Acq_rel: with sysmon's CAS of the same word; one of us wins.
        if (m->hold.compare_exchange_strong(s, hold_state::owned, memory_order_acq_rel)) {
          if (s == hold_state::syscall) {
            end_call(m->curg);
            trace_back(m, m->curg);
          }
          return true;
        }
        break;
      case hold_state::taking:  // a few instructions
        cpu_relax();
        break;
      case hold_state::detached:
        m->p = nullptr;
        if (left_behind(m)) return false;
        if (m->curg != nullptr) end_call(m->curg);
        m->strays.store(true, memory_order_relaxed);
        m->hold.store(hold_state::owned, memory_order_release);  // of nothing; with the audit
        return true;
      case hold_state::left:
        return false;
    }
  }
}

// Not for good while a lock is held (park is called with one): others would wait for it for ever.
void settle_hold(M* m) noexcept {
  if (!settle(m) && own_words()->in_rt.load(memory_order_relaxed) == 1) sleep_for_good();
}

P* take_from_syscall(M* m) noexcept {
  hold_state s = hold_state::syscall;
  if (m->hold.load(memory_order_relaxed) != s ||
      !m->hold.compare_exchange_strong(s, hold_state::taking, memory_order_acq_rel))
    return nullptr;
  chaos::point("syscall.taking");
  P* p = m->p;
  p->m.store(nullptr, memory_order_relaxed);
  p->status.store(p_status::idle, memory_order_relaxed);
  trace_p_taken(p, m);
  m->hold.store(hold_state::detached, memory_order_release);  // with settle_hold
  return p;
}

}  // namespace weft::rt

namespace weft::detail {

using namespace rt;

void enter_syscall() noexcept {
  M* m = current_m();
  if (m == nullptr || m->curg == nullptr) return;
  enter_rt();
  if (hold_p(m) != nullptr) {
    m->syscalls.store(m->syscalls.load(memory_order_relaxed) + 1, memory_order_relaxed);
    m->curg->move_status(g_status::running, g_status::syscall);
    trace_stop(m, m->curg, trace_state::syscall);
    // Release: whoever takes the P sees what we did with it.
    m->hold.store(hold_state::syscall, memory_order_release);
    chaos::point("syscall.enter");
    if (m->curg->slow_calls || chaos::flip("force.handoff")) hand_on(m);
  }
  leave_rt();
}

void exit_syscall() {
  M* m = current_m();
  if (m == nullptr || m->curg == nullptr) return;
  enter_rt();
  chaos::point("syscall.exit");
  // f may have used weft and be anywhere by now: then the mark is long gone.
  if (hold_p(m) != nullptr) {
    m->curg->slow_calls = false;
  } else {
    m->curg->slow_calls = m->gave_p == 0 || nanotime() - m->gave_p >= long_call;
    exit_slow(m, m->curg);
  }
  leave_rt();
}

void call_on_system_stack(void (*fn)(void*), void* arg) {
  M* m = current_m();
  if (m == nullptr || m->curg == nullptr || m->on_system_stack) {
    fn(arg);
    return;
  }
  struct mark {
    M* m;
    explicit mark(M* on) noexcept : m(on) { m->on_system_stack = true; }
    ~mark() { m->on_system_stack = false; }
  } on(m);
  fiber_call_on(m->g0.fiber, m->g0.sp, fn, arg);
}

}  // namespace weft::detail

namespace weft {

std::size_t set_max_threads(std::size_t n) {
  const std::size_t most = UINT32_MAX;
  return rt::sched.max_threads.exchange(static_cast<std::uint32_t>(n < most ? n : most),
                                        rt::memory_order_relaxed);
}

}  // namespace weft
