// SPDX-License-Identifier: Apache-2.0
// main of every test program. Tests that need the runtime call weft::run themselves.
//
// WEFT_TEST_LEAKS=1: a thread looks for leaks at random moments, while all tests run. One that is
// reported and then woken ends the process in dev builds (sched/park.cc).
//
// WEFT_TEST_STORM=1: handlers for the signals that weft_storm sends (tests/storm/main.cc), as a
// program has that asks nothing of weft: they restart calls, and do nothing.
//
// The chaos build says first which seed it runs under: a test that hangs or dies has said it too.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "base/chaos.h"
#include "weft/debug.hpp"

namespace {

class leak_hunt {
 public:
  leak_hunt() {
    if (std::getenv("WEFT_TEST_LEAKS") == nullptr) return;
    thread_ = std::thread([this] {
      std::minstd_rand random(static_cast<unsigned>(std::time(nullptr)));
      while (!over_.load()) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
        found_ += weft::debug::find_leaks().size();
        ++looks_;
      }
    });
  }
  leak_hunt(const leak_hunt&) = delete;
  leak_hunt& operator=(const leak_hunt&) = delete;
  ~leak_hunt() {
    if (!thread_.joinable()) return;
    over_ = true;
    thread_.join();
    std::printf("looked for leaks %zu times, reported %zu\n", looks_, found_);
  }

 private:
  std::atomic<bool> over_{false};
  std::size_t looks_ = 0, found_ = 0;
  std::thread thread_;
};

void stand_the_storm() {
  if (std::getenv("WEFT_TEST_STORM") == nullptr) return;
  struct sigaction sa = {};
  sa.sa_handler = [](int) {};
  sa.sa_flags = SA_RESTART | SA_ONSTACK;
  for (const int sig : {SIGURG, SIGALRM, SIGPROF}) ::sigaction(sig, &sa, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
#if defined(WEFT_CHAOS)
  if (!::testing::GTEST_FLAG(list_tests)) {
    std::printf("WEFT_CHAOS=%s\n", weft::rt::chaos::setting());
    std::fflush(stdout);
  }
#endif
  stand_the_storm();
  const leak_hunt hunt;
  return RUN_ALL_TESTS();
}
