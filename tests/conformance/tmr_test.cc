// SPDX-License-Identifier: Apache-2.0
// TMR: timers, tickers, sleeping.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <optional>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

#include "support/allocations.h"
#include "support/runtime.h"
#include "weft/select.hpp"
#include "weft/time.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

using time_point = clock::time_point;

std::chrono::nanoseconds since(time_point t) { return clock::now() - t; }

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const std::logic_error& e) {
    return e.what();
  }
  return "nothing thrown";
}

TEST(Conformance, TMR_01_sleep_is_not_cut_short_by_a_signal) {
  static std::atomic<int> signals{0};
  struct sigaction act {
  }, old{};
  act.sa_handler = [](int) { ++signals; };
  sigaction(SIGUSR1, &act, &old);
  run_clean([] {
    const pthread_t self = pthread_self();
    const auto begin = clock::now();
    std::thread other([self] {
      std::this_thread::sleep_for(50ms);
      pthread_kill(self, SIGUSR1);
      ::kill(::getpid(), SIGUSR1);
    });
    sleep_for(100ms);
    EXPECT_GE(since(begin), 100ms);
    other.join();
  });
  EXPECT_GE(signals.load(), 1);
  sigaction(SIGUSR1, &old, nullptr);
}

TEST(Conformance, TMR_01_after_delivers_a_time_not_before_its_own) {
  run_clean([] {
    const auto begin = clock::now();
    const std::optional<time_point> at = after(100ms).recv();
    ASSERT_TRUE(at.has_value());
    EXPECT_GE(*at, begin + 100ms);
    EXPECT_GE(since(begin), 100ms);
  });
}

TEST(Conformance, TMR_02_functions_do_not_wait_for_one_another) {
  run_clean([] {
    constexpr int links = 10;
    chan<void> done(links);
    const auto begin = clock::now();
    struct chain {
      static void link(int left, chan<void> ch) {
        if (left > 0) after_func(0ms, [left, ch] { link(left - 1, ch); });
        sleep_for(1s);
        ch.send();
      }
    };
    go([done] { chain::link(links - 1, done); });
    for (int i = 0; i < links; ++i) done.recv();
    EXPECT_LT(since(begin), 4s);
  });
}

TEST(Conformance, TMR_03_ten_afters_in_a_row) {
  run_clean([] {
    std::chrono::nanoseconds shortest = 1h;  // a busy machine can only add
    for (int i = 0; i < 10; ++i) {
      const auto begin = clock::now();
      (void)after(100ms).recv();
      shortest = std::min(shortest, since(begin));
    }
    EXPECT_GE(shortest, 100ms);
    EXPECT_LE(shortest, 300ms);
  });
}

TEST(Conformance, TMR_03_ticker_reset_and_stop) {
  run_clean([] {
    const auto begin = clock::now();
    ticker t(20ms);
    for (int i = 0; i < 5; ++i) (void)t.c.recv();
    t.reset(40ms);
    for (int i = 0; i < 5; ++i) (void)t.c.recv();
    t.stop();
    EXPECT_GE(since(begin), 210ms);  // and not much more: BUB_03, where time is exact
    sleep_for(80ms);
    time_point tp;
    EXPECT_EQ(t.c.try_recv(tp), recv_status::empty);
  });
}

TEST(Conformance, TMR_05_stop_before_firing) {
  run_clean([] {
    std::atomic<bool> fired{false};
    const timer late_f = after_func(1h, [&] { fired = true; });
    const timer late_t(1h);
    EXPECT_TRUE(late_f.stop());
    EXPECT_TRUE(late_t.stop());
    EXPECT_FALSE(late_f.stop());
    EXPECT_FALSE(late_t.stop());
    // Those that may be due by the time they are stopped say whether they were.
    const timer f = after_func(50ms, [&] { fired = true; });
    const timer t(50ms);
    const bool f_stopped = f.stop(), t_stopped = t.stop();
    sleep_for(120ms);
    EXPECT_EQ(fired.load(), !f_stopped);
    time_point tp;
    EXPECT_EQ(t.c.try_recv(tp), recv_status::empty) << t_stopped;
  });
}

