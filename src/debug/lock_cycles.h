// SPDX-License-Identifier: Apache-2.0
// Goroutines that wait for one another's locks.
#pragma once

#include "debug/arena.h"
#include "debug/traces.h"

namespace weft::rt {

// One waits for a lock that the next one has locked; the last one for the first one's.
struct lock_wait {
  std::uint64_t who = 0, owner = 0;
  const void* lock = nullptr;
  bool shared = false;  // a shared_mutex
  bool ends_cycle = false;
};

// All cycles there are; the world is stopped, or as still as it will get. No allocation but from
// the arena.
void find_lock_cycles(arena& memory, arena_list<lock_wait>& out) noexcept;

// A block for each, an empty line before it; with `of` only the one that it is part of, without.
void write(const text_sink& out, const arena_list<lock_wait>& cycles);
void write(const text_sink& out, const arena_list<lock_wait>& cycles, std::uint64_t of);

}  // namespace weft::rt
