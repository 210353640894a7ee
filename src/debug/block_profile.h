// SPDX-License-Identifier: Apache-2.0
// For tests: what note_blocked counts, with a stack and a time of one's own.
#pragma once

#include <cstdint>

namespace weft::rt {

struct blocked_total {
  std::uint64_t times = 0, ns = 0;
};

void count_blocked(const std::uint64_t* pcs, unsigned n, std::uint64_t ns) noexcept;
blocked_total blocked_so_far() noexcept;  // over all stacks

}  // namespace weft::rt
