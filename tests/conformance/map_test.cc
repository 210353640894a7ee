// SPDX-License-Identifier: Apache-2.0
// SYN-16 and SYN-17: concurrent_map.
#include <atomic>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/runtime.h"
#include "weft/go.hpp"
#include "weft/map.hpp"
#include "weft/sync.hpp"

namespace weft::test {
namespace {

using int_map = concurrent_map<int, int>;

std::map<int, int> contents(const int_map& m) {
  std::map<int, int> all;
  m.range([&](int k, int v) { EXPECT_TRUE(all.emplace(k, v).second) << k; });
  return all;
}

// -- SYN-16

std::optional<int> find(const std::map<int, int>& m, int k) {
  const auto it = m.find(k);
  return it == m.end() ? std::nullopt : std::optional(it->second);
}

// One random operation on both; what each gave.
std::pair<std::string, std::string> step(std::mt19937& rng, int_map& a, std::map<int, int>& b) {
  const auto text = [](const std::optional<int>& v) { return v ? std::to_string(*v) : "none"; };
  const int k = static_cast<int>(rng() % 16), v = static_cast<int>(rng() % 4),
            old = static_cast<int>(rng() % 4);
  const std::optional<int> was = find(b, k);
  const bool same = was == old;
  switch (rng() % 10) {
    case 0:
      return {text(a.load(k)), text(was)};
    case 1:
      a.store(k, v);
      b[k] = v;
      return {};
    case 2: {
      const auto [got, there] = a.load_or_store(k, v);
      b.emplace(k, v);
      return {std::to_string(got) + (there ? " there" : " new"),
              std::to_string(was.value_or(v)) + (was ? " there" : " new")};
    }
    case 3:
      b.erase(k);
      return {text(a.load_and_erase(k)), text(was)};
    case 4:
      b.erase(k);
      return {a.erase(k) ? "yes" : "no", was ? "yes" : "no"};
    case 5:
      b[k] = v;
      return {text(a.swap(k, v)), text(was)};
    case 6:
      if (same) b[k] = v;
      return {a.compare_and_swap(k, old, v) ? "yes" : "no", same ? "yes" : "no"};
    case 7:
      if (same) b.erase(k);
      return {a.compare_and_erase(k, old) ? "yes" : "no", same ? "yes" : "no"};
    case 8:
      return {a.contains(k) ? "yes" : "no", was ? "yes" : "no"};
    default:
      if (rng() % 10 == 0) {
        a.clear();
        b.clear();
      }
      return {};
  }
}

TEST(Conformance, SYN_16_random_operations_match_a_plain_map) {
  run_clean([] {
    for (std::uint32_t seed = 0; seed < 100; ++seed) {
      std::mt19937 rng(seed);
      int_map a;
      std::map<int, int> b;
      for (int i = 0; i < 500; ++i) {
        const auto [got, expected] = step(rng, a, b);
        ASSERT_EQ(got, expected) << "seed " << seed << ", step " << i;
      }
      ASSERT_EQ(contents(a), b) << "seed " << seed;
    }
  });
}

constexpr int keys = 1024;

// Each key is there all the time and its value is always a multiple of it.
TEST(Conformance, SYN_16_range_beside_stores) {
  const int rounds = static_cast<int>(by_effort(static_cast<std::uint64_t>(scaled(1024)), 20));
  run_clean([rounds] {
    int_map m;
    for (int k = 1; k <= keys; ++k) m.store(k, k);
    std::atomic<bool> over{false};
    scope writers;
    for (int g = 1; g <= 4; ++g) {
      writers.go([&, g] {
        for (int i = 0; !over; ++i) {
          for (int k = 1; k <= keys && !over; ++k) m.store(k, k * (i % 100 + g));
          yield();
        }
      });
    }
    for (int i = 0; i < rounds; ++i) {
      std::vector<bool> seen(keys + 1);
      int n = 0;
      m.range([&](int k, int v) {
        EXPECT_EQ(v % k, 0);
        EXPECT_FALSE(seen[static_cast<std::size_t>(k)]) << k;
        seen[static_cast<std::size_t>(k)] = true;
        ++n;
        return true;
      });
      ASSERT_EQ(n, keys);
    }
    over = true;
  });
}

// -- SYN-17

TEST(Conformance, SYN_17_nested_range_and_erase) {
  run_clean([] {
    concurrent_map<int, std::string> m;
    for (int i = 0; i < 10; ++i) m.store(i, std::to_string(i));
    m.range([&](int outer, const std::string&) {
      m.range([&](int k, const std::string& v) {
        EXPECT_EQ(m.load(k), v);
        EXPECT_FALSE(m.load_or_store(42, "dummy").second);
        m.store(42, "a value");
        EXPECT_EQ(m.load_and_erase(42), "a value");
      });
      EXPECT_TRUE(m.erase(outer));
    });
    int left = 0;
    m.range([&](int, const std::string&) { ++left; });
    EXPECT_EQ(left, 0);
  });
}

TEST(Conformance, SYN_17_what_is_not_there_is_not_swapped) {
  int_map m;  // from a plain thread
  EXPECT_FALSE(m.compare_and_swap(1, 0, 2));
  EXPECT_FALSE(m.compare_and_erase(1, 0));
  EXPECT_FALSE(m.contains(1));
}

// Neither made out of nothing nor assigned.
TEST(Conformance, SYN_17_hash_and_comparison_with_something_in_them) {
  struct hash {
    const int& seed;
    explicit hash(const int& s) : seed(s) {}
    std::size_t operator()(int k) const { return static_cast<std::size_t>(k ^ seed); }
  };
  struct same {
    const int& modulus;
    explicit same(const int& m) : modulus(m) {}
    bool operator()(int a, int b) const { return (a - b) % modulus == 0; }
  };
  using map = concurrent_map<int, int, hash, same>;
  static_assert(!std::is_default_constructible_v<map>);
  const int seed = 5, modulus = 1000;
  map m(hash{seed}, same{modulus});
  for (int i = 0; i < 100; ++i) m.store(i, i * i);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(m.load(i), i * i);
  EXPECT_FALSE(m.contains(100));
}

TEST(Conformance, SYN_17_range_ends_when_told) {
  int_map m;
  for (int i = 0; i < 100; ++i) m.store(i, i);
  int n = 0;
  m.range([&](int, int) { return ++n < 7; });
  EXPECT_EQ(n, 7);
}

TEST(Conformance, SYN_17_storers_loaders_and_clearers) {
  const int turns = static_cast<int>(by_effort(static_cast<std::uint64_t>(scaled(10'000)), 500));
  run_clean([turns] {
    int_map m;
    wait_group wg;
    for (int g = 0; g < 10; ++g) {
      wg.go([&, g] {
        for (int i = 0; i < turns; ++i) m.store(i % 100, g);
      });
      wg.go([&] {
        for (int i = 0; i < turns; ++i) {
          const auto v = m.load(i % 100);
          ASSERT_TRUE(!v || (*v >= 0 && *v < 10));
        }
      });
      wg.go([&] {
        for (int i = 0; i < turns / 100; ++i) {
          m.clear();
          yield();
        }
      });
    }
    wg.wait();
    m.clear();
    EXPECT_TRUE(contents(m).empty());
  });
}

}  // namespace
}  // namespace weft::test
