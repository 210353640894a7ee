// SPDX-License-Identifier: Apache-2.0
// The global run queue: first in, first out, only under the scheduler lock, in batches (R7).
//
// A list of blocks of 126 pointers and not a list through the goroutines: moving a batch is a
// memcpy, and neither the lock holder nor the P that takes the batch touches the goroutines
// themselves (10 000 yielding goroutines would otherwise pay a cache miss each under the lock).
// Blocks come from a slab and are recycled.
//
// `size()` may be read without the lock, as a hint; the wake protocol's second look reads it
// seq_cst.
#pragma once

#include <cstdint>

#include "base/atomic.h"
#include "base/slab.h"
#include "core/g.h"

namespace weft::rt {

struct global_queue_block {
  static constexpr std::uint32_t capacity = 126;
  global_queue_block* next = nullptr;
  std::uint32_t first = 0, last = 0;
  G* gs[capacity] = {};
};

class global_queue {
 public:
  void push(G* const* gs, std::uint32_t n) noexcept;
  void push(G* g) noexcept { push(&g, 1); }
  std::uint32_t pop(G** out, std::uint32_t n) noexcept;

  // seq_cst: one half of 'enqueue; barrier; read the idle word', and of the giver-up's second look
  // (idle.h).
  std::uint32_t size() const noexcept { return size_.load(memory_order_seq_cst); }
  std::uint32_t size_hint() const noexcept { return size_.load(memory_order_relaxed); }

  template <class F>
  void for_each(F f) const noexcept {  // world stopped or lock held
    for (const block* b = head_; b != nullptr; b = b->next) {
      for (std::uint32_t i = b->first; i < b->last; ++i) f(b->gs[i]);
    }
  }

 private:
  using block = global_queue_block;
  block* head_ = nullptr;
  block* tail_ = nullptr;
  slab<block> blocks_;
  atomic<std::uint32_t> size_{0};
};

}  // namespace weft::rt
