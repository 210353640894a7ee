// SPDX-License-Identifier: Apache-2.0
// An idle program uses no CPU: a thousand goroutines wait, nobody calls, and the kernel counts what
// we use. The only thread that wakes is the one that suspects a deadlock and looks again, each time
// after twice as long.
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "sched/sched.h"
#include "stress/support.h"

namespace weft::stress {
namespace {

struct usage {
  std::int64_t cpu;   // ns
  std::int64_t naps;  // how often a thread of ours went to sleep

  static usage now() {
    rusage u{};
    ::getrusage(RUSAGE_SELF, &u);
    return {.cpu = (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * second +
                   (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000,
            .naps = u.ru_nvcsw};
  }
};

// Whether the kernel calls every thread but this one asleep; one that waits for a CPU is not.
bool others_sleep() {
  const std::string self = std::to_string(::gettid());
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == self) continue;
    std::ifstream file(task.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    const std::size_t name = stat.rfind(')');  // which may hold anything, so count from its end
    if (name == std::string::npos || stat.compare(name, 3, ") S") != 0) return false;
  }
  return true;
}

class Idle : public Procs {};

TEST_P(Idle, AThousandWaitingUseNoCpu) {
  if (test::under_tsan) GTEST_SKIP() << "TSan's own thread never sleeps for long";
  // Less than a second would measure the moments at its ends.
  const std::int64_t time = std::max(second, duration_ns(3));
  // Two milliseconds in ten seconds is what the build that users get may cost. Four of the five
  // looks that ten seconds see come in the first three, each 50 to 100 us by the machine, so a
  // shorter measurement has the same bound: a part of it by the time would be a bound on the CPU.
  const double most = 2.0 * static_cast<double>(std::max(time, 10 * second)) / (10 * second);
  usage before{}, after{};
  const auto used = [&] { return static_cast<double>(after.cpu - before.cpu) / ms; };
  test::run_clean(test::with_procs(procs()), [&] {
    event wake, done;
    scope s;
    for (int i = 0; i < 1000; ++i) s.go([&] { wake.wait(); });
    std::thread meter([&] {
      // Handshake: all wait, every P is idle, and the monitor sleeps for good.
      while (rt::sched.idle.load().idle_ps != static_cast<std::uint32_t>(procs()) ||
             !rt::sched.sysmon_waits) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      // And everybody who is on his way to sleep has got there, however long he waited for a CPU
      // on it: all are asleep, and then nobody naps but we.
      bool asleep = false;
      do {
        asleep = others_sleep();
        before = usage::now();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        after = usage::now();
      } while (!asleep || after.naps - before.naps > 1);
      // The kernel charges us with what it does meanwhile, pages that it takes back and fetches
      // again among it: milliseconds now and then. What we use ourselves we use each time.
      for (int round = 0; round < 3; ++round) {
        before = usage::now();
        std::this_thread::sleep_for(std::chrono::nanoseconds(time));  // this is what is measured
        after = usage::now();
        if (used() <= most) break;
      }
      wake.set();
      done.set();
    });
    done.wait();
    s.wait();
    meter.join();
  });
  const std::int64_t naps = after.naps - before.naps;
  std::printf("  %.3f ms of CPU and %lld wake-ups in %.0f s\n", used(),
              static_cast<long long>(naps), static_cast<double>(time) / second);
  // One nap of the meter's, and those of the look that comes 200 ms after everybody has gone to
  // sleep, 400 ms after that one, and so on.
  std::int64_t looks = 1;
  for (std::int64_t gap = 200 * ms, at = gap; at < time; gap *= 2, at += gap) ++looks;
  EXPECT_LE(naps, 1 + looks);
  if (!test::dev_build && !test::sanitized) {
    EXPECT_LE(used(), most);
  }
}
WEFT_STRESS_PROCS(Idle);

}  // namespace
}  // namespace weft::stress
