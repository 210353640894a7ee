// SPDX-License-Identifier: Apache-2.0
// weft::local: one value a goroutine, one a plain thread, made at first use, destroyed at the end.
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/chan.hpp>

#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace sched_test;

class Local : public GoTest {};

TEST_F(Local, OnePerGoroutine) {
  local<int> l;
  run_on_each([&] {
    *l = -1;
    scope s;
    for (int i = 0; i < 100; ++i) {
      s.go([&l, i] {
        EXPECT_EQ(*l, 0);  // made at first use
        *l = i;
        for (int k = 0; k < 5; ++k) {
          weft::yield();
          EXPECT_EQ(*l, i);
        }
      });
    }
    s.wait();
    EXPECT_EQ(*l, -1);
  });
}

TEST_F(Local, OnePerPlainThread) {
  local<std::string> l([] { return std::string("new"); });
  *l = "here";
  std::thread([&] {
    EXPECT_EQ(*l, "new");
    *l = "there";
    EXPECT_EQ(l->size(), 5U);
  }).join();
  EXPECT_EQ(*l, "here");
  run_on(1, [&] { EXPECT_EQ(*l, "new"); });  // main is a goroutine, not the thread
  EXPECT_EQ(*l, "here");
  l.reset();
}

TEST_F(Local, DestroyedWithTheGoroutine) {
  local<counted> l;
  run_on_each([&] {
    scope s;
    for (int i = 0; i < 50; ++i) {
      s.go([&, i] {
        l->value = i;
        weft::yield();
        if (i % 5 == 0) goexit();
      });
    }
    s.wait();
    EXPECT_TRUE(alone());
    EXPECT_EQ(counted::alive, 0);
  });
}

TEST_F(Local, DestroyedWithThePlainThread) {
  local<counted> l;
  std::thread([&] {
    l->value = 1;
    EXPECT_EQ(counted::alive, 1);
  }).join();
  EXPECT_EQ(counted::alive, 0);
}

TEST_F(Local, DestroyedWithMain) {
  local<counted> l;
  run(test::with_procs(1), [&] { l->value = 1; });
  EXPECT_EQ(counted::alive, 0);
}

TEST_F(Local, ResetDestroysAndTheNextUseMakesANewOne) {
  local<counted> l([] { return counted(7); });
  run_on(1, [&] {
    l.reset();  // there is none
    EXPECT_EQ(l->value, 7);
    l->value = 8;
    l.reset();
    EXPECT_EQ(counted::alive, 0);
    EXPECT_EQ(l->value, 7);
  });
}

TEST_F(Local, SeveralOfThem) {
  local<int> a, b, c;
  run_on(2, [&] {
    scope s;
    for (int i = 0; i < 20; ++i) {
      s.go([&, i] {
        *a = i;
        *b = 2 * i;
        *c = 3 * i;
        b.reset();
        weft::yield();
        EXPECT_EQ(*a, i);
        EXPECT_EQ(*b, 0);
        EXPECT_EQ(*c, 3 * i);
      });
    }
  });
}

TEST_F(Local, DestroyedNewestFirst) {
  std::vector<int> order;
  struct tracer {
    std::vector<int>* log;
    int id;
    ~tracer() {
      if (log != nullptr) log->push_back(id);
    }
    tracer(std::vector<int>* l, int i) : log(l), id(i) {}
    tracer(tracer&& o) noexcept : log(std::exchange(o.log, nullptr)), id(o.id) {}
  };
  local<tracer> first([&] { return tracer(&order, 1); }), second([&] { return tracer(&order, 2); });
  run_on(1, [&] {
    weft::go([&] {
      (void)*first;
      (void)*second;
    });
    EXPECT_TRUE(alone());
  });
  EXPECT_EQ(order, (std::vector<int>{2, 1}));
}

TEST_F(Local, ADestructorMayUseAnotherLocalAndPark) {
  static local<counted> other;
  struct uses_other {
    bool armed = true;
    uses_other() = default;
    uses_other(uses_other&& o) noexcept : armed(std::exchange(o.armed, false)) {}
    ~uses_other() {
      if (!armed) return;
      other->value = 1;  // made anew, if it has gone already
      weft::yield();
    }
  };
  local<uses_other> l;
  run_on_each([&] {
    scope s;
    for (int i = 0; i < 20; ++i) {
      s.go([&, i] {
        if (i % 2 == 0) (void)*other;
        (void)*l;
      });
    }
    s.wait();
    EXPECT_TRUE(alone());
    EXPECT_EQ(counted::alive, 0);
  });
}

