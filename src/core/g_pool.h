// SPDX-License-Identifier: Apache-2.0
// What a P keeps at hand to start goroutines with: shells of dead Gs (g_cache, before the global
// g_pool), small blocks for what a goroutine shares with its starter (block_cache, block_pool), and
// warm stacks (stack_cache, before the pools of src/stack).
//
// Arrays of pointers and not lists through the Gs: a batch moves between Ps without touching a
// single G (they were last written by another core, so each would be a cache miss under the lock),
// and a spawner can prefetch the lines of the goroutines it will use a few spawns from now. Last
// in, first out: the warmest is used first.
#pragma once

#include <cstdint>
#include <utility>

#include "base/atomic.h"
#include "base/slab.h"
#include "core/g.h"
#include "os/mutex.h"
#include "stack/stack.h"

namespace weft::rt {

struct alignas(64) small_block {
  char bytes[64];
};

// A small channel. Not malloc's memory: a pointer to it is a channel's handle and nothing else, so
// that what lies about of old pointers does not hide a leak from the leak finder.
struct alignas(64) chan_cell {
  char bytes[192];
};
// The same for one with a dozen words of buffer, and for a timer.
struct alignas(64) large_chan_cell {
  char bytes[320];
};

// Before a pool; owner only.
template <class T>
struct cell_cache {
  static constexpr std::uint32_t capacity = 128, half = 64;
  std::uint32_t n = 0;
  T* cells[capacity] = {};

  void push(T* t) noexcept { cells[n++] = t; }
  T* pop() noexcept {
    constexpr std::uint32_t ahead = 4, lines = sizeof(T) > 128 ? 2 : 1;
    T* t = cells[--n];
    if (n >= ahead) {
      for (std::uint32_t i = 0; i < lines; ++i)
        __builtin_prefetch(reinterpret_cast<const char*>(cells[n - ahead]) + 64 * i, 1);
    }
    return t;
  }
};
using g_cache = cell_cache<G>;
using block_cache = cell_cache<small_block>;
using chan_cache = cell_cache<chan_cell>;
using large_chan_cache = cell_cache<large_chan_cell>;

// Owner only; all of the run's default size.
struct stack_cache {
  static constexpr std::uint32_t capacity = 32, half = 16;
  std::uint32_t n = 0;
  stack cells[capacity] = {};
};

template <class T>
class cell_pool {
 public:
  static constexpr std::uint32_t block_size = 126;

  std::uint32_t size_hint() const noexcept { return size_.load(memory_order_relaxed); }

  // On top: the last of the array will be the first to go.
  void push(T* const* ts, std::uint32_t n) noexcept {
    lock.lock();
    for (std::uint32_t i = 0; i < n; ++i) {
      if (top_ == nullptr || top_->n == block_size) add();
      top_->cells[top_->n++] = ts[i];
    }
    size_.store(size_.load(memory_order_relaxed) + n, memory_order_relaxed);
    lock.unlock();
  }
  std::uint32_t pop(T** out, std::uint32_t n) noexcept {
    lock.lock();
    std::uint32_t k = 0;
    while (k < n && top_ != nullptr) {
      if (top_->n == 0) {
        drop();
        continue;
      }
      out[k++] = std::exchange(top_->cells[--top_->n], nullptr);  // see chan_cell
    }
    size_.store(size_.load(memory_order_relaxed) - k, memory_order_relaxed);
    lock.unlock();
    return k;
  }

  mutex lock{lock_rank::free_list};

  struct block {
    block* below;
    std::uint32_t n;
    T* cells[block_size];
  };

 private:
  void add() noexcept {
    block* b = blocks_.allocate();
    b->n = 0;
    b->below = top_;
    top_ = b;
  }
  void drop() noexcept {
    block* b = top_;
    top_ = b->below;
    blocks_.release(b);
  }

  block* top_ = nullptr;
  slab<block> blocks_;
  atomic<std::uint32_t> size_{0};
};
using g_pool = cell_pool<G>;
using block_pool = cell_pool<small_block>;
using chan_pool = cell_pool<chan_cell>;
using large_chan_pool = cell_pool<large_chan_cell>;

}  // namespace weft::rt
