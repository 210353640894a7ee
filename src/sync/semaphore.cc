// SPDX-License-Identifier: Apache-2.0
// weft::semaphore, the slow half.
//
// One word: twice the permits, and a bit that is set while somebody waits. While it is set only the
// holder of the queue's lock changes the word: newcomers queue, and release gives to the first in
// the queue, as far as it goes. A large request so holds up the small ones behind it, and is itself
// never passed over. One whose run is over is dropped by the next who finds it in its way, and by
// the end of the run if a plain thread waits behind it.
//
// Runs on the caller's stack; has_left also on g0.
#include "sync/cancel_alarm.h"
#include "sync/wait_list.h"
#include "weft/sync.hpp"

namespace weft {

using namespace detail;

struct semaphore::impl {
  struct waiter : waiting {
    waiter(semaphore& of, std::ptrdiff_t n) noexcept
        : waiting(&of), s(of), want(static_cast<std::uint64_t>(n) * unit) {
      left = [](waiting* me, wake_chain& go) noexcept { give(static_cast<waiter*>(me)->s, 0, go); };
      run_over = left;
    }
    semaphore& s;
    std::uint64_t want;
  };

  // Under the lock, with the bit set.
  static void give(semaphore& s, std::uint64_t more, wake_chain& go) noexcept {
    // Acquire: with the releases before; what they did is seen by those we wake.
    std::uint64_t w = (s.word_.load(std::memory_order_acquire) & ~waiters) + more;
    while (auto* first = static_cast<waiter*>(s.queue_.front())) {
      if (w < first->want) break;
      w -= first->want;
      s.queue_.remove(first);
      go.push(first);
    }
    // Release: with the acquire of those who take what is left. The last touch.
    s.word_.store(w | (s.queue_.empty() ? 0 : waiters), std::memory_order_release);
  }

  // Takes the lock, with none left in front whose run is over.
  static void lock_in_order(semaphore& s, rt::mutex& mu) noexcept {
    for (;;) {
      wake_chain go;
      mu.lock();
      if ((s.word_.load(std::memory_order_relaxed) & waiters) != 0) give(s, 0, go);
      if (go.empty()) return;
      mu.unlock();
      go.wake_all();
    }
  }
};

bool semaphore::try_acquire_slow(std::ptrdiff_t n) noexcept {
  const std::uint64_t want = static_cast<std::uint64_t>(n) * unit;
  rt::mutex& mu = lock_of(this);
  impl::lock_in_order(*this, mu);
  std::uint64_t w = word_.load(std::memory_order_relaxed);
  bool in = false;
  while (!in && (w & waiters) == 0 && w >= want) {
    // Acquire: with release's.
    in = word_.compare_exchange_weak(w, w - want, std::memory_order_acquire,
                                     std::memory_order_relaxed);
  }
  mu.unlock();
  return in;
}

bool semaphore::acquire_slow(std::ptrdiff_t n, std::int64_t deadline, const context* ctx) {
  impl::waiter me(*this, n);
  const cancel_alarm cancel(me, ctx);
  if (cancel.came()) return false;
  alarm clock(me, deadline);
  clock.set();
  const bool late = deadline != no_deadline && rt::clock_now() >= deadline;
  impl::lock_in_order(*this, me.mu);
  std::uint64_t w = word_.load(std::memory_order_relaxed);
  for (;;) {
    const bool in = (w & waiters) == 0 && w >= me.want;
    if (!in && (late || me.expired)) {
      me.mu.unlock();
      return false;
    }
    // Acquire: with release's.
    if (!word_.compare_exchange_weak(w, in ? w - me.want : w | waiters, std::memory_order_acquire,
                                     std::memory_order_relaxed))
      continue;
    if (!in) break;
    me.mu.unlock();
    return true;
  }
  queue_.push_back(&me);
  rt::waits_in(me.w.g, born_.bubble());
  me.block(rt::wait_reason::semacquire, deadline);
  return !me.thrown_out;  // else it was given what it wants
}

void semaphore::release_slow(std::uint64_t more) {
  wake_chain go;
  rt::mutex& mu = lock_of(this);
  mu.lock();
  std::uint64_t w = word_.load(std::memory_order_relaxed), next;
  do {
    if (__builtin_add_overflow(w & ~waiters, more, &next)) {
      mu.unlock();
      throw std::overflow_error("weft::semaphore: more permits than it can count");
    }
    // A set bit stays while we have the lock. Else the last one has given up meanwhile.
    if ((w & waiters) != 0) break;
  } while (
      !word_.compare_exchange_weak(w, next, std::memory_order_release, std::memory_order_relaxed));
  if ((w & waiters) != 0) impl::give(*this, more, go);
  mu.unlock();
  go.wake_all();
}

}  // namespace weft
