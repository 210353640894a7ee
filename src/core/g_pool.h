// SPDX-License-Identifier: Apache-2.0
// Dead goroutines with their warm stacks: a small array a P (g_cache), and a global pool of blocks
// (g_pool).
//
// Arrays of pointers and not lists through the Gs: a batch moves between Ps without touching a
// single G (they were last written by another core, so each would be a cache miss under the lock),
// and a spawner can prefetch the lines of the goroutines it will use a few spawns from now. Last
// in, first out: the warmest stack is used first.
#pragma once

#include <cstdint>

#include "base/atomic.h"
#include "base/slab.h"
#include "core/g.h"
#include "os/mutex.h"

namespace weft::rt {

struct free_g {
  G* g;
  std::uintptr_t top;  // of its stack, to prefetch without reading g
};

// Owner only.
struct g_cache {
  static constexpr std::uint32_t capacity = 64, half = 32;
  std::uint32_t n = 0;
  free_g cells[capacity] = {};

  void push(G* g) noexcept { cells[n++] = {g, g->top}; }
  G* pop() noexcept {
    G* g = cells[--n].g;
    constexpr std::uint32_t ahead = 4;
    if (n >= ahead) {
      const free_g& f = cells[n - ahead];
      __builtin_prefetch(f.g, 1);
      __builtin_prefetch(&f.g->goid, 1);
      __builtin_prefetch(reinterpret_cast<const void*>(f.top - 64), 1);
      __builtin_prefetch(reinterpret_cast<const void*>(f.top - 128), 1);
    }
    return g;
  }
};

class g_pool {
 public:
  static constexpr std::uint32_t block_size = 62;

  std::uint32_t size_hint() const noexcept { return size_.load(memory_order_relaxed); }

  // On top: the last of the array will be the first to go.
  void push(const free_g* f, std::uint32_t n) noexcept {
    lock.lock();
    for (std::uint32_t i = 0; i < n; ++i) {
      if (top_ == nullptr || top_->n == block_size) add(true);
      top_->cells[top_->n++] = f[i];
    }
    size_.store(size_.load(memory_order_relaxed) + n, memory_order_relaxed);
    lock.unlock();
  }
  // Below all others: those that have lost their warmth.
  void push_bottom(const free_g* f, std::uint32_t n) noexcept {  // n <= block_size
    lock.lock();
    add(false);
    for (std::uint32_t i = 0; i < n; ++i) bottom_->cells[bottom_->n++] = f[i];
    size_.store(size_.load(memory_order_relaxed) + n, memory_order_relaxed);
    lock.unlock();
  }
  std::uint32_t pop(free_g* out, std::uint32_t n) noexcept {
    lock.lock();
    std::uint32_t k = 0;
    while (k < n && top_ != nullptr) {
      if (top_->n == 0) {
        drop(true);
        continue;
      }
      out[k++] = top_->cells[--top_->n];
    }
    size_.store(size_.load(memory_order_relaxed) - k, memory_order_relaxed);
    lock.unlock();
    return k;
  }
  // One block's worth from the bottom.
  std::uint32_t pop_bottom(free_g* out) noexcept {
    lock.lock();
    while (bottom_ != nullptr && bottom_->n == 0) drop(false);
    std::uint32_t k = 0;
    if (bottom_ != nullptr) {
      for (; k < bottom_->n; ++k) out[k] = bottom_->cells[k];
      bottom_->n = 0;
      drop(false);
      size_.store(size_.load(memory_order_relaxed) - k, memory_order_relaxed);
    }
    lock.unlock();
    return k;
  }

  mutex lock{lock_rank::free_list};

  struct block {
    block* below;
    block* above;
    std::uint32_t n;
    free_g cells[block_size];
  };

 private:
  void add(bool on_top) noexcept {
    block* b = blocks_.allocate();
    b->n = 0;
    b->below = on_top ? top_ : nullptr;
    b->above = on_top ? nullptr : bottom_;
    if (b->below != nullptr) b->below->above = b;
    if (b->above != nullptr) b->above->below = b;
    if (on_top || top_ == nullptr) top_ = b;
    if (!on_top || bottom_ == nullptr) bottom_ = b;
  }
  void drop(bool on_top) noexcept {
    block* b = on_top ? top_ : bottom_;
    if (b->below != nullptr) b->below->above = b->above;
    if (b->above != nullptr) b->above->below = b->below;
    if (top_ == b) top_ = b->below;
    if (bottom_ == b) bottom_ = b->above;
    blocks_.release(b);
  }

  block* top_ = nullptr;
  block* bottom_ = nullptr;
  slab<block> blocks_;
  atomic<std::uint32_t> size_{0};
};

}  // namespace weft::rt
