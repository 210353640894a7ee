// SPDX-License-Identifier: Apache-2.0
// Ms that wait for a P with their goroutine in place: stopped by a signal in the middle of
// anything, or back from a blocking call that had cost them their P. Their goroutines are runnable,
// but only on their own threads (DESIGN 4): whoever is to run one hands its P over instead.
//
// First come, first served; under the scheduler lock. `size` may be read without it as a hint, and
// by the second look of the wake protocol (idle.h), like the global queue's.
//
// A stopped world walks it without the lock (a report must not wait for one). Nobody is taken out
// then, for there is no P to be had, but a thread that comes back from a call may join: so the
// links forward are stored with release, and a walk sees a member whole or not at all.
#pragma once

#include "core/m.h"

namespace weft::rt {

class kept_queue {
 public:
  void push_back(M* m) noexcept {
    m->kept_next.store(nullptr, memory_order_relaxed);
    m->kept_prev = last_;
    link_behind(last_, m);
    last_ = m;
    added(m);
  }
  void push_front(M* m) noexcept {
    M* first = first_.load(memory_order_relaxed);
    m->kept_prev = nullptr;
    m->kept_next.store(first, memory_order_relaxed);
    (first == nullptr ? last_ : first->kept_prev) = m;
    link_behind(nullptr, m);
    added(m);
  }
  const M* front() const noexcept { return first_.load(memory_order_relaxed); }
  M* pop_front() noexcept { return take(first_.load(memory_order_relaxed)); }
  // The one that was stopped last: it may hold what another blocks on (DESIGN 4.2).
  M* pop_back() noexcept { return take(last_); }

  std::uint32_t size() const noexcept { return size_.load(memory_order_seq_cst); }
  std::uint32_t size_hint() const noexcept { return size_.load(memory_order_relaxed); }

  template <class F>
  void for_each(F f) const noexcept {  // world stopped or lock held
    for (M* m = first_.load(memory_order_acquire); m != nullptr;
         m = m->kept_next.load(memory_order_acquire))  // with link_behind
      f(m);
  }

 private:
  void link_behind(M* before, M* m) noexcept {
    (before == nullptr ? first_ : before->kept_next).store(m, memory_order_release);
  }
  void added(M* m) noexcept {
    m->kept = true;
    size_.store(size_.load(memory_order_relaxed) + 1, memory_order_seq_cst);
  }
  M* take(M* m) noexcept {
    if (m == nullptr) return nullptr;
    M* next = m->kept_next.load(memory_order_relaxed);
    link_behind(m->kept_prev, next);
    (next == nullptr ? last_ : next->kept_prev) = m->kept_prev;
    m->kept = false;
    size_.store(size_.load(memory_order_relaxed) - 1, memory_order_seq_cst);
    return m;
  }
  atomic<M*> first_{nullptr};
  M* last_ = nullptr;
  atomic<std::uint32_t> size_{0};
};

}  // namespace weft::rt
