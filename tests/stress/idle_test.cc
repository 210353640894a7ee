// SPDX-License-Identifier: Apache-2.0
// An idle program uses no CPU: a thousand goroutines wait, nobody calls, and the kernel counts what
// we use.
#include <sys/resource.h>

#include "sched/sched.h"
#include "stress/support.h"

namespace weft::stress {
namespace {

std::int64_t cpu_ns() {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * second +
         (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

class Idle : public Procs {};

TEST_P(Idle, AThousandWaitingUseNoCpu) {
  if (test::under_tsan) GTEST_SKIP() << "TSan's own thread never sleeps for long";
  // Less than a second would measure the moments at its ends.
  const std::int64_t time = std::max(second, duration_ns(3));
  std::int64_t used = 0;
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
      const std::int64_t before = cpu_ns();
      std::this_thread::sleep_for(std::chrono::nanoseconds(time));  // this is what is measured
      used = cpu_ns() - before;
      wake.set();
      done.set();
    });
    done.wait();
    s.wait();
    meter.join();
  });
  const double allowed = 2.0 * static_cast<double>(time) / (10 * second);  // ms: 2 in 10 s
  std::printf("  %.3f ms of CPU in %.0f s\n", static_cast<double>(used) / ms,
              static_cast<double>(time) / second);
  EXPECT_LE(static_cast<double>(used) / ms, allowed);
}
WEFT_STRESS_PROCS(Idle);

}  // namespace
}  // namespace weft::stress
