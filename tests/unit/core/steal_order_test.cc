// SPDX-License-Identifier: Apache-2.0
// core/steal_order.h: each walk visits every P once, and different seeds go different ways.
#include "core/steal_order.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace weft::rt {
namespace {

std::uint32_t totient(std::uint32_t n) {
  std::uint32_t k = 0;
  for (std::uint32_t i = 1; i <= n; ++i) k += std::gcd(i, n) == 1 ? 1 : 0;
  return k;
}

void every_walk_visits_each_once(std::uint32_t n) {
  const auto o = std::make_unique<steal_order>();
  o->reset(n);
  ASSERT_EQ(o->strides(), totient(n)) << n;
  std::vector<std::uint32_t> seen(n);
  const std::uint32_t starts =
      n < 130 ? n * o->strides() : 2 * n;  // all of them where that is cheap
  for (std::uint32_t seed = 0; seed < starts; ++seed) {
    std::uint32_t steps = 0;
    for (auto w = o->start(seed); !w.done(); w.next()) {
      ASSERT_LT(w.position(), n);
      ++seen[w.position()];
      ASSERT_LE(++steps, n);
    }
    ASSERT_EQ(steps, n);
  }
  for (std::uint32_t k : seen) ASSERT_EQ(k, starts) << n;
}

TEST(StealOrder, EveryWalkVisitsEachOnce) {
  for (std::uint32_t n = 1; n <= 64; ++n) every_walk_visits_each_once(n);
  for (std::uint32_t n : {97U, 128U, 1023U, max_procs}) every_walk_visits_each_once(n);
}

TEST(StealOrder, ConsecutiveSeedsDoNotRepeat) {
  const auto o = std::make_unique<steal_order>();
  for (std::uint32_t n = 1; n <= 64; ++n) {
    o->reset(n);
    for (std::uint32_t first : {0U, 12345U * n}) {
      std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
      const std::uint32_t count = n * o->strides();
      for (std::uint32_t i = 0; i < count; ++i) {
        const auto w = o->start(first + i);
        pairs.insert({w.position(), w.stride()});
      }
      EXPECT_EQ(pairs.size(), count) << n << " from " << first;
    }
  }
}

TEST(StealOrder, ThreePsHaveTwoWays) {
  const auto o = std::make_unique<steal_order>();
  for (std::uint32_t n = 3; n <= 64; ++n) {
    o->reset(n);
    EXPECT_GE(o->strides(), 2U) << n;
  }
}

TEST(StealOrder, AnySeedWillDo) {
  const auto o = std::make_unique<steal_order>();
  o->reset(3);
  for (std::uint32_t seed : {0U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
    std::set<std::uint32_t> seen;
    for (auto w = o->start(seed); !w.done(); w.next()) seen.insert(w.position());
    EXPECT_EQ(seen.size(), 3U) << seed;
  }
}

TEST(StealOrder, ResetForgetsTheOldNumber) {
  const auto o = std::make_unique<steal_order>();
  o->reset(16);
  o->reset(5);
  EXPECT_EQ(o->strides(), 4U);
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    for (auto w = o->start(seed); !w.done(); w.next()) EXPECT_LT(w.position(), 5U);
  }
}

constexpr bool works_at_compile_time() {
  steal_order o;
  o.reset(4);
  std::uint32_t seen = 0;
  for (auto w = o.start(6); !w.done(); w.next()) seen |= 1U << w.position();
  return o.strides() == 2 && seen == 15;
}
static_assert(works_at_compile_time());

}  // namespace
}  // namespace weft::rt
