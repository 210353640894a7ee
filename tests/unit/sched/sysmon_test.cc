// SPDX-License-Identifier: Apache-2.0
// What the monitor costs: how often it wakes up, as the kernel counts it.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <weft/time.hpp>

#include "support/runtime.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace std::chrono_literals;
using sched_test::run_on;

std::string line_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string s;
  std::getline(in, s);
  return s;
}

// How often the monitor's thread has gone to sleep so far; below 0: it has not come up yet, for
// which nobody waits.
std::int64_t sleeps_of_monitor() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (line_of(task.path() / "comm") != "weft-sysmon") continue;
    std::ifstream status(task.path() / "status");
    const std::string key = "voluntary_ctxt_switches:";
    for (std::string l; std::getline(status, l);) {
      if (l.starts_with(key)) return std::stoll(l.substr(key.size()));
    }
  }
  return -1;
}

double rounds_a_second(std::chrono::milliseconds d) {
  EXPECT_TRUE(test::spin_until([] { return sleeps_of_monitor() >= 0; }));
  const std::int64_t before = sleeps_of_monitor();
  const auto start = std::chrono::steady_clock::now();
  const auto until = start + d;
  while (std::chrono::steady_clock::now() < until) {
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return static_cast<double>(sleeps_of_monitor() - before) / took.count();
}

// Two that compute share a P: it is due at the end of each slice (a millisecond while somebody
// waits) and has no reason to look more often. It once came round 18 000 times a second here.
TEST(Sysmon, SleepsUntilAPIsDue) {
  run_on(1, [] {
    std::atomic<bool> over{false};
    scope s;
    s.go([&over] {
      while (!over.load(std::memory_order_relaxed)) {
      }
    });
    yield();
    const double rounds = rounds_a_second(500ms);
    if (!test::sanitized && !test::under_emulator) {
      EXPECT_LE(rounds, 4000);
    }
    over.store(true, std::memory_order_relaxed);
  });
}

TEST(Sysmon, LooksRarelyIfNobodyWaits) {
  run_on(1, [] { EXPECT_LE(rounds_a_second(500ms), 400); });
}

}  // namespace
}  // namespace weft
