// SPDX-License-Identifier: Apache-2.0
// event, countdown and gate: what tasks and scopes wait on, by goroutines and plain threads.
#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

#include "core/current.h"
#include "support/chaos.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace sched_test;
using weft::detail::countdown;
using weft::detail::gate;

class Event : public GoTest {};
class Countdown : public GoTest {};
class Gate : public GoTest {};

bool waits(const rt::G* g) { return g != nullptr && g->state() == rt::g_status::waiting; }

TEST_F(Event, HappensOnceAndStays) {
  event e;
  EXPECT_FALSE(e.is_set());
  e.set();
  EXPECT_TRUE(e.is_set());
  e.wait();
  e.set();  // again: nothing
  e.wait();
}

TEST_F(Event, WakesEverybodyInOrder) {
  const test::order_matters here("in order");
  run_unpreempted(1, [] {
    event e;
    std::vector<int> order;
    scope s;
    for (int i = 0; i < 10; ++i) {
      std::atomic<rt::G*> g{nullptr};
      s.go([&, i] {
        g = rt::current_g();
        e.wait();
        order.push_back(i);
      });
      EXPECT_TRUE(eventually([&] { return waits(g); }));
    }
    EXPECT_TRUE(order.empty());
    e.set();
    s.wait();
    // All of them; the last to be readied runs first (runnext), the others in the order in which
    // they came.
    ASSERT_EQ(order.size(), 10U);
    std::vector<int> rest(order.begin() + 1, order.end());
    EXPECT_TRUE(std::is_sorted(rest.begin(), rest.end()));
  });
}

TEST_F(Event, WakesGoroutinesAndThreads) {
  run_on_each([] {
    for (int round = 0; round < scaled(50); ++round) {
      event e;
      std::atomic<int> through{0};
      std::thread t([&] {
        e.wait();
        ++through;
      });
      {
        scope s;
        for (int i = 0; i < 20; ++i) {
          s.go([&] {
            e.wait();
            ++through;
          });
        }
        if (round % 2 == 0) weft::yield();
        e.set();
      }
      t.join();
      ASSERT_EQ(through, 21);
    }
  });
}

TEST_F(Event, SeesWhatTheSetterDid) {
  run_on_each([] {
    for (int i = 0; i < scaled(1000); ++i) {
      event e;
      int data = 0;  // not atomic: the event orders it
      weft::go([&] {
        data = i + 1;
        e.set();
      });
      e.wait();
      ASSERT_EQ(data, i + 1);
    }
  });
}

TEST_F(Event, MayGoAsSoonAsTheWaiterRuns) {
  // set() must not touch the event once it has woken its last waiter; ASan builds watch.
  run_on_each([] {
    for (int i = 0; i < scaled(3000); ++i) {
      auto e = std::make_unique<event>();
      weft::go([p = e.get()] { p->set(); });
      if (i % 2 == 0) weft::yield();
      e->wait();
    }
  });
}

TEST_F(Event, AnywhereWithoutARun) {
  event e;
  std::thread t([&] { e.set(); });
  e.wait();
  t.join();
}

TEST_F(Countdown, WaitsForZero) {
  run_on_each([] {
    for (int round = 0; round < scaled(300); ++round) {
      countdown c;
      c.wait();  // nothing counted
      int data[8] = {};
      for (int i = 0; i < 8; ++i) {
        c.add();
        weft::go([&, i] {
          if (i % 2 == 0) weft::yield();
          data[i] = 1;
          c.done();
        });
      }
      c.wait();
      for (int d : data) ASSERT_EQ(d, 1);
    }
  });
}

TEST_F(Countdown, CountsFromPlainThreads) {
  run_on(2, [] {
    for (int round = 0; round < scaled(200); ++round) {
      countdown c;
      c.add();
      std::thread t([&] { c.done(); });
      c.wait();
      t.join();
    }
  });
}

TEST_F(Countdown, AThreadWaits) {
  run_on(2, [] {
    for (int round = 0; round < scaled(200); ++round) {
      auto c = std::make_unique<countdown>();
      c->add();
      event counted_on;
      std::thread t([&] {
        c->wait();
        c.reset();  // at once
        counted_on.set();
      });
      c->done();
      counted_on.wait();
      t.join();
    }
  });
}

TEST_F(Countdown, UsedAgain) {
  run_on(2, [] {
    countdown c;
    for (int round = 0; round < scaled(1000); ++round) {
      c.add();
      weft::go([&] { c.done(); });
      c.wait();
    }
  });
}

TEST_F(Gate, LetsNInAtOnce) {
  run_on_each([] {
    for (std::size_t n : {1U, 3U}) {
      gate g(n);
      std::atomic<int> inside{0}, most{0}, through{0};
      const auto pass = [&](bool thread) {
        for (int i = 0; i < 20; ++i) {
          g.enter();
          const int now = ++inside;
          int seen = most;
          while (now > seen && !most.compare_exchange_weak(seen, now)) {
          }
          if (!thread) weft::yield();
          --inside;
          ++through;
          g.leave();
        }
      };
      std::thread t([&] { pass(true); });
      {
        scope s;
        for (int i = 0; i < 10; ++i) s.go([&] { pass(false); });
      }
      t.join();
      EXPECT_EQ(through, 220);
      EXPECT_LE(most, static_cast<int>(n));
    }
  });
}

TEST_F(Gate, LetsThemInInOrder) {
  run_on(1, [] {
    gate g(1);
    std::vector<int> order;
    g.enter();
    scope s;
    for (int i = 0; i < 6; ++i) {
      std::atomic<rt::G*> who{nullptr};
      s.go([&, i] {
        who = rt::current_g();
        g.enter();
        order.push_back(i);
        g.leave();
      });
      EXPECT_TRUE(eventually([&] { return waits(who); }));
    }
    g.leave();
    s.wait();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  });
}

}  // namespace
}  // namespace weft
