// SPDX-License-Identifier: Apache-2.0
// Two small primitives behind task and scope. Both follow API.md's rule of destruction: set() and
// done() do not touch the object after the one they wake can run.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ratio>
#include <type_traits>

#include <weft/detail/atomic.hpp>
#include <weft/detail/bubble.hpp>
#include <weft/detail/clock.hpp>
#include <weft/detail/spawn.hpp>

namespace weft::detail {

class chan_core;

// Happens once; any number of goroutines and plain threads wait for it.
class event {
 public:
  constexpr event() noexcept = default;
  event(const event&) = delete;
  event& operator=(const event&) = delete;
  ~event() {
    // Relaxed: whoever destroys it has been told by others that he may.
    const std::uintptr_t w = word_.load(std::memory_order_relaxed);
    if (w > list_mark && (w & set_mark) != 0) forget(w);
  }

  // Then the channel is closed too, if there is one.
  bool is_set() const noexcept {
    // Acquire: with set's release.
    const std::uintptr_t w = word_.load(std::memory_order_acquire);
    return (w & set_mark) != 0 && (w == set_mark || is_closed(w));
  }
  WEFT_API void set() noexcept;
  void wait() const {
    if (!is_set()) wait_slow();
  }
  // Until `deadline` (nanoseconds of the steady clock) at most; whether it has happened.
  bool wait_until(std::int64_t deadline) const {
    if (is_set()) return true;
    if (deadline != INT64_MAX) return wait_slow(deadline);
    wait_slow();
    return true;
  }

  // A reference to a chan<void> that is closed when it has happened; the same one until then.
  WEFT_API chan_core* channel() const;

  struct waiting;  // for event.cc

 private:
  struct timed;
  WEFT_API void wait_slow() const;
  WEFT_API bool wait_slow(std::int64_t deadline) const;
  bool lock() const noexcept;  // false: it has happened, there is no list any more
  void unlock() const noexcept;
  WEFT_API static bool is_closed(std::uintptr_t word) noexcept;  // true; waits until it is
  WEFT_API static void forget(std::uintptr_t word) noexcept;

  // 0: nobody waits. Who comes first and without a deadline is the word itself; with more there is
  // a list, under the lock. When it has happened: the mark, with a channel also where its record
  // is.
  static constexpr std::uintptr_t set_mark = 1, lock_mark = 2, list_mark = 4;
  mutable atomic<std::uintptr_t> word_{0};
  birthplace born_;
  mutable waiting* first_ = nullptr;
  mutable waiting* last_ = nullptr;
};

// Nanoseconds, rounded up, saturating; 0 for what is not positive.
template <class Rep, class Period>
std::int64_t to_ns(std::chrono::duration<Rep, Period> d) {
  if (!(d > d.zero())) return 0;
  const std::chrono::duration<long double, std::nano> wide(d);
  if (wide.count() >= static_cast<long double>(INT64_MAX)) return INT64_MAX;
  if constexpr (std::is_integral_v<Rep> && std::ratio_divide<Period, std::nano>::den == 1) {
    return std::chrono::ceil<std::chrono::nanoseconds>(d).count();
  } else {  // whose own arithmetic may overflow, or has fewer digits
    const auto whole = static_cast<std::int64_t>(wide.count());
    return whole + (static_cast<long double>(whole) < wide.count() ? 1 : 0);
  }
}
// The clock's time in `ns` from now, saturating: a time that never comes, but not INT64_MAX, which
// is none. Who waits for it is as good as any other who waits for a timer.
inline constexpr std::int64_t last_deadline = INT64_MAX - 1;
inline std::int64_t deadline_after(std::int64_t ns) noexcept {
  const std::int64_t now = now_ns();
  return ns >= last_deadline - now ? last_deadline : now + ns;
}
template <class Rep, class Period>
std::int64_t deadline_in(std::chrono::duration<Rep, Period> d) {
  return deadline_after(to_ns(d));
}
// How far tp lies ahead on its own clock. Not by subtraction of the points: they may be too far
// apart for it, or (year 9999 in days) have no nanoseconds at all. Both counts fit a long double.
template <class Clock, class Duration>
std::int64_t ns_ahead(const std::chrono::time_point<Clock, Duration>& tp) {
  using wide = std::chrono::duration<long double, std::nano>;
  return to_ns(wide(tp.time_since_epoch()) - wide(Clock::now().time_since_epoch()));
}
// A time point of any clock, as one of ours; max() of any is none. In a bubble the steady clock is
// another clock than ours.
template <class Clock, class Duration>
std::int64_t deadline_at(const std::chrono::time_point<Clock, Duration>& tp) {
  if (tp == (std::chrono::time_point<Clock, Duration>::max)()) return INT64_MAX;
  constexpr bool steady = std::is_same_v<Clock, std::chrono::steady_clock>;
  if (std::is_same_v<Clock, clock> || (steady && bubble_here() == 0))
    return to_ns(tp.time_since_epoch());
  return deadline_after(ns_ahead(tp));
}

// Counts what was started and what has ended, on a cache line each: starters and finishers are on
// different cores as a rule. One waits until the two are equal.
class countdown {
 public:
  constexpr countdown() noexcept = default;
  countdown(const countdown&) = delete;
  countdown& operator=(const countdown&) = delete;

  void add() noexcept { added_.fetch_add(1, std::memory_order_relaxed); }
  void done() noexcept {
    // Release: what was done before is seen by the one who waits (its acquire load of done_, or its
    // wake-up). The waiter has put -added into the word, so the last one brings it to `waits`
    // exactly.
    if (done_.fetch_add(1, std::memory_order_acq_rel) == waits - 1) wake();
  }
  bool idle() const noexcept {
    return done_.load(std::memory_order_acquire) == added_.load(std::memory_order_relaxed);
  }
  void wait() {
    while (!idle()) wait_slow();
  }

 private:
  WEFT_API void wait_slow();
  WEFT_API void wake() noexcept;
  static constexpr std::uint64_t waits = 1ULL << 63;
  alignas(64) atomic<std::uint64_t> added_{0};
  birthplace born_;
  void* waiter_ = nullptr;
  std::uint64_t snapshot_ = 0;  // added_ when the waiter came
  alignas(64) atomic<std::uint64_t> done_{0};
};

// At most n inside at once; the rest wait in order of arrival.
class gate {
 public:
  explicit gate(std::size_t n) noexcept : free_(n) {}
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;
  WEFT_API void enter();
  WEFT_API void leave() noexcept;

 private:
  atomic<std::uint32_t> lock_{0};
  birthplace born_;
  std::size_t free_;
  void* first_ = nullptr;
  void* last_ = nullptr;
  void lock() noexcept;
  static void unlock(void*, void* self) noexcept;
};

}  // namespace weft::detail
