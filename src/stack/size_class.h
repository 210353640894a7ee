// SPDX-License-Identifier: Apache-2.0
// Which slot a wanted stack size gets, and which pool a slot belongs to. Pure arithmetic.
//
// Small (slot ≤ 256 KiB): the guard lies inside, the slot is what was asked for, in whole pages,
// 128 KiB at least. So the default of 256 KiB keeps its power-of-two spacing: 8 stacks to a page of
// page tables.
//
// Large: the usable part is rounded up to four steps an octave (at most 25 % more than asked for),
// and the guard is added, so that a program's few odd sizes share pools.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "os/memory.h"
#include "stack/stack.h"

namespace weft::rt {

inline constexpr std::size_t kib = 1024;
inline constexpr std::size_t mib = 1024 * kib;
inline constexpr std::size_t min_slot = 2 * guard_size;
inline constexpr std::size_t max_small_slot = 256 * kib;
inline constexpr std::size_t max_usable = std::size_t{1} << 40;

inline constexpr std::size_t small_classes =
    (max_small_slot - min_slot) / (4 * kib) + 1;  // a page is ≥ 4 KiB
inline constexpr int first_octave = 18;           // 2^18 = 256 KiB
inline constexpr std::size_t class_count = small_classes + (40 - first_octave) * 4 + 1;
inline constexpr std::size_t no_class = class_count;

// A slot this large has a mapping of its own, which is given back when the slot is freed.
inline constexpr bool is_huge(std::size_t slot) noexcept { return slot > 4 * mib + guard_size; }

// How many slots make a chunk: 64 MiB of them up to slots of 1 MiB, then 16 MiB, then one.
inline constexpr std::size_t slots_per_chunk(std::size_t slot) noexcept {
  if (is_huge(slot)) return 1;
  return (slot <= mib + guard_size ? 64 * mib : 16 * mib) / slot;
}

inline std::size_t slot_size_for(std::size_t wanted) noexcept {
  if (wanted <= max_small_slot) {
    const std::size_t page = page_size();
    const std::size_t slot = (wanted + page - 1) / page * page;
    return slot < min_slot ? min_slot : slot;
  }
  if (wanted > max_usable) return 0;
  const int octave = static_cast<int>(std::bit_width(wanted - 1)) - 1;
  // A quarter of the octave: at least 64 KiB, so a multiple of any page size.
  const std::size_t step = std::size_t{1} << (octave - 2);
  return ((wanted + step - 1) & ~(step - 1)) + guard_size;
}

// The pool of a slot size, no_class unless slot_size_for gives such a size.
inline std::size_t class_of(std::size_t slot) noexcept {
  if (slot <= max_small_slot) {
    if (slot < min_slot || slot % page_size() != 0) return no_class;
    return (slot - min_slot) / (4 * kib);
  }
  const std::size_t usable = slot - guard_size;
  if (usable <= max_small_slot || slot_size_for(usable) != slot) return no_class;
  const int octave = static_cast<int>(std::bit_width(usable)) - 1;
  const std::size_t step = (usable - (std::size_t{1} << octave)) >> (octave - 2);
  return small_classes + static_cast<std::size_t>(octave - first_octave) * 4 + step;
}

}  // namespace weft::rt
