// SPDX-License-Identifier: Apache-2.0
// Synchronisation: mutex, shared_mutex, condition_variable, wait_group, once, once_func,
// once_value, semaphore, latch, barrier. All of them block goroutines and plain threads alike, are
// constant- initialised, and may be destroyed as soon as the call that learnt of their last use has
// returned.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <weft/detail/wait_list.hpp>
#include <weft/go.hpp>

namespace weft {

// Go's sync.Mutex with the names of std: Lockable and TimedLockable. Any goroutine or thread may
// unlock it. Unlocking an unlocked one is fatal.
class mutex {
 public:
  constexpr mutex() noexcept = default;
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  void lock() {
    detail::preempt_point();
    // Acquire: with unlock's release. See mutex.cc, X1: a bit that was clear is ours.
    if ((word_.fetch_or(locked, std::memory_order_acquire) & locked) != 0) [[unlikely]]
      lock_slow(detail::no_deadline);
  }
  bool try_lock() noexcept {
    return (word_.load(std::memory_order_relaxed) & locked) == 0 &&
           (word_.fetch_or(locked, std::memory_order_acquire) & locked) == 0;
  }
  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& d) {
    detail::preempt_point();
    return try_lock() || (d > d.zero() && lock_slow(detail::deadline_in(d)));
  }
  template <class Clock, class Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& tp) {
    detail::preempt_point();
    return try_lock() || detail::before(tp, [this](std::int64_t t) { return lock_slow(t); });
  }
  void unlock() noexcept {
    std::uint32_t w = word_.load(std::memory_order_relaxed);
    // Release: with the acquire of the next one to lock. The last touch.
    if (!wakes_nobody(w) ||
        !word_.compare_exchange_strong(w, w & ~locked, std::memory_order_release,
                                       std::memory_order_relaxed)) [[unlikely]]
      unlock_slow(w);
  }

 private:
  struct impl;
  static constexpr std::uint32_t locked = 1, woken = 2, starving = 4, waiters = 8;
  static constexpr bool wakes_nobody(std::uint32_t w) noexcept {
    return w == locked || (w & (locked | woken | starving)) == (locked | woken);
  }
  WEFT_API bool lock_slow(std::int64_t deadline);
  WEFT_API void unlock_slow(std::uint32_t w) noexcept;

  std::atomic<std::uint32_t> word_{0};
  std::uint32_t woken_run_ = 0;  // the run of the goroutine that was woken last; under queue's lock
  detail::wait_list queue_;
};

}  // namespace weft
