// SPDX-License-Identifier: Apache-2.0
// What tests may do to the stacks that nobody else may. Each is implemented beside what
// it changes. Call these while no other thread uses stacks.
#pragma once

#include <cstddef>

namespace weft::rt::testing {

enum class guard_mode {
  automatic,  // what the kernel has; the decision is made anew
  mprotect,   // as on a kernel before 6.13
  none,       // as if no guard could be had at all, but silently
};
void force_guard_mode(guard_mode m) noexcept;

// How many guards by mprotect there may be at once; 0 is the usual share of vm.max_map_count.
void set_mprotect_budget(std::size_t guards) noexcept;

// No chunk larger than this (but one slot at least); 0 takes the limit away.
void set_max_chunk_bytes(std::size_t bytes) noexcept;

// Forgets every free stack and every unfinished chunk, so that the next allocation comes from a
// fresh one. Stacks in use are not touched and may be freed later. Address space is lost.
void forget_pools() noexcept;

}  // namespace weft::rt::testing
