// SPDX-License-Identifier: Apache-2.0
// Files by io_uring: who has to wait for a disk parks, and no thread waits with it. See uring.cc.
#pragma once

#include <cstdint>

#include "file/calls.h"

namespace weft::detail {

// The same results as perform_blocking, which does it where the kernel has no io_uring, or keeps it
// from this process.
long perform_uring(const file_call& c);

// Whether it is there; the first question starts it.
bool uring_works();

// For the leak finder: what of it there is in this process. Of nobody's interest while it is idle.
bool is_uring(int fd) noexcept;
struct uring_mapping {
  std::uintptr_t lo = 0, hi = 0;
};
uring_mapping uring_mapping_at(int i) noexcept;  // two of them
template <class F>
void each_uring_mapping(F f) {
  for (int i = 0; i < 2; ++i) {
    if (const uring_mapping m = uring_mapping_at(i); m.lo != 0) f(m.lo, m.hi);
  }
}

}  // namespace weft::detail
