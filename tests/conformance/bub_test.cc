// SPDX-License-Identifier: Apache-2.0
// BUB: bubbles, their clock and what blocks durably in them. What is fatal is in crash/bub_test.cc.
#include <atomic>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <latch>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/leaks.h"
#include "support/runtime.h"
#include "weft/context.hpp"
#include "weft/file.hpp"
#include "weft/net.hpp"
#include "weft/select.hpp"
#include "weft/sync.hpp"
#include "weft/testing.hpp"
#include "weft/thread.hpp"
#include "weft/time.hpp"

namespace weft::test {
namespace {

using time_point = clock::time_point;

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing thrown";
}

// In a bubble, and then proves that nothing is left.
template <class F>
void in_bubble(F f) {
  run_clean([&f] { testing::bubble(1, f); });
}

TEST(Conformance, BUB_01_the_clock) {
  in_bubble([] {
    const time_point start(
        std::chrono::sys_days(std::chrono::year(2000) / 1 / 1).time_since_epoch());
    EXPECT_EQ(clock::now(), start);
    go([&] {  // one clock for all
      EXPECT_EQ(clock::now(), start);
      sleep_for(1s);
      EXPECT_EQ(clock::now(), start + 1s);
    });
    const auto real = steady::now();
    while (steady::now() - real < 2ms) {
    }
    EXPECT_EQ(clock::now(), start);  // stands still while anything runs
    sleep_for(1s);
    EXPECT_EQ(clock::now(), start + 1s);
    sleep_for(3h + 1ns);
    EXPECT_EQ(clock::now(), start + 1s + 3h + 1ns);
    sleep_until(start + 24h);
    EXPECT_EQ(clock::now(), start + 24h);
    EXPECT_LT(steady::now() - real, 1h);
  });
}

TEST(Conformance, BUB_01_the_clock_outside_is_another) {
  run_clean([] {
    const time_point before = clock::now();
    testing::bubble(1, [] { sleep_for(1000h); });
    EXPECT_LT(clock::now() - before, 1h);
    EXPECT_GE(clock::now(), before);
  });
}

TEST(Conformance, BUB_03_a_timer_read_early_and_late) {
  in_bubble([] {
    const time_point start = clock::now();
    const timer t(5s);
    EXPECT_EQ(*t.c.recv(), start + 5s);
    EXPECT_EQ(clock::now(), start + 5s);
    t.reset(1s);
    sleep_for(2s);
    EXPECT_EQ(*t.c.recv(), start + 6s);  // when it fired
    EXPECT_EQ(clock::now(), start + 7s);
  });
}

TEST(Conformance, BUB_03_chains_of_resets) {
  in_bubble([] {
    const time_point start = clock::now();
    const timer t(10s);
    std::vector<std::chrono::nanoseconds> at;
    for (auto d : {1s, 2s, 4s}) {
      t.reset(d);
      at.emplace_back(*t.c.recv() - start);
    }
    EXPECT_EQ(at, (std::vector<std::chrono::nanoseconds>{1s, 3s, 7s}));
    t.reset(1s);
    t.reset(2s);  // before it fired
    EXPECT_EQ(*t.c.recv() - start, 9s);
    t.reset(1s);
    EXPECT_TRUE(t.stop());
    sleep_for(5s);
    time_point v;
    EXPECT_EQ(t.c.try_recv(v), recv_status::empty);
  });
}

TEST(Conformance, BUB_03_zero_is_ready_at_once) {
  in_bubble([] {
    const time_point start = clock::now();
    const timer t(0s);
    time_point v;
    EXPECT_EQ(t.c.try_recv(v), recv_status::ok);
    EXPECT_EQ(v, start);
    t.reset(0s);
    EXPECT_EQ(*t.c.recv(), start);
    EXPECT_EQ(*after(0s).recv(), start);
    std::atomic<bool> ran{false};
    after_func(0s, [&] { ran = true; });
    while (!ran.load()) yield();
    const timer f = after_func(1h, [&] { ran = false; });
    f.reset(0s);
    while (ran.load()) yield();
    EXPECT_EQ(clock::now(), start);
  });
}

TEST(Conformance, BUB_03_after_func_belongs_to_the_bubble) {
  in_bubble([] {
    const time_point start = clock::now();
    const chan<time_point> c;
    after_func(1s, [c] {
      go([c] {
        sleep_for(1s);
        c.send(clock::now());
      });
    });
    EXPECT_EQ(*c.recv() - start, 2s);
    after_func(1s, [] { testing::wait(); });  // throws outside
    sleep_for(2s);
  });
}

TEST(Conformance, BUB_03_nothing_fires_after_the_root_has_gone) {
  std::atomic<int> fired{0};
  run_clean([&] {
    testing::bubble(1, [&] {
      after_func(1s, [&] { ++fired; });
      timer(1s).reset(2s);
      static ticker t;
      t = ticker(1s);
      (void)with_timeout(background(), 1s).first.done();
    });
    sleep_for(5ms);
    EXPECT_EQ(fired.load(), 0);
  });
}

TEST(Conformance, BUB_03_tickers_and_deadlines) {
  in_bubble([] {
    const time_point start = clock::now();
    const ticker t(1s);
    for (int i = 1; i <= 5; ++i) EXPECT_EQ(*t.c.recv() - start, 1s * i);
    t.stop();
    auto [ctx, cancel] = with_timeout(background(), 10s);
    ctx.done().recv();
    EXPECT_EQ(clock::now() - start, 15s);
    EXPECT_EQ(ctx.err(), errc::deadline_exceeded);
    chan<int> never;
    int v = 0;
    EXPECT_EQ(never.recv_for(v, 5s), recv_status::timeout);
    EXPECT_EQ(clock::now() - start, 20s);
    select(recv(never), timeout(5s));
    EXPECT_EQ(clock::now() - start, 25s);
    EXPECT_EQ(sleep_for(ctx, 5s), errc::deadline_exceeded);
    EXPECT_EQ(clock::now() - start, 25s);
  });
}

// Of two things at one time, each comes first now and then; and the same one with the same seed.
void both_orders(const std::function<int()>& first_of_two) {
  run_clean([&] {
    int seen[2] = {0, 0};
    for (std::uint64_t seed = 0; seed < 1000 && (seen[0] == 0 || seen[1] == 0); ++seed) {
      const int first = testing::bubble(seed, first_of_two);
      EXPECT_EQ(testing::bubble(seed, first_of_two), first);
      ++seen[first];
    }
    EXPECT_GT(seen[0], 0);
    EXPECT_GT(seen[1], 0);
  });
}

TEST(Conformance, BUB_04_timers_at_one_time) {
  both_orders([] {
    const timer a(1s), b(1s);
    return select(recv(a.c), recv(b.c));
  });
  both_orders([] {
    const timer a(1s);
    return select(recv(a.c), timeout(1s));
  });
}

TEST(Conformance, BUB_04_sleepers_at_one_time) {
  both_orders([] {
    int first = -1;
    wait_group wg;
    for (int i = 0; i < 2; ++i) {
      wg.go([&, i] {
        sleep_for(1s);
        if (first < 0) first = i;
      });
    }
    wg.wait();
    return first;
  });
}

TEST(Conformance, BUB_04_functions_at_one_time) {
  both_orders([] {
    int first = -1;
    for (int i = 0; i < 2; ++i) {
      after_func(1s, [&first, i] {
        if (first < 0) first = i;
      });
    }
    sleep_for(2s);
    return first;
  });
}

// f blocks durably: wait() returns, and time passes.
void is_durable(const char* what, const std::function<void()>& blocks,
                const std::function<void()>& goes_on) {
  bool done = false;
  go([&] {
    blocks();
    done = true;
  });
  testing::wait();
  EXPECT_FALSE(done) << what;
  const time_point now = clock::now();
  sleep_for(1s);
  EXPECT_EQ(clock::now(), now + 1s) << what;
  EXPECT_FALSE(done) << what;
  goes_on();
  testing::wait();
  EXPECT_TRUE(done) << what;
}

TEST(Conformance, BUB_05_durable) {
  in_bubble([] {
    const chan<int> c, d;
    is_durable(
        "receive", [&] { c.recv(); }, [&] { c.send(1); });
    is_durable(
        "send", [&] { c.send(1); }, [&] { c.recv(); });
    is_durable(
        "select", [&] { select(recv(c), send(d, 1)); }, [&] { d.recv(); });
    is_durable(
        "select with a nil channel", [&] { select(recv(c), recv(recv_chan<int>())); },
        [&] { c.send(1); });
    is_durable(
        "sleep", [] { sleep_for(1s + 1ns); }, [] { sleep_for(1ns); });
    mutex m;
    condition_variable cv;
    is_durable(
        "condition variable",
        [&] {
          std::unique_lock lock(m);
          cv.wait(lock);
        },
        [&] { cv.notify_one(); });
    wait_group wg;
    wg.add(1);
    is_durable(
        "wait group", [&] { wg.wait(); }, [&] { wg.done(); });
    semaphore s(0);
    is_durable(
        "semaphore", [&] { s.acquire(); }, [&] { s.release(); });
    weft::latch l(1);
    is_durable(
        "latch", [&] { l.wait(); }, [&] { l.count_down(); });
    barrier<> b(2);
    is_durable(
        "barrier", [&] { b.arrive_and_wait(); }, [&] { b.arrive_and_wait(); });
    promise<int> p;
    task<int> t = p.get_task();
    is_durable(
        "task", [&] { t.wait(); }, [&] { p.set_value(1); });
    auto [ctx, cancel] = with_cancel(background());
    is_durable(
        "context", [&, ctx = ctx] { ctx.done().recv(); }, [&, cancel = cancel] { cancel(); });
    is_durable(
        "scope",
        [&] {
          scope sc;
          sc.go([&] { c.recv(); });
          sc.wait();
        },
        [&] { c.send(1); });
  });
}

TEST(Conformance, BUB_05_nil_channels_block_durably) {
  goroutines_are_left_behind = true;
  run_clean([] {
    for (void (*f)() : {+[] { (void)recv_chan<int>().recv(); }, +[] { send_chan<int>().send(1); },
                        +[] { select(); }}) {
      EXPECT_THROW(testing::bubble(1, f), testing::deadlock);
    }
  });
}

// inside() waits for what outside() does in 1 ms of real time. The bubble's clock stands still
// meanwhile, though one in it sleeps.
template <class Outside, class Inside>
void is_not_durable(const char* what, Outside outside, Inside inside) {
  const timer t = after_func(1ms, outside);
  testing::bubble(1, [&] {
    const time_point start = clock::now();
    go([] { sleep_for(1s); });
    inside();
    EXPECT_EQ(clock::now(), start) << what;
    sleep_for(2s);
  });
}

TEST(Conformance, BUB_05_channels_from_outside) {
  run_clean([] {
    const chan<int> c;
    is_not_durable(
        "receive", [&] { c.send(1); }, [&] { EXPECT_EQ(*c.recv(), 1); });
    is_not_durable(
        "send", [&] { EXPECT_EQ(*c.recv(), 2); }, [&] { c.send(2); });
    is_not_durable(
        "select", [&] { c.send(1); }, [&] { select(recv(c)); });
    is_not_durable(
        "select, mixed", [&] { c.send(1); },
        [&] {
          const chan<int> own;
          EXPECT_EQ(select(recv(own), recv(c)), 1);
        });
    is_not_durable(
        "close", [&] { c.close(); }, [&] { EXPECT_FALSE(c.recv()); });
    auto [ctx, cancel] = with_cancel(background());
    is_not_durable(
        "context", [cancel = cancel] { cancel(); }, [ctx = ctx] { ctx.done().recv(); });
    const chan<void> go_on;
    task<int> t = async([&] {
      go_on.recv();
      return 3;
    });
    is_not_durable(
        "task", [&] { go_on.close(); }, [&] { EXPECT_EQ(t.get(), 3); });
    const timer real(2ms);
    is_not_durable(
        "timer", [] {}, [&] { real.c.recv(); });
  });
}

TEST(Conformance, BUB_05_mutexes_from_outside) {
  run_clean([] {
    mutex m;
    m.lock();
    is_not_durable(
        "mutex", [&] { m.unlock(); }, [&] { const std::lock_guard hold(m); });
    shared_mutex rw;
    rw.lock();
    is_not_durable(
        "shared_mutex", [&] { rw.unlock(); }, [&] { rw.lock_shared(); });
    rw.unlock_shared();
  });
}

TEST(Conformance, BUB_05_a_wait_group_from_outside) {
  run_clean([] {
    wait_group wg;
    wg.add(1);
    is_not_durable(
        "wait group", [&] { wg.done(); }, [&] { wg.wait(); });
  });
}

TEST(Conformance, BUB_05_descriptors_and_system_calls) {
  run_clean([] {
    int fd[2];
    ASSERT_EQ(::pipe(fd), 0);
    const auto put = [&] { EXPECT_EQ(::write(fd[1], "x", 1), 1); };
    char c = 0;
    is_not_durable("wait_fd", put, [&] {
      EXPECT_FALSE(wait_fd(fd[0], 1));
      EXPECT_EQ(::read(fd[0], &c, 1), 1);
    });
    is_not_durable("blocking", put, [&] { blocking([&] { EXPECT_EQ(::read(fd[0], &c, 1), 1); }); });
    is_not_durable("read", put, [&] { EXPECT_EQ(::read(fd[0], &c, 1), 1); });
    ::close(fd[0]);
    ::close(fd[1]);
    testing::bubble(1, [] {  // the network is the real one
      auto l = net::listen("tcp", "127.0.0.1:0");
      const time_point start = clock::now();
      wait_group wg;
      wg.go([] { sleep_for(1s); });
      const chan<void> closed;
      wg.go([&] {
        auto peer = l.accept();
        peer.write_all("hello");
        closed.recv();
      });
      auto conn = net::dial("tcp", l.addr().to_string());
      std::byte buf[5];
      conn.read_full(buf);
      EXPECT_EQ(clock::now(), start);
      conn.set_read_deadline(clock::now() + 1ms);  // of real time
      std::error_code ec;
      std::byte more[1];
      conn.read_some(more, ec);
      EXPECT_EQ(ec, errc::deadline_exceeded);
      EXPECT_EQ(clock::now(), start);
      closed.close();
      wg.wait();
    });
  });
}

TEST(Conformance, BUB_05_wait_returns_when_all_are_blocked) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    testing::bubble(seed, [] {
      int steps = 0;
      const chan<int> c;
      go([&] {
        for (int i = 0; i < 10; ++i, ++steps) yield();
        c.recv();
        ++steps;
      });
      testing::wait();
      EXPECT_EQ(steps, 10);
      const time_point now = clock::now();
      c.close();
      testing::wait();
      EXPECT_EQ(steps, 11);
      EXPECT_EQ(clock::now(), now);
    });
  }
}

