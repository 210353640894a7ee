// SPDX-License-Identifier: Apache-2.0
// after_cancel: once, in a goroutine of its own, unless it is stopped.
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <thread>

#include "context_tree/tree_testing.h"
#include "unit/sched/support.h"
#include "weft/context.hpp"

namespace weft {
namespace {

using namespace sched_test;
using detail::child_count;

class AfterCancel : public GoTest {};

TEST_F(AfterCancel, RunsOnceInAGoroutineOfItsOwn) {
  run_on_each([] {
    auto [ctx, cancel] = with_cancel(background());
    std::atomic<int> ran{0};
    std::atomic<std::uint64_t> by{0};
    const stop_fn stop = after_cancel(ctx, [&, ctx = ctx] {
      EXPECT_EQ(ctx.err(), errc::canceled);
      by = goid();
      ++ran;
    });
    weft::yield();
    EXPECT_EQ(ran, 0);
    EXPECT_EQ(child_count(ctx), 1U);
    cancel();
    cancel();
    EXPECT_FALSE(stop());
    stop.wait();
    EXPECT_EQ(ran, 1);
    EXPECT_NE(by, goid());
    EXPECT_EQ(child_count(ctx), 0U);
  });
}

TEST_F(AfterCancel, CancelDoesNotWaitForIt) {
  run_on(1, [] {
    auto [ctx, cancel] = with_cancel(background());
    event go_on;
    const stop_fn stop = after_cancel(ctx, [&] { go_on.wait(); });
    cancel();
    go_on.set();
    stop.wait();
  });
}

TEST_F(AfterCancel, AtOnceIfDone) {
  run_on(2, [] {
    auto [ctx, cancel] = with_cancel(background());
    cancel();
    bool ran = false;
    const stop_fn stop = after_cancel(with_value(ctx, 1, 1), [&] { ran = true; });
    EXPECT_FALSE(stop());
    stop.wait();
    EXPECT_TRUE(ran);
  });
}

TEST_F(AfterCancel, StopPreventsIt) {
  run_on(2, [] {
    auto [ctx, cancel] = with_cancel(background());
    std::atomic<int> ran{0};
    const stop_fn stop = after_cancel(ctx, [&, c = counted()] { ++ran; });
    const stop_fn kept = after_cancel(ctx, [&] { ran += 10; });
    const stop_fn copy = stop;
    EXPECT_EQ(counted::alive, 1);
    EXPECT_TRUE(copy());
    EXPECT_EQ(counted::alive, 0);  // f has gone
    EXPECT_EQ(child_count(ctx), 1U);
    EXPECT_FALSE(stop());  // was stopped before
    stop.wait();           // nothing runs
    cancel();
    kept.wait();
    EXPECT_FALSE(stop());
    EXPECT_EQ(ran, 10);
  });
}

TEST_F(AfterCancel, OfBackgroundNeverRuns) {
  const stop_fn stop = after_cancel(background(), [c = counted()] { FAIL(); });
  stop.wait();
  EXPECT_TRUE(stop());
  EXPECT_FALSE(stop());
  (void)after_cancel(background(), [c = counted()] { FAIL(); });
  stop_fn nil;
  EXPECT_FALSE(nil());
  nil.wait();
}

TEST_F(AfterCancel, GoesWithAContextThatNobodyCanCancel) {
  {
    auto [ctx, cancel] = with_cancel(background());
    (void)after_cancel(ctx, [c = counted()] { FAIL(); });
    EXPECT_EQ(counted::alive, 1);
  }
  EXPECT_EQ(counted::alive, 0);
}

// The child has gone, but its function can still be reached from above.
TEST_F(AfterCancel, MovesUpWhenItsContextGoes) {
  run_on(2, [] {
    auto [root, cancel] = with_cancel(background());
    event ran;
    (void)after_cancel(with_cancel(with_cancel(root).first).first, [&] { ran.set(); });
    EXPECT_EQ(child_count(root), 1U);
    cancel();
    ran.wait();
  });
}

TEST_F(AfterCancel, AStopFunctionKeepsTheContext) {
  run_on(2, [] {
    cancel_fn cancel;
    stop_fn stop;
    {
      auto [ctx, c] = with_cancel(background());
      cancel = c;
      stop = after_cancel(with_cancel(ctx).first, [] {});
    }
    cancel();
    stop.wait();
    EXPECT_FALSE(stop());
  });
}

TEST_F(AfterCancel, OutsideARunItWaitsForTheNext) {
  auto [ctx, cancel] = with_cancel(background());
  std::atomic<bool> ran{false};
  const stop_fn stop = after_cancel(ctx, [&] { ran = true; });
  cancel();
  EXPECT_FALSE(ran);
  EXPECT_FALSE(stop());
  run_on(1, [&] { stop.wait(); });
  EXPECT_TRUE(ran);
}

TEST_F(AfterCancel, GoexitCountsAsReturned) {
  run_on(2, [] {
    auto [ctx, cancel] = with_cancel(background());
    const stop_fn stop = after_cancel(ctx, [c = counted()] { goexit(); });
    cancel();
    stop.wait();
    EXPECT_EQ(counted::alive, 0);
  });
}

TEST_F(AfterCancel, ThreadsWaitToo) {
  run_on(2, [] {
    for (int i = 0; i < scaled(200); ++i) {
      auto [ctx, cancel] = with_cancel(background());
      int data = 0;
      const stop_fn stop = after_cancel(ctx, [&] { data = 1; });
      std::thread t([&, cancel = cancel] {
        cancel();
        stop.wait();
        EXPECT_EQ(data, 1);
      });
      stop.wait();
      t.join();
    }
  });
}

TEST_F(AfterCancel, MoveOnlyFunctions) {
  run_on(1, [] {
    auto [ctx, cancel] = with_cancel(background());
    int got = 0;
    const stop_fn stop = after_cancel(ctx, [&, p = std::make_unique<int>(3)] { got = *p; });
    cancel();
    stop.wait();
    EXPECT_EQ(got, 3);
  });
}

}  // namespace
}  // namespace weft
