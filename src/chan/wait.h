// SPDX-License-Identifier: Apache-2.0
// Records of those who wait on channels; they lie on the stacks of the waiters.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/atomic.h"
#include "base/chaos.h"
#include "base/fatal.h"
#include "sched/bubble.h"
#include "sched/timers.h"
#include "sched/waiter.h"
#include "weft/detail/chan_core.hpp"

namespace weft::detail {

// Nobody is stopped while holding it (os/section.h).
inline void chan_core::lock() noexcept {
  rt::enter_rt();
  std::uint32_t free = 0;
  // Acquire: with unlock's release.
  if (!lock_.compare_exchange_strong(free, 1, std::memory_order_acquire, std::memory_order_relaxed))
    lock_slow();
}

inline void chan_core::unlock() noexcept {
  let_go();
  rt::leave_rt();
}

// The lock alone. Who has taken somebody out of a queue stays in the runtime until he is woken: it
// may be stopped where it leaves, and for good if its run is over.
inline void chan_core::let_go() noexcept {
  // No read-modify-write; see lock_slow for the one who comes between the two.
  const std::uint32_t was = lock_.load(std::memory_order_relaxed);
  lock_.store(0, std::memory_order_release);  // with lock's acquire
  if (was == contended) [[unlikely]]
    unlock_slow(&lock_);
}

inline void chan_core::check_bubble(const char* what) const noexcept {
  if (bubble_ != 0 && bubble_ != rt::current_bubble()) [[unlikely]]
    rt::fatal(what);
}

// Several may want to wake one who stands in several queues, or has a deadline. Whoever takes the
// claim does; the others pass by.
//
//   open ──take──► taken                  a move that cannot throw, a close, a deadline
//   open ──hold──► busy ──settle──► taken        a move that may throw, and did not
//                  busy ──give_back──► open             it did: the waiter goes on waiting
//                  busy ──expire──► expired ──► taken   the deadline came meanwhile
class claim {
 public:
  // Acquire and release: the claimant sees what an earlier one did to the waiter's slot.
  bool take() noexcept { return win(taken); }
  bool hold() noexcept { return win(busy); }
  void settle() noexcept { state_.store(taken, std::memory_order_release); }
  // True: the deadline has passed meanwhile; the claim is ours, and the waiter ours to wake.
  bool give_back() noexcept {
    std::uint32_t s = busy;
    if (state_.compare_exchange_strong(s, open, std::memory_order_acq_rel)) return false;
    settle();
    return true;
  }
  // The deadline, which must not wait for somebody's move. True: the waiter is ours to wake.
  bool expire() noexcept {
    for (std::uint32_t s = state_.load(std::memory_order_relaxed);;) {
      if (s == taken || s == expired) return false;
      if (state_.compare_exchange_weak(s, s == open ? taken : expired, std::memory_order_acq_rel))
        return s == open;
    }
  }

 private:
  static constexpr std::uint32_t open = 0, taken = 1, busy = 2, expired = 3;
  bool win(std::uint32_t as) noexcept {
    rt::chaos::point("select.claim");
    for (int looks = 0;; ++looks) {
      std::uint32_t s = open;
      if (state_.compare_exchange_weak(s, as, std::memory_order_acq_rel, std::memory_order_acquire))
        return true;
      if (s == taken) return false;
      // A move is under way; it may throw, so we cannot pass by.
      if (looks < 1000) {
        rt::cpu_relax();
      } else {
        wait_for_move(s);
      }
    }
  }
  void wait_for_move(std::uint32_t state) noexcept;
  std::atomic<std::uint32_t> state_{open};
};

struct chan_wait {
  chan_wait* next = nullptr;
  chan_wait* prev = nullptr;
  rt::waiter* w = nullptr;
  void* value = nullptr;    // a sender's
  sink to;                  // a receiver's; a sender's: see `converted`
  claim* shared = nullptr;  // null: only one can wake it
  std::uint32_t index = 0;  // of the select's case
  bool queued = false;      // under the channel's lock
  bool success = false;     // a value has passed; else the channel was closed
  bool won = false;         // of several: this one

  // Under the channel's lock, where moves do not throw. False: somebody else has it, or nobody may.
  bool claim_for_good() noexcept { return !left_behind() && (shared == nullptr || shared->take()); }
  // Of a sender: what it takes to pass the value on may throw, whatever T's move does.
  bool converts() const noexcept { return to.put != nullptr; }
  // A goroutine whose run is over never runs again: it must not be given anything.
  bool left_behind() const noexcept {
    const rt::G* g = w->g;
    return g != nullptr && g->run_id != rt::sched.run_id.load(rt::memory_order_relaxed);
  }
};

// A channel as the leak finder sees it.
struct chan_view {
  const chan_core* c;
  // From where to where its memory reaches; nothing outside points into it but through handles.
  // False: a timer's, whose memory is not only the channel's.
  bool memory(std::uintptr_t* lo, std::uintptr_t* hi) const noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(c);
    *lo = at - c->from_base_;
    *hi = at + c->buffer_at_ + c->cells_ * c->size_;
    return c->owner_ == nullptr;
  }
  std::uint64_t handles() const noexcept { return c->refs_.load(std::memory_order_relaxed); }
};
// The channels that a parked select waits on; waiting_on is what it has given to park. One that
// stands in several cases comes several times.
void each_channel(const void* waiting_on, void (*f)(void* arg, const chan_core*),
                  void* arg) noexcept;

}  // namespace weft::detail
