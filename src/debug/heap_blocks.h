// SPDX-License-Identifier: Apache-2.0
// Where the blocks of malloc begin and end: for the leak finder, which must know what a pointer to
// any part of the object around a mutex looks like.
//
// Runs in a stopped world: no malloc, no libc lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "debug/arena.h"
#include "debug/regions.h"

namespace weft::rt {

struct heap_block {
  std::uintptr_t at = 0;          // what is asked for
  std::uintptr_t lo = 0, hi = 0;  // what the program may use of the block around it; 0: not known
  std::uintptr_t next = 0;        // malloc's: the chunk behind it
};

// For each of `blocks`, which are sorted by `at`. Adds to `own` what is malloc's alone: what is
// free, and where it keeps words that point to the last one of a block, because there the next
// chunk begins.
void find_blocks(arena& memory, region_reader& reader, const arena_list<region>& regions,
                 heap_block* blocks, std::size_t n, arena_list<span>& own) noexcept;

}  // namespace weft::rt
