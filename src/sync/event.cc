// SPDX-License-Identifier: Apache-2.0
// See weft/detail/event.hpp. Waiters lie on the stacks of those who wait; commits run on the
// arriving stack.
#include "weft/detail/event.hpp"

#include "sched/waiter.h"

namespace weft::detail {
namespace {

using rt::waiter;

// A waiter on its way onto a lock-free list.
struct arrival {
  waiter w;
  std::atomic<std::uintptr_t>* word;
};

}  // namespace

void event::wait_slow() const {
  rt::maybe_preempt();
  arrival a{{}, &word_};
  a.w.wait(
      [](void*, void* arg) {
        auto* self = static_cast<arrival*>(arg);
        std::uintptr_t w = self->word->load(std::memory_order_acquire);
        do {
          if (w == set_mark) {
            self->w.wake();  // no reason to wait any more
            return;
          }
          self->w.next = reinterpret_cast<waiter*>(w);
        } while (!self->word->compare_exchange_weak(w, reinterpret_cast<std::uintptr_t>(&self->w),
                                                    std::memory_order_acq_rel,
                                                    std::memory_order_acquire));
      },
      &a, rt::wait_reason::task_wait);
}

void event::set() noexcept {
  // Release: the result is seen by whoever finds the mark. Acquire: the waiters' records are seen
  // here.
  std::uintptr_t w = word_.exchange(set_mark, std::memory_order_acq_rel);
  if (w == set_mark) return;
  waiter* last = reinterpret_cast<waiter*>(w);
  waiter* first = nullptr;
  while (last != nullptr) {  // in order of arrival
    waiter* before = last->next;
    last->next = first;
    first = last;
    last = before;
  }
  while (first != nullptr) {
    waiter* next = first->next;
    first->wake();
    first = next;
  }
}

// While somebody waits, done_ holds waits - (how many are still to come). Whoever starts more
// meanwhile is itself one that runs, so the waiter cannot be woken for good before it has: it looks
// again and finds the two counts unequal.
void countdown::wait_slow() {
  rt::maybe_preempt();
  waiter w;
  waiter_ = &w;
  snapshot_ = added_.load(std::memory_order_relaxed);
  w.wait(
      [](void*, void* arg) {
        auto* self = static_cast<countdown*>(arg);
        const std::uint64_t n = self->snapshot_;
        // Release: waiter_ and snapshot_ are seen by the one who counts to the end (acq_rel in
        // done).
        if (self->done_.fetch_add(waits - n, std::memory_order_acq_rel) == n) self->wake();
      },
      this, rt::wait_reason::scope_wait);
}

void countdown::wake() noexcept {
  auto* w = static_cast<waiter*>(waiter_);
  done_.fetch_sub(
      waits - snapshot_,
      std::memory_order_relaxed);  // the true count again; w sees it through its wake-up
  w->wake();
}

void gate::unlock(void*, void* self) noexcept {
  static_cast<gate*>(self)->lock_.store(0, std::memory_order_release);
}

void gate::enter() {
  rt::maybe_preempt();
  while (lock_.exchange(1, std::memory_order_acquire) != 0) rt::cpu_relax();
  if (free_ > 0) {
    --free_;
    unlock(nullptr, this);
    return;
  }
  waiter w;
  (first_ == nullptr
       ? first_
       : static_cast<void*&>(reinterpret_cast<void*&>(static_cast<waiter*>(last_)->next))) = &w;
  last_ = &w;
  w.wait(&gate::unlock, this, rt::wait_reason::scope_wait);
}

void gate::leave() noexcept {
  while (lock_.exchange(1, std::memory_order_acquire) != 0) rt::cpu_relax();
  auto* w = static_cast<waiter*>(first_);
  if (w != nullptr) {
    first_ = w->next;  // the place goes to w
  } else {
    ++free_;
  }
  unlock(nullptr, this);
  if (w != nullptr) w->wake();
}

}  // namespace weft::detail
