// SPDX-License-Identifier: Apache-2.0
// The futex system call, typed. Raw: no libc lock, no errno left behind, no cancellation point.
#pragma once

#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/chaos.h"

namespace weft::rt {

// Sleeps while *word == expect, until woken or until `deadline_ns` of CLOCK_MONOTONIC (< 0: for
// ever). Returns false only when the deadline has passed; true for a wake-up, a changed word, a
// signal.
inline bool futex_wait(atomic<std::uint32_t>& word, std::uint32_t expect,
                       std::int64_t deadline_ns = -1) noexcept {
  if (chaos::flip("force.spurious")) return true;
  const int saved = errno;
  timespec ts{};
  if (deadline_ns >= 0) {
    ts.tv_sec = deadline_ns / 1'000'000'000;
    ts.tv_nsec = deadline_ns % 1'000'000'000;
  }
  const long r =
      ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_BITSET_PRIVATE,
                expect, deadline_ns < 0 ? nullptr : &ts, nullptr, FUTEX_BITSET_MATCH_ANY);
  const bool timed_out = r < 0 && errno == ETIMEDOUT;
  errno = saved;
  return !timed_out;
}

inline void futex_wake(atomic<std::uint32_t>& word, int n) noexcept {
  const int saved = errno;
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, n, nullptr,
            nullptr, 0);
  errno = saved;
}

}  // namespace weft::rt
