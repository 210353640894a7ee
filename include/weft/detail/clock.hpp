// SPDX-License-Identifier: Apache-2.0
// The clock of timers, deadlines and sleeps: that of std::chrono::steady_clock, under a type of its
// own; virtual inside testing::bubble.
#pragma once

#include <chrono>
#include <cstdint>

#include <weft/detail/bubble.hpp>

namespace weft {

struct clock {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<clock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept {
    if (detail::any_bubble()) [[unlikely]]
      return time_point(duration(detail::now_ns()));
    return time_point(
        std::chrono::duration_cast<duration>(std::chrono::steady_clock::now().time_since_epoch()));
  }
};

}  // namespace weft