// A server's goroutine that lives for months uses objects with locals in them, which come and go.
TEST_F(Local, GoesWithItsObject) {
  run_on_each([] {
    for (int i = 0; i < 1000; ++i) {
      local<counted> l([i] { return counted(i); });
      EXPECT_EQ(l->value, i);
      EXPECT_EQ(counted::alive, 1);
    }
    EXPECT_EQ(counted::alive, 0);
  });
}

// Others have a value of it until they use one that has its place.
TEST_F(Local, OneThatHasGoneIsNotTakenForTheNext) {
  run_on_each([] {
    auto l = std::make_unique<local<counted>>([] { return counted(-1); });
    chan<void> used, gone;
    scope s;
    s.go([&] {
      for (int i = 0; i < 100; ++i) {
        EXPECT_EQ((*l)->value, i - 1);
        EXPECT_EQ(counted::alive, 1);
        used.send();
        gone.recv();
      }
    });
    for (int i = 0; i < 100; ++i) {
      used.recv();
      l = nullptr;
      EXPECT_EQ(counted::alive, 1);
      l = std::make_unique<local<counted>>([i] { return counted(i); });
      gone.send();
    }
    s.wait();
    EXPECT_EQ(counted::alive, 0);
  });
}

// In every order: what lies beside what goes is still found.
TEST_F(Local, AnyNumberInAnyOrder) {
  constexpr int many = 300;
  std::vector<std::unique_ptr<local<int>>> all(many);
  for (auto& l : all) l = std::make_unique<local<int>>([] { return -1; });
  run_on(2, [&] {
    scope s;
    for (int g = 0; g < 8; ++g) {
      s.go([&all, g] {
        std::vector<int> expected(many, -1);
        std::uint32_t random = 7919U * static_cast<std::uint32_t>(g + 1);
        for (int k = 0; k < 20'000; ++k) {
          random = random * 1664525U + 1013904223U;
          const std::size_t i = (random >> 8) % many;
          ASSERT_EQ(**all[i], expected[i]) << g << ' ' << k;
          if ((random >> 28) % 2 == 0) {
            **all[i] = expected[i] = k;
          } else {
            all[i]->reset();
            expected[i] = -1;
          }
          if (k % 100 == 0) weft::yield();
        }
      });
    }
  });
}

TEST_F(Local, TakesTypesThatCannotMove) {
  const local<std::atomic<int>> zero;
  local<std::atomic<int>> four([] { return std::atomic<int>(4); });
  local<int> from_move_only([p = std::make_unique<int>(5)] { return *p; });
  EXPECT_EQ(++*zero, 1);
  EXPECT_EQ(*four, 4);
  EXPECT_EQ(*from_move_only, 5);
}

TEST_F(Local, AnInitThatThrowsLeavesNone) {
  int calls = 0;
  local<counted> l([&calls]() -> counted {
    if (++calls == 1) throw std::runtime_error("not yet");
    return counted(3);
  });
  run_on(1, [&] {
    EXPECT_THROW((void)*l, std::runtime_error);
    EXPECT_EQ(l->value, 3);
    EXPECT_EQ(calls, 2);
  });
}

TEST_F(Local, AnInitMayParkAndUseOthers) {
  local<int> base([] { return 5; });
  local<int> derived([&base] {
    weft::yield();
    return *base + 1;
  });
  run_on_each([&] {
    scope s;
    for (int i = 0; i < 20; ++i) s.go([&] { EXPECT_EQ(*derived, 6); });
  });
}

TEST_F(Local, AShellThatIsUsedAgainStartsWithNone) {
  local<int> l;
  run_on(1, [&] {
    for (int i = 1; i <= 500; ++i) {
      EXPECT_EQ(weft::async([&] { return std::exchange(*l, i); }).get(), 0);
    }
  });
}

}  // namespace
}  // namespace weft
