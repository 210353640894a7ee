// SPDX-License-Identifier: Apache-2.0
// weft::wait_group and weft::latch.
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <weft/sync.hpp>

#include "support/own_page.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace sched_test;

class WaitGroup : public GoTest {};
class Latch : public GoTest {};

constinit wait_group at_start;
constinit latch latch_at_start(2);

TEST_F(WaitGroup, CountsAndMayBeUsedAgain) {
  run_on_each([] {
    for (int round = 0; round < scaled(500); ++round) {
      int data[8] = {};
      for (int i = 0; i < 8; ++i) {
        at_start.go([&data, i, round] {
          if ((i + round) % 3 == 0) yield();
          data[i] = 1;
        });
      }
      at_start.wait();
      for (int d : data) ASSERT_EQ(d, 1);
    }
  });
}

TEST_F(WaitGroup, ManyWait) {
  run_on_each([] {
    for (int round = 0; round < scaled(200); ++round) {
      wait_group wg;
      wg.add(2);
      std::atomic<int> through{0};
      std::thread t([&] {
        wg.wait();
        ++through;
      });
      std::thread u([&] { wg.done(); });
      {
        scope s;
        for (int i = 0; i < 5; ++i) {
          s.go([&] {
            wg.wait();
            ++through;
          });
        }
        if (round % 2 == 0) yield();
        wg.done();
      }
      t.join();
      u.join();
      EXPECT_EQ(through, 6);
    }
  });
}

TEST_F(WaitGroup, MayGoWhenWaitReturns) {
  run_on_each([] {
    for (int round = 0; round < scaled(2000); ++round) {
      auto wg = std::make_unique<wait_group>();
      wg->go([] {});
      wg->go([] { yield(); });
      if (round % 3 == 0) yield();
      wg->wait();
    }
  });
}

TEST_F(WaitGroup, NegativeChangesNothing) {
  wait_group wg;
  EXPECT_EQ(thrown_by<std::logic_error>([&] { wg.done(); }), "sync: negative WaitGroup counter");
  wg.wait();
  wg.add(3);
  EXPECT_EQ(thrown_by<std::logic_error>([&] { wg.add(-4); }), "sync: negative WaitGroup counter");
  wg.add(-3);
  wg.wait();
}

TEST_F(WaitGroup, WhatCannotBeCountedChangesNothing) {
  wait_group wg;
  EXPECT_THROW(wg.add(PTRDIFF_MIN), std::logic_error);
  EXPECT_THROW(wg.add(PTRDIFF_MAX), std::logic_error);
  wg.wait();
  latch l(3);
  EXPECT_THROW(l.count_down(PTRDIFF_MAX), std::logic_error);
  EXPECT_THROW(l.arrive_and_wait(PTRDIFF_MAX), std::logic_error);
  EXPECT_THROW(latch{PTRDIFF_MAX}, std::invalid_argument);
  EXPECT_NO_THROW(latch{(latch::max)()});
  EXPECT_FALSE(l.try_wait());
  l.count_down(3);
  EXPECT_TRUE(l.try_wait());
}

TEST_F(WaitGroup, GoexitCounts) {
  run_on_each([] {
    wait_group wg;
    for (int i = 0; i < 10; ++i) wg.go([] { goexit(); });
    wg.wait();
  });
}

TEST_F(WaitGroup, WhatTheFunctionHeldIsGone) {
  run_on_each([] {
    for (int i = 0; i < scaled(300); ++i) {
      wait_group wg;
      wg.go([c = counted(1)](const counted& d) { EXPECT_EQ(c.value + d.value, 3); }, counted(2));
      wg.wait();
      ASSERT_EQ(counted::alive, 0);
    }
  });
}

TEST_F(WaitGroup, ACopyThatThrowsIsNotCounted) {
  run_on(1, [] {
    wait_group wg;
    const counted c(1);
    counted::copies_until_throw = 0;
    const auto f = [](const counted&) {};
    EXPECT_EQ(thrown_by([&] { wg.go(f, c); }), "copy refused");
    wg.wait();
  });
}

TEST_F(Latch, Opens) {
  EXPECT_FALSE(latch_at_start.try_wait());
  latch_at_start.count_down();
  EXPECT_NE(thrown_by<std::logic_error>([] { latch_at_start.count_down(2); }), "");
  latch_at_start.count_down();
  EXPECT_TRUE(latch_at_start.try_wait());
  latch_at_start.wait();
  EXPECT_NE(thrown_by<std::invalid_argument>([] { latch l(-1); }), "");
}

TEST_F(Latch, GoroutinesAndThreads) {
  run_on_each([] {
    for (int round = 0; round < scaled(200); ++round) {
      auto l = std::make_unique<latch>(7);
      int data[7] = {};
      std::thread t([&] {
        data[0] = 1;
        l->arrive_and_wait();
        for (int d : data) EXPECT_EQ(d, 1);
      });
      wait_group wg;
      for (int i = 1; i < 7; ++i) {
        wg.go([&, i] {
          data[i] = 1;
          if (i % 2 == 0) {
            l->count_down();
          } else {
            l->arrive_and_wait();
          }
        });
      }
      l->wait();
      for (int d : data) EXPECT_EQ(d, 1);
      wg.wait();
      t.join();
    }
  });
}

TEST_F(Latch, MayGoWhenWaitReturns) {
  run_on_each([] {
    for (int round = 0; round < scaled(2000); ++round) {
      auto l = std::make_unique<latch>(1);
      go([p = l.get()] { p->count_down(); });
      if (round % 2 == 0) yield();
      l->wait();
    }
  });
}

// The first one to get through knows that all have arrived.
TEST_F(Latch, MayGoWhenArriveAndWaitReturns) {
  run_on_each([] {
    for (int round = 0; round < scaled(2000); ++round) {
      constexpr int arrivals = 4;
      auto l = test::on_own_page<latch>(arrivals);
      std::atomic<bool> first{true};
      const auto arrive = [&] {
        l->arrive_and_wait();
        if (first.exchange(false)) l.reset();
      };
      scope s;
      for (int i = 1; i < arrivals; ++i) s.go(arrive);
      arrive();
    }
  });
}

TEST_F(Latch, OneTooManyDoesNotWait) {
  run_on(2, [] {
    latch l(2);
    EXPECT_NE(thrown_by<std::logic_error>([&] { l.arrive_and_wait(3); }), "");
    l.arrive_and_wait(2);
    l.arrive_and_wait(0);
    EXPECT_NE(thrown_by<std::logic_error>([&] { l.arrive_and_wait(); }), "");
  });
}

}  // namespace
}  // namespace weft
