// SPDX-License-Identifier: Apache-2.0
// For tests that leak goroutines on purpose.
#pragma once

#include <cstddef>
#include <vector>

#include "support/runtime.h"
#include "weft/debug.hpp"

namespace weft::test {

// TSan keeps what a fiber knows out of sight, ASan's frames and what it keeps of freed blocks hide
// some leaks, qemu-user shows other mappings than the program's. False alarms are looked for
// everywhere.
inline constexpr bool cannot_find_leaks = sanitized || under_emulator;

// Overwrites what calls have left on this stack.
[[gnu::noinline]] inline void wipe_stack() {
  volatile char used[16 * 1024];
  for (volatile char& c : used) c = 0;
}

// Calls f where none of its locals lies in the caller's frame, and leaves no trace of them.
template <class F>
[[gnu::noinline]] void apart(F f) {
  f();
  wipe_stack();
}

// While a thread of the runtime begins or ends the finder is in doubt and says little: it is asked
// until it finds n.
inline std::vector<debug::leak> all_leaks(std::size_t n) {
  std::vector<debug::leak> found;
  eventually([&] {
    found = debug::find_leaks();
    return found.size() >= n;
  });
  return found;
}

}  // namespace weft::test
