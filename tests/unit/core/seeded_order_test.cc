// SPDX-License-Identifier: Apache-2.0
// The order of a bubble: everybody once, by the generator alone; who yields goes behind.
#include "core/seeded_order.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

namespace weft::rt {
namespace {

// Goroutines are only names here.
G* name(std::size_t i) { return reinterpret_cast<G*>(64 * (i + 1)); }
char letter(const G* g) {
  return static_cast<char>('a' + reinterpret_cast<std::uintptr_t>(g) / 64 - 1);
}

std::string all(seeded_order& o, std::uint64_t seed) {
  random rng(seed);
  std::string s;
  while (G* g = o.take(rng)) s += letter(g);
  return s;
}

TEST(SeededOrder, TheSameSeedTheSameOrder) {
  std::map<std::string, int> orders;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    std::string first;
    for (int again = 0; again < 2; ++again) {
      seeded_order o;
      for (std::size_t i = 0; i < 3; ++i) o.add(name(i));
      const std::string s = all(o, seed);
      EXPECT_TRUE(o.empty());
      if (again == 0) first = s;
      EXPECT_EQ(s, first);
    }
    ++orders[first];
  }
  ASSERT_EQ(orders.size(), 6U);
  for (const auto& [s, n] : orders) EXPECT_GT(n, 50) << s;  // of 100 each
}

TEST(SeededOrder, WhoYieldsGoesBehindAllWhoAreThere) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    seeded_order o;
    for (std::size_t i = 0; i < 4; ++i) o.add(name(i));
    o.add_behind(name(4));
    o.add(name(5));         // came later: anywhere
    o.add_behind(name(6));  // behind all, e too
    const std::string s = all(o, seed);
    ASSERT_EQ(s.size(), 7U);
    for (char c : {'a', 'b', 'c', 'd'}) EXPECT_LT(s.find(c), s.find('e')) << s;
    EXPECT_EQ(s.back(), 'g');
  }
}

TEST(SeededOrder, ThoseWhoYieldTakeTurns) {
  seeded_order o;
  random rng(3);
  for (std::size_t i = 0; i < 3; ++i) o.add(name(i));
  std::string s;
  for (int i = 0; i < 30; ++i) {
    G* g = o.take(rng);
    s += letter(g);
    o.add_behind(g);
  }
  for (std::size_t i = 3; i < s.size(); ++i) EXPECT_EQ(s[i], s[i - 3]) << s;
}

TEST(SeededOrder, ManyOfThem) {
  constexpr std::size_t n = 10'000;
  seeded_order o;
  random rng(1);
  for (std::size_t i = 0; i < n; ++i) o.add(name(i));
  std::vector<bool> seen(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto at = reinterpret_cast<std::uintptr_t>(o.take(rng)) / 64 - 1;
    EXPECT_FALSE(seen.at(at));
    seen[at] = true;
  }
  EXPECT_EQ(o.take(rng), nullptr);
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](bool b) { return b; }));
}

}  // namespace
}  // namespace weft::rt
