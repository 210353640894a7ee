// SPDX-License-Identifier: Apache-2.0
// weft::once, once_func, once_value.
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <weft/sync.hpp>

#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace sched_test;

class Once : public GoTest {};

constinit once at_start;

TEST_F(Once, RunsOnceAndAllSeeIt) {
  at_start.call([] {});
  at_start.call([] { ADD_FAILURE(); });
  run_on_each([] {
    for (int round = 0; round < scaled(200); ++round) {
      once o;
      int runs = 0, value = 0;
      const auto work = [&] {
        o.call(
            [&](int v) {
              ++runs;
              yield();
              value = v;
            },
            5);
        EXPECT_EQ(value, 5);
      };
      std::thread t(work);
      {
        scope s;
        for (int i = 0; i < 10; ++i) s.go(work);
      }
      t.join();
      EXPECT_EQ(runs, 1);
    }
  });
}

TEST_F(Once, OneThatThrowsHasNotRun) {
  run_on_each([] {
    for (int round = 0; round < scaled(100); ++round) {
      once o;
      std::atomic<int> tries{0}, thrown{0}, runs{0};
      const auto work = [&] {
        try {
          o.call([&] {
            yield();
            if (++tries < 4) throw std::runtime_error("not yet");
            ++runs;
          });
        } catch (const std::runtime_error&) {
          ++thrown;
        }
      };
      std::thread t(work);
      {
        scope s;
        for (int i = 0; i < 8; ++i) s.go(work);
      }
      t.join();
      EXPECT_EQ(tries, 4);
      EXPECT_EQ(thrown, 3);
      EXPECT_EQ(runs, 1);
    }
  });
}

TEST_F(Once, GoexitLeavesItUndone) {
  run_on_each([] {
    once o;
    wait_group wg;
    wg.go([&] { o.call([] { goexit(); }); });
    wg.wait();
    int runs = 0;
    o.call([&] { ++runs; });
    EXPECT_EQ(runs, 1);
  });
}

TEST_F(Once, FuncIsReleasedAfterItsRun) {
  int runs = 0;
  auto f = once_func([&runs, c = counted(1)] { ++runs; });
  const auto g = f;  // the same run
  EXPECT_EQ(counted::alive, 1);
  f();
  EXPECT_EQ(counted::alive, 0);
  g();
  f();
  EXPECT_EQ(runs, 1);
}

TEST_F(Once, ValueIsKept) {
  int runs = 0;
  const auto f = once_value([&runs, c = counted(1)] {
    ++runs;
    return std::make_unique<int>(42);
  });
  const std::unique_ptr<int>& v = f();
  EXPECT_EQ(*v, 42);
  EXPECT_EQ(&v, &f());
  EXPECT_EQ(counted::alive, 0);
  EXPECT_EQ(runs, 1);
  int i = 0;
  const auto r = once_value([&i]() -> int& { return i; });
  r() = 7;
  EXPECT_EQ(i, 7);
}

TEST_F(Once, TheSameExceptionEachTime) {
  int runs = 0;
  const auto f = once_value([&runs, c = counted(1)]() -> int {
    ++runs;
    throw std::runtime_error("no value");
  });
  const std::exception* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    try {
      f();
      ADD_FAILURE();
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "no value");
      if (first == nullptr) first = &e;
      EXPECT_EQ(first, &e);
    }
  }
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(counted::alive, 0);
}

TEST_F(Once, GoexitIsNotRepeated) {
  run_on_each([] {
    int runs = 0;
    const auto f = once_func([&runs] {
      ++runs;
      goexit();
    });
    wait_group wg;
    wg.go([&] { f(); });
    wg.wait();
    EXPECT_NE(thrown_by<goexited>([&] { f(); }), "");
    EXPECT_EQ(runs, 1);
  });
}

}  // namespace
}  // namespace weft
