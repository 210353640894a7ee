// SPDX-License-Identifier: Apache-2.0
// Runs that end at the very moment at which one of their goroutines begins to wait for a
// descriptor: the next run knows nothing of it.
#include <fcntl.h>
#include <unistd.h>

#include "sched/netpoll.h"
#include "stress/support.h"
#include "support/leaks.h"

namespace weft::stress {
namespace {

class RunEnd : public Procs {};

// Who is left behind keeps its thread, and there may be ten thousand.
bool threads_left() { return rt::sched.mcount.load(rt::memory_order_relaxed) < 5000; }

TEST_P(RunEnd, NoWaiterIsCountedInTheNextRun) {
  test::goroutines_are_left_behind = true;
  std::atomic<std::uint64_t> runs{0};
  const watchdog dog(runs, "runs");
  const std::int64_t until = nanotime() + duration_ns(2);
  int fds[2];
  ASSERT_EQ(::pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
  rt::random r(5);
  for (; nanotime() < until && threads_left() && !HasFailure(); ++runs) {
    rt::fd_desc* d = nullptr;
    ASSERT_EQ(rt::poll_open(fds[0], &d), 0);
    run(test::with_procs(procs()), [&, n = r.below(30)] {
      go([d, fd = fds[0]] {
        for (char b[1];;) {
          if (rt::poll_prepare(d, rt::poll_mode::read) != rt::poll_result::ready) return;
          if (::read(fd, b, 1) < 0) rt::poll_wait(d, rt::poll_mode::read);
        }
      });
      go([fd = fds[1]] {
        for (;;) {
          (void)!::write(fd, "x", 1);
          yield();
        }
      });
      for (std::uint32_t i = n; i > 0; --i) yield();
    });
    EXPECT_EQ(rt::netpoll.waiters.load(), 0) << "after run " << runs;
    rt::poll_evict(d);
    rt::poll_close(d);
  }
  ::close(fds[0]);
  ::close(fds[1]);
  std::printf("  %llu runs\n", static_cast<unsigned long long>(runs));
}

WEFT_STRESS_PROCS(RunEnd);

}  // namespace
}  // namespace weft::stress
