// SPDX-License-Identifier: Apache-2.0
// async, task and promise: every kind of result, and every way not to have one.
#include <atomic>
#include <chrono>
#include <exception>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/atomic.h"
#include "base/random.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace sched_test;

class Task : public GoTest {};
class Promise : public GoTest {};

TEST_F(Task, Values) {
  run_on_each([] {
    EXPECT_EQ(weft::async([] { return 42; }).get(), 42);
    EXPECT_EQ(weft::async([](int a, int b) { return a + b; }, 1, 2).get(), 3);
    EXPECT_EQ(weft::async([] { return std::string(1000, 'x'); }).get(), std::string(1000, 'x'));
    auto t = weft::async([] { return std::make_unique<int>(7); });  // move-only
    EXPECT_EQ(*t.get(), 7);
    EXPECT_EQ(weft::async([] { return counted(9); }).get().value, 9);
    weft::async([] {}).get();
    static_assert(std::is_void_v<decltype(weft::async([] {}).get())>);
  });
}

TEST_F(Task, WhatItsFunctionHoldsIsGone) {
  run_on_each([] {
    for (int how = 0; how < 3; ++how) {
      std::atomic<bool> gone{false};
      const auto t = weft::async([how, held = slow_to_go(gone)] {
        if (how == 1) goexit();
        if (how == 2) throw how;
      });
      t.wait();
      EXPECT_TRUE(gone) << how;
    }
  });
}

TEST_F(Task, AResultNeedNotBeDefaultConstructible) {
  struct only_from_int {
    int v;
    explicit only_from_int(int x) : v(x) {}
    only_from_int() = delete;
  };
  run_on(1, [] { EXPECT_EQ(weft::async([] { return only_from_int(5); }).get().v, 5); });
}

TEST_F(Task, References) {
  run_on(2, [] {
    int x = 1;
    auto t = weft::async([&x]() -> int& { return x; });
    int& r = t.get();
    EXPECT_EQ(&r, &x);
    const std::string s = "text";
    EXPECT_EQ(&weft::async([&s]() -> const std::string& { return s; }).get(), &s);
  });
}

TEST_F(Task, Exceptions) {
  run_on_each([] {
    auto t = weft::async([]() -> int { throw std::range_error("out of it"); });
    EXPECT_EQ(thrown_by<std::range_error>([&] { t.get(); }), "out of it");
    EXPECT_FALSE(t.valid());
    auto v = weft::async([] { throw 5; });  // no std::exception
    EXPECT_THROW(v.get(), int);
    EXPECT_EQ(std::uncaught_exceptions(), 0);
  });
}

TEST_F(Task, ResultsAreDestroyedOnce) {
  run_on(2, [] {
    {
      auto dropped = weft::async([] { return counted(1); });
    }  // never fetched
    auto t = weft::async([] { return counted(2); });
    t.wait();
    EXPECT_EQ(t.get().value, 2);
    EXPECT_TRUE(alone());
    EXPECT_EQ(counted::alive, 0);
  });
}

TEST_F(Task, Goexit) {
  run_on_each([] {
    std::atomic<int> destroyed{0};
    struct guard {
      std::atomic<int>& n;
      ~guard() { ++n; }
    };
    auto t = weft::async([&]() -> int {
      guard g{destroyed};
      goexit();
    });
    EXPECT_EQ(thrown_by<goexited>([&] { t.get(); }), "goroutine called goexit");
    auto v = weft::async([&] {
      guard g{destroyed};
      goexit();
    });
    EXPECT_THROW(v.get(), goexited);
    EXPECT_EQ(destroyed, 2);
    // wait is content with it
    auto w = weft::async([] { goexit(); });
    w.wait();
    EXPECT_TRUE(w.done());
  });
}

TEST_F(Task, GetIsForOnce) {
  run_on(1, [] {
    auto t = weft::async([] { return 1; });
    EXPECT_TRUE(t.valid());
    EXPECT_EQ(t.get(), 1);
    EXPECT_FALSE(t.valid());
    EXPECT_THROW(t.get(), std::logic_error);
    EXPECT_THROW(t.wait(), std::logic_error);
    EXPECT_THROW((void)t.done(), std::logic_error);
  });
}

