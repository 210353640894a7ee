// SPDX-License-Identifier: Apache-2.0
// The runtime's own lock: three states in one futex word (free, held, held with sleepers), a short
// spin, then sleep. It blocks the thread, never a goroutine, so nothing may park while holding one
// (keeps G5: dev builds count the locks a thread holds, park asserts that there are none), and
// nobody is stopped while holding one (section.h). No libc lock, usable before main.
//
// Ordering: lock's exchange is an acquire, unlock's a release; each is the other's partner.
#pragma once

#include <cstdint>

#include "base/atomic.h"
#include "base/lock_rank.h"
#include "os/futex.h"
#include "os/section.h"

namespace weft::rt {

#if defined(WEFT_DEV)
void rank_acquire(lock_rank r) noexcept;  // fatal "lock order" unless r is above all held
void rank_beside(lock_rank r) noexcept;   // r itself may be held already
void rank_release(lock_rank r) noexcept;
int ranks_held() noexcept;  // locks held by this thread
#else
inline void rank_acquire(lock_rank) noexcept {}
inline void rank_beside(lock_rank) noexcept {}
inline void rank_release(lock_rank) noexcept {}
inline int ranks_held() noexcept { return 0; }
#endif

class mutex {
 public:
  constexpr explicit mutex(lock_rank r) noexcept : rank_(r) {}
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  void lock() noexcept {
    enter_rt();
    rank_acquire(rank_);
    std::uint32_t free = 0;
    if (!word_.compare_exchange_strong(free, 1, memory_order_acquire, memory_order_relaxed))
      lock_slow();
  }
  // Beside another of the same rank, where the caller knows the order.
  void lock_beside() noexcept {
    enter_rt();
    rank_beside(rank_);
    std::uint32_t free = 0;
    if (!word_.compare_exchange_strong(free, 1, memory_order_acquire, memory_order_relaxed))
      lock_slow();
  }
  bool try_lock() noexcept {
    std::uint32_t free = 0;
    enter_rt();
    if (!word_.compare_exchange_strong(free, 1, memory_order_acquire, memory_order_relaxed)) {
      leave_rt();
      return false;
    }
    rank_acquire(rank_);
    return true;
  }
  void unlock() noexcept {
    rank_release(rank_);
    if (word_.exchange(0, memory_order_release) == 2) futex_wake(word_, 1);
    leave_rt();
  }
  bool is_locked() const noexcept { return word_.load(memory_order_relaxed) != 0; }

 private:
  void lock_slow() noexcept;

  atomic<std::uint32_t> word_{0};
  lock_rank rank_;
};

}  // namespace weft::rt
