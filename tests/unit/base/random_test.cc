// SPDX-License-Identifier: Apache-2.0
// base/random.h: the range, a rough evenness, and that a seed decides everything.
#include "base/random.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <set>
#include <vector>

namespace weft::rt {
namespace {

TEST(Random, BelowStaysInRange) {
  random r(42);
  for (std::uint32_t n : {1U, 2U, 3U, 7U, 61U, 1024U, 0x80000000U, 0xffffffffU}) {
    for (int i = 0; i < 10'000; ++i) ASSERT_LT(r.below(n), n);
  }
  EXPECT_EQ(r.below(1), 0U);
}

TEST(Random, BelowReachesEveryValueAboutEquallyOften) {
  constexpr std::uint32_t n = 16;
  constexpr int rounds = 160'000;
  std::vector<int> seen(n);
  random r(1);
  for (int i = 0; i < rounds; ++i) ++seen[r.below(n)];
  for (int k : seen) {
    // 10 000 expected, with a standard deviation of 97.
    EXPECT_GT(k, 9'500);
    EXPECT_LT(k, 10'500);
  }
}

TEST(Random, SameSeedSameNumbers) {
  random a(7), b(7), c(8);
  int different = 0;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t v = a.next();
    EXPECT_EQ(v, b.next());
    if (v != c.next()) ++different;
  }
  EXPECT_EQ(different, 100);
}

TEST(Random, DoesNotRepeatSoon) {
  random r(0);  // the seed of a zeroed object is as good as any
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 100'000; ++i) seen.insert(r.next());
  EXPECT_EQ(seen.size(), 100'000U);
}

constexpr std::uint32_t at_compile_time() {
  random r(3);
  return r.below(10);
}
static_assert(at_compile_time() < 10);

}  // namespace
}  // namespace weft::rt
