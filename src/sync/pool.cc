// SPDX-License-Identifier: Apache-2.0
// object_pool, the type-erased half (weft/pool.hpp).
//
// Each P has a place for one and a queue (pool_queue.h), whose owner is whoever holds the P: inside
// the runtime nobody takes it away. Nothing is allocated there; for a new ring the owner leaves,
// allocates, and comes back, perhaps on another P. Threads without a P share one such place, under
// a lock. get() looks in its own place, then takes from everybody's queue.
//
// Two generations of all this. trim() empties the older and makes it the younger. Somebody who has
// read `now_` before may still push into what is the older by then: he is its owner all the same,
// and what he has pushed goes one trim later. So trim needs no stopped world.
//
// Runs on the caller's stack.
#include "weft/pool.hpp"

#include "os/mutex.h"
#include "sched/sched.h"
#include "sync/pool_queue.h"

namespace weft::detail {

struct pool_place {
  // Written by the owner where it is null; anybody may exchange it for null.
  rt::atomic<void*> one{nullptr};
  rt::pool_chain many;

  void* take_one() noexcept {
    // Acquire: with keep's release.
    return one.load(rt::memory_order_relaxed) != nullptr
               ? one.exchange(nullptr, rt::memory_order_acquire)
               : nullptr;
  }
  void* take() noexcept {
    void* v = take_one();
    return v != nullptr ? v : many.take();
  }
  // The owner's.
  bool keep(void* v) noexcept {
    if (one.load(rt::memory_order_relaxed) == nullptr) {
      one.store(v, rt::memory_order_release);  // with take_one's acquire
      return true;
    }
    return many.push(v);
  }
};

struct alignas(64) pool_local {
  pool_place of[2];  // by generation
};
struct pool_block {
  pool_local of[32];
};
struct pool_foreign {
  rt::mutex lock{rt::lock_rank::leaf};
  pool_local local;
};

struct pool_core::impl {
  static constexpr std::uint32_t per_block = 32;
  static_assert(block_count * per_block == rt::max_procs);

  // The place that is the caller's while this lives; null: its memory has yet to be made.
  class pinned {
   public:
    explicit pinned(pool_core& c) noexcept : c_(c) {
      rt::enter_rt();
      if (const rt::P* p = rt::own_p()) {
        block_ = p->id / per_block;
        if (auto* b = c.blocks_[block_].load(std::memory_order_acquire))
          local_ = &b->of[p->id % per_block];
        return;
      }
      rt::leave_rt();
      block_ = none;
      foreign_ = c.foreign_.load(std::memory_order_acquire);
      if (foreign_ == nullptr) return;
      foreign_->lock.lock();
      local_ = &foreign_->local;
    }
    pinned(const pinned&) = delete;
    pinned& operator=(const pinned&) = delete;
    ~pinned() { leave(); }
    void leave() noexcept {
      if (std::exchange(left_, true)) return;
      if (block_ != none) {
        rt::leave_rt();
      } else if (foreign_ != nullptr) {
        foreign_->lock.unlock();
      }
    }
    pool_place* place() const noexcept {
      return local_ == nullptr ? nullptr : &local_->of[c_.now_.load(std::memory_order_relaxed)];
    }
    // When it has left.
    void make_memory() const {
      if (block_ != none) {
        publish(c_.blocks_[block_], std::make_unique<pool_block>());
      } else {
        publish(c_.foreign_, std::make_unique<pool_foreign>());
      }
    }

   private:
    static constexpr std::uint32_t none = ~0U;
    template <class X>
    static void publish(std::atomic<X*>& where, std::unique_ptr<X> made) noexcept {
      X* nobody = nullptr;
      // Release: with the constructor's acquire. Somebody else may have been faster.
      if (where.compare_exchange_strong(nobody, made.get(), std::memory_order_release,
                                        std::memory_order_relaxed))
        (void)made.release();
    }
    pool_core& c_;
    std::uint32_t block_ = none;
    pool_foreign* foreign_ = nullptr;
    pool_local* local_ = nullptr;
    bool left_ = false;
  };

  // f(place) for each of a generation, until it gives something.
  template <class F>
  static void* among(pool_core& c, std::uint32_t generation, F f) noexcept {
    for (auto& at : c.blocks_) {
      pool_block* b = at.load(std::memory_order_acquire);
      if (b == nullptr) continue;
      for (pool_local& l : b->of) {
        if (void* v = f(l.of[generation])) return v;
      }
    }
    pool_foreign* o = c.foreign_.load(std::memory_order_acquire);
    return o != nullptr ? f(o->local.of[generation]) : nullptr;
  }
  static void empty(pool_core& c, std::uint32_t generation, drop_fn drop) noexcept {
    among(c, generation, [drop](pool_place& p) noexcept -> void* {
      while (void* v = p.take()) drop(v);
      return nullptr;
    });
  }
};

void* pool_core::get() noexcept {
  {
    const impl::pinned own(*this);
    if (pool_place* p = own.place()) {
      if (void* v = p->take_one()) return v;
      if (void* v = p->many.pop()) return v;
    }
  }
  // Nobody is stopped with an entry that he has won and not taken.
  const rt::in_runtime inside;
  const std::uint32_t now = now_.load(std::memory_order_relaxed);
  // Not another's `one`: its owner is about to want it.
  if (void* v = impl::among(*this, now, [](pool_place& p) noexcept { return p.many.take(); }))
    return v;
  if (!aged_.load(std::memory_order_relaxed)) return nullptr;
  if (void* v = impl::among(*this, 1 - now, [](pool_place& p) noexcept { return p.take(); }))
    return v;
  aged_.store(false, std::memory_order_relaxed);
  return nullptr;
}

void pool_core::put(void* v) {
  std::unique_ptr<rt::pool_ring> ring;
  for (;;) {
    impl::pinned own(*this);
    pool_place* p = own.place();
    if (p == nullptr) {
      own.leave();
      own.make_memory();
      continue;
    }
    if (p->keep(v)) return;
    const std::uint32_t size = p->many.next_size();
    if (ring != nullptr && ring->size == size) {
      p->many.add(std::move(ring));
      p->many.push(v);  // it is empty
      return;
    }
    own.leave();
    ring = std::make_unique<rt::pool_ring>(size);
  }
}

void pool_core::trim(drop_fn drop) noexcept {
  const std::uint32_t old = 1 - now_.load(std::memory_order_relaxed);
  impl::empty(*this, old, drop);
  std::uint32_t now = 1 - old;
  // Two at once: one of them has turned it.
  if (now_.compare_exchange_strong(now, old, std::memory_order_relaxed))
    aged_.store(true, std::memory_order_relaxed);
}

void pool_core::clear(drop_fn drop) noexcept {
  for (const std::uint32_t generation : {0U, 1U}) impl::empty(*this, generation, drop);
  for (auto& at : blocks_) delete at.exchange(nullptr, std::memory_order_relaxed);
  delete foreign_.exchange(nullptr, std::memory_order_relaxed);
}

}  // namespace weft::detail
