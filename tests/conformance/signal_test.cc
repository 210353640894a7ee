// SPDX-License-Identifier: Apache-2.0
// SYS-07: signals into channels. The race with the last stop is in tests/crash/signal_test.cc:
// there the process may die of it.
#include <atomic>
#include <csignal>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/runtime.h"
#include "weft/chan.hpp"
#include "weft/select.hpp"
#include "weft/signal.hpp"
#include "weft/sync.hpp"
#include "weft/time.hpp"

namespace weft::test {
namespace {

// The last one sent may still be on its way when nobody wants it any more: it must not kill us.
class stragglers_ignored {
 public:
  stragglers_ignored() : was_(std::signal(SIGUSR1, SIG_IGN)) {}
  stragglers_ignored(const stragglers_ignored&) = delete;
  stragglers_ignored& operator=(const stragglers_ignored&) = delete;
  ~stragglers_ignored() { std::signal(SIGUSR1, was_); }

 private:
  void (*was_)(int);
};

TEST(Conformance, SYS_07_three_seconds_of_signals_reach_the_channel) {
  const stragglers_ignored ignored;
  run_clean(with_procs(4), [] {
    signals s({SIGUSR1});
    std::atomic<bool> over{false};
    std::atomic<long> sent{0}, got{0};
    chan<void> done;
    scope sc;
    sc.go([&] {
      while (!over) {
        ::kill(::getpid(), SIGUSR1);
        ++sent;
        yield();
      }
    });
    sc.go([&] {
      bool going = true;
      while (going) {
        select(recv(s.c, [&](std::optional<int> v) { got += v == SIGUSR1 ? 1 : 1'000'000'000; }),
               recv(done, [&] { going = false; }));
      }
    });
    sleep_for(std::chrono::milliseconds(by_effort(3000, 500)));
    EXPECT_TRUE(eventually([&] { return got > 100; }));  // two that come at once count as one
    over = true;
    done.close();
    sc.wait();
    EXPECT_LE(got.load(), sent.load());
    RecordProperty("sent", static_cast<int>(sent.load()));
    RecordProperty("received", static_cast<int>(got.load()));
  });
}

// A send after stop() would be seen by the length, since nobody receives.
TEST(Conformance, SYS_07_nothing_is_sent_after_stop) {
  const stragglers_ignored ignored;
  run_clean(with_procs(4), [] {
    const signals keeps_it_caught({SIGUSR1});
    std::atomic<bool> over{false};
    scope sc;
    sc.go([&] {
      while (!over) {
        ::kill(::getpid(), SIGUSR1);
        yield();
      }
    });
    const std::uint64_t rounds = by_effort(static_cast<std::uint64_t>(full_or(1000, 100)), 50);
    for (std::uint64_t i = 0; i < rounds; ++i) {
      signals s({SIGUSR1});
      s.c.recv();
      s.stop();
      const std::size_t left = s.c.len();
      for (int n = 0; n < 5; ++n) {
        yield();
        ASSERT_EQ(s.c.len(), left);
      }
    }
    over = true;
  });
}

}  // namespace
}  // namespace weft::test
