// SPDX-License-Identifier: Apache-2.0
// Whoever is runnable has a turn before the others have had many. Measured in CPU time of the
// process: other load on the machine makes nobody wait longer by that clock.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <vector>

#include <gtest/gtest.h>
#include <weft/chan.hpp>
#include <weft/time.hpp>

#include "support/runtime.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace std::chrono_literals;
using sched_test::run_on;

std::chrono::nanoseconds cpu_time() {
  timespec t;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

// One goroutine's, until it has ended.
class turns {
 public:
  void had_one() {
    const auto now = cpu_time();
    longest_ = std::max(longest_, now - last_);
    last_ = now;
  }
  std::chrono::nanoseconds longest_wait() const { return longest_; }

 private:
  std::chrono::nanoseconds last_ = cpu_time(), longest_{0};
};

struct crowd {
  std::size_t pairs, sleepers, loops;
};

// For so long. The slice is 10 ms, and each of the others may come before, with a turn of a loop in
// between: three times that is still fair.
void expect_turns(const crowd& c, std::chrono::milliseconds duration) {
  run_on(1, [&c, duration] {
    std::vector<turns> of(c.pairs + c.sleepers + 1);
    std::atomic<bool> over{false};
    const auto runs = [&over] { return !over.load(std::memory_order_relaxed); };
    const auto sleep = [](turns& t) {
      sleep_for(200us);
      t.had_one();
    };
    scope s;
    // Two that pass values to and fro share a slice, each as the other's runnext.
    for (std::size_t i = 0; i < c.pairs; ++i) {
      chan<int> ch;
      s.go([runs, ch] {
        while (runs()) ch.send(1);
        ch.close();
      });
      s.go([&t = of[i], ch] {
        for ([[maybe_unused]] const int v : ch) t.had_one();
        t.had_one();  // if it has starved until now
      });
    }
    for (std::size_t i = 0; i < c.sleepers; ++i) {
      s.go([&t = of[c.pairs + i], runs, sleep] {
        while (runs()) sleep(t);
        sleep(t);
      });
    }
    for (std::size_t i = 0; i < c.loops; ++i) {
      s.go([runs] {
        while (runs()) {
        }
      });
    }
    const auto until = cpu_time() + duration;
    while (cpu_time() < until) sleep(of.back());
    over.store(true, std::memory_order_relaxed);
    s.wait();
    const auto fair = 3 * (of.size() + c.loops) * 20ms;
    for (std::size_t i = 0; i < of.size(); ++i)
      EXPECT_LT(of[i].longest_wait() / 1.0ms, fair / 1ms) << i;
  });
}

// A loop that had been stopped came first whenever a pair's slice was over, and the same pair,
// runnext still, whenever the loop's was: the others waited for seconds.
TEST(Fairness, PairsBesideALoop) { expect_turns({2, 0, 1}, 1s); }
TEST(Fairness, PairsAndSleepersBesideALoop) { expect_turns({2, 2, 1}, 1s); }
TEST(Fairness, ManyBesideTwoLoops) { expect_turns({8, 4, 2}, 2s); }

}  // namespace
}  // namespace weft
