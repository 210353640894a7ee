// SPDX-License-Identifier: Apache-2.0
// The service thread of timers, which fires for plain threads.
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#include "support/effort.h"
#include "weft/chan.hpp"
#include "weft/time.hpp"

namespace weft::sched_test {
namespace {

using namespace std::chrono_literals;

// Some arm while it is about to sleep. Once in some hundred thousand times it slept for good.
TEST(TimerService, NoTimerIsMissedOnTheWayToSleep) {
  const auto all = static_cast<long>(test::by_effort(300'000, 20'000));
  std::atomic<long> fired{0};
  std::atomic<bool> missed{false};
  std::thread threads[3];
  for (std::thread& t : threads) {
    t = std::thread([&] {
      while (fired < all && !missed) {
        const timer soon(1us);
        clock::time_point at;
        if (soon.c.recv_for(at, 20s) != recv_status::ok) missed = true;
        ++fired;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_FALSE(missed) << "after " << fired;
}

}  // namespace
}  // namespace weft::sched_test
