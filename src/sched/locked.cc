// SPDX-License-Identifier: Apache-2.0
// Goroutines that only one M may run.
//
// Locked (lock_os_thread): they park, yield and are made ready like any other, and stand in the
// same queues. But the M that takes one out of a queue hands its P to the M that the goroutine is
// locked to, and goes to sleep; that M, whenever its goroutine does not run, sleeps without a P
// (wait_locked). M6: the two point at each other.
//
// Kept: the goroutine stands in the middle of something on its thread, and the thread waits with it
// for a P (kept.h). It is runnable, in sched.kept and in no other queue (G3).
//
// Rejected: to let an unlocked goroutine that has lost its P in a system call wait in place too. It
// would cost a change of threads to run it; so it leaves its thread, as in Go (syscall.cc).
//
// wait_locked runs on g0, the others on the goroutine's stack or the thread's signal stack.
#include "base/chaos.h"
#include "os/thread.h"
#include "sched/netpoll.h"
#include "sched/park.h"
#include "sched/sched.h"
#include "sched/tracing.h"
#include "weft/thread.hpp"

namespace weft::rt {

void start_leaving(M* m) noexcept {
  m->leaving_cpu = thread_cpu_ns(m->tid.load(memory_order_relaxed));
  if (m->leaving.exchange(true, memory_order_relaxed)) return;
  sched.leaving.fetch_add(1, memory_order_relaxed);
}

void sleep_for_good() noexcept {
  note nobody;
  if (const M* m = own_words()->m; m->curg != nullptr) poll_leave(m->curg);
  sched.ms_gone.fetch_add(1, memory_order_relaxed);
  // Release: what the goroutine has done is done before run returns (wait_until_left).
  if (M* m = own_words()->m; m->leaving.load(memory_order_relaxed) &&
                             m->leaving.exchange(false, memory_order_release) &&
                             sched.leaving.fetch_sub(1, memory_order_release) == 1)
    sched.left_note.wake();
  look_if_idle();  // a next run may have waited for nobody but us
  for (;;) nobody.sleep();
}

void stop_if_left_behind() noexcept {
  const thread_words* t = own_words();
  const M* m = t->m;
  if (left_behind(m) && t->in_rt.load(memory_order_relaxed) == 1) sleep_for_good();
}

// Who wakes an M from wait_locked takes it off the count, under the lock: it is woken once for each
// wait, by the one who has its goroutine or by the end of the run. Who left that to the M itself
// would find it waiting until it has been scheduled, and wake it again.
void wake_locked(M* m, P* p) noexcept {
  if (m->waits_locked) {  // else it is about to
    m->waits_locked = false;
    --sched.locked_asleep;
  }
  give_p(m, p);
}

bool wait_locked(M* m) noexcept {
  sched.lock.lock();
  if (m->locked_g->run_id != sched.run_id.load(memory_order_relaxed)) {
    m->locked_g = nullptr;  // as in leave_threads, which has not met it here
    m->nextp = nullptr;     // an orphan, if its goroutine has been faster
    m->park.clear();
    sched.lock.unlock();
    if (m->p != nullptr) sleep_for_good();  // that P is nobody's (abandon, run.cc)
    return false;
  }
  if (m->nextp == nullptr) {  // else its goroutine has been faster
    m->waits_locked = true;
    ++sched.locked_asleep;
    ++sched.rests;
  }
  sched.lock.unlock();
  chaos::point("locked.wait");
  if (m->p != nullptr) hand_off(release_p(m));
  check_dead();
  trace_begin(m, m_doing::idle);
  m->park.sleep();
  trace_end(m);
  m->park.clear();
  P* p = m->nextp;
  m->nextp = nullptr;
  if (p == nullptr) return false;
  if (p->orphan.load(memory_order_acquire)) sleep_for_good();  // with abandon
  acquire_p(m, p);
  return true;
}

void queue_kept(M* m, G* g, queue_end where) noexcept {
  g->m.store(nullptr, memory_order_relaxed);
  g->kept = true;
  m->kept_since = nanotime();
  g->move_status(g_status::running, g_status::runnable);
  if (where == queue_end::front) {
    sched.kept.push_front(m);
  } else {
    sched.kept.push_back(m);
  }
}

bool sleep_kept(M* m, G* g) noexcept {
  __builtin_unwind_init();  // the leak finder looks for what the goroutine knows on its stack
  trace_begin(m, m_doing::waits_for_p);
  m->park.sleep();
  trace_end(m);
  chaos::point("kept.woken");
  m->park.clear();
  P* p = m->nextp;
  m->nextp = nullptr;
  if (p == nullptr) {
    // It runs on for a while if it stands in a library (rule 5 of preempt.cc), and what only one
    // that runs may do it may do then.
    g->move_status(g_status::runnable, g_status::running);  // first: poll_leave looks at both
    g->kept = false;
    return false;
  }
  acquire_p(m, p);
  p->count.latency.add(nanotime() - m->kept_since, 1);  // each one: stopping it cost far more
  g->kept = false;
  g->move_status(g_status::runnable, g_status::running);
  g->m.store(m, memory_order_relaxed);
  trace_run(m, g);
  return true;
}

bool wait_for_p(M* m, G* g) noexcept {
  sched.lock.lock();
  if (g->run_id != sched.run_id.load(memory_order_relaxed) ||
      sched.ending.load(memory_order_relaxed)) {
    m->hold.store(hold_state::left, memory_order_relaxed);
    sched.lock.unlock();
    return false;
  }
  if (P* p = take_free_p(); p != nullptr) {
    sched.lock.unlock();
    acquire_p(m, p);
    trace_back(m, g);
    return true;
  }
  queue_kept(m, g, queue_end::back);
  trace_stop(m, g, trace_state::runnable);
  sched.lock.unlock();
  fence_and_wake();
  return sleep_kept(m, g);
}

}  // namespace weft::rt

namespace weft {

using namespace rt;

void lock_os_thread() {
  M* m = current_m();
  G* g = m != nullptr ? m->curg : nullptr;
  if (g == nullptr) return;                     // a plain thread is its own
  if (g->locks++ != 0 || g->bubbled()) return;  // a bubble has one thread anyway
  const in_runtime in;
  g->tied.set(m);
  m->locked_g = g;
  g->bound = true;
}

void unlock_os_thread() {
  M* m = current_m();
  G* g = m != nullptr ? m->curg : nullptr;
  if (g == nullptr || g->locks == 0 || --g->locks != 0 || g->bubbled()) return;
  const in_runtime in;
  g->bound = false;
  m->locked_g = nullptr;
  g->tied.clear();
  if (P* p = m->is_m0 ? hold_p(m) : nullptr; p != nullptr) {
    // As in acquire_p. But a slice that is over stays so: the signal's handler heeds nothing else.
    std::uint32_t none = 0;
    p->preempt.compare_exchange_strong(none, preempt_leave_m0, memory_order_relaxed);
  }
}

}  // namespace weft
