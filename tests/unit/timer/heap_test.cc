// SPDX-License-Identifier: Apache-2.0
// timer/heap.h against a sorted reference.
#include "timer/heap.h"

#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <vector>

#include "base/random.h"
#include "unit/support.h"

namespace weft::rt {
namespace {

TEST(TimerHeap, EmptyHasNothingDue) {
  timer_heap h;
  EXPECT_TRUE(h.empty());
  EXPECT_EQ(h.earliest(), never);
  EXPECT_EQ(h.pop_due(INT64_MAX - 1), nullptr);
  EXPECT_EQ(h.pop(), nullptr);
}

TEST(TimerHeap, GivesWhatIsDueInOrder) {
  timer_heap h;
  timer t[5];
  const std::int64_t when[] = {50, 10, 40, 10, 30};
  for (int i = 0; i < 5; ++i) {
    t[i].when = when[i];
    h.push(&t[i]);
    EXPECT_NE(t[i].place, 0u);
  }
  EXPECT_EQ(h.earliest(), 10);
  EXPECT_EQ(h.pop_due(9), nullptr);
  EXPECT_EQ(h.pop_due(10)->when, 10);
  EXPECT_EQ(h.pop_due(10)->when, 10);
  EXPECT_EQ(h.pop_due(10), nullptr);
  h.remove(&t[4]);
  EXPECT_EQ(t[4].place, 0u);
  EXPECT_EQ(h.pop()->when, 40);
  EXPECT_EQ(h.pop()->when, 50);
  EXPECT_TRUE(h.empty());
}

TEST(TimerHeap, RandomPushesRemovalsAndPops) {
  constexpr int n = 2000;
  timer_heap h;
  const auto timers = std::make_unique<timer[]>(n);
  std::multimap<std::int64_t, timer*> reference;
  random r(7);
  std::int64_t now = 0;
  for (int step = 0; step < unit_test::scaled(200'000); ++step) {
    timer* t = &timers[r.below(n)];
    if (t->place == 0) {
      t->when = now + r.below(1000);
      h.push(t);
      reference.emplace(t->when, t);
    } else {
      h.remove(t);
      for (auto [i, end] = reference.equal_range(t->when); i != end; ++i) {
        if (i->second == t) {
          reference.erase(i);
          break;
        }
      }
    }
    if (r.below(8) == 0) {
      now += r.below(50);
      while (timer* due = h.pop_due(now)) {
        ASSERT_EQ(due->when, reference.begin()->first);
        ASSERT_EQ(due->place, 0u);
        auto i = reference.begin();
        while (i->second != due) ++i;
        ASSERT_EQ(i->first, due->when);
        reference.erase(i);
      }
      ASSERT_TRUE(reference.empty() || reference.begin()->first > now);
    }
    ASSERT_EQ(h.size(), reference.size());
    ASSERT_EQ(h.earliest(), reference.empty() ? never : reference.begin()->first);
    if (step % 1000 == 0) {
      ASSERT_TRUE(h.sound());
    }
  }
}

// Fixed ones are never told their place, and come out in order all the same.
TEST(TimerHeap, FixedOnesAmongOthers) {
  constexpr std::size_t n = 1000;
  timer_heap h;
  const auto timers = std::make_unique<timer[]>(n);
  random r(11);
  for (std::size_t i = 0; i < n; ++i) {
    timers[i].fixed = i % 3 != 0;
    timers[i].when = r.below(500);
    h.push(&timers[i]);
    EXPECT_EQ(timers[i].place != 0, !timers[i].fixed);
  }
  std::size_t left = n;
  for (std::size_t i = 0; i < n; i += 6) {  // those that can be taken out
    h.remove(&timers[i]);
    --left;
  }
  EXPECT_TRUE(h.sound());
  for (std::int64_t last = 0; timer* t = h.pop(); --left) {
    ASSERT_GE(t->when, last);
    ASSERT_EQ(t->place, 0U);
    last = t->when;
  }
  EXPECT_EQ(left, 0U);
}

TEST(TimerHeap, AMillionPending) {
  constexpr auto n = static_cast<std::size_t>(unit_test::scaled(1'000'000));
  timer_heap h;
  const auto timers = std::make_unique<timer[]>(n);
  random r(3);
  for (std::size_t i = 0; i < n; ++i) {
    timers[i].when = static_cast<std::int64_t>(r.next() >> 2);
    h.push(&timers[i]);
  }
  EXPECT_TRUE(h.sound());
  for (std::size_t i = 0; i < n; i += 2) h.remove(&timers[i]);
  EXPECT_TRUE(h.sound());
  std::int64_t last = 0;
  for (std::size_t i = 0; i < n / 2; ++i) {
    timer* t = h.pop();
    ASSERT_NE(t, nullptr);
    ASSERT_GE(t->when, last);
    last = t->when;
  }
  EXPECT_TRUE(h.empty());
}

}  // namespace
}  // namespace weft::rt
