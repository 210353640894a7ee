// SPDX-License-Identifier: Apache-2.0
// What the program has taken by operator new and not given back. Only in programs that link
// conformance/allocations.cc, which counts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::test {

struct allocation_count {
  std::atomic<std::int64_t> objects{0}, bytes{0};
};
extern constinit allocation_count live_allocations;

// The next so many allocations of this thread succeed, the one after them throws; < 0: none does.
// For a plain thread, which stays the same.
void fail_allocation(int after) noexcept;
bool allocation_failed() noexcept;  // since then

}  // namespace weft::test
