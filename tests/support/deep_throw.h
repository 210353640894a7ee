// SPDX-License-Identifier: Apache-2.0
// An exception from some frames down, each of which has something to clean up.
#pragma once

#include <stdexcept>

namespace weft::test {

// Adds depth + 1 to *cleaned on its way out.
[[gnu::noinline]] inline void throw_from(int depth, int* cleaned) {
  struct unwound {
    int* at;
    ~unwound() { ++*at; }
  } const here{cleaned};
  if (depth == 0) throw std::runtime_error("deep down");
  throw_from(depth - 1, cleaned);
}

}  // namespace weft::test
