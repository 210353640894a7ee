// SPDX-License-Identifier: Apache-2.0
// weft::condition_variable.
#include <atomic>
#include <chrono>
#include <deque>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <weft/sync.hpp>

#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace sched_test;
using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

class ConditionVariable : public GoTest {};

constinit condition_variable at_start;

TEST_F(ConditionVariable, TimesOut) {
  const auto f = [] {
    mutex mu;
    std::unique_lock lock(mu);
    const auto start = steady::now();
    EXPECT_EQ(at_start.wait_for(lock, 2ms), std::cv_status::timeout);
    EXPECT_GE(steady::now() - start, 2ms);
    EXPECT_EQ(at_start.wait_for(lock, -1ms), std::cv_status::timeout);
    EXPECT_EQ(at_start.wait_until(lock, steady::now() + 1ms), std::cv_status::timeout);
    EXPECT_EQ(at_start.wait_until(lock, std::chrono::system_clock::now() + 1ms),
              std::cv_status::timeout);
    EXPECT_FALSE(at_start.wait_for(lock, 1ms, [] { return false; }));
    EXPECT_TRUE(at_start.wait_for(lock, 1ms, [] { return true; }));
    EXPECT_FALSE(at_start.wait_until(lock, steady::now() + 1ms, [] { return false; }));
    EXPECT_TRUE(lock.owns_lock());
    EXPECT_FALSE(mu.try_lock());
    lock.unlock();
    EXPECT_NE(thrown_by<std::logic_error>([&] { at_start.wait(lock); }), "");
  };
  f();
  run_on_each(f);
}

// A bounded queue between producers and consumers, by two condition variables.
void produce_and_consume(int goroutines, int threads, int each) {
  mutex mu;
  condition_variable not_empty, not_full;
  std::deque<int> q;
  std::atomic<long> sum{0};
  const auto produce = [&] {
    for (int i = 1; i <= each; ++i) {
      std::unique_lock lock(mu);
      not_full.wait(lock, [&] { return q.size() < 3; });
      q.push_back(i);
      not_empty.notify_one();
    }
  };
  const auto consume = [&](bool timed) {
    for (int i = 1; i <= each; ++i) {
      std::unique_lock lock(mu);
      if (timed) {
        while (!not_empty.wait_for(lock, 20us, [&] { return !q.empty(); })) {
        }
      } else {
        not_empty.wait(lock, [&] { return !q.empty(); });
      }
      sum += q.front();
      q.pop_front();
      lock.unlock();
      not_full.notify_one();  // without the lock
    }
  };
  std::vector<std::thread> ts;
  for (int i = 0; i < threads; ++i) {
    ts.emplace_back(produce);
    ts.emplace_back([&, i] { consume(i % 2 == 1); });
  }
  {
    scope s;
    for (int i = 0; i < goroutines; ++i) {
      s.go(produce);
      s.go([&, i] { consume(i % 2 == 1); });
    }
    s.wait();
  }
  for (auto& t : ts) t.join();
  EXPECT_EQ(sum, static_cast<long>(goroutines + threads) * each * (each + 1) / 2);
}

TEST_F(ConditionVariable, Goroutines) {
  run_on_each([] { produce_and_consume(4, 0, scaled(500)); });
}
TEST_F(ConditionVariable, Threads) { produce_and_consume(0, 2, scaled(1000)); }
TEST_F(ConditionVariable, GoroutinesAndThreads) {
  run_on_each([] { produce_and_consume(2, 2, scaled(300)); });
}

// Each notify_one ends one wait that has not timed out, no more and no less.
TEST_F(ConditionVariable, ATimeOutTakesNoNotification) {
  run_on_each([] {
    mutex mu;
    condition_variable cv;
    int tickets = 0, taken = 0, waiting = 0;
    scope s;
    for (int i = 0; i < 6; ++i) {
      s.go([&] {
        for (int k = 0; k < scaled(100); ++k) {
          std::unique_lock lock(mu);
          ++waiting;
          while (tickets == 0) {
            if (cv.wait_for(lock, 10us) == std::cv_status::timeout && tickets == 0) break;
          }
          --waiting;
          if (tickets > 0) {
            --tickets;
            ++taken;
          }
        }
      });
    }
    int given = 0;
    for (int k = 0; k < scaled(100); ++k) {
      {
        std::lock_guard hold(mu);
        if (waiting > tickets) {
          ++tickets;
          ++given;
          cv.notify_one();
        }
      }
      yield();
    }
    s.wait();
    EXPECT_EQ(taken + tickets, given);
  });
}

// Once all have been notified it may go, before they have the mutex back.
TEST_F(ConditionVariable, MayGoOnceAllAreNotified) {
  run_on_each([] {
    for (int round = 0; round < scaled(500); ++round) {
      mutex mu;
      auto cv = std::make_unique<condition_variable>();
      int ready = 0;
      bool go_on = false;
      scope s;
      for (int i = 0; i < 3; ++i) {
        s.go([&, i] {
          std::unique_lock lock(mu);
          ++ready;
          while (!go_on) {
            if (i == 0) {
              (void)cv->wait_for(lock, 10s);
            } else {
              cv->wait(lock);
            }
          }
        });
      }
      while (true) {
        std::unique_lock lock(mu);
        if (ready == 3) {
          go_on = true;
          cv->notify_all();
          cv.reset();
          break;
        }
        lock.unlock();
        yield();
      }
    }
  });
}

}  // namespace
}  // namespace weft