TEST(Conformance, TMR_05_a_hundred_stop_theirs) {
  run_clean([] {
    std::atomic<int> fired{0}, late{0};
    {
      scope s;
      for (int i = 0; i < 100; ++i) {
        s.go([&fired, &late] {
          const auto begin = clock::now();
          const timer t = after_func(2s, [&fired] { ++fired; });
          sleep_for(1s);
          if (t.stop()) return;
          ++late;
          EXPECT_GE(since(begin), 2s);  // the machine has slept over it
        });
      }
    }
    sleep_for(2s);
    EXPECT_EQ(fired.load(), late.load());
  });
}

TEST(Conformance, TMR_05_reset_moves_a_pending_timer) {
  run_clean([] {
    const auto begin = clock::now();
    const timer t(1h);
    EXPECT_TRUE(t.reset(30ms));
    (void)t.c.recv();
    EXPECT_GE(since(begin), 30ms);
    EXPECT_FALSE(t.reset(20ms));  // it had fired, and was received
    (void)t.c.recv();
    EXPECT_GE(since(begin), 50ms);
  });
}

TEST(Conformance, TMR_07_a_zero_timer_is_never_missed) {
  run_clean([] {
    constexpr int n = full_or(1'000'000, 5'000);
    time_point tp;
    for (int i = 0; i < n; ++i) ASSERT_EQ(timer(0ns).c.recv_for(tp, 2s), recv_status::ok) << i;
    chan<void> ran;
    for (int i = 0; i < n; ++i) {
      after_func(0ns, [ran] { ran.send(); });
      ASSERT_EQ(ran.recv_for(2s), recv_status::ok) << i;
    }
    const timer one(0ns);
    ASSERT_EQ(one.c.recv_for(tp, 2s), recv_status::ok);
    for (int i = 0; i < n; ++i) {
      one.reset(0ns);
      ASSERT_EQ(one.c.recv_for(tp, 2s), recv_status::ok) << i;
    }
  });
}

TEST(Conformance, TMR_10_no_buffer_to_be_seen) {
  run_clean([] {
    const timer t(1ms);
    EXPECT_EQ(t.c.cap(), 0u);
    sleep_for(20ms);
    EXPECT_EQ(t.c.len(), 0u);
    time_point tp;
    EXPECT_EQ(t.c.try_recv(tp), recv_status::ok);
    EXPECT_EQ(t.c.try_recv(tp), recv_status::empty);  // a timer fires once
    EXPECT_FALSE(t.stop());
  });
}

TEST(Conformance, TMR_10_nothing_stale_after_stop_or_reset) {
  run_clean([] {
    time_point tp;
    for (int i = 0; i < full_or(200, 20); ++i) {
      const timer t(1us);
      sleep_for(200us);
      EXPECT_TRUE(t.stop()) << "fired, and nobody has received it";
      EXPECT_EQ(t.c.try_recv(tp), recv_status::empty);
      t.reset(1us);
      sleep_for(200us);
      EXPECT_TRUE(t.reset(1h));
      EXPECT_EQ(t.c.try_recv(tp), recv_status::empty);
    }
    // Against a firing that is under way.
    const timer t(1h);
    for (int i = 0; i < full_or(20'000, 500); ++i) {
      t.reset(std::chrono::nanoseconds(i % 3000));
      if (i % 3 == 0) yield();
      t.stop();
      ASSERT_EQ(t.c.try_recv(tp), recv_status::empty) << i;
    }
  });
}

TEST(Conformance, TMR_10_blocked_waiters_follow_reset) {
  run_clean([] {
    const timer t(1h);
    std::atomic<bool> got{false};
    scope s;
    s.go([&] {
      (void)t.c.recv();
      got = true;
    });
    s.go([&] { select(recv(t.c, [&](std::optional<time_point>) { got = true; }), timeout(3s)); });
    sleep_for(10ms);
    t.reset(2h);
    sleep_for(10ms);
    EXPECT_FALSE(got.load());
    const auto begin = clock::now();
    t.reset(10ms);
    while (!got.load()) sleep_for(1ms);
    EXPECT_LT(since(begin), 1s);
    t.reset(1ms);  // for the other one
    s.wait();
  });
}

TEST(Conformance, TMR_10_a_ticker_ticks_after_each_read) {
  run_clean([] {
    const ticker t(5ms);
    for (int i = 0; i < 3; ++i) {
      sleep_for(30ms);  // six ticks, of which one is kept
      time_point tp;
      EXPECT_EQ(t.c.len(), 0u);
      EXPECT_EQ(t.c.try_recv(tp), recv_status::ok);
    }
    t.stop();
  });
}

TEST(Conformance, TMR_11_the_value_is_the_time_of_firing) {
  run_clean([] {
    const auto a = after(10ms), b = tick(10ms);
    sleep_for(500ms);
    const auto looked = clock::now();
    EXPECT_LT(*a.recv(), looked);
    EXPECT_LT(*b.recv(), looked);
  });
}

TEST(Conformance, TMR_12_ticks_while_the_world_stops) {
  for (int receivers : {1, 10}) {
    run_clean([receivers] {
      std::atomic<bool> stop{false};
      scope s;
      s.go([&] {
        while (!stop.load()) {
          debug::audit();
          yield();
        }
      });
      const ticker t(1ns);
      {
        scope r;
        for (int i = 0; i < receivers; ++i) {
          r.go([&] {
            for (int k = 0; k < 100; ++k) (void)t.c.recv();
          });
        }
      }
      stop = true;
    });
  }
}

TEST(Conformance, TMR_12_many_select_and_reset_at_once) {
  run_clean([] {
    const int n = procs();
    {
      const ticker t(1us);
      scope s;
      for (int g = 0; g < n; ++g) {
        s.go([&] {
          for (int i = 0; i < full_or(100'000, 2'000); ++i) select(recv(t.c), otherwise());
        });
      }
    }
    const timer t(1ns);
    scope s;
    for (int g = 0; g < n; ++g) {
      s.go([&] {
        for (int i = 0; i < full_or(10'000, 500); ++i) {
          t.reset(1ns);
          select(recv(t.c), otherwise());
        }
      });
    }
  });
}

TEST(Conformance, TMR_14_misuse) {
  run_clean([] {
    const timer zero;
    EXPECT_EQ(error_of([&] { zero.stop(); }), "time: Stop called on uninitialized Timer");
    EXPECT_EQ(error_of([&] { zero.reset(1s); }), "time: Reset called on uninitialized Timer");
    EXPECT_EQ(error_of([] { ticker t(0s); }), "non-positive interval for NewTicker");
    EXPECT_EQ(error_of([] { ticker t(-1s); }), "non-positive interval for NewTicker");
    const ticker t(1h);
    EXPECT_EQ(error_of([&] { t.reset(0s); }), "non-positive interval for Ticker.Reset");
    EXPECT_TRUE(tick(-1s) == nullptr);
    EXPECT_TRUE(tick(0s) == nullptr);
    ticker().stop();
    t.reset(1ms);  // no lock was left held
    (void)t.c.recv();
  });
}

TEST(Conformance, TMR_15_dropped_timers_leave_nothing) {
  run_clean([] {
    constexpr int n = 10'000;
    const auto drop = [](int count) {
      for (int i = 0; i < count; ++i) {
        (void)after(1h);
        (void)tick(1h);
        timer t(1h);
        ticker k(1h);
        if (i % 2 == 0) {
          t.stop();
          k.stop();
        }
      }
    };
    drop(100);
    const auto before = live_allocations.objects.load();
    drop(n);
    EXPECT_LT(live_allocations.objects.load() - before, 100);
  });
}

// -- plain threads, before, during and after a run

TEST(Conformance, TMR_timers_of_plain_threads) {
  const auto use = [] {
    const auto begin = clock::now();
    sleep_for(5ms);
    EXPECT_GE(*after(5ms).recv(), begin + 10ms);
    const ticker t(2ms);
    for (int i = 0; i < 3; ++i) (void)t.c.recv();
    EXPECT_EQ(select(recv(after(1h)), timeout(2ms)), 1);
    const timer s(1h);
    EXPECT_TRUE(s.stop());
    EXPECT_FALSE(s.reset(1ms));
    (void)s.c.recv();
  };
  use();
  timer left;
  run_clean([&left] {
    left = timer(30ms);
    sleep_for(1ms);
  });
  (void)left.c.recv();  // its run is over
  run_clean([&use] {
    chan<void> done;
    std::thread th([&] {
      use();
      done.close();
    });
    done.recv();
    th.join();
  });
  use();
}

}  // namespace
}  // namespace weft::test
