// SPDX-License-Identifier: Apache-2.0
// A small generator for scheduling decisions (victim order, coin flips in dev builds): wyrand's
// mixing of a Weyl sequence. Not for secrets. One per M and per P, so no lock and no shared line.
#pragma once

#include <cstdint>

namespace weft::rt {

class random {
 public:
  constexpr explicit random(std::uint64_t seed = 0) noexcept : s_(seed) {}
  constexpr std::uint64_t next() noexcept {
    s_ += 0xa0761d6478bd642fULL;
    __extension__ using wide = unsigned __int128;
    const wide t = static_cast<wide>(s_) * (s_ ^ 0xe7037ed1a0b428dbULL);
    return static_cast<std::uint64_t>(t >> 64) ^ static_cast<std::uint64_t>(t);
  }
  // Uniform in [0, n), without a division; the bias of 2^-32 n is of no matter here.
  constexpr std::uint32_t below(std::uint32_t n) noexcept {
    return static_cast<std::uint32_t>(
        (static_cast<std::uint64_t>(static_cast<std::uint32_t>(next())) * n) >> 32);
  }

 private:
  std::uint64_t s_;
};

}  // namespace weft::rt
