// SPDX-License-Identifier: Apache-2.0
// weft::semaphore and weft::barrier.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <weft/sync.hpp>

#include "core/current.h"
#include "support/own_page.h"
#include "unit/sched/support.h"
#include "unit/sync/support.h"

namespace weft {
namespace {

using namespace sched_test;
using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

class Semaphore : public GoTest {};
class Barrier : public GoTest {};

constinit semaphore at_start(3);
constinit barrier barrier_at_start(1);

bool waits(const rt::G* g) { return g != nullptr && g->state() == rt::g_status::waiting; }

TEST_F(Semaphore, Counts) {
  const auto f = [] {
    EXPECT_TRUE(at_start.try_acquire(3));
    EXPECT_FALSE(at_start.try_acquire());
    EXPECT_FALSE(at_start.try_acquire_for(1ms));
    EXPECT_FALSE(at_start.try_acquire_until(steady::now() + 1ms, 2));
    at_start.release(2);
    EXPECT_FALSE(at_start.try_acquire_for(1ms, 3));
    EXPECT_TRUE(at_start.try_acquire_for(1ms, 2));
    at_start.release(3);
    at_start.acquire();
    at_start.release();
    EXPECT_NE(thrown_by<std::invalid_argument>([] { at_start.release(-1); }), "");
    EXPECT_NE(thrown_by<std::invalid_argument>([] { at_start.acquire(-1); }), "");
  };
  f();
  run_on_each(f);
}

void hammer(int goroutines, int threads, int rounds) {
  constexpr int permits = 5;
  semaphore s(permits);
  std::atomic<int> used{0};
  const auto work = [&](bool g) {
    for (int i = 0; i < rounds; ++i) {
      const int n = 1 + i % permits;
      if (i % 4 == 1) {
        if (!s.try_acquire(n)) continue;
      } else if (i % 4 == 2) {
        if (!s.try_acquire_for(20us, n)) continue;
      } else {
        s.acquire(n);
      }
      EXPECT_LE(used += n, permits);
      if (g && i % 8 == 0) yield();
      used -= n;
      s.release(n);
    }
  };
  std::vector<std::thread> ts;
  for (int i = 0; i < threads; ++i) ts.emplace_back([&] { work(false); });
  {
    scope sc;
    for (int i = 0; i < goroutines; ++i) sc.go([&] { work(true); });
    sc.wait();
  }
  for (auto& t : ts) t.join();
  EXPECT_TRUE(s.try_acquire(permits));
}

TEST_F(Semaphore, Goroutines) {
  run_on_each([] { hammer(8, 0, scaled(1000)); });
}
TEST_F(Semaphore, Threads) { hammer(0, 4, scaled(2000)); }
TEST_F(Semaphore, GoroutinesAndThreads) {
  run_on_each([] { hammer(5, 3, scaled(500)); });
}

TEST_F(Semaphore, FirstComeFirstServed) {
  run_on(1, [] {
    semaphore s(0);
    std::vector<int> order;
    scope sc;
    for (int i = 0; i < 5; ++i) {
      std::atomic<rt::G*> g{nullptr};
      sc.go([&, i] {
        g = rt::current_g();
        s.acquire(i == 0 ? 3 : 1);
        order.push_back(i);
        s.release(0);
      });
      EXPECT_TRUE(eventually([&] { return waits(g); }));
    }
    s.release(2);  // the first wants 3: those behind it wait too
    yield();
    EXPECT_TRUE(order.empty());
    EXPECT_FALSE(s.try_acquire());
    for (int i = 0; i < 5; ++i) {
      s.release();
      EXPECT_TRUE(eventually([&] { return order.size() == static_cast<std::size_t>(i) + 1; }));
    }
    sc.wait();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  });
}

TEST_F(Semaphore, OneThatGivesUpLetsTheNextIn) {
  run_on_each([] {
    semaphore s(1);
    scope sc;
    std::atomic<rt::G*> g{nullptr};
    std::atomic<bool> gave_up{false};
    sc.go([&] {
      g = rt::current_g();
      EXPECT_FALSE(s.try_acquire_for(10ms, 2));
      gave_up = true;
    });
    EXPECT_TRUE(eventually([&] { return waits(g) || gave_up; }));
    s.acquire();
    EXPECT_TRUE(eventually([&] { return gave_up.load(); }));
  });
}

TEST_F(Semaphore, MayGoWithItsLastUse) {
  run_on_each([] {
    for (int round = 0; round < scaled(2000); ++round) {
      auto s = std::make_unique<semaphore>(0);
      go([p = s.get()] { p->release(); });
      if (round % 2 == 0) yield();
      s->acquire();
    }
  });
}

TEST_F(Barrier, Phases) {
  run_on_each([] {
    constexpr int goroutines = 5, threads = 2, phases = scaled(200);
    int arrived = 0, completed = 0;
    std::atomic<int> now{0};
    const auto complete = [&]() noexcept {
      arrived = now.exchange(0);
      ++completed;
    };
    barrier b(goroutines + threads, complete);
    const auto work = [&](bool g) {
      for (int p = 0; p < phases; ++p) {
        ++now;
        if (g && p % 3 == 0) {
          auto token = b.arrive();
          yield();
          b.wait(std::move(token));
        } else {
          b.arrive_and_wait();
        }
        EXPECT_EQ(arrived, goroutines + threads);
      }
    };
    std::vector<std::thread> ts;
    for (int i = 0; i < threads; ++i) ts.emplace_back([&] { work(false); });
    {
      scope s;
      for (int i = 0; i < goroutines; ++i) s.go([&] { work(true); });
    }
    for (auto& t : ts) t.join();
    EXPECT_EQ(completed, phases);
  });
}

TEST_F(Barrier, Drop) {
  barrier_at_start.arrive_and_wait();
  run_on_each([] {
    int completed = 0;
    const auto complete = [&completed]() noexcept { ++completed; };
    barrier b(4, complete);
    scope s;
    for (int i = 0; i < 4; ++i) {
      s.go([&b, i] {
        for (int k = 0; k < i; ++k) b.arrive_and_wait();
        b.arrive_and_drop();
      });
    }
    s.wait();
    EXPECT_EQ(completed, 4);
    EXPECT_NE(thrown_by<std::logic_error>([&] { b.arrive_and_wait(); }), "");
  });
}

TEST_F(Barrier, MayGoWhenWaitReturns) {
  run_on_each([] {
    for (int round = 0; round < scaled(1000); ++round) {
      auto b = std::make_unique<barrier<>>(2);
      go([p = b.get()] { p->arrive_and_drop(); });
      if (round % 2 == 0) yield();
      b->arrive_and_wait();
    }
  });
}

TEST_F(Semaphore, LargeCounts) {
  constexpr std::ptrdiff_t most = PTRDIFF_MAX;
  run_on(2, [] {
    semaphore s(1);
    EXPECT_FALSE(s.try_acquire(most));
    EXPECT_FALSE(s.try_acquire(most / 2 + 1));
    EXPECT_FALSE(s.try_acquire_for(1ms, most / 2 + 1));
    EXPECT_TRUE(s.try_acquire());
    EXPECT_FALSE(s.try_acquire());
    semaphore all(most);
    EXPECT_NE(thrown_by<std::overflow_error>([&] { all.release(); }), "");
    EXPECT_TRUE(all.try_acquire(most));
    EXPECT_FALSE(all.try_acquire());
    all.release(most);
    EXPECT_TRUE(all.try_acquire(most / 2 + 1));
    // With one who waits for more than there is.
    std::atomic<rt::G*> g{nullptr};
    go([&] {
      g = rt::current_g();
      all.acquire(most);
    });
    EXPECT_TRUE(eventually([&] { return waits(g); }));
    EXPECT_FALSE(all.try_acquire());
    EXPECT_NE(thrown_by<std::overflow_error>([&] { all.release(most); }), "");
    all.release(most / 2 + 1);
  });
}

// A goroutine that was left waiting by a run that is over must not hold up others.
TEST_F(Semaphore, OutlivesItsRun) {
  static semaphore s(1);
  const auto leave_one = [] {
    run(test::with_procs(2), [] {
      std::atomic<rt::G*> g{nullptr};
      go([&g] {
        g = rt::current_g();
        s.acquire(5);
      });
      EXPECT_TRUE(eventually([&] { return waits(g); }));
    });
  };
  leave_one();
  EXPECT_TRUE(s.try_acquire());
  s.release();
  leave_one();
  run_on(2, [] {
    s.acquire();
    s.release();
  });
  leave_one();
  std::thread([] {
    EXPECT_TRUE(s.try_acquire_for(10s));
    s.release();
  }).join();
  leave_one();
  // Those behind it that can go on do so as soon as somebody finds it in the way.
  run_on(2, [] {
    scope sc;
    for (int i = 0; i < 4; ++i) {
      sc.go([] {
        s.acquire();
        yield();
        s.release();
      });
    }
  });
}

// And a plain thread that stands behind it when the run ends, without anybody coming by.
TEST_F(Semaphore, AThreadBehindOneThatIsLeftBehind) {
  semaphore s(1);
  std::thread behind;
  run(test::with_procs(2), [&] {
    std::atomic<rt::G*> g{nullptr};
    go([&] {
      g = rt::current_g();
      s.acquire(5);
    });
    EXPECT_TRUE(eventually([&] { return waits(g); }));
    const std::uint32_t still = threads_still();
    behind = std::thread([&s] { EXPECT_TRUE(s.try_acquire_for(test::patience)); });
    EXPECT_TRUE(eventually([&] { return threads_still() == still + 1; }));
  });
  behind.join();
  EXPECT_FALSE(s.try_acquire());
}

TEST_F(Barrier, MayGoWhenArriveAndWaitReturns) {
  run_on_each([] {
    for (int round = 0; round < scaled(2000); ++round) {
      auto b = test::on_own_page<barrier<>>(2);
      event gone;
      go([p = b.get(), &gone] {
        p->arrive_and_wait();
        gone.set();
      });
      if (round % 2 == 0) yield();
      b->arrive_and_wait();
      b.reset();
      gone.wait();
    }
  });
}

}  // namespace
}  // namespace weft
