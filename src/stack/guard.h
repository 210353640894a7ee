// SPDX-License-Identifier: Apache-2.0
// Installs the guards of freshly carved slots by the best means this kernel has. See guard.cc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::rt {

// One guard of guard_size at the bottom of each of n slots, the first at `base`, readable and
// writable memory so far. Never fails: a guard that cannot be had is counted as missing, and the
// first time that is said on standard error. Takes no lock, several threads may be in here. Returns
// how many of them split a mapping.
std::size_t install_guards(std::uintptr_t base, std::size_t slot, std::size_t n) noexcept;

// So many guards that had split a mapping are unmapped again.
void forget_split_guards(std::size_t n) noexcept;

struct guard_counts {
  std::size_t madvise = 0, mprotect = 0, missing = 0;
};
guard_counts get_guard_counts() noexcept;

}  // namespace weft::rt
