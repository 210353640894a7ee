// SPDX-License-Identifier: Apache-2.0
// Deadlines: from goroutines and threads, inside a run, outside, and over its end.
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "context_tree/tree_testing.h"
#include "unit/sched/support.h"
#include "weft/context.hpp"
#include "weft/select.hpp"

namespace weft {
namespace {

using namespace sched_test;
using namespace std::chrono_literals;
using detail::child_count;

class Deadline : public GoTest {};

TEST_F(Deadline, OfAPlainThreadOutsideARun) {
  auto [parent, cancel_parent] = with_cancel(background());
  auto [ctx, cancel] = with_timeout(parent, 2ms);
  auto [below, cancel_below] = with_cancel(ctx);
  if (ctx.err()) {  // two milliseconds may have passed already, but not less
    EXPECT_GE(clock::now(), *ctx.deadline());
  }
  int stopped = 0;
  std::atomic<bool> called{false};
  std::stop_callback on_stop(below.stop_token(), [&] {
    ++stopped;
    called = true;
  });
  EXPECT_EQ(below.done().recv_for(10s), recv_status::closed);
  EXPECT_EQ(below.err(), errc::deadline_exceeded);
  EXPECT_FALSE(parent.err());
  EXPECT_TRUE(eventually([&] { return called.load(); }));
  EXPECT_TRUE(eventually([&, p = parent] { return child_count(p) == 0; }));
  EXPECT_EQ(stopped, 1);
}

TEST_F(Deadline, OfGoroutines) {
  run_on_each([] {
    scope s;
    for (int i = 0; i < 50; ++i) {
      s.go([i] {
        auto [ctx, cancel] = with_timeout(background(), std::chrono::microseconds(100 * i));
        const recv_chan<void> done = ctx.done();
        EXPECT_FALSE(done.recv());
        EXPECT_EQ(ctx.err(), errc::deadline_exceeded);
        EXPECT_GE(clock::now(), *ctx.deadline());
      });
    }
  });
}

TEST_F(Deadline, OfAThreadBesideARun) {
  run_on(1, [] {
    event made, over;
    std::optional<context> ctx;
    std::thread t([&] {
      ctx.emplace(with_timeout(background(), 1ms).first);
      made.set();
      ctx->done().recv();
      over.set();
    });
    made.wait();
    ctx->done().recv();
    over.wait();
    t.join();
  });
}

TEST_F(Deadline, OutlivesTheRunItWasMadeIn) {
  context ctx;
  // Far enough away that the run is over first, however slow the machine is.
  for (auto away = 20ms; away < 10s; away *= 4) {
    run_on(2, [&] { ctx = with_timeout(background(), away).first; });
    if (!ctx.err()) break;
    ASSERT_GE(clock::now(), *ctx.deadline()) << "the end of the run has ended it";
  }
  ASSERT_FALSE(ctx.err());
  EXPECT_EQ(ctx.done().recv_for(10s), recv_status::closed);
  EXPECT_EQ(ctx.err(), errc::deadline_exceeded);
}

TEST_F(Deadline, GoesWithItsContext) {
  auto [parent, cancel] = with_cancel(background());
  for (int i = 0; i < 100; ++i) (void)with_timeout(parent, 1000h).first;
  EXPECT_EQ(child_count(parent), 0U);
  run_on(2, [&, parent = parent] {
    for (int i = 0; i < 100; ++i) (void)with_timeout(parent, 1000h).first;
  });
  EXPECT_EQ(child_count(parent), 0U);
}

TEST_F(Deadline, RunsFunctionsThoughAllHandlesAreGone) {
  run_on(2, [] {
    event a, b;
    (void)after_cancel(with_timeout(background(), 1ms).first, [&] { a.set(); });
    (void)after_cancel(with_cancel(with_timeout(background(), 1ms).first).first, [&] { b.set(); });
    a.wait();
    b.wait();
  });
}

TEST_F(Deadline, IsLetGoByTheLastStop) {
  auto [parent, cancel] = with_cancel(background());
  {
    const context timed = with_timeout(parent, 1000h).first;
    const stop_fn a = after_cancel(timed, [c = counted()] {});
    const stop_fn b = after_cancel(timed, [c = counted()] {});
    EXPECT_TRUE(a());
    EXPECT_TRUE(b());
  }
  EXPECT_EQ(child_count(parent), 0U);  // nothing holds it
  (void)after_cancel(with_timeout(parent, 1000h).first, [c = counted()] {});
  EXPECT_EQ(child_count(parent), 1U);  // its deadline does
  cancel();
  EXPECT_EQ(counted::alive, 1);
  run_on(1, [] { EXPECT_TRUE(eventually([] { return counted::alive == 0; })); });
}

TEST_F(Deadline, ComesThoughAllHandlesAreGone) {
  const auto timed = [] { return with_timeout(background(), 1ms).first; };
  const auto wait_for_all = [&] {
    EXPECT_EQ(timed().done().recv_for(10s), recv_status::closed);
    const recv_chan<void> below = with_cancel(with_value(timed(), 1, 1)).first.done();
    EXPECT_EQ(below.recv_for(10s), recv_status::closed);
    const chan<int> never;
    EXPECT_EQ(weft::select(weft::recv(never), weft::recv(timed().done())), 1);
    const std::stop_token token = timed().stop_token(),
                          lower = with_cancel(timed()).first.stop_token();
    EXPECT_TRUE(eventually([&] { return token.stop_requested() && lower.stop_requested(); }));
  };
  wait_for_all();
  run_on_each(wait_for_all);
}

// Its parent ends it too, and when nobody has the channel it is gone at once.
TEST_F(Deadline, IsKeptForThoseWhoHaveDone) {
  auto [parent, cancel] = with_cancel(background());
  recv_chan<void> done = with_timeout(parent, 1000h).first.done();
  EXPECT_EQ(child_count(parent), 1U);
  for (int i = 0; i < 100; ++i) {
    auto [ctx, cancel_this] = with_timeout(parent, 1000h);
    EXPECT_FALSE(ctx.done().closed());
  }
  EXPECT_EQ(child_count(parent), 1U);
  cancel();
  EXPECT_TRUE(done.closed());
  EXPECT_EQ(child_count(parent), 0U);
}

TEST_F(Deadline, RacesTheLastHandle) {
  run_on_each([] {
    for (int i = 0; i < scaled(1000); ++i) {
      auto [parent, cancel] = with_cancel(background());
      const auto soon = std::chrono::microseconds(i % 100);
      context ctx = with_timeout(parent, soon).first;
      const recv_chan<void> done = ctx.done();
      const std::stop_token token = ctx.stop_token();
      const auto until = clock::now() + soon;
      while (clock::now() < until) weft::yield();
      scope s;
      if (i % 2 == 0) s.go([cancel = cancel] { cancel(); });
      ctx = context();
      ASSERT_EQ(done.recv_for(10s), recv_status::closed);
      ASSERT_TRUE(eventually([&] { return token.stop_requested(); }));
    }
  });
}

TEST_F(Deadline, FarAwayIsNone) {
  // That one never comes, but it is one, as in Go.
  const auto last = with_timeout(background(), std::chrono::hours::max()).first.deadline();
  ASSERT_TRUE(last);
  EXPECT_GT(*last - clock::now(), std::chrono::years(200));
  EXPECT_FALSE(with_deadline(background(), clock::time_point::max()).first.deadline());
  using system = std::chrono::system_clock;
  EXPECT_FALSE(with_deadline(background(), system::time_point::max()).first.deadline());
  EXPECT_EQ(with_deadline(background(), system::time_point::min()).first.err(),
            errc::deadline_exceeded);
  EXPECT_EQ(with_deadline(background(), clock::time_point::min()).first.err(),
            errc::deadline_exceeded);
}

TEST_F(Deadline, RacesCancel) {
  run_on_each([] {
    for (int round = 0; round < scaled(300); ++round) {
      auto [parent, cancel_parent] = with_cancel(background());
      auto [ctx, cancel] = with_timeout(parent, std::chrono::microseconds(round % 100));
      std::atomic<int> ran{0};
      const stop_fn stop = after_cancel(ctx, [&] { ++ran; });
      scope s;
      s.go([cancel = cancel] { cancel(); });
      s.go([cancel = cancel_parent] { cancel(); });
      ctx.done().recv();
      s.wait();
      stop.wait();
      ASSERT_TRUE(ctx.err());
      ASSERT_EQ(ran, 1);
    }
  });
}

TEST_F(Deadline, ManyAtOnce) {
  run_on(2, [] {
    std::vector<context> all;
    for (int i = 0; i < scaled(2000); ++i)
      all.push_back(with_timeout(background(), std::chrono::microseconds(i)).first);
    for (const context& c : all) {
      c.done().recv();
      ASSERT_EQ(c.err(), errc::deadline_exceeded);
    }
  });
}

}  // namespace
}  // namespace weft
