// SPDX-License-Identifier: Apache-2.0
// A note: one thread sleeps until another wakes it, once. clear, then sleep and wake in any order;
// a wake-up before the sleep is not lost. The same as Go's note: one sleeper, one waker between two
// clears.
//
// The waker does not touch the note after the sleeper can run: the futex call needs only its
// address, and a spurious wake-up of whatever lives there next is harmless to futex users.
#pragma once

#include <cstdint>

#include "base/atomic.h"
#include "base/chaos.h"
#include "os/clock.h"
#include "os/futex.h"

namespace weft::rt {

class note {
 public:
  void clear() noexcept { word_.store(0, memory_order_relaxed); }  // no one sleeps here now
  void wake() noexcept {
    // Release: what the waker did before is seen by the sleeper (acquire in sleep).
    if (word_.exchange(1, memory_order_release) == sleeping) {
      chaos::point("note.wake");
      futex_wake(word_, 1);
    }
  }
  void sleep() noexcept { sleep_until(-1); }
  // False when the deadline (CLOCK_MONOTONIC, ns; < 0: none) passed first.
  bool sleep_until(std::int64_t deadline) noexcept {
    for (;;) {
      std::uint32_t w = word_.load(memory_order_acquire);
      if (w == 1) return true;
      if (w == 0 && !word_.compare_exchange_strong(w, sleeping, memory_order_acquire)) continue;
      chaos::point("note.sleep");
      if (!futex_wait(word_, sleeping, deadline)) {
        // Timed out: take the mark back; if the waker was faster the note is set.
        w = sleeping;
        return !word_.compare_exchange_strong(w, 0, memory_order_acquire);
      }
    }
  }
  bool is_set() const noexcept { return word_.load(memory_order_acquire) == 1; }

 private:
  static constexpr std::uint32_t sleeping = 2;
  atomic<std::uint32_t> word_{0};
};

}  // namespace weft::rt
