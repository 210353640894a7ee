// SPDX-License-Identifier: Apache-2.0
// A P's run queue: a ring of 256 and the runnext slot.
//
// Algorithm. The owner puts at the tail with a store-release (R2, R4). Everybody, the owner too,
// takes at the head with a CAS (R3), so the order is first in, first out and a thief takes the
// oldest half. head and tail are free-running 32-bit counters; their difference is the length, at
// most 256 (R1). A slot is written only by the owner, and only when head has passed it: a reader
// that lost the race fails its CAS on head.
//
// runnext holds the goroutine that was made ready last; it runs next and shares the time slice of
// who made it ready. Only the owner sets it from null; owner and thieves take it by CAS or exchange
// (R5).
//
// Roles are types: `runq_owner` can put and take, `runq_thief` can only look and steal. Both are
// views of one `runq`. The capacity is a template parameter so that a model can shrink it to 4.
//
// Never seen empty while it is not (RUN-02): `empty()` must not see the moment in which the owner
// moves a goroutine from runnext to the ring: it reads head, tail, runnext, and starts again if
// tail has moved. The new runnext may be stolen in that moment, and the displaced one be nowhere to
// be seen; so the owner marks it (`moving`), before the exchange and until the store of tail. The
// other way is a full barrier behind that store, at each spawn. models/runq.pml, models/wake.pml.
//
// Runs on any stack; no lock, no allocation.
#pragma once

#include <cstdint>

#include "base/atomic.h"
#include "base/chaos.h"
#include "core/g.h"

namespace weft::rt {

template <std::uint32_t Capacity = 256>
struct basic_runq {
  static_assert((Capacity & (Capacity - 1)) == 0);
  static constexpr std::uint32_t capacity = Capacity;

  atomic<std::uint32_t> head{0};
  atomic<std::uint32_t> tail{0};
  // On a line of its own: spinners look at head and tail far more often than at runnext, which
  // changes with every ready.
  alignas(64) atomic<G*> runnext{nullptr};
  atomic<bool> moving{false};  // one displaced from runnext is on its way to the ring
  alignas(64) atomic<G*> slots[Capacity] = {};

  bool empty() const noexcept {
    for (;;) {
      const std::uint32_t h = head.load(memory_order_acquire);
      const std::uint32_t t = tail.load(memory_order_acquire);  // with put's store-release
      G* n = runnext.load(memory_order_seq_cst);         // see idle.h: the re-check after giving up
      const bool m = moving.load(memory_order_acquire);  // with settled: then tail is seen below
      if (t == tail.load(memory_order_acquire)) return h == t && n == nullptr && !m;
    }
  }
  bool ring_empty() const noexcept {  // a guess, for spinners
    return head.load(memory_order_relaxed) == tail.load(memory_order_relaxed);
  }
  std::uint32_t size() const noexcept {  // a guess unless the world is stopped
    const std::uint32_t h = head.load(memory_order_acquire);
    const std::uint32_t n = tail.load(memory_order_acquire) - h;
    return n <= Capacity ? n : 0;
  }
};

using runq = basic_runq<>;

// What the P's M may do.
template <class Q>
class runq_owner {
 public:
  static constexpr std::uint32_t capacity = Q::capacity;
  explicit runq_owner(Q& q) noexcept : q_(q) {}

  // At the tail. False: full, see take_half_for_overflow.
  bool put(G* g) noexcept {
    const std::uint32_t h =
        q_.head.load(memory_order_acquire);  // with the CAS in take/grab: slot is free again
    const std::uint32_t t = q_.tail.load(memory_order_relaxed);  // ours (R2)
    if (t - h >= capacity) return false;
    q_.slots[t % capacity].store(g, memory_order_relaxed);
    chaos::point("runq.put");
    q_.tail.store(t + 1, memory_order_release);  // with the acquire loads of tail in take and grab
    return true;
  }

  // Into runnext; returns who was there and must go to the tail, then settled(). seq_cst: this is
  // the 'enqueue; full barrier' half of the wake protocol (idle.h); on x86 an exchange is a full
  // barrier anyway.
  G* put_next(G* g) noexcept {
    if (q_.runnext.load(memory_order_relaxed) == nullptr) {  // certain, see take_next
      return q_.runnext.exchange(g, memory_order_seq_cst);
    }
    q_.moving.store(true, memory_order_relaxed);  // seen by all who see the exchange
    chaos::point("runq.next");
    G* old = q_.runnext.exchange(g, memory_order_seq_cst);
    if (old == nullptr) settled();  // a thief was faster
    return old;
  }
  // Who was displaced is in the ring (or in the global queue).
  void settled() noexcept { q_.moving.store(false, memory_order_release); }  // with empty()

  G* take_next() noexcept {
    G* g = q_.runnext.load(memory_order_relaxed);  // only we set it from null, so null is certain
    if (g == nullptr) return nullptr;
    // Acquire with put_next: a thief may have put nothing, but g's contents were written by its
    // readier.
    return q_.runnext.exchange(nullptr, memory_order_acquire);
  }

