// SPDX-License-Identifier: Apache-2.0
// What kind of build this is, and how much of its full size a long test has in it. The one place
// for both: the factor of a build stands in CMakePresets.json (WEFT_TEST_EFFORT), and the
// environment variable of that name has the last word. Sizes shrink, what is asserted does not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace weft::test {

#if defined(WEFT_ASAN)
inline constexpr bool under_asan = true;
#else
inline constexpr bool under_asan = false;
#endif
#if defined(WEFT_TSAN)
inline constexpr bool under_tsan = true;  // keeps at most about 8000 goroutines alive
#else
inline constexpr bool under_tsan = false;
#endif
#if defined(WEFT_DEV)
inline constexpr bool dev_build = true;
#else
inline constexpr bool dev_build = false;
#endif
#if defined(WEFT_CHAOS)
inline constexpr bool under_chaos = true;
#else
inline constexpr bool under_chaos = false;
#endif
#if defined(WEFT_TEST_EMULATED)
inline constexpr bool under_emulator = true;  // qemu-user: its limits are not ours
#else
inline constexpr bool under_emulator = false;
#endif
inline constexpr bool sanitized = under_asan || under_tsan;

// Where each step costs ten times as much.
inline constexpr bool slow = sanitized || under_emulator || under_chaos;

// The count that the conformance list asks for, or a smaller one where it is slow.
constexpr int full_or(int full, int small) { return slow ? small : full; }
constexpr int full_or(int full, int small, int chaos) {
  return under_chaos ? chaos : full_or(full, small);
}
constexpr int scaled(int n) { return slow ? n / 10 : n; }

// For what takes seconds even in release: 1 there, less in builds that run the same again.
inline double effort() {
  static const double factor = [] {
    const char* s = std::getenv("WEFT_TEST_EFFORT");
    const double f = s != nullptr ? std::atof(s) : 0;
    return f > 0 ? f : WEFT_TEST_EFFORT;
  }();
  return factor;
}
// That part of a full count, but `least` at least.
inline std::uint64_t by_effort(std::uint64_t full, std::uint64_t least = 1) {
  return std::max(least, static_cast<std::uint64_t>(static_cast<double>(full) * effort()));
}

}  // namespace weft::test
