// SPDX-License-Identifier: Apache-2.0
// A timer with a channel is in no heap before somebody waits for it (src/time/timer.cc), and nobody
// can tell but by what it costs.
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "sched/timers.h"
#include "support/runtime.h"
#include "weft/chan.hpp"
#include "weft/debug.hpp"
#include "weft/select.hpp"
#include "weft/sync.hpp"
#include "weft/time.hpp"

namespace weft {
namespace {

using namespace std::chrono_literals;

using at = std::optional<clock::time_point>;

at look_at(const recv_chan<clock::time_point>& c) {
  at got;
  const bool ok = c.try_recv(got) == recv_status::ok;
  EXPECT_EQ(ok, got.has_value());
  return got;
}

// Until that moment has passed, on our P: one that sleeps in the kernel loses it, and whoever gets
// it fires the timers.
void let_pass(clock::time_point t) {
  while (clock::now() <= t) {
  }
}

TEST(Unarmed, NobodyWaitsNoHeapKnows) {
  test::run_clean([] {
    timer t(1h);
    ticker k(1h);
    EXPECT_FALSE(look_at(t.c));
    EXPECT_EQ(select(recv(t.c), recv(k.c), otherwise()), 2);
    EXPECT_FALSE(rt::timers_pending());
    EXPECT_FALSE(t.c.closed());
    EXPECT_EQ(t.c.len(), 0U);
    EXPECT_EQ(t.c.cap(), 0U);
    EXPECT_TRUE(t.stop());
    EXPECT_FALSE(t.stop());
  });
}

TEST(Unarmed, WhoWaitsArmsIt) {
  test::run_clean([] {
    timer t(1h), u(1h);
    scope s;
    s.go([&t] { EXPECT_TRUE(t.c.recv()); });
    while (!rt::timers_pending()) yield();
    EXPECT_TRUE(t.reset(1ms));
    s.wait();
    EXPECT_FALSE(rt::timers_pending());
    s.go([&t, &u] { EXPECT_EQ(select(recv(t.c), recv(u.c)), 1); });
    while (!rt::timers_pending()) yield();
    EXPECT_TRUE(u.reset(1ms));
    s.wait();
    EXPECT_FALSE(rt::timers_pending());
  });
}

TEST(Unarmed, OneThatIsDueIsReceivedWithItsOwnTime) {
  test::run_clean([] {
    const auto before = clock::now();
    timer t(1ms), u(1ms), v(1ms);
    const auto after = clock::now();
    let_pass(after + 2ms);
    const auto check = [&](const at& got) {
      ASSERT_TRUE(got);
      EXPECT_GE(*got, before + 1ms);
      EXPECT_LE(*got, after + 1ms);
    };
    check(look_at(t.c));
    check(u.c.recv());
    at by_select;
    EXPECT_EQ(select(recv(v.c, [&](at x) { by_select = x; }), otherwise()), 0);
    check(by_select);
    for (timer* x : {&t, &u, &v}) {
      EXPECT_FALSE(look_at(x->c));
      EXPECT_FALSE(x->stop());
    }
    EXPECT_FALSE(rt::timers_pending());
  });
}

TEST(Unarmed, NothingStaleAfterStopAndReset) {
  test::run_clean([] {
    timer t(1ms);
    let_pass(clock::now() + 2ms);
    EXPECT_TRUE(t.stop());  // due, but nobody had it
    EXPECT_FALSE(look_at(t.c));
    EXPECT_FALSE(t.reset(1ms));
    let_pass(clock::now() + 2ms);
    EXPECT_TRUE(t.reset(1h));
    EXPECT_FALSE(look_at(t.c));
    EXPECT_TRUE(t.reset(0ms));
    EXPECT_TRUE(look_at(t.c));
    EXPECT_FALSE(t.reset(-1h));
    EXPECT_TRUE(t.c.recv());
  });
}

TEST(Unarmed, ATickerMissesTicksAndKeepsItsPace) {
  test::run_clean([] {
    constexpr auto period = 1ms;
    ticker k(period);
    let_pass(clock::now() + 5 * period);
    const auto first = look_at(k.c);  // the first of those that came meanwhile
    const auto looked = clock::now();
    ASSERT_TRUE(first);
    EXPECT_LT(*first, looked - 3 * period);
    const auto second = k.c.recv();
    ASSERT_TRUE(second);
    EXPECT_GT(*second, looked - period);  // and not those in between
    k.reset(1h);
    EXPECT_FALSE(look_at(k.c));
    k.stop();
  });
}

// Neither of two that are ready is passed over, whichever of them is a timer.
TEST(Unarmed, IsChosenAsOftenAsAChannel) {
  test::run_clean([] {
    chan<int> c(1);
    c.send(1);
    int by_timer = 0, by_channel = 0;
    for (int i = 0; i < 400; ++i) {
      timer due(0ms);
      if (select(recv(due.c), recv(c)) == 0) {
        ++by_timer;
      } else {
        ++by_channel;
        c.send(1);
      }
      timer later(1h);
      EXPECT_EQ(select(recv(later.c), recv(c)), 1);
      c.send(1);
    }
    EXPECT_GT(by_timer, 100);
    EXPECT_GT(by_channel, 100);
    EXPECT_FALSE(rt::timers_pending());
  });
}

// One that is armed and due is taken by who looks, if its P has not come to fire it; and by nobody
// else afterwards.
TEST(Unarmed, NorDoesItMatterWhoFiresIt) {
  config one = test::with_procs(1);
  one.preempt = false;
  test::run_clean(one, [] {
    const auto armed = [](const timer& t, const ticker& k) {
      return select(recv(t.c), recv(k.c), timeout(50us)) == 2;  // else the machine was late
    };
    for (int rounds = 0; rounds < 50;) {
      const auto begin = clock::now();
      timer t(1ms);
      ticker k(1ms);
      if (!armed(t, k)) continue;
      ++rounds;
      let_pass(begin + 3ms);
      EXPECT_TRUE(look_at(t.c));
      EXPECT_FALSE(look_at(t.c));
      EXPECT_FALSE(t.stop());
      const at first = look_at(k.c);
      ASSERT_TRUE(first);
      EXPECT_LT(*first, clock::now() - 1ms);
      yield();
      EXPECT_FALSE(look_at(t.c));
    }
  });
}

// Who looks at a timer that is due and late fires it for those who wait, and takes nothing of
// theirs.
TEST(Unarmed, WhoWaitsGoesFirst) {
  config one = test::with_procs(1);
  one.preempt = false;
  test::run_clean(one, [] {
    for (int i = 0; i < 50; ++i) {
      const auto begin = clock::now();
      const timer t(1ms);
      const ticker k(1ms);
      std::atomic<int> by_recv{0}, by_select{0};  // a yield orders nothing
      scope s;
      s.go([&] { by_recv += t.c.recv().has_value(); });
      s.go([&] { by_select += select(recv(k.c), recv(chan<void>())) == 0; });
      while (static_cast<int>(debug::runtime_stats().waiting) + by_recv + by_select < 2) yield();
      let_pass(begin + 4ms);
      if (by_recv + by_select == 0) {  // else a yield has taken too long
        EXPECT_EQ(select(recv(t.c), otherwise()), 1);
        EXPECT_FALSE(look_at(t.c));
        EXPECT_EQ(select(recv(k.c), otherwise()), 1);
      }
      s.wait();
      EXPECT_EQ(by_recv, 1);
      EXPECT_EQ(by_select, 1);
      EXPECT_TRUE(k.c.recv());  // it goes on
    }
  });
}

TEST(Unarmed, FromPlainThreads) {
  timer before(1ms);  // no run yet
  std::thread([&before] { EXPECT_TRUE(before.c.recv()); }).join();
  std::optional<timer> made;
  test::run_clean([&made] { made.emplace(20ms); });
  EXPECT_TRUE(made->c.recv());  // its run is over
  made->reset(1ms);
  test::run_clean([&made] { EXPECT_TRUE(made->c.recv()); });  // and this is another
}

// All at once on one timer, from goroutines and threads. Who has stopped it receives nothing after
// that, before the next reset; who waits is woken by one.
TEST(Unarmed, LooksWaitsStopsAndResets) {
  test::run_clean(test::with_procs(3), [] {
    timer t(1h);
    std::atomic<bool> over{false};
    std::atomic<long> got{0};
    mutex resets;  // between stop and the look behind it nobody may reset
    const auto look = [&](std::uint32_t seed) {
      std::minstd_rand r(seed);
      while (!over) {
        switch (r() % 4) {
          case 0:
            if (look_at(t.c)) ++got;
            break;
          case 1:
            if (select(recv(t.c), otherwise()) == 0) ++got;
            break;
          case 2:
            if (at x; t.c.recv_for(x, std::chrono::microseconds(r() % 200)) == recv_status::ok)
              ++got;
            break;
          default: {
            std::lock_guard hold(resets);
            if (r() % 2 == 0) {
              t.stop();
              EXPECT_FALSE(look_at(t.c));
            } else {
              t.reset(std::chrono::microseconds(r() % 300));
            }
          }
        }
      }
    };
    scope s;
    for (std::uint32_t i = 1; i <= 4; ++i) s.go([&look, i] { look(i); });
    std::thread plain([&look] { look(9); });
    const auto until = clock::now() + 300ms;
    while (clock::now() < until || got < 10) sleep_for(1ms);
    over = true;
    s.wait();
    plain.join();
    t.stop();
    EXPECT_FALSE(look_at(t.c));
  });
}

// While its value comes, by another thread: it is timed and due, or has a value, at every moment.
TEST(Unarmed, WhatIsDueIsThereWhileItFires) {
  test::run_clean(test::with_procs(2), [] {
    for (int i = 0; i < 2000; ++i) {
      timer t(40us);
      const auto due = clock::now() + 40us;
      if (select(recv(t.c), timeout(1us)) == 0) continue;  // else it is armed from now on
      let_pass(due);
      ASSERT_TRUE(look_at(t.c)) << i;
    }
  });
}

}  // namespace
}  // namespace weft
