// SPDX-License-Identifier: Apache-2.0
// How long things took, by powers of two: bucket i holds what took less than 2^i nanoseconds, and
// no less than half of that.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/atomic.h"

namespace weft::rt {

struct time_histogram {
  static constexpr std::size_t buckets = 40;  // the last: 9 minutes and more
  atomic<std::uint64_t> n[buckets] = {};
  atomic<std::uint64_t> sum_ns{0};

  static std::size_t bucket(std::int64_t ns) noexcept {
    const auto i = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(ns)));
    return ns <= 0 ? 0 : i < buckets ? i : buckets - 1;
  }
  // From any thread. weight: how many this one stands for.
  void add(std::int64_t ns, std::uint64_t weight = 1) noexcept {
    n[bucket(ns)].fetch_add(weight, memory_order_relaxed);
    sum_ns.fetch_add(static_cast<std::uint64_t>(ns > 0 ? ns : 0) * weight, memory_order_relaxed);
  }
};

}  // namespace weft::rt
