// SPDX-License-Identifier: Apache-2.0
// Time: the clock, sleeping, timers and tickers.
//
// Go 1.23's rules: a timer's channel has no buffer that anybody can see; after stop or reset has
// returned, no value of the time before is received. A channel timer ends with its last handle, the
// channel included; after_func fires whether or not its handle is kept.
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>

#include <weft/chan.hpp>
#include <weft/context.hpp>
#include <weft/detail/clock.hpp>
#include <weft/select.hpp>

namespace weft {

namespace detail {

WEFT_API void sleep_until_ns(std::int64_t deadline);

// The state behind timer, ticker and after_func, in one block with its channel.
// A timer has two handles, c for the user and its own: both are counted already.
WEFT_API chan_core* make_timer(std::int64_t deadline, std::int64_t period);
WEFT_API chan_ref make_func_timer(std::int64_t deadline, void (*run)(void*), void* arg,
                                  void (*drop)(void*) noexcept);
// Whether it was going to fire, or had fired and nobody has received it yet.
WEFT_API bool stop_timer(chan_core* c) noexcept;
WEFT_API bool reset_timer(chan_core* c, std::int64_t deadline, std::int64_t period) noexcept;
[[noreturn]] WEFT_API void throw_timer_misuse(const char* what);

using timer_chan = recv_chan<clock::time_point>;

// Called as an lvalue: a timer that is reset calls it again.
template <class F>
concept timer_function = std::invocable < std::decay_t<F>
& > ;

// Both at once if they are still the same.
inline void let_go(timer_chan& c, chan_ref& own) noexcept {
  if (own.get() == nullptr || chan_access::ref(c).get() != own.get()) return;
  (void)chan_access::take(c).give_up();
  own.give_up()->release(2);
}

}  // namespace detail

template <class Rep, class Period>
void sleep_for(std::chrono::duration<Rep, Period> d) {
  detail::sleep_until_ns(detail::deadline_in(d));
}
// ctx.err() if that came first.
template <class Rep, class Period>
[[nodiscard]] std::error_code sleep_for(const context& ctx, std::chrono::duration<Rep, Period> d) {
  if (!ctx.err()) weft::select(weft::recv(ctx.done()), weft::timeout(d));
  return ctx.err();
}
template <class Clock, class Duration>
void sleep_until(std::chrono::time_point<Clock, Duration> tp) {
  do {
    detail::sleep_until_ns(std::min(detail::deadline_at(tp), detail::last_deadline));
    // A clock that was set meanwhile. In a bubble another clock than ours stands nearly still.
  } while (detail::ns_ahead(tp) > 0 && detail::bubble_here() == 0);
}

class timer {
 public:
  recv_chan<clock::time_point> c;  // nil for after_func

  timer() noexcept = default;
  template <class Rep, class Period>
  explicit timer(std::chrono::duration<Rep, Period> d)
      : timer(detail::make_timer(detail::deadline_in(d), 0)) {}
  timer(const timer&) = default;
  timer(timer&&) noexcept = default;
  timer& operator=(const timer&) = default;
  timer& operator=(timer&&) noexcept = default;
  ~timer() { detail::let_go(c, s_); }

  // True: it will not fire any more, and would have.
  bool stop() const {
    if (s_.get() == nullptr) detail::throw_timer_misuse("time: Stop called on uninitialized Timer");
    return detail::stop_timer(s_.get());
  }
  // Fires d from now instead. True: it was still pending.
  template <class Rep, class Period>
  bool reset(std::chrono::duration<Rep, Period> d) const {
    if (s_.get() == nullptr)
      detail::throw_timer_misuse("time: Reset called on uninitialized Timer");
    return detail::reset_timer(s_.get(), detail::deadline_in(d), 0);
  }

 private:
  explicit timer(detail::chan_core* twice) noexcept
      : c(detail::chan_access::adopt<detail::timer_chan>(detail::chan_ref(twice))), s_(twice) {}
  explicit timer(detail::chan_ref function) noexcept : s_(std::move(function)) {}
  template <class Rep, class Period, detail::timer_function F>
  friend timer after_func(std::chrono::duration<Rep, Period> d, F&& f);
  detail::chan_ref s_;
};

class ticker {
 public:
  recv_chan<clock::time_point> c;

  ticker() noexcept = default;
  template <class Rep, class Period>
  explicit ticker(std::chrono::duration<Rep, Period> d) {
    if (!(d > d.zero())) detail::throw_timer_misuse("non-positive interval for NewTicker");
    const std::int64_t ns = detail::to_ns(d);
    detail::chan_core* twice = detail::make_timer(detail::deadline_after(ns), ns);
    c = detail::chan_access::adopt<detail::timer_chan>(detail::chan_ref(twice));
    s_ = detail::chan_ref(twice);
  }
  void stop() const noexcept {
    if (s_.get() != nullptr) detail::stop_timer(s_.get());
  }
  template <class Rep, class Period>
  void reset(std::chrono::duration<Rep, Period> d) const {
    if (!(d > d.zero())) detail::throw_timer_misuse("non-positive interval for Ticker.Reset");
    if (s_.get() == nullptr)
      detail::throw_timer_misuse("time: Reset called on uninitialized Ticker");
    const std::int64_t ns = detail::to_ns(d);
    detail::reset_timer(s_.get(), detail::deadline_after(ns), ns);
  }

 private:
  detail::chan_ref s_;
};

template <class Rep, class Period>
[[nodiscard]] recv_chan<clock::time_point> after(std::chrono::duration<Rep, Period> d) {
  return timer(d).c;
}
template <class Rep, class Period>
[[nodiscard]] recv_chan<clock::time_point> tick(std::chrono::duration<Rep, Period> d) {
  if (!(d > d.zero())) return {};
  return ticker(d).c;
}

// f runs in a goroutine of its own. It is called as an lvalue, and again after each reset; two
// calls may then overlap. One without a function is fatal when it fires, as in Go.
template <class Rep, class Period, detail::timer_function F>
timer after_func(std::chrono::duration<Rep, Period> d, F&& f) {
  using fn = std::decay_t<F>;
  auto owned = std::make_unique<fn>(std::forward<F>(f));
  timer t(detail::make_func_timer(
      detail::deadline_in(d),
      [](void* p) {
        auto& call = *static_cast<fn*>(p);
        if (detail::is_nil(call)) detail::go_of_nil();
        std::invoke(call);
      },
      owned.get(), [](void* p) noexcept { delete static_cast<fn*>(p); }));
  (void)owned.release();
  return t;
}

}  // namespace weft
