// SPDX-License-Identifier: Apache-2.0
// In which bubble of weft::testing the caller is, if in any. Costs one load while there is none.
#pragma once

#include <cstdint>
#include <type_traits>

#include <weft/detail/atomic.hpp>
#include <weft/detail/spawn.hpp>

namespace weft::detail {

WEFT_API extern atomic<std::uint32_t> live_bubbles;  // how many there are

WEFT_API std::uint32_t find_bubble() noexcept;  // the number of the caller's; 0: it is in none
// Relaxed: whoever is in one has been started after it was counted.
inline bool any_bubble() noexcept { return live_bubbles.load(std::memory_order_relaxed) != 0; }
inline std::uint32_t bubble_here() noexcept { return any_bubble() ? find_bubble() : 0; }

// Where an object was made; those that are constant-initialised belong to no bubble. Waits on an
// object of one's own bubble are durable: nobody else may end them.
class birthplace {
 public:
  constexpr birthplace() noexcept {
    if (!std::is_constant_evaluated()) bubble_ = bubble_here();
  }
  constexpr std::uint32_t bubble() const noexcept { return bubble_; }

 private:
  std::uint32_t bubble_ = 0;
};

WEFT_API std::int64_t now_ns() noexcept;  // of weft::clock

}  // namespace weft::detail
