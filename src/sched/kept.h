// SPDX-License-Identifier: Apache-2.0
// Ms that wait for a P with their goroutine in place: stopped by a signal in the middle of
// anything, or back from a blocking call that had cost them their P. Their goroutines are runnable,
// but only on their own threads (DESIGN 4): whoever is to run one hands its P over instead.
//
// First come, first served; under the scheduler lock. `size` may be read without it as a hint, and
// by the second look of the wake protocol (idle.h), like the global queue's.
#pragma once

#include "core/m.h"

namespace weft::rt {

class kept_queue {
 public:
  void push_back(M* m) noexcept {
    m->kept_next = nullptr;
    m->kept_prev = last_;
    (last_ == nullptr ? first_ : last_->kept_next) = m;
    last_ = m;
    added(m);
  }
  void push_front(M* m) noexcept {
    m->kept_prev = nullptr;
    m->kept_next = first_;
    (first_ == nullptr ? last_ : first_->kept_prev) = m;
    first_ = m;
    added(m);
  }
  const M* front() const noexcept { return first_; }
  M* pop_front() noexcept { return take(first_); }
  // The one that was stopped last: it may hold what another blocks on (DESIGN 4.2).
  M* pop_back() noexcept { return take(last_); }

  std::uint32_t size() const noexcept { return size_.load(memory_order_seq_cst); }
  std::uint32_t size_hint() const noexcept { return size_.load(memory_order_relaxed); }

  template <class F>
  void for_each(F f) const noexcept {
    for (M* m = first_; m != nullptr; m = m->kept_next) f(m);
  }

 private:
  void added(M* m) noexcept {
    m->kept = true;
    size_.store(size_.load(memory_order_relaxed) + 1, memory_order_seq_cst);
  }
  M* take(M* m) noexcept {
    if (m == nullptr) return nullptr;
    (m->kept_prev == nullptr ? first_ : m->kept_prev->kept_next) = m->kept_next;
    (m->kept_next == nullptr ? last_ : m->kept_next->kept_prev) = m->kept_prev;
    m->kept = false;
    size_.store(size_.load(memory_order_relaxed) - 1, memory_order_seq_cst);
    return m;
  }
  M* first_ = nullptr;
  M* last_ = nullptr;
  atomic<std::uint32_t> size_{0};
};

}  // namespace weft::rt
