// SPDX-License-Identifier: Apache-2.0
// A lock that may be taken on one stack and released by the commit of a park on another.
#pragma once

#include <atomic>
#include <sched.h>

#include "base/atomic.h"

namespace weft::test {

class spin_lock {
 public:
  void lock() noexcept {
    for (int i = 0; held_.exchange(true, std::memory_order_acquire); ++i) {
      if (i < 100) {
        rt::cpu_relax();
      } else {
        ::sched_yield();  // the holder has lost its CPU
      }
    }
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

  // For park: publishes what was put on a list under the lock.
  static void unlock_commit(void*, void* lock) noexcept { static_cast<spin_lock*>(lock)->unlock(); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace weft::test
