// SPDX-License-Identifier: Apache-2.0
// scope's context, and task::completed.
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "context_tree/tree_testing.h"
#include "unit/sched/support.h"
#include "weft/go.hpp"
#include "weft/select.hpp"

namespace weft {
namespace {

using namespace sched_test;

class ScopeContext : public GoTest {};
class Completed : public GoTest {};

TEST_F(ScopeContext, CancelReachesThoseInside) {
  run_on_each([] {
    scope s;
    std::atomic<int> ended{0};
    for (int i = 0; i < 20; ++i) {
      s.go([&, ctx = s.context()] {
        ctx.done().recv();
        EXPECT_EQ(ctx.err(), errc::canceled);
        ++ended;
      });
    }
    weft::yield();
    EXPECT_EQ(ended, 0);
    s.cancel();
    s.wait();
    EXPECT_EQ(ended, 20);
    EXPECT_EQ(s.context(), s.context());
  });
}

TEST_F(ScopeContext, TheFirstExceptionCancelsWithItself) {
  run_on_each([] {
    scope s;
    s.go([&] { s.context().done().recv(); });
    s.go([] { throw std::runtime_error("first"); });
    EXPECT_EQ(thrown_by<std::runtime_error>([&] { s.wait(); }), "first");
    const context ctx = s.context();
    EXPECT_EQ(ctx.err(), errc::canceled);
    EXPECT_EQ(thrown_by<std::runtime_error>([&] { std::rethrow_exception(ctx.cause()); }), "first");
  });
}

TEST_F(ScopeContext, AskedForAfterTheException) {
  run_on(1, [] {
    scope s;
    s.go([] { throw std::runtime_error("x"); });
    EXPECT_THROW(s.wait(), std::runtime_error);
    EXPECT_EQ(s.context().err(), errc::canceled);
  });
}

TEST_F(ScopeContext, IsAChildOfItsParent) {
  run_on(2, [] {
    auto [parent, cancel] = with_cancel(with_value(background(), 1, 2));
    {
      scope s(parent);
      EXPECT_EQ(detail::child_count(parent), 0U);  // nobody has asked
      s.go([&] { s.context().done().recv(); });
      EXPECT_EQ(*s.context().value<int>(1), 2);
      EXPECT_EQ(detail::child_count(parent), 1U);
      cancel();
    }
    scope born(parent, 2);
    EXPECT_EQ(born.context().err(), errc::canceled);
  });
}

TEST_F(ScopeContext, TheLimitHolds) {
  run_on(2, [] {
    auto [parent, cancel] = with_cancel(background());
    std::atomic<int> inside{0}, most{0};
    {
      scope s(parent, 2);
      for (int i = 0; i < 20; ++i) {
        s.go([&] {
          most = std::max(most.load(), ++inside);
          weft::yield();
          --inside;
        });
      }
    }
    EXPECT_LE(most, 2);
  });
}

TEST_F(ScopeContext, UnwindingCancelsFirst) {
  run_on_each([] {
    std::atomic<bool> ended{false};
    EXPECT_EQ(thrown_by([&] {
                scope s;
                s.go([&] {
                  s.context().done().recv();
                  ended = true;
                  throw std::runtime_error("dropped");
                });
                throw std::runtime_error("out");
              }),
              "out");
    EXPECT_TRUE(ended);
  });
}

TEST_F(ScopeContext, GoexitCancelsFirst) {
  run_on(2, [] {
    bool ended = false;
    auto t = async([&] {
      scope s;
      s.go([&] {
        s.context().done().recv();
        ended = true;
      });
      goexit();
    });
    t.wait();
    EXPECT_TRUE(ended);
  });
}

TEST_F(ScopeContext, IsDoneWithTheScope) {
  context kept;
  {
    scope s;
    kept = s.context();
    s.wait();
    EXPECT_FALSE(kept.err());
  }
  EXPECT_EQ(kept.err(), errc::canceled);
}

TEST_F(ScopeContext, IsMadeOnce) {
  run_on_each([] {
    for (int i = 0; i < scaled(200); ++i) {
      scope s;
      std::vector<context> seen(4);
      for (context& c : seen) s.go([&] { c = s.context(); });
      s.wait();
      for (const context& c : seen) ASSERT_EQ(c, s.context());
    }
  });
}

TEST_F(Completed, IsClosedWhenDone) {
  run_on_each([] {
    event go_on;
    auto t = async([&] {
      go_on.wait();
      return 5;
    });
    const recv_chan<void> c = t.completed();
    EXPECT_EQ(c, t.completed());
    EXPECT_FALSE(c.closed());
    go_on.set();
    EXPECT_FALSE(c.recv());
    EXPECT_TRUE(t.done());
    EXPECT_FALSE(t.completed().recv());
    EXPECT_EQ(t.get(), 5);
    EXPECT_THROW((void)t.completed(), std::logic_error);
  });
}

TEST_F(Completed, SelectIsWaitAny) {
  run_on_each([] {
    event go_on;
    auto slow = async([&] { go_on.wait(); });
    auto fast = async([] {});
    EXPECT_EQ(weft::select(weft::recv(slow.completed()), weft::recv(fast.completed())), 1);
    go_on.set();
    slow.wait();
  });
}

TEST_F(Completed, OfAPromise) {
  promise<int> p;
  auto t = p.get_task();
  const recv_chan<void> c = t.completed();
  std::thread setter([&] { p.set_value(3); });
  c.recv();
  EXPECT_EQ(t.get(), 3);
  setter.join();
}

TEST_F(Completed, RacesTheEnd) {
  run_on_each([] {
    for (int i = 0; i < scaled(1000); ++i) {
      auto t = async([] { weft::yield(); });
      scope s;
      s.go([&] { t.completed().recv(); });
      s.go([&] { t.wait(); });
      if (i % 2 == 0) weft::yield();
      t.completed().recv();
      ASSERT_TRUE(t.done());
    }
  });
}

// Task and channel happen at one moment: neither is seen before the other.
TEST_F(Completed, IsClosedWhenTheTaskIsDone) {
  constexpr int ways = 5;
  for (int i = 0; i < scaled(500); ++i) {
    promise<void> p;
    auto t = p.get_task();
    const recv_chan<void> c = t.completed();
    std::atomic<bool> ready{false};
    std::thread looks([&] {
      ready = true;
      switch (i % ways) {
        case 0:
          t.wait();
          break;
        case 1:
          ASSERT_TRUE(t.wait_for(std::chrono::hours(1)));
          break;
        case 2:
          while (!t.done()) {
          }
          break;
        case 3:
          while (!t.wait_for(std::chrono::nanoseconds(1))) {
          }
          break;
        case 4:
          while (!c.closed()) {
          }
          ASSERT_TRUE(t.done());
          break;
      }
      ASSERT_TRUE(c.closed());
      ASSERT_TRUE(t.completed().closed());
    });
    while (!ready) std::this_thread::yield();
    p.set_value();
    looks.join();
  }
  run_on_each([] {
    for (int i = 0; i < scaled(2000); ++i) {
      auto t = async([] { weft::yield(); });
      const recv_chan<void> c = t.completed();
      if (i % 2 == 0) {
        t.wait();
      } else {
        while (!t.done()) weft::yield();
      }
      ASSERT_TRUE(c.closed());
    }
  });
}

// Whoever the channel tells may end both sides at once, though set_value has not returned.
TEST_F(Completed, TellsOneWhoDestroysTheTask) {
  for (int i = 0; i < scaled(2000); ++i) {
    auto p = std::make_unique<promise<void>>();
    auto t = p->get_task();
    recv_chan<void> c = t.completed();
    std::thread setter([&p = *p] { p.set_value(); });
    c.recv();
    c = {};
    t = {};
    p.reset();
    setter.join();
  }
}

}  // namespace
}  // namespace weft