  G* take() noexcept {
    std::uint32_t h = q_.head.load(memory_order_acquire);  // with other takers' CAS
    for (;;) {
      const std::uint32_t t = q_.tail.load(memory_order_relaxed);  // ours
      if (t == h) return nullptr;
      G* g = q_.slots[h % capacity].load(memory_order_relaxed);
      chaos::point("runq.take");
      if (q_.head.compare_exchange_weak(h, h + 1, memory_order_acq_rel, memory_order_acquire))
        return g;
    }
  }

  // Takes the oldest half out for the global queue (R6). 0 if a thief made room meanwhile.
  std::uint32_t take_half(G** out) noexcept {
    std::uint32_t h = q_.head.load(memory_order_acquire);
    const std::uint32_t t = q_.tail.load(memory_order_relaxed);
    const std::uint32_t n = (t - h) / 2;
    if (n != capacity / 2) return 0;
    for (std::uint32_t i = 0; i < n; ++i)
      out[i] = q_.slots[(h + i) % capacity].load(memory_order_relaxed);
    if (!q_.head.compare_exchange_strong(h, h + n, memory_order_acq_rel, memory_order_acquire))
      return 0;
    return n;
  }
  // Everything in the ring, in order.
  std::uint32_t take_all(G** out) noexcept {
    std::uint32_t h = q_.head.load(memory_order_acquire);
    for (;;) {
      const std::uint32_t n = q_.tail.load(memory_order_relaxed) - h;
      for (std::uint32_t i = 0; i < n; ++i)
        out[i] = q_.slots[(h + i) % capacity].load(memory_order_relaxed);
      if (n == 0 ||
          q_.head.compare_exchange_weak(h, h + n, memory_order_acq_rel, memory_order_acquire))
        return n;
    }
  }
  // A batch behind one store of tail; the caller knows that it fits.
  void put_all(G* const* gs, std::uint32_t n) noexcept {
    const std::uint32_t t = q_.tail.load(memory_order_relaxed);
    for (std::uint32_t i = 0; i < n; ++i)
      q_.slots[(t + i) % capacity].store(gs[i], memory_order_relaxed);
    q_.tail.store(t + n, memory_order_release);
  }
  // What grab_into has written behind our tail, n >= 1: publishes all but the last, which the
  // caller runs.
  G* publish_stolen(std::uint32_t n) noexcept {
    const std::uint32_t last = q_.tail.load(memory_order_relaxed) + n - 1;
    G* g = q_.slots[last % capacity].load(memory_order_relaxed);
    q_.tail.store(last, memory_order_release);  // with thieves' acquire of tail
    return g;
  }
  std::uint32_t room() const noexcept {
    return capacity - (q_.tail.load(memory_order_relaxed) - q_.head.load(memory_order_acquire));
  }

  // Brings the lines of those who run soon into the cache: the next one's saved registers, the G of
  // the one behind it. A prefetch of a stale address does no harm.
  void prefetch() const noexcept {
#if !defined(WEFT_TSAN)  // reads sp of a goroutine that may be starting elsewhere: harmless, but a
                         // race by the book
    const std::uint32_t h = q_.head.load(memory_order_relaxed);
    const std::uint32_t n = q_.tail.load(memory_order_relaxed) - h;
    if (n < 13) return;
    G* far = q_.slots[(h + 12) % capacity].load(memory_order_relaxed);
    __builtin_prefetch(far, 1);
    G* near = q_.slots[(h + 4) % capacity].load(memory_order_relaxed);
    const char* sp =
        static_cast<const char*>(std::atomic_ref<void*>(near->sp).load(memory_order_relaxed));
    __builtin_prefetch(sp, 1);
    __builtin_prefetch(sp + 64, 1);
    __builtin_prefetch(sp + 128, 1);
#endif
  }

 private:
  Q& q_;
};

// What anybody else may do.
template <class Q>
class runq_thief {
 public:
  static constexpr std::uint32_t capacity = Q::capacity;
  explicit runq_thief(Q& q) noexcept : q_(q) {}

  // Moves half of the victim's ring (n - n/2) behind `to`'s tail without publishing it: returns how
  // many were written, for publish_stolen. Only `to`'s owner may call this.
  std::uint32_t grab_into(Q& to) noexcept {
    const std::uint32_t at = to.tail.load(memory_order_relaxed);  // the caller owns `to`
    for (;;) {
      std::uint32_t h = q_.head.load(memory_order_acquire);        // with other takers' CAS
      const std::uint32_t t = q_.tail.load(memory_order_acquire);  // with put's store-release
      std::uint32_t n = t - h;
      n -= n / 2;
      if (n == 0) return 0;
      if (n > capacity / 2) continue;  // head and tail were read at different moments
      chaos::point("runq.steal");
      for (std::uint32_t i = 0; i < n; ++i) {
        to.slots[(at + i) % capacity].store(q_.slots[(h + i) % capacity].load(memory_order_relaxed),
                                            memory_order_relaxed);
      }
      if (q_.head.compare_exchange_strong(h, h + n, memory_order_acq_rel, memory_order_acquire))
        return n;
    }
  }

  G* peek_next() const noexcept { return q_.runnext.load(memory_order_acquire); }
  bool take_next(G* expected) noexcept {
    return q_.runnext.compare_exchange_strong(expected, nullptr, memory_order_acq_rel,
                                              memory_order_relaxed);
  }

 private:
  Q& q_;
};

}  // namespace weft::rt
