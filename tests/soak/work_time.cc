// SPDX-License-Identifier: Apache-2.0
// Timers that are stopped, reset and left to fire, tickers, functions after a time, contexts with
// deadlines, and how late a sleep of a millisecond is beside all the rest.
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <stop_token>
#include <vector>

#include <weft/context.hpp>
#include <weft/select.hpp>
#include <weft/sync.hpp>
#include <weft/time.hpp>

#include "soak/soak.h"

namespace weft::soak {
namespace {

std::uint64_t timers(lane& l) {
  std::uint64_t n = 0;
  // A timer that is stopped or reset sends nothing of the time before.
  for (int i = 0; i < 10; ++i, ++n) {
    const timer t(std::chrono::microseconds(l.r.below(400)));
    if (l.chance(2)) weft::sleep_for(std::chrono::microseconds(l.r.below(400)));
    if (l.chance(2)) {
      t.stop();
      clock::time_point when;
      l.check(t.c.try_recv(when) == recv_status::empty, "a stopped timer sent");
      l.check(!t.stop(), "a timer was stopped twice");
    } else {
      const clock::time_point before = clock::now();
      t.reset(200us);
      const auto when = t.c.recv();
      l.check(when && *when >= before + 200us, "a timer that was reset fired for its old time");
    }
  }
  clock::time_point last = clock::now();
  const ticker tick(300us);
  for (int i = 0; i < 5; ++i, ++n) {
    const auto when = tick.c.recv();
    l.check(when && *when > last, "a ticker went back");
    if (when) last = *when;
    if (i == 2) tick.reset(std::chrono::microseconds(100 + l.r.below(400)));
  }
  tick.stop();
  // Each fires or is stopped, and never both.
  std::atomic<int> fired{0};
  int expected = 0;
  wait_group wg;
  std::vector<timer> late;
  for (int i = 0; i < 20; ++i, ++n) {
    wg.add();
    late.push_back(after_func(std::chrono::microseconds(l.r.below(1000)), [&] {
      ++fired;
      wg.done();
    }));
  }
  weft::sleep_for(std::chrono::microseconds(l.r.below(800)));
  for (const timer& t : late) {
    if (l.chance(2) && t.stop()) {
      wg.done();
    } else {
      ++expected;
    }
  }
  wg.wait();
  l.check(fired == expected, "a function timer fired twice or not at all");
  const int which = weft::select(weft::recv(after(300us)), weft::recv(after(1h)));
  l.check(which == 0, "the later of two timers came first");
  return n + 2;
}

std::uint64_t contexts(lane& l) {
  struct key {
    int k;
    bool operator==(const key&) const = default;
  };
  const auto [root, cancel] = with_cancel(with_value(background(), key{1}, 42));
  const auto [timed, cancel_timed] =
      with_timeout(root, std::chrono::microseconds(100 + l.r.below(2000)),
                   std::make_exception_ptr(std::runtime_error("too late")));
  const context free = without_cancel(timed);
  std::atomic<int> ended{0}, wrong{0};
  wait_group wg;
  const stop_fn stop = after_cancel(timed, [&] { ++ended; });
  std::vector<cancel_fn> kept;
  for (int i = 0; i < 8; ++i) {
    auto [child, cancel_child] = with_cancel(i % 2 == 0 ? timed : root);
    if (i % 3 == 0) kept.push_back(cancel_child);
    wg.go([&, child = child, i] {
      const int* v = child.value<int>(key{1});
      if (v == nullptr || *v != 42) ++wrong;
      if (i % 4 == 0) {
        if (!weft::sleep_for(child, 1h)) ++wrong;
      } else {
        child.done().recv();
      }
      if (!child.err() || child.cause() == nullptr) ++wrong;
      ++ended;
    });
  }
  latch requested(1);
  const std::stop_callback told(timed.stop_token(), [&] { requested.count_down(); });
  if (l.chance(2)) {
    timed.done().recv();
    l.check(timed.err() == errc::deadline_exceeded, "a deadline's error");
  } else if (l.chance(2)) {
    cancel_timed();
  }
  for (const cancel_fn& c : kept) c();
  cancel();
  wg.wait();
  requested.wait();  // after the channel is closed, by whoever has cancelled
  const bool never = stop();
  if (!never) stop.wait();
  l.check(ended == (never ? 8 : 9), "who waited for a context");
  l.check(wrong == 0, "what a context's child saw");
  l.check(!free.err(), "a context without cancellation was cancelled");
  return 12;
}

// The soak's own pulse.
std::uint64_t pulse(lane&) {
  constexpr int n = 10;
  for (int i = 0; i < n; ++i) {
    const std::int64_t before = nanotime();
    weft::sleep_for(1ms);
    raise_to(counted.worst_sleep, nanotime() - before - ms);
  }
  return n;
}

}  // namespace

std::span<const workload> time_workloads() {
  static constexpr workload all[] = {
      {"timer", 3, timers},
      {"context", 2, contexts},
      {"pulse", 1, pulse},
  };
  return all;
}

}  // namespace weft::soak
