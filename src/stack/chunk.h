// SPDX-License-Identifier: Apache-2.0
// Chunks: mappings divided into slots of one size, and the registry of all of them. The pools
// (stack.cc) decide which slot is whose; here is where slots come from and how an address finds its
// slot.
//
// A chunk's record is type-stable (base/slab.h) and its geometry never changes once published, so
// find_stack reads it without a lock. The only thing that does change is `lo`: 0 while nothing is
// mapped. That happens to huge slots only, whose mapping is given back; their record waits for the
// next slot of the same size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/atomic.h"
#include "base/slab.h"
#include "stack/stack.h"

namespace weft::rt {

// A slot's place in a free list, kept beside the stack: a link inside would dirty a page of a stack
// that may have none. `next` also says what the slot is when it is in no list.
struct slot_link {
  std::uint32_t next = 0;
  std::uint32_t prev = 0;
};

// A slot's name: chunk index and slot in the chunk. The last chunk index is not used, which leaves
// room for the marks.
inline constexpr unsigned slot_bits = 10;
inline constexpr std::uint32_t max_chunks = (1U << (32 - slot_bits)) - 1;
inline constexpr std::uint32_t no_slot = 0xffffffffU;       // end of a list
inline constexpr std::uint32_t slot_in_use = 0xfffffffeU;   // handed out
inline constexpr std::uint32_t slot_in_hand = 0xfffffffdU;  // being carved, trimmed or unmapped

struct alignas(64) chunk {
  atomic<std::uintptr_t> lo{0};  // release when mapped; partner: the acquire in find_stack
  std::size_t slot = 0;          // bytes of a slot
  std::uint32_t slots = 0;
  std::uint32_t index = 0;          // in the registry
  atomic<std::uint32_t> carved{0};  // slots made, from the bottom; written under pools_lock
  std::uint32_t size_class = 0;     // its pool
  std::uint32_t split_guards = 0;   // of a huge slot: its guard is an area of its own
  slot_link* links = nullptr;       // one for each slot
  slot_link own;                    // the link of a chunk of one slot
};
static_assert(sizeof(chunk) == 64);

// Reserves a chunk for slots of this size, as many as slots_per_chunk says or as fit, at least one;
// else the process ends. With `recycled` (a huge slot's record, unmapped) only the memory is new.
// Calls must not overlap: the caller holds the growth lock.
chunk* make_chunk(std::size_t slot, std::uint32_t size_class, chunk* recycled) noexcept;

// Gives a chunk of one slot back to the kernel; false (and still usable) if the kernel refuses.
bool unmap_chunk(chunk* c) noexcept;

// Grown by make_chunk only, read by anybody without a lock.
extern constinit slab<chunk> chunk_registry;

inline chunk* chunk_of(std::uint32_t id) noexcept { return chunk_registry.at(id >> slot_bits); }
inline slot_link& link_of(std::uint32_t id) noexcept {
  return chunk_of(id)->links[id & ((1U << slot_bits) - 1)];
}

// The stack in a slot of a chunk that begins at lo.
inline stack stack_in(const chunk* c, std::uintptr_t lo, std::uint32_t slot_index) noexcept {
  constexpr std::uint32_t colours = 16;
  constexpr std::uint32_t colour_step = 128;
  stack s;
  s.base = lo + slot_index * c->slot;
  s.lo = s.base + guard_size;
  s.hi = s.base + c->slot;
  // The chunk counts too: huge ones have one slot.
  s.colour = (slot_index + c->index) % colours * colour_step;
  s.id = c->index << slot_bits | slot_index;
  return s;
}
inline stack stack_of(std::uint32_t id) noexcept {
  const chunk* c = chunk_of(id);
  return stack_in(c, c->lo.load(memory_order_relaxed), id & ((1U << slot_bits) - 1));
}

}  // namespace weft::rt
