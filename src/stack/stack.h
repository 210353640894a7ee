// SPDX-License-Identifier: Apache-2.0
// Goroutine stacks: address space is reserved in large chunks, memory is committed page by page as
// a stack is touched, a 64 KiB guard lies below each one. Free stacks wait in global pools, one per
// size; the caches of the Ps stand in front of them and call the batch functions.
//
// All functions may be called from any thread and on any stack but the one that is freed or
// trimmed. None allocates with malloc, throws or touches errno. The locks inside are ranked `stack`
// and `leaf`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::rt {

// One page would not do: a 16 KiB frame steps over it into the neighbour.
inline constexpr std::size_t guard_size = 64 * 1024;

// A stack is a value: copy it freely, free it once.
// slot = [base, hi), guard = [base, lo), usable = [lo, hi).
struct stack {
  std::uintptr_t lo = 0;
  std::uintptr_t hi = 0;
  std::uintptr_t base = 0;
  std::uint32_t colour = 0;  // how far below hi the first frame begins, see stack_top
  std::uint32_t id = 0;      // which slot of which chunk; for src/stack only
  explicit operator bool() const noexcept { return hi != 0; }
};

// The slot for a wanted stack size. Up to 256 KiB the guard is part of the size (256 KiB give 192
// KiB of stack), with 64 KiB of stack at least; above it comes on top, and sizes are rounded up by
// at most 25 % so that they share pools. 0 for sizes above 1 TiB.
std::size_t stack_slot_size(std::size_t wanted) noexcept;

// `slot` comes from stack_slot_size. Never fails: when not even one slot can be reserved the
// process ends with a message that names the limit. What was used last comes first; the contents
// are arbitrary.
stack stack_alloc(std::size_t slot) noexcept;
// Between 1 and n stacks under one lock: what the pool has, or fresh ones if it has none. n ≥ 1.
std::size_t stack_alloc_batch(std::size_t slot, stack* out, std::size_t n) noexcept;

void stack_free(const stack& s) noexcept;
// Under one lock; the last of the array will be the first to be allocated again. Sizes may differ.
void stack_free_batch(const stack* s, std::size_t n) noexcept;

// Where the first frame begins: 16 colours, 128 bytes apart, so that a million stacks do not fight
// for the same cache sets. 16-byte aligned.
inline std::uintptr_t stack_top(const stack& s) noexcept { return s.hi - s.colour; }

// Gives the pages below the topmost one back to the kernel and says how many were in memory. The
// stack must have no live frame there: it is free, or its goroutine has ended.
std::size_t stack_trim(const stack& s) noexcept;
// The same for many at a quarter of the price, but nobody counts.
void stack_trim_batch(const stack* s, std::size_t n) noexcept;

// For the monitor. Each looks at up to max_stacks free stacks, those freed longest ago first, and
// returns how many it found; less than max_stacks means that there are no more.
// Pages below the topmost one, of stacks not trimmed since they were freed:
std::size_t stack_trim_pool(std::size_t max_stacks) noexcept;
// The topmost page too, of stacks already trimmed; for a program that has been quiet for long:
std::size_t stack_drop_pool(std::size_t max_stacks) noexcept;

struct stack_stats {
  std::size_t chunks = 0;          // mappings made and not given back
  std::size_t bytes_reserved = 0;  // their address space
  std::size_t slots = 0;           // stacks made in them: in use, free, or being trimmed
  std::size_t in_use = 0;          // handed out; the caches of the Ps count as users
  std::size_t free = 0;            // in the pools; the sum of the next three
  std::size_t free_warm = 0;       //   as they were freed
  std::size_t free_trimmed = 0;    //   with one page
  std::size_t free_bare = 0;       //   with none: never used, or dropped
  std::size_t guards_madvise = 0;  // guards installed, ever, by kind
  std::size_t guards_mprotect = 0;
  std::size_t guards_missing = 0;  // stacks that had to go without
};
stack_stats get_stack_stats() noexcept;

// Which stack does an address belong to, free ones included? *in_guard says that it lies in the
// stack's guard. Takes no lock, async-signal-safe, for fault handlers; linear in the number of
// chunks (4096 at a million stacks of the default size).
bool find_stack(std::uintptr_t addr, stack* out, bool* in_guard) noexcept;

}  // namespace weft::rt
