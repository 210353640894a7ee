// SPDX-License-Identifier: Apache-2.0
// What src/os/futex.h is to the library, for the systematic tests: threads of the checker sleep in
// the checker. The kernel compares with the newest value and queues in one step; it wakes first
// come, first served; a deadline may pass at any moment. No order is taken from the call itself.
#pragma once

#include <cstdint>

#include "base/atomic.h"

namespace systematic {

bool futex_wait(void* word, std::uint32_t expect, bool has_deadline, where w) noexcept;
void futex_wake(void* word, int n, where w) noexcept;

}  // namespace systematic

namespace weft::rt {

inline bool futex_wait(atomic<std::uint32_t>& word, std::uint32_t expect,
                       std::int64_t deadline_ns = -1,
                       systematic::where w = systematic::where::current()) noexcept {
  return systematic::futex_wait(&word, expect, deadline_ns >= 0, w);
}
inline void futex_wake(atomic<std::uint32_t>& word, int n,
                       systematic::where w = systematic::where::current()) noexcept {
  systematic::futex_wake(&word, n, w);
}

}  // namespace weft::rt