TEST_F(Task, DefaultAndMovedFromAreInvalid) {
  weft::task<int> none;
  EXPECT_FALSE(none.valid());
  EXPECT_THROW(none.get(), std::logic_error);
  EXPECT_THROW(none.wait(), std::logic_error);
  run_on(1, [] {
    auto a = weft::async([] { return 1; });
    auto b = std::move(a);
    EXPECT_FALSE(a.valid());
    EXPECT_TRUE(b.valid());
    a = std::move(b);
    EXPECT_EQ(a.get(), 1);
    static_assert(!std::is_copy_constructible_v<weft::task<int>>);
  });
}

TEST_F(Task, DoneTellsWithoutWaiting) {
  run_on(2, [] {
    event go_on;
    auto t = weft::async([&] { go_on.wait(); });
    EXPECT_FALSE(t.done());
    weft::yield();
    EXPECT_FALSE(t.done());
    go_on.set();
    EXPECT_TRUE(eventually([&] { return t.done(); }));
    t.get();
  });
}

TEST_F(Task, ADroppedTaskRunsOnAndItsExceptionIsDropped) {
  run_on(2, [] {
    std::atomic<bool> ran{false};
    event go_on;
    {
      auto t = weft::async([&] {
        go_on.wait();
        ran = true;
        throw std::runtime_error("nobody asked");
      });
    }
    go_on.set();
    EXPECT_TRUE(alone());
    EXPECT_TRUE(ran);
  });
}

TEST_F(Task, MoveAssignmentDropsTheOldOne) {
  run_on(1, [] {
    auto t = weft::async([] { return counted(1); });
    t = weft::async([] { return counted(2); });
    EXPECT_EQ(t.get().value, 2);
    EXPECT_TRUE(alone());
    EXPECT_EQ(counted::alive, 0);
  });
}

TEST_F(Task, ManyWait) {
  run_on_each([] {
    event go_on;
    const auto t = weft::async([&] { go_on.wait(); });
    std::atomic<int> through{0};
    scope s;
    for (int i = 0; i < 100; ++i) {
      s.go([&] {
        t.wait();
        ++through;
      });
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        t.wait();
        ++through;
      });
    }
    weft::yield();
    EXPECT_EQ(through, 0);
    go_on.set();
    s.wait();
    for (auto& th : threads) th.join();
    EXPECT_EQ(through, 103);
  });
}

TEST_F(Task, APlainThreadFetchesTheResult) {
  run_on(2, [] {
    for (int i = 0; i < scaled(500); ++i) {
      int seen = 0;
      std::thread([&] { seen = weft::async([i] { return i; }).get(); }).join();
      ASSERT_EQ(seen, i);
    }
  });
}

TEST_F(Task, WaitForGivesUpInTime) {
  using namespace std::chrono_literals;
  const auto expect_timeout = [](const weft::task<int>& t) {
    EXPECT_FALSE(t.wait_for(0s));
    EXPECT_FALSE(t.wait_for(-5s));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(t.wait_for(3ms));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 3ms);
    EXPECT_FALSE(t.wait_for(std::chrono::duration<double>(0.001)));
  };
  run_on_each([&] {
    event go_on;
    auto t = weft::async([&] {
      go_on.wait();
      return 4;
    });
    expect_timeout(t);
    std::thread([&] { expect_timeout(t); }).join();  // a plain thread waits alike
    go_on.set();
    EXPECT_TRUE(t.wait_for(std::chrono::hours::max()));  // saturates
    EXPECT_TRUE(t.wait_for(0s));                         // done is done
    EXPECT_EQ(t.get(), 4);
    EXPECT_THROW((void)t.wait_for(1s), std::logic_error);
  });
}