TEST(Conformance, BUB_05_deadlocks_are_thrown) {
  goroutines_are_left_behind = true;
  run_clean([] {
    const auto blocked = [] {
      const chan<int> c;
      c.recv();
    };
    EXPECT_EQ(error_of([&] { testing::bubble(1, blocked); }),
              "deadlock: all goroutines in bubble are blocked");
    const std::string remain =
        "deadlock: main bubble goroutine has exited but blocked goroutines remain";
    EXPECT_EQ(error_of([&] { testing::bubble(1, [&] { go(blocked); }); }), remain);
    // Time stops with the root.
    EXPECT_EQ(error_of([&] { testing::bubble(1, [] { go([] { sleep_for(1s); }); }); }), remain);
  });
}

TEST(Conformance, BUB_08_a_wait_group_may_be_used_again) {
  run_clean([] {
    wait_group wg;
    for (int round = 0; round < 3; ++round) {
      wg.go([] {});
      wg.wait();
      testing::bubble(1, [&] {
        const time_point start = clock::now();
        for (int i = 0; i < 3; ++i) wg.go([] { sleep_for(1s); });
        wg.wait();
        EXPECT_EQ(clock::now() - start, 1s);
      });
    }
  });
}

TEST(Conformance, BUB_08_many_bubbles) {
  run_clean([] {
    wait_group all;
    std::atomic<int> ran{0};
    for (std::uint64_t i = 0; i < 100; ++i) {
      all.go([&, i] {
        testing::bubble(i, [&] {
          wait_group wg;
          for (int k = 0; k < 100; ++k) wg.go([&] { ++ran; });
          wg.wait();
        });
      });
    }
    all.wait();
    EXPECT_EQ(ran.load(), 10'000);
  });
}

TEST(Conformance, BUB_08_a_global_wait_group) {
  static constinit wait_group global;
  in_bubble([] {
    global.go([] { sleep_for(1s); });
    global.wait();
  });
}

TEST(Conformance, BUB_09_misuse_is_thrown) {
  run_clean([] {
    EXPECT_EQ(error_of([] { testing::bubble(1, [] { testing::bubble(2, [] {}); }); }),
              "synctest.Run called from within a synctest bubble");
    EXPECT_EQ(error_of([] { testing::wait(); }), "goroutine is not in a bubble");
    testing::bubble(1, [] {
      int refused = 0;
      wait_group wg;
      for (int i = 0; i < 2; ++i) {
        wg.go([&] {
          const std::string e = error_of([] { testing::wait(); });
          if (e == "wait already in progress")
            ++refused;
          else
            EXPECT_EQ(e, "nothing thrown");
        });
      }
      wg.wait();
      EXPECT_EQ(refused, 1);
    });
  });
  EXPECT_EQ(error_of([] { testing::wait(); }), "goroutine is not in a bubble");
}

// The runtime's own: timers of others, lookups of names, the threads behind them.
TEST(Conformance, BUB_10_helpers_are_no_members) {
  run_clean([] {
    const timer other(1ms);
    testing::bubble(1, [] {
      EXPECT_FALSE(net::resolve("localhost", "80").empty());
      const time_point start = clock::now();
      testing::wait();
      sleep_for(1s);
      EXPECT_EQ(clock::now() - start, 1s);
    });
  });
}

}  // namespace
}  // namespace weft::test
