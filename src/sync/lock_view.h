// SPDX-License-Identifier: Apache-2.0
// What debug may know of a lock that somebody waits for. Under the lock of its queue, while a
// waiter is on it: else the object may be gone.
#pragma once

#include <cstdint>

#include "weft/sync.hpp"

namespace weft::detail {

struct lock_view {
  // The low half of the owner's goid; 0: it is on its way, no goroutine of the run, or unknown.
  static std::uint32_t owner(const mutex& m) noexcept {
    return m.owner_.load(std::memory_order_relaxed);
  }
  static std::uint32_t owner(const shared_mutex& m) noexcept {
    return m.owner_.load(std::memory_order_relaxed);
  }
};

}  // namespace weft::detail
