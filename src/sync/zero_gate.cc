// SPDX-License-Identifier: Apache-2.0
// The counter behind wait_group and latch.
//
// One word: twice the counter, and a bit that is set while somebody waits. Whoever brings it to
// zero while the bit is set does so under the queue's lock, in one step with clearing the bit: so
// zero with waiters is never to be seen, a new round may begin before those of the last one have
// run, and the change of the word is add's last touch. Go's two misuses ('Add called concurrently
// with Wait', 'reused before previous Wait has returned') therefore do no harm here and are no
// errors.
//
// Runs on the caller's stack.
#include "sync/wait_list.h"
#include "weft/sync.hpp"

namespace weft::detail {

bool zero_gate::add(std::int64_t n) noexcept {
  std::int64_t w = word_.load(std::memory_order_relaxed), by = 0;
  if (__builtin_mul_overflow(n, unit, &by)) return false;
  for (;;) {
    // w is not negative: what is too much comes out negative, too.
    const auto next =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(w) + static_cast<std::uint64_t>(by));
    if (next < 0) return false;
    if (next != waiters) {
      // Release: with the acquire of the one who waits; acq_rel, because the adds before us are
      // part of what it must see.
      if (word_.compare_exchange_weak(w, next, std::memory_order_acq_rel,
                                      std::memory_order_relaxed))
        return true;
      continue;
    }
    wake_chain go;
    rt::mutex& mu = lock_of(this);
    mu.lock();
    waiting* all = queue_.detach();
    // The bit does not go while we have the lock; the counter may have changed.
    const bool zero =
        word_.compare_exchange_strong(w, 0, std::memory_order_acq_rel, std::memory_order_relaxed);
    if (zero) {
      go.take(all);
    } else {
      queue_.attach(all);
    }
    mu.unlock();
    go.wake_all();
    if (zero) return true;
  }
}

bool zero_gate::arrive_and_wait(std::int64_t n) {
  preempt_point();
  if (n > INT64_MAX / unit) return false;
  {
    waiting me(this);
    me.mu.lock();
    std::int64_t w = word_.load(std::memory_order_relaxed);
    std::int64_t next = w - n * unit;
    // Counted and queued in one step: with the bit set nobody gets to zero without the lock.
    // Acq_rel as in add.
    while (next >= unit &&
           !word_.compare_exchange_weak(w, next | waiters, std::memory_order_acq_rel,
                                        std::memory_order_relaxed))
      next = w - n * unit;
    if (next >= unit) {
      queue_.push_back(&me);
      rt::waits_in(me.w.g, born_.bubble());
      me.block(rt::wait_reason::semacquire);
      return true;
    }
    me.mu.unlock();
  }
  return add(-n);  // the last one, or one too many
}

void zero_gate::tie() noexcept {
  const std::uint32_t here = rt::current_bubble();
  rt::mutex& mu = lock_of(this);
  mu.lock();
  const bool free = word_.load(std::memory_order_relaxed) < unit;
  if (free) tied_.store(here, std::memory_order_relaxed);
  const std::uint32_t tied = tied_.load(std::memory_order_relaxed);
  mu.unlock();
  if (tied == here) return;
  rt::fatal(tied == 0 || here == 0
                ? "sync: WaitGroup.Add called from inside and outside synctest bubble"
                : "sync: WaitGroup.Add called from multiple synctest bubbles");
}

void zero_gate::wait_slow(as who) const {
  waiting me(this);
  me.mu.lock();
  std::int64_t w = word_.load(std::memory_order_relaxed);
  do {
    if (w < unit) {
      me.mu.unlock();
      (void)is_zero();  // its acquire
      return;
    }
  } while (!word_.compare_exchange_weak(w, w | waiters, std::memory_order_relaxed));
  queue_.push_back(&me);
  rt::waits_in(me.w.g,
               who == as::wait_group ? tied_.load(std::memory_order_relaxed) : born_.bubble());
  me.block(who == as::wait_group ? rt::wait_reason::sync_wait_group_wait
                                 : rt::wait_reason::semacquire);
}

}  // namespace weft::detail
