// SPDX-License-Identifier: Apache-2.0
// Contexts and std::stop_token, both ways.
#include <atomic>
#include <gtest/gtest.h>
#include <optional>
#include <stop_token>
#include <thread>

#include "context_tree/tree_testing.h"
#include "unit/sched/support.h"
#include "weft/context.hpp"

namespace weft {
namespace {

using namespace sched_test;

class StopToken : public GoTest {};

TEST_F(StopToken, IsRequestedAtCancel) {
  auto [ctx, cancel] = with_cancel(background());
  const context below = with_value(with_cancel(ctx).first, 1, 1);
  const std::stop_token a = ctx.stop_token(), b = below.stop_token();
  EXPECT_TRUE(a.stop_possible());
  EXPECT_EQ(a, ctx.stop_token());
  int calls = 0;
  std::stop_callback on_stop(b, [&, below = below] {
    ++calls;
    EXPECT_EQ(below.err(), errc::canceled);
  });
  EXPECT_FALSE(a.stop_requested());
  cancel();
  EXPECT_TRUE(a.stop_requested());
  EXPECT_TRUE(b.stop_requested());
  EXPECT_EQ(calls, 1);
  auto [late, cancel_late] = with_cancel(background());
  cancel_late();
  EXPECT_TRUE(late.stop_token().stop_requested());
}

TEST_F(StopToken, CancelsAContext) {
  std::stop_source source;
  auto [ctx, cancel] = with_cancel(background(), source.get_token());
  auto [below, cancel_below] = with_cancel(ctx);
  EXPECT_FALSE(ctx.err());
  source.request_stop();
  EXPECT_EQ(ctx.err(), errc::canceled);
  EXPECT_TRUE(below.done().closed());
  auto [late, cancel_late] = with_cancel(background(), source.get_token());
  EXPECT_EQ(late.err(), errc::canceled);
}

TEST_F(StopToken, CancelledByItsParentToo) {
  std::stop_source source;
  auto [parent, cancel] = with_cancel(background());
  {
    auto [ctx, c] = with_cancel(parent, source.get_token());
    EXPECT_EQ(detail::child_count(parent), 1U);
  }
  EXPECT_EQ(detail::child_count(parent), 0U);
  auto [ctx, c] = with_cancel(parent, source.get_token());
  cancel();
  EXPECT_EQ(ctx.err(), errc::canceled);
  source.request_stop();
  auto [never, cancel_never] = with_cancel(background(), std::stop_token());
  EXPECT_FALSE(never.err());
  cancel_never();
  EXPECT_EQ(never.err(), errc::canceled);
}

TEST_F(StopToken, TellsThoseWhoHaveNothingButDone) {
  std::stop_source source;
  const auto ctx = [&] { return with_cancel(background(), source.get_token()).first; };
  const recv_chan<void> done = ctx().done();
  const recv_chan<void> below = with_cancel(ctx()).first.done();
  const std::stop_token token = ctx().stop_token();
  std::atomic<bool> ran{false};
  (void)after_cancel(ctx(), [&] { ran = true; });
  EXPECT_FALSE(done.closed());
  source.request_stop();
  EXPECT_TRUE(done.closed());
  EXPECT_TRUE(below.closed());
  EXPECT_TRUE(token.stop_requested());
  run_on(1, [&] { EXPECT_TRUE(eventually([&] { return ran.load(); })); });
}

TEST_F(StopToken, RequestRacesTheLastHandle) {
  run_on_each([] {
    for (int i = 0; i < scaled(1000); ++i) {
      std::stop_source source;
      context ctx = with_cancel(background(), source.get_token()).first;
      const recv_chan<void> done = ctx.done();
      const std::stop_token token = ctx.stop_token();
      scope s;
      s.go([&] { source.request_stop(); });
      ctx = context();
      done.recv();
      s.wait();
      ASSERT_TRUE(token.stop_requested());
    }
  });
}

TEST_F(StopToken, BackToBack) {  // context -> token -> context, cancelled in a callback
  auto [a, cancel] = with_cancel(background());
  auto [b, cancel_b] = with_cancel(background(), a.stop_token());
  auto [c, cancel_c] = with_cancel(background(), b.stop_token());
  std::stop_callback again(c.stop_token(), [cancel = cancel] { cancel(); });
  cancel();
  EXPECT_EQ(c.err(), errc::canceled);
}

TEST_F(StopToken, OfAJthread) {
  std::jthread t([](std::stop_token token) {
    auto [ctx, cancel] = with_cancel(background(), token);
    ctx.done().recv();
  });
  t.request_stop();
}

TEST_F(StopToken, TheContextGoesInItsOwnCallback) {
  std::stop_source source;
  std::optional<context> only(with_cancel(background(), source.get_token()).first);
  std::stop_callback drop(only->stop_token(), [&] { only.reset(); });
  source.request_stop();
  EXPECT_FALSE(only);
}

TEST_F(StopToken, RequestRacesDestruction) {
  run_on_each([] {
    for (int i = 0; i < scaled(1000); ++i) {
      std::stop_source source;
      auto [parent, cancel] = with_cancel(background());
      {
        scope s;
        s.go([&] { source.request_stop(); });
        s.go([&, cancel = cancel] { cancel(); });
        for (int k = 0; k < 3; ++k) {
          auto [ctx, c] = with_cancel(parent, source.get_token());
          if (k == 1) (void)ctx.stop_token();
        }
      }
    }
  });
}

// Also when a cancellation from above was faster and has not come to it yet.
TEST_F(StopToken, IsRequestedWhenTheSecondCancelReturns) {
  auto [root, cancel_root] = with_cancel(background());
  auto [ctx, cancel] = with_cancel(root);
  const context leaf = with_cancel(ctx).first;
  int seen = 0;
  // Both run inside the first cancellation, one of them before it requests the stop of ctx.
  const auto again = [&seen, cancel = cancel, token = ctx.stop_token()] {
    cancel();
    seen += token.stop_requested() ? 1 : 0;
  };
  const std::stop_callback above(root.stop_token(), again);
  const std::stop_callback below(leaf.stop_token(), again);
  cancel_root();
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace weft
