// SPDX-License-Identifier: Apache-2.0
// What every sync object holds of its waiters: one pointer, whose meaning is
// src/sync/wait_list.h's.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include <weft/detail/event.hpp>
#include <weft/detail/spawn.hpp>

namespace weft::detail {

struct waiting;

class wait_list {
 public:
  constexpr wait_list() noexcept = default;
  wait_list(const wait_list&) = delete;
  wait_list& operator=(const wait_list&) = delete;

  bool empty() const noexcept { return first_ == nullptr; }

  // -- for src/sync; all under lock_of(object).
  waiting* front() noexcept;  // drops those whose run is over; null: nobody
  void push_back(waiting* w) noexcept;
  void push_front(waiting* w) noexcept;
  void remove(waiting* w) noexcept;
  waiting* detach() noexcept {
    return std::exchange(first_, nullptr);
  }                                                     // all; see wake_chain::take
  void attach(waiting* all) noexcept { first_ = all; }  // an empty list

 private:
  waiting* first_ = nullptr;  // of a ring
};

// In calls that may park: honours the end of the time slice, even when they need not park.
WEFT_API void preempt_point();
// The same, and who the caller is as locks keep it: the goroutine's number, cut off; 0 for a plain
// thread or a member of a bubble. So a cycle of locks can be named (debug/lock_cycles.h).
WEFT_API std::uint32_t lock_point();
WEFT_API std::uint32_t lock_owner() noexcept;  // without the preemption
struct lock_view;                              // for debug/lock_cycles.cc

inline constexpr std::int64_t no_deadline = INT64_MAX;

// Calls attempt(deadline), which tells whether it came to pass in time, until it did or tp has
// passed on its own clock. The steady clock is the one deadlines are counted in; any other may jump
// meanwhile, or stand nearly still while a bubble's time runs: there the first answer counts.
template <class Clock, class Duration, class Attempt>
bool before(const std::chrono::time_point<Clock, Duration>& tp, Attempt attempt) {
  while (const std::int64_t ns = ns_ahead(tp)) {
    if (attempt(deadline_after(ns))) return true;
    if (bubble_here() != 0) return false;
  }
  return attempt(0);  // too late to wait
}

}  // namespace weft::detail
