// SPDX-License-Identifier: Apache-2.0
// A counting semaphore over park and ready, first come, first served. release(hand_off) gives the P
// to the first waiter at once: the waiter becomes runnext, the releaser gives way.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "sched/waiter.h"
#include "support/spin_lock.h"

namespace weft::test {

class semaphore {
 public:
  explicit semaphore(std::uint32_t n) : free_(n) {}
  semaphore(const semaphore&) = delete;
  semaphore& operator=(const semaphore&) = delete;

  void acquire() {
    rt::maybe_preempt();
    lock_.lock();
    if (free_ > 0) {
      --free_;
      lock_.unlock();
      return;
    }
    rt::waiter w;
    list_.push(&w);
    waiting_.fetch_add(1, std::memory_order_relaxed);
    w.wait(spin_lock::unlock_commit, &lock_, rt::wait_reason::internal);
  }

  void release(bool hand_off = false) {
    lock_.lock();
    rt::waiter* w = list_.pop();
    if (w == nullptr) {
      ++free_;
    } else {
      waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
    lock_.unlock();
    if (w == nullptr) return;
    w->wake();
    if (hand_off && rt::current_g() != nullptr) rt::yield_g();
  }

  std::size_t waiting() const { return waiting_.load(std::memory_order_relaxed); }

 private:
  spin_lock lock_;
  std::uint32_t free_;
  std::atomic<std::size_t> waiting_{0};
  rt::waiter_list list_;
};

}  // namespace weft::test
