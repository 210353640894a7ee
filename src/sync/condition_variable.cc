// SPDX-License-Identifier: Apache-2.0
// weft::condition_variable.
//
// One who waits queues first, then unlocks the mutex, then parks: so a notify that follows the
// unlock finds it on the queue. The queue's lock cannot be held over that unlock (S3), so a
// notifier may take it off before it has parked; the two meet in the record (wait_list.h,
// block_unlocked). Each notify takes its record off under the lock, as does a time-out: each wait
// ends in one way.
//
// Runs on the caller's stack.
#include "sync/cancel_alarm.h"
#include "sync/wait_list.h"
#include "weft/sync.hpp"

namespace weft {

using namespace detail;

struct condition_variable::impl {
  struct waiter : waiting {
    explicit waiter(condition_variable& of) noexcept : waiting(&of), cv(of) {
      left = [](waiting* me, wake_chain&) noexcept { note_rest(static_cast<waiter*>(me)->cv); };
      meets = true;
    }
    condition_variable& cv;
  };
  static void note_rest(condition_variable& cv) noexcept {
    if (cv.queue_.empty()) cv.any_.store(false, std::memory_order_relaxed);
  }
};

bool condition_variable::wait_until_deadline(mutex& m, std::int64_t deadline, const context* ctx,
                                             give_way g) {
  if (g == give_way::first) rt::maybe_preempt();
  impl::waiter me(*this);
  bool notified = false;
  {
    const cancel_alarm cancel(me, ctx);
    if (cancel.came()) return false;
    alarm clock(me, deadline);
    clock.set();
    const bool late = deadline != no_deadline && rt::clock_now() >= deadline;
    me.mu.lock();
    const bool waits = !late && !me.expired;
    if (waits) {
      queue_.push_back(&me);
      // Relaxed: a notifier that must see it has locked the mutex after us.
      any_.store(true, std::memory_order_relaxed);
    }
    me.mu.unlock();
    m.unlock();
    if (waits) {
      me.block_unlocked(rt::wait_reason::sync_cond_wait, deadline);
      notified = !me.thrown_out;
    }
  }
  m.lock();  // a notifier may have destroyed *this by now
  return notified;
}

void condition_variable::notify_one() noexcept {
  if (!any_.load(std::memory_order_relaxed)) return;
  const rt::in_runtime inside;  // as in wake_chain
  rt::mutex& mu = lock_of(this);
  mu.lock();
  waiting* w = queue_.front();
  if (w != nullptr) queue_.remove(w);
  impl::note_rest(*this);
  mu.unlock();
  if (w != nullptr) w->wake();
}

void condition_variable::notify_all() noexcept {
  if (!any_.load(std::memory_order_relaxed)) return;
  wake_chain go;
  rt::mutex& mu = lock_of(this);
  mu.lock();
  go.take(queue_.detach());
  impl::note_rest(*this);
  mu.unlock();
  go.wake_all();
}

}  // namespace weft
