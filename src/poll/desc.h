// SPDX-License-Identifier: Apache-2.0
// One descriptor and direction: the state of who waits for it.
//
//   nil        nobody waits, nothing is known
//   ready      it has become ready since somebody last looked
//   preparing  somebody is about to wait: it has said so, and looks once more for a reason not to
//   a waiter   somebody waits
//
//   begin      nil → preparing; ready → nil (do not wait, try again)          by the one who waits
//   publish    preparing → waiter, or it has been unblocked meanwhile: refuse       in its commit
//   finish     anything → nil; whether it was ready                      by the one who has waited
//   notify     → ready (something came) or nil (its time is up, closed); returns the waiter to
//              wake, if there was one                                                 by anybody
//   forget     ready → nil, before a call that will find out by itself
//
// At most one waits: readers exclude readers (net/fd_mutex.h). Whoever gets a waiter from notify()
// wakes it, once; it lies on the stack of the one who waits and is gone after that.
//
// Reasons not to wait (expired, closing) stand outside, in `info`. They are written first and
// then notify() is called; the waiter says `preparing` first and reads them then. Both sides are
// seq_cst: with less each could miss the other's store (store buffering).
//
// It returns whom to wake and never schedules. Runs on any stack.
#pragma once

#include <cstdint>

#include "base/atomic.h"
#include "base/fatal.h"

namespace weft::rt {

struct G;

enum class poll_mode : std::uint8_t { read = 0, write = 1 };

class wait_slot;

struct poll_waiter {
  G* g = nullptr;             // null: a plain thread
  int wake_fd = -1;           // its eventfd, if it has one
  atomic<bool> taken{false};  // a plain thread's: wake it; its waker's last touch if it has no fd
  wait_slot* slot = nullptr;
  poll_waiter* next = nullptr;  // of those to wake
};

class wait_slot {
 public:
  bool begin() noexcept {  // false: it is ready, do not wait
    for (;;) {
      std::uintptr_t s = ready;
      if (word_.compare_exchange_strong(s, nil, memory_order_seq_cst)) return false;
      s = nil;
      if (word_.compare_exchange_strong(s, preparing, memory_order_seq_cst)) return true;
      if (s != ready) fatal("netpoll: two wait for one descriptor and direction");
    }
  }
  bool publish(poll_waiter* w) noexcept {  // false: unblocked meanwhile, do not wait
    std::uintptr_t s = preparing;
    return word_.compare_exchange_strong(s, reinterpret_cast<std::uintptr_t>(w),
                                         memory_order_seq_cst);
  }
  // A plain thread that found out by itself. False: somebody has taken it and will wake it.
  bool withdraw(poll_waiter* w) noexcept {
    auto s = reinterpret_cast<std::uintptr_t>(w);
    return word_.compare_exchange_strong(s, nil, memory_order_seq_cst);
  }
  bool finish() noexcept { return word_.exchange(nil, memory_order_seq_cst) == ready; }
  poll_waiter* notify(bool came) noexcept {
    std::uintptr_t s = word_.load(memory_order_seq_cst);
    for (;;) {
      if (s == ready || (s == nil && !came)) return nullptr;
      if (word_.compare_exchange_weak(s, came ? ready : nil, memory_order_seq_cst)) break;
    }
    return s == nil || s == preparing ? nullptr : reinterpret_cast<poll_waiter*>(s);
  }
  // Relaxed is enough to look: what is ready later than this stays, and what was ready earlier is
  // seen by the call that follows, in the kernel.
  void forget() noexcept {
    std::uintptr_t s = word_.load(memory_order_relaxed);
    if (s == ready) word_.compare_exchange_strong(s, nil, memory_order_seq_cst);
  }
  void reset() noexcept {
    word_.store(nil, memory_order_seq_cst);
  }  // a descriptor's cell is reused

 private:
  static constexpr std::uintptr_t nil = 0, ready = 1, preparing = 2;
  atomic<std::uintptr_t> word_{nil};
};

// Waiters to be woken, in order. The last touch of each is its waking.
class wake_queue {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  void push(poll_waiter* w) noexcept {
    if (w == nullptr) return;
    w->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = w;
    last_ = w;
  }
  poll_waiter* pop() noexcept {
    poll_waiter* w = first_;
    if (w != nullptr) first_ = w->next;
    return w;
  }

 private:
  poll_waiter* first_ = nullptr;
  poll_waiter* last_ = nullptr;
};

}  // namespace weft::rt
