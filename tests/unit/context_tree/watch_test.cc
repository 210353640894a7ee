// SPDX-License-Identifier: Apache-2.0
// cancel_watch: how a call that blocks is woken by a cancellation.
#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "context_tree/tree_testing.h"
#include "context_tree/watch.h"
#include "sched/waiter.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace sched_test;
using detail::cancel_watch;
using detail::child_count;

class Watch : public GoTest {};

struct noting : cancel_watch {
  std::atomic<int> calls{0};
  static void note(cancel_watch* w) noexcept { ++static_cast<noting*>(w)->calls; }
};

TEST_F(Watch, IsCalledOnce) {
  auto [ctx, cancel] = with_cancel(background());
  noting a, b;
  EXPECT_TRUE(a.begin(ctx, noting::note));
  EXPECT_TRUE(b.begin(with_value(ctx, 1, 1), noting::note));
  EXPECT_EQ(child_count(ctx), 2U);
  b.end();
  EXPECT_EQ(child_count(ctx), 1U);
  cancel();
  EXPECT_EQ(a.calls, 1);
  EXPECT_EQ(b.calls, 0);
  a.end();
  EXPECT_FALSE(b.begin(ctx, noting::note));
  b.end();
  EXPECT_EQ(b.calls, 0);
}

TEST_F(Watch, OfBackgroundIsNever) {
  noting a;
  EXPECT_TRUE(a.begin(background(), noting::note));
  a.end();
}

// What semaphore::acquire(ctx) and its kin do.
struct blocked : cancel_watch {
  rt::waiter w;
  std::atomic<int> state{0};  // 1 parked, 2 called
  static void wake(cancel_watch* self) noexcept {
    auto* me = static_cast<blocked*>(self);
    if (me->state.exchange(2) == 1) me->w.wake();
  }
  std::error_code block(const context& ctx) {
    if (begin(ctx, wake)) {
      w.wait(
          [](void*, void* arg) {
            auto* me = static_cast<blocked*>(arg);
            if (me->state.exchange(1) == 2) me->w.wake();
          },
          this, rt::wait_reason::scope_wait);
    }
    end();
    return ctx.err();
  }
};

TEST_F(Watch, WakesGoroutinesAndThreads) {
  run_on_each([] {
    for (int round = 0; round < scaled(100); ++round) {
      auto [ctx, cancel] = with_cancel(background());
      std::thread t([ctx = ctx] { EXPECT_EQ(blocked().block(ctx), errc::canceled); });
      {
        scope s;
        for (int i = 0; i < 5; ++i)
          s.go([c = with_cancel(ctx).first] { EXPECT_EQ(blocked().block(c), errc::canceled); });
        if (round % 2 == 0) weft::yield();
        cancel();
      }
      t.join();
    }
  });
}

TEST_F(Watch, EndWaitsForACallUnderWay) {
  for (int round = 0; round < scaled(2000); ++round) {
    auto [ctx, cancel] = with_cancel(background());
    std::thread t([cancel = cancel] { cancel(); });
    for (int i = 0; i < 20; ++i) {
      noting n;
      const bool begun = n.begin(ctx, noting::note);
      n.end();
      const int calls = n.calls;
      EXPECT_TRUE(calls == 0 || begun);
      EXPECT_EQ(n.calls, calls);
    }
    t.join();
  }
}

}  // namespace
}  // namespace weft
