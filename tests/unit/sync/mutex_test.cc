// SPDX-License-Identifier: Apache-2.0
// weft::mutex: exclusion, time-outs, fairness, destruction; among goroutines, among plain threads
// and between the two.
#include <atomic>
#include <chrono>
#include <concepts>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <weft/sync.hpp>

#include "core/current.h"
#include "unit/sched/support.h"
#include "unit/sync/support.h"

namespace weft {
namespace {

using namespace sched_test;
using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

class Mutex : public GoTest {};

constinit mutex at_start;  // constant-initialised

bool waits(const rt::G* g) { return g != nullptr && g->state() == rt::g_status::waiting; }

TEST_F(Mutex, IsSmallAndNeitherCopiedNorMoved) {
  EXPECT_LE(sizeof(mutex), 16U);
  EXPECT_FALSE(std::copy_constructible<mutex>);
  EXPECT_FALSE(std::movable<mutex>);
}

TEST_F(Mutex, TryLock) {
  EXPECT_TRUE(at_start.try_lock());
  EXPECT_FALSE(at_start.try_lock());
  at_start.unlock();
  mutex a, b;
  {
    std::scoped_lock both(a, b);
    EXPECT_FALSE(a.try_lock());
  }
  std::unique_lock<mutex> l(a, 1ms);
  EXPECT_TRUE(l.owns_lock());
  EXPECT_FALSE(a.try_lock_for(1ms));
  EXPECT_FALSE(a.try_lock_for(-1ms));
  EXPECT_FALSE(a.try_lock_until(steady::now() + 1ms));
  EXPECT_FALSE(a.try_lock_until(std::chrono::system_clock::now() + 1ms));
  EXPECT_FALSE(a.try_lock_until(steady::time_point::min()));
  l.unlock();
  EXPECT_TRUE(a.try_lock_until(steady::time_point::min()));
  a.unlock();
}

// `each` goroutines and as many threads, each so many rounds of one of the four ways to lock.
void hammer(int goroutines, int threads, int rounds) {
  mutex mu;
  int inside = 0, total = 0;
  std::atomic<int> missed{0};
  const auto work = [&](bool g) {
    for (int i = 0; i < rounds; ++i) {
      if (i % 5 == 1 ? !mu.try_lock() : i % 5 == 2 && !mu.try_lock_for(50us)) {
        ++missed;
        continue;
      }
      if (i % 5 != 1 && i % 5 != 2) mu.lock();
      EXPECT_EQ(++inside, 1);
      ++total;
      if (g && i % 16 == 0) yield();
      --inside;
      mu.unlock();
    }
  };
  std::vector<std::thread> ts;
  for (int i = 0; i < threads; ++i) ts.emplace_back([&] { work(false); });
  {
    scope s;
    for (int i = 0; i < goroutines; ++i) s.go([&] { work(true); });
    s.wait();
  }
  for (auto& t : ts) t.join();
  EXPECT_EQ(total + missed, (goroutines + threads) * rounds);
  EXPECT_TRUE(mu.try_lock());
}

TEST_F(Mutex, Goroutines) {
  run_on_each([] { hammer(10, 0, scaled(2000)); });
}
TEST_F(Mutex, Threads) { hammer(0, 4, scaled(5000)); }
TEST_F(Mutex, GoroutinesAndThreads) {
  run_on_each([] { hammer(6, 3, scaled(1000)); });
}

TEST_F(Mutex, AnotherMayUnlock) {
  run_on_each([] {
    mutex mu;
    mu.lock();
    go([&] { mu.unlock(); });
    mu.lock();
    std::thread t([&] { mu.unlock(); });
    mu.lock();
    mu.unlock();
    t.join();
  });
}

TEST_F(Mutex, TimeOutLeavesTheQueueInOrder) {
  run_on_each([] {
    mutex mu;
    mu.lock();
    scope s;
    std::atomic<int> in{0};
    std::atomic<rt::G*> before{nullptr}, after{nullptr};
    s.go([&] {
      before = rt::current_g();
      std::lock_guard hold(mu);
      ++in;
    });
    EXPECT_TRUE(eventually([&] { return waits(before); }));
    EXPECT_FALSE(async([&] { return mu.try_lock_for(2ms); }).get());
    s.go([&] {
      after = rt::current_g();
      std::lock_guard hold(mu);
      ++in;
    });
    EXPECT_TRUE(eventually([&] { return waits(after); }));
    EXPECT_EQ(in, 0);
    mu.unlock();
    s.wait();
    EXPECT_EQ(in, 2);
    EXPECT_TRUE(mu.try_lock());
    std::thread t([&] { EXPECT_FALSE(mu.try_lock_for(2ms)); });
    t.join();
    mu.unlock();
  });
}

// All that are woken and give up: the next one must not sleep for ever (X3).
TEST_F(Mutex, TimeOutsLoseNoWakeUp) {
  run_on_each([] {
    mutex mu;
    scope s;
    for (int i = 0; i < 8; ++i) {
      s.go([&, i] {
        for (int k = 0; k < scaled(300); ++k) {
          if (i < 4) {
            if (!mu.try_lock_for(std::chrono::microseconds(1 + k % 40))) continue;
          } else {
            mu.lock();
          }
          if (k % 8 == 0) yield();
          mu.unlock();
        }
      });
    }
    s.wait();
  });
}

// One that holds it nearly always and one that wants it now and then: 1 ms, then it is handed over.
TEST_F(Mutex, NobodyStarves) {
  for (int procs : {1, 2}) {
    run_on(procs, [] {
      mutex mu;
      std::atomic<bool> stop{false};
      scope s;
      s.go([&] {
        while (!stop) {
          mu.lock();
          const auto until = steady::now() + 100us;
          while (steady::now() < until) {
          }
          mu.unlock();
        }
      });
      const auto start = steady::now();
      for (int i = 0; i < 10; ++i) {
        const auto wake = steady::now() + 100us;
        while (steady::now() < wake) yield();
        mu.lock();
        mu.unlock();
      }
      EXPECT_LT(steady::now() - start, 5s);
      stop = true;
    });
  }
}

// The last to unlock destroys it, while others may still be inside unlock.
TEST_F(Mutex, MayGoWithItsLastUse) {
  struct shared {
    mutex mu;
    int users;
  };
  run_on_each([] {
    for (int round = 0; round < scaled(1000); ++round) {
      auto* s = new shared{{}, 4};
      const auto leave = [s](bool timed) {
        if (timed) {
          while (!s->mu.try_lock_for(1us)) {
          }
        } else {
          s->mu.lock();
        }
        const bool last = --s->users == 0;
        s->mu.unlock();
        if (last) delete s;
      };
      scope sc;
      for (int i = 0; i < 3; ++i) sc.go([&leave, i] { leave(i == 0); });
      if (round % 16 == 0) {
        std::thread([&] { leave(false); }).join();
      } else {
        leave(false);
      }
    }
  });
}

// A goroutine that was left waiting by a run that is over must not be given the mutex.
TEST_F(Mutex, OutlivesItsRun) {
  static mutex mu;
  for (int round = 0; round < 4; ++round) {
    mu.lock();
    run(test::with_procs(2), [&] {
      std::atomic<rt::G*> g{nullptr};
      go([&g] {
        g = rt::current_g();
        mu.lock();
        mu.unlock();
      });
      EXPECT_TRUE(eventually([&] { return waits(g); }));
      if (round % 2 != 0) {
        mu.unlock();  // woken; as a rule it never runs
        mu.lock();
      }
    });
    mu.unlock();
    hammer(0, 2, 50);
    run_on(2, [] {
      scope s;
      for (int i = 0; i < 4; ++i) {
        s.go([] {
          for (int k = 0; k < 100; ++k) {
            std::lock_guard hold(mu);
            if (k % 4 == 0) yield();
          }
        });
      }
    });
  }
}

// A goroutine that an unlock woke is left behind by its run before it has looked: it will not take
// the mutex, and the plain thread behind it must not wait for that.
TEST_F(Mutex, AThreadBehindOneThatIsLeftBehind) {
  static mutex mu;
  for (const bool lock_again : {false, true, false}) {
    mu.lock();
    std::thread behind;
    run(test::with_procs(1), [&] {
      std::atomic<rt::G*> g{nullptr};
      go([&g] {
        g = rt::current_g();
        mu.lock();
        mu.unlock();
      });
      EXPECT_TRUE(eventually([&] { return waits(g); }));
      const std::uint32_t still = threads_still();
      behind = std::thread([] {
        const std::unique_lock hold(mu, test::patience);
        EXPECT_TRUE(hold.owns_lock());
      });
      EXPECT_TRUE(eventually([&] { return threads_still() == still + 1; }));
      mu.unlock();
      if (lock_again) mu.lock();
      go([] {  // has the P until the run is over
        for (;;) detail::preempt_point();
      });
    });
    if (lock_again) mu.unlock();
    behind.join();
    hammer(0, 2, 50);
  }
}

}  // namespace
}  // namespace weft