TEST_F(Task, WaitForRacesWithTheResult) {
  // The deadline passes while the result comes: both ends must agree, and nobody stays behind.
  run_on_each([] {
    rt::random r(9);
    int in_time = 0;
    for (int i = 0; i < scaled(500); ++i) {
      std::atomic<int> heard{0};
      const auto spins = r.below(400);
      const std::chrono::nanoseconds limit(r.below(40'000));
      auto t = weft::async([spins] {
        for (std::uint32_t k = 0; k < spins; ++k) rt::cpu_relax();
        weft::yield();
        return 1;
      });
      scope s;
      for (int k = 0; k < 4; ++k) {
        s.go([&] {
          if (t.wait_for(limit)) {
            EXPECT_TRUE(t.done());
            ++heard;
          }
        });
      }
      if (t.wait_for(limit)) ++in_time;
      s.wait();
      t.wait();
      EXPECT_LE(heard, 4);
      EXPECT_EQ(t.get(), 1);
    }
    (void)in_time;
  });
}

TEST_F(Task, WaitForByManyWithManyDeadlines) {
  run_on_each([] {
    event go_on;
    auto t = weft::async([&] { go_on.wait(); });
    std::atomic<int> gave_up{0}, heard{0};
    scope s;
    for (int i = 0; i < 100; ++i) {
      s.go([&, i] { ++(t.wait_for(std::chrono::microseconds(i * 40)) ? heard : gave_up); });
    }
    for (int i = 0; i < 50; ++i) {
      s.go([&] {
        t.wait();  // among them, without a deadline
        ++heard;
      });
    }
    EXPECT_TRUE(eventually([&] { return gave_up > 20; }));
    go_on.set();
    s.wait();
    EXPECT_EQ(gave_up + heard, 150);
    EXPECT_GE(heard, 50);
  });
}

TEST_F(Task, AChain) {
  run_on_each([] {
    auto last = weft::async([] { return 0; });
    for (int i = 0; i < 500; ++i) {
      last = weft::async([t = std::move(last)]() mutable { return t.get() + 1; });
    }
    EXPECT_EQ(last.get(), 500);
  });
}

TEST_F(Task, TheStateGoesWithTheLastOfTheTwo) {
  // The goroutine ends, the task is dropped, in either order and at once.
  run_on_each([] {
    for (int i = 0; i < scaled(2000); ++i) {
      auto t = weft::async([] { return counted(1); });
      if (i % 2 == 0) weft::yield();
      if (i % 3 == 0) t.wait();
    }
    EXPECT_TRUE(alone());
    EXPECT_EQ(counted::alive, 0);
  });
}

// -- promise

TEST_F(Promise, FromAPlainThread) {
  run_on_each([] {
    for (int i = 0; i < scaled(200); ++i) {
      promise<std::string> p;
      auto t = p.get_task();
      std::thread setter([&] { p.set_value("from outside"); });
      EXPECT_EQ(t.get(), "from outside");
      setter.join();
    }
  });
}

TEST_F(Promise, OutsideOfAnyRun) {
  promise<int> p;
  auto t = p.get_task();
  EXPECT_FALSE(t.done());
  std::thread setter([&] { p.set_value(3); });
  EXPECT_EQ(t.get(), 3);  // a plain thread waits
  setter.join();
}

TEST_F(Promise, AllKindsOfValues) {
  promise<void> v;
  auto tv = v.get_task();
  v.set_value();
  tv.get();

  int x = 0;
  promise<int&> r;
  auto tr = r.get_task();
  r.set_value(x);
  EXPECT_EQ(&tr.get(), &x);

  promise<std::unique_ptr<int>> m;
  auto tm = m.get_task();
  m.set_value(std::make_unique<int>(8));
  EXPECT_EQ(*tm.get(), 8);

  promise<counted> c;
  auto tc = c.get_task();
  c.set_value(counted(4));
  EXPECT_EQ(tc.get().value, 4);
}

TEST_F(Promise, BracedValues) {
  promise<std::vector<int>> v;
  auto tv = v.get_task();
  v.set_value({1, 2, 3});
  EXPECT_EQ(tv.get(), (std::vector<int>{1, 2, 3}));

  struct point {
    int x, y;
  };
  promise<point> p;
  auto tp = p.get_task();
  p.set_value({.x = 4, .y = 5});
  EXPECT_EQ(tp.get().y, 5);

  promise<std::optional<int>> o;
  auto to = o.get_task();
  o.set_value({});
  EXPECT_EQ(to.get(), std::nullopt);
}

TEST_F(Promise, Exceptions) {
  promise<int> p;
  auto t = p.get_task();
  p.set_exception(std::make_exception_ptr(std::range_error("far")));
  EXPECT_EQ(thrown_by<std::range_error>([&] { t.get(); }), "far");
}

TEST_F(Promise, ANullExceptionIsRefused) {
  promise<int> p;
  auto t = p.get_task();
  EXPECT_EQ(thrown_by<std::invalid_argument>([&] { p.set_exception(nullptr); }),
            "weft::promise: null exception");
  EXPECT_FALSE(t.done());
  p.set_value(2);  // it was left as it was
  EXPECT_EQ(t.get(), 2);
}

TEST_F(Promise, Broken) {
  std::optional<promise<int>> p(std::in_place);
  auto t = p->get_task();
  EXPECT_FALSE(t.done());
  p.reset();
  EXPECT_TRUE(t.done());
  EXPECT_NE(thrown_by<std::logic_error>([&] { t.get(); }).find("broken promise"),
            std::string::npos);

  run_on(2, [] {  // a goroutine that waits is woken by it
    promise<void> q;
    auto waits = weft::async([w = q.get_task()]() mutable { w.get(); });
    weft::yield();
    { promise<void> gone = std::move(q); }
    EXPECT_THROW(waits.get(), std::logic_error);
  });

  promise<int> a, b;  // by assignment
  auto ta = a.get_task();
  a = std::move(b);
  EXPECT_THROW(ta.get(), std::logic_error);
}

TEST_F(Promise, KeptIfTheTaskIsDropped) {
  promise<counted> p;
  { auto t = p.get_task(); }
  p.set_value(counted(1));
}

TEST_F(Promise, OnlyOnce) {
  promise<int> p;
  auto t = p.get_task();
  EXPECT_THROW((void)p.get_task(), std::logic_error);
  p.set_value(1);
  EXPECT_THROW(p.set_value(2), std::logic_error);
  EXPECT_THROW(p.set_exception(std::make_exception_ptr(1)), std::logic_error);
  EXPECT_EQ(t.get(), 1);
  promise<int> moved = std::move(p);
  EXPECT_THROW((void)p.get_task(), std::logic_error);
  EXPECT_THROW(p.set_value(1), std::logic_error);
  EXPECT_THROW((void)moved.get_task(), std::logic_error);  // fetched already, before the move
}

TEST_F(Promise, OneOfManyThreadsKeepsIt) {
  constexpr int threads = 3;
  const auto rounds = static_cast<int>(test::by_effort(2000, 200));
  std::vector<promise<std::string>> ps(static_cast<std::size_t>(rounds));
  std::atomic<int> at{0};  // threads in the present round: threads * round + those who have come
  std::atomic<int> won{0};
  const auto one = [&](int self) {
    for (int i = 0; i < rounds; ++i) {
      at.fetch_add(1);
      test::spin_until([&] { return at.load() >= threads * (i + 1); });
      try {
        ps[static_cast<std::size_t>(i)].set_value(std::string(100, static_cast<char>('a' + self)));
        won.fetch_add(1);
      } catch (const std::logic_error&) {
      }
    }
  };
  std::vector<task<std::string>> ts;
  for (auto& p : ps) ts.push_back(p.get_task());
  std::vector<std::thread> all;
  for (int k = 0; k < threads; ++k) all.emplace_back(one, k);
  for (auto& t : all) t.join();
  EXPECT_EQ(won, rounds);
  for (auto& t : ts) {
    const std::string v = t.get();
    EXPECT_EQ(v, std::string(100, v[0]));
  }
}

TEST_F(Promise, AValueThatThrowsOnTheWayInLeavesItOpen) {
  promise<counted> p;
  auto t = p.get_task();
  const counted c(6);
  counted::copies_until_throw = 0;
  EXPECT_EQ(thrown_by([&] { p.set_value(c); }), "copy refused");
  EXPECT_FALSE(t.done());
  p.set_value(c);
  EXPECT_EQ(t.get().value, 6);
}

}  // namespace
}  // namespace weft
