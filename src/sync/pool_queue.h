// SPDX-License-Identifier: Apache-2.0
// What a P keeps for an object_pool: a queue of pointers with one owner, who pushes and pops at its
// head, and thieves, who take from its tail. Lock-free on both sides.
//
// A ring: head and tail are one word, so that one CAS decides between the owner and a thief who is
// after the same entry. A slot is given back by storing null, and the owner pushes onto a null slot
// only: a thief may have won an entry and not have read it yet.
//
// A chain: rings, each twice as large as the one before. The owner pushes into the newest; when
// that is full the caller brings a larger one (no allocation in here: the owner is pinned). Thieves
// take from the oldest that is not drained. A ring that has a successor is never pushed to again,
// so once a thief finds it empty, having seen the successor first, it is empty for good.
//
// Rings go with the chain, drained ones too: all of them together are less than twice the largest.
// So nobody reads a ring that is gone, and there is nothing to reclaim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/atomic.h"

namespace weft::rt {

class pool_ring {
 public:
  static constexpr std::uint32_t first_size = 8, max_size = 1U << 30;

  explicit pool_ring(std::uint32_t n) : size(n), slots_(new atomic<void*>[n] {}) {}  // a power of 2

  // The owner. False: full.
  bool push(void* v) noexcept {
    const std::uint64_t w = word_.load(memory_order_relaxed);
    if (head(w) - tail(w) == size) return false;
    atomic<void*>& slot = at(head(w));
    // Acquire: with take's release; it has read its entry.
    if (slot.load(memory_order_acquire) != nullptr) return false;
    slot.store(v, memory_order_relaxed);
    word_.fetch_add(one_head, memory_order_release);  // with the acquires of pop and take
    return true;
  }
  // The owner. Null: empty.
  void* pop() noexcept {
    std::uint64_t w = word_.load(memory_order_relaxed);
    do {
      if (head(w) == tail(w)) return nullptr;
    } while (
        !word_.compare_exchange_weak(w, w - one_head, memory_order_acquire, memory_order_relaxed));
    // The slot is ours alone: the head is below it, and only we move that.
    atomic<void*>& slot = at(head(w) - 1);
    void* v = slot.load(memory_order_relaxed);
    slot.store(nullptr, memory_order_relaxed);
    return v;
  }
  // Anybody.
  void* take() noexcept {
    std::uint64_t w = word_.load(memory_order_acquire);
    do {
      if (head(w) == tail(w)) return nullptr;
      // Acquire: with push's release; the entry is there.
    } while (
        !word_.compare_exchange_weak(w, next_tail(w), memory_order_acq_rel, memory_order_acquire));
    atomic<void*>& slot = at(tail(w));
    void* v = slot.load(memory_order_relaxed);
    slot.store(nullptr, memory_order_release);  // with push's acquire
    return v;
  }

  const std::uint32_t size;
  atomic<pool_ring*> next{nullptr};  // the newer one; written once, by the owner
  pool_ring* prev = nullptr;         // the older one; owner only

 private:
  static constexpr std::uint64_t one_head = 1ULL << 32;
  static std::uint32_t head(std::uint64_t w) noexcept {
    return static_cast<std::uint32_t>(w >> 32);
  }
  static std::uint32_t tail(std::uint64_t w) noexcept { return static_cast<std::uint32_t>(w); }
  // Without a carry into the head.
  static std::uint64_t next_tail(std::uint64_t w) noexcept {
    return (w & ~0xffff'ffffULL) | static_cast<std::uint32_t>(w + 1);
  }
  atomic<void*>& at(std::uint32_t i) noexcept { return slots_[i & (size - 1)]; }

  alignas(64) atomic<std::uint64_t> word_{0};
  const std::unique_ptr<atomic<void*>[]> slots_;
};

class pool_chain {
 public:
  pool_chain() = default;
  pool_chain(const pool_chain&) = delete;
  pool_chain& operator=(const pool_chain&) = delete;
  ~pool_chain() {
    while (head_ != nullptr) delete std::exchange(head_, head_->prev);
  }

  // The owner. False: it needs a ring of next_size() first.
  bool push(void* v) noexcept { return head_ != nullptr && head_->push(v); }
  std::uint32_t next_size() const noexcept {
    if (head_ == nullptr) return pool_ring::first_size;
    return head_->size < pool_ring::max_size ? head_->size * 2 : head_->size;
  }
  void add(std::unique_ptr<pool_ring> r) noexcept {
    pool_ring* const old = head_;
    r->prev = old;
    head_ = r.release();
    // Release: with take's acquire.
    (old == nullptr ? tail_ : old->next).store(head_, memory_order_release);
  }
  // The owner.
  void* pop() noexcept {
    for (pool_ring* r = head_; r != nullptr; r = r->prev) {
      if (void* v = r->pop()) return v;
    }
    return nullptr;
  }
  // Anybody.
  void* take() noexcept {
    pool_ring* r = tail_.load(memory_order_acquire);
    while (r != nullptr) {
      pool_ring* newer = r->next.load(memory_order_acquire);  // before we look inside
      if (void* v = r->take()) return v;
      if (newer != nullptr) tail_.compare_exchange_strong(r, newer, memory_order_acq_rel);
      r = newer;
    }
    return nullptr;
  }

 private:
  pool_ring* head_ = nullptr;  // owner only
  atomic<pool_ring*> tail_{nullptr};
};

}  // namespace weft::rt
