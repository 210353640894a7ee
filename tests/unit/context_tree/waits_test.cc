// SPDX-License-Identifier: Apache-2.0
// The calls that a context ends: semaphore::acquire(ctx), condition_variable::wait(lock, ctx,
// pred), sleep_for(ctx, d); by goroutines and plain threads.
#include <atomic>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

#include "support/runtime.h"
#include "weft/context.hpp"
#include "weft/sync.hpp"
#include "weft/time.hpp"

namespace weft {
namespace {

using namespace std::chrono_literals;
using test::run_clean;

// f on a goroutine, then on a plain thread.
template <class F>
void on_both(F f) {
  run_clean([&] { f(); });
  run_clean([&] {
    chan<void> done;
    std::thread t([&] {
      f();
      done.close();
    });
    done.recv();
    t.join();
  });
  std::thread(f).join();  // outside of a run
}

TEST(ContextWaits, SleepFor) {
  on_both([] {
    auto [ctx, cancel] = with_cancel(background());
    EXPECT_FALSE(sleep_for(ctx, 1ms));
    EXPECT_FALSE(sleep_for(background(), 1ms));
    std::thread other([cancel = cancel] {
      std::this_thread::sleep_for(5ms);
      cancel();
    });
    const auto begin = clock::now();
    EXPECT_EQ(sleep_for(ctx, 1h), errc::canceled);
    EXPECT_LT(clock::now() - begin, 10s);
    EXPECT_EQ(sleep_for(ctx, 1h), errc::canceled);
    other.join();
  });
}

TEST(ContextWaits, SemaphoreAcquire) {
  on_both([] {
    semaphore s(1);
    auto [ctx, cancel] = with_cancel(background());
    EXPECT_FALSE(s.acquire(ctx));
    std::thread other([cancel = cancel] {
      std::this_thread::sleep_for(5ms);
      cancel();
    });
    EXPECT_EQ(s.acquire(ctx), errc::canceled);
    other.join();
    EXPECT_EQ(s.acquire(ctx), errc::canceled);  // though nobody holds it soon
    s.release();
    EXPECT_EQ(s.acquire(ctx), errc::canceled);
    EXPECT_TRUE(s.try_acquire());
    s.release();
    auto [late, stop] = with_timeout(background(), 100ms);
    EXPECT_TRUE(s.try_acquire());
    EXPECT_EQ(s.acquire(late), errc::deadline_exceeded);
    s.release();
    EXPECT_FALSE(s.try_acquire(2));
  });
}

// One who gives up lets those behind it through.
TEST(ContextWaits, ACancelledWaiterLetsTheOthersPass) {
  run_clean([] {
    semaphore s(1);
    auto [ctx, cancel] = with_cancel(background());
    std::atomic<bool> small{false};
    scope sc;
    sc.go([&, ctx = ctx] { EXPECT_EQ(s.acquire(ctx, 5), errc::canceled); });
    while (s.try_acquire()) {  // until it stands in front
      s.release();
      yield();
    }
    sc.go([&] {
      s.acquire();
      small = true;
    });
    sleep_for(1ms);
    EXPECT_FALSE(small.load());
    cancel();
    sc.wait();
    EXPECT_TRUE(small.load());
  });
}

TEST(ContextWaits, ConditionVariable) {
  on_both([] {
    mutex m;
    condition_variable cv;
    bool ready = false;
    auto [ctx, cancel] = with_cancel(background());
    std::thread other([&, cancel = cancel] {
      std::this_thread::sleep_for(2ms);
      {
        std::lock_guard hold(m);
        ready = true;
      }
      cv.notify_one();
      std::this_thread::sleep_for(2ms);
      cancel();
    });
    std::unique_lock lock(m);
    EXPECT_TRUE(cv.wait(lock, ctx, [&] { return ready; }));
    EXPECT_FALSE(cv.wait(lock, ctx, [] { return false; }));
    EXPECT_TRUE(lock.owns_lock());
    EXPECT_FALSE(cv.wait(lock, ctx, [] { return false; }));  // cancelled before
    lock.unlock();
    other.join();
  });
}

// Notify, release and cancel against one another: nobody stuck, nothing lost.
TEST(ContextWaits, Races) {
  run_clean([] {
    for (int i = 0; i < test::full_or(3000, 200); ++i) {
      semaphore s(0);
      auto [ctx, cancel] = with_cancel(background());
      std::atomic<int> got{0};
      {
        scope sc;
        for (int k = 0; k < 3; ++k) {
          sc.go([&, ctx = ctx] {
            if (!s.acquire(ctx)) ++got;
          });
        }
        sc.go([&] { s.release(2); });
        sc.go([cancel = cancel] { cancel(); });
      }
      int left = 0;
      while (s.try_acquire()) ++left;
      ASSERT_EQ(got + left, 2);
    }
  });
}

}  // namespace
}  // namespace weft
