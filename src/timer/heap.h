// SPDX-License-Identifier: Apache-2.0
// The timer heap: a 4-ary heap of pointers to timers that live elsewhere (on the stack of who
// waits, as a rule). It returns what is due and never schedules; it takes no lock, its owner does.
//
// Four children a node: half the depth of a binary heap, and the four keys of one level lie in one
// or two cache lines. The key stands beside the pointer so that sifting does not touch the timers.
// Each timer knows its place, so it can be taken out in O(log n): a stopped timer leaves nothing
// behind (Go keeps it and sweeps later). That costs a write to each timer that is moved, a cache
// miss for every level; a `fixed` one, which only its time can end, is spared it: of a million
// sleepers none is touched before it is due.
//
// Memory comes from mmap and doubles; nothing is allocated in the middle of a million timers but
// once a doubling. Runs on any stack.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/atomic.h"

namespace weft::rt {

struct G;
struct timer;
using timer_fn = G* (*)(timer*) noexcept;  // returns whom to make ready, or null

inline constexpr std::int64_t never = INT64_MAX;

struct timer_home;

struct timer {
  std::int64_t when = never;  // CLOCK_MONOTONIC, ns; of interest only while it is in a heap
  timer_fn fire = nullptr;
  atomic<timer_home*> home{nullptr};  // whose heap; set by arm(), changes under both locks
  std::uint32_t place = 0;            // 1 + index in the heap; 0: in none
  bool durable = false;               // a durable_timer (sched/timers.h)
  bool fixed = false;                 // never removed, only popped; has no place
};

class timer_heap {
 public:
  constexpr timer_heap() noexcept = default;
  timer_heap(const timer_heap&) = delete;
  timer_heap& operator=(const timer_heap&) = delete;

  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }
  std::int64_t earliest() const noexcept { return size_ == 0 ? never : items_[0].when; }

  void push(timer* t) noexcept;    // by t->when
  void remove(timer* t) noexcept;  // t->place != 0; not a fixed one
  // The earliest if it is due, taken out; else null.
  timer* pop_due(std::int64_t now) noexcept;
  timer* pop() noexcept;
  // For audits: every node is not before its parent, and knows its place.
  bool sound() const noexcept;

 private:
  struct item {
    std::int64_t when;
    std::uintptr_t tagged;  // the timer; the lowest bit: it is fixed
    timer* t() const noexcept {
      return reinterpret_cast<timer*>(tagged & ~static_cast<std::uintptr_t>(1));
    }
    bool fixed() const noexcept { return (tagged & 1) != 0; }
  };
  void up(std::size_t i, item x) noexcept;
  void down(std::size_t i, item x) noexcept;
  void set(std::size_t i, item x) noexcept {
    items_[i] = x;
    if (!x.fixed()) x.t()->place = static_cast<std::uint32_t>(i + 1);
  }
  void take_out(std::size_t i) noexcept;
  void grow() noexcept;

  item* items_ = nullptr;  // the root; four children share a cache line
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace weft::rt
