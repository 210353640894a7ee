// SPDX-License-Identifier: Apache-2.0
// A line of the source: std::source_location, which clang 14 does not have.
#pragma once

namespace systematic {

struct where {
  const char* file = nullptr;
  unsigned number = 0;
  static constexpr where current(const char* file = __builtin_FILE(),
                                 unsigned number = __builtin_LINE()) noexcept {
    return {file, number};
  }
};

}  // namespace systematic
