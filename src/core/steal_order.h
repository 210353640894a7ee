// SPDX-License-Identifier: Apache-2.0
// The order in which a thief visits the Ps: start anywhere, go on by a stride that shares no factor
// with the number of Ps, so each P is visited once and different thieves take different ways
// (STL-02).
#pragma once

#include <cstdint>
#include <numeric>

#include "core/p.h"

namespace weft::rt {

class steal_order {
 public:
  // World stopped, or before the first run.
  constexpr void reset(std::uint32_t n) noexcept {
    count_ = n;
    nstrides_ = 0;
    for (std::uint32_t i = 1; i <= n; ++i) {
      if (std::gcd(i, n) == 1) strides_[nstrides_++] = static_cast<std::uint16_t>(i);
    }
  }
  constexpr std::uint32_t strides() const noexcept { return nstrides_; }

  class walk {
   public:
    constexpr walk(std::uint32_t n, std::uint32_t at, std::uint32_t stride) noexcept
        : n_(n), at_(at), stride_(stride) {}
    constexpr bool done() const noexcept { return seen_ == n_; }
    constexpr void next() noexcept {
      ++seen_;
      at_ = (at_ + stride_) % n_;
    }
    constexpr std::uint32_t position() const noexcept { return at_; }
    constexpr std::uint32_t stride() const noexcept { return stride_; }

   private:
    std::uint32_t n_, at_, stride_, seen_ = 0;
  };

  // Consecutive seeds never repeat a (position, stride) pair before all have been used.
  constexpr walk start(std::uint32_t seed) const noexcept {
    return walk(count_, seed % count_, strides_[(seed / count_) % nstrides_]);
  }

 private:
  std::uint32_t count_ = 0;
  std::uint32_t nstrides_ = 0;
  std::uint16_t strides_[max_procs] = {};
};

}  // namespace weft::rt
