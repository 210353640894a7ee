// SPDX-License-Identifier: Apache-2.0
// For tests that leak goroutines on purpose.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "support/runtime.h"
#include "weft/debug.hpp"
#include "weft/time.hpp"

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

// From here on malloc gives this thread memory that nobody has had before. What was used and freed
// is pointed to by old words, wherever they lie, and each of them hides a leak, or a whole ring of
// them. Once for a thread; what it takes is kept. By malloc's ways: a sanitizer's has others.
inline void take_all_used_memory() {
  struct taken {
    taken* next;
  };
  static thread_local taken* all = nullptr;
  if (cannot_find_leaks || all != nullptr) return;
  const auto take = [](std::size_t size) {
    auto* t = static_cast<taken*>(std::malloc(size));
    if (t == nullptr) std::abort();
    t->next = all;
    all = t;
    return t;
  };
  const taken* last = nullptr;  // no heap of a test has been higher
  for (int i = 0; i < 128; ++i) last = std::max<const taken*>(last, take(32 * 1024));
  for (std::size_t size = 16; size <= 2048; size += 16) {
    while (take(size) < last) {
    }
  }
}

// Calls f where none of its locals lies in the caller's frame, and leaves no trace of them.
template <class F>
[[gnu::noinline]] void apart(F f) {
  take_all_used_memory();
  f();
  wipe_stack();
}

// Whoever knows what is waited for keeps it until main has looked.
inline std::atomic<bool> looked{false};
template <class Sleep>
[[gnu::noinline]] void sleep_until_looked(Sleep sleep) {
  while (!looked) sleep();
}
[[gnu::noinline]] inline void sleep_until_looked() {
  sleep_until_looked([] { sleep_for(std::chrono::milliseconds(5)); });
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
