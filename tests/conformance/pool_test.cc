// SPDX-License-Identifier: Apache-2.0
// SYN-13 to SYN-15: object_pool, and the queue beneath it.
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

#include "support/runtime.h"
#include "sync/pool_queue.h"
#include "weft/go.hpp"
#include "weft/pool.hpp"
#include "weft/sync.hpp"

namespace weft::test {
namespace {

using std::make_unique;

int value(const std::unique_ptr<int>& p) { return p == nullptr ? 0 : *p; }

// -- SYN-13

TEST(Conformance, SYN_13_what_is_put_comes_back) {
  run_clean(with_procs(1), [] {
    object_pool<int> p;
    EXPECT_EQ(p.get(), nullptr);
    p.put(make_unique<int>(1));
    p.put(make_unique<int>(2));
    EXPECT_EQ(value(p.get()), 1);
    EXPECT_EQ(value(p.get()), 2);
    EXPECT_EQ(p.get(), nullptr);
    p.put(nullptr);
    EXPECT_EQ(p.get(), nullptr);
  });
}

TEST(Conformance, SYN_13_new_ones_are_made_only_when_it_is_empty) {
  run_clean(with_procs(1), [] {
    int made = 0;
    object_pool<int> p([&] { return ++made; });
    EXPECT_EQ(value(p.get()), 1);
    EXPECT_EQ(value(p.get()), 2);
    p.put(make_unique<int>(42));
    EXPECT_EQ(value(p.get()), 42);
    EXPECT_EQ(value(p.get()), 3);
  });
}

TEST(Conformance, SYN_13_a_maker_that_only_moves) {
  object_pool<int> p([next = make_unique<int>(6)] { return make_unique<int>(++*next); });
  EXPECT_EQ(value(p.get()), 7);
  EXPECT_EQ(value(p.get()), 8);
}

// Threads without a P share a place, and others find what is there.
TEST(Conformance, SYN_13_plain_threads) {
  object_pool<int> p;
  p.put(make_unique<int>(1));
  p.put(make_unique<int>(2));
  EXPECT_EQ(value(p.get()), 1);
  run_clean([&] { EXPECT_EQ(value(p.get()), 2); });
  EXPECT_EQ(p.get(), nullptr);
}

TEST(Conformance, SYN_13_what_another_p_has_is_found) {
  run_clean(at_least_procs(2), [] {
    object_pool<int> p;
    for (int i = 1; i <= 100; ++i) p.put(make_unique<int>(i));
    int found = 0;
    std::thread([&] {
      while (p.get() != nullptr) ++found;
    }).join();
    EXPECT_GE(found, 100 - procs());  // all but the one that each owner keeps to itself
  });
}

// -- SYN-14

TEST(Conformance, SYN_14_nobody_sees_anothers_value) {
  const int goroutines = 10;
  const int turns =
      static_cast<int>(by_effort(static_cast<std::uint64_t>(scaled(1'000'000)), 1000));
  run_clean([&] {
    // A value is in use by one at a time, and is what it was when it was put.
    struct item {
      std::atomic<bool> used{false};
      int tag = 0, copy = 0;
    };
    object_pool<item> p([] { return make_unique<item>(); });
    wait_group wg;
    std::atomic<int> bad{0};
    for (int g = 0; g < goroutines; ++g) {
      wg.go([&, g] {
        for (int i = 0; i < turns; ++i) {
          auto v = p.get();
          if (v->used.exchange(true) || v->tag != v->copy) ++bad;
          v->tag = v->copy = g * turns + i;
          v->used = false;
          p.put(std::move(v));
          if (i % 1024 == 0) yield();
          if (i % 50'000 == 0) p.trim();
        }
      });
    }
    wg.wait();
    EXPECT_EQ(bad, 0);
  });
}

// Each of n items exactly once, by the one who pushes and pops and by nine who take.
template <class Push, class Pop, class Take>
void deliver(std::uint32_t n, Push push, Pop pop, Take take) {
  std::vector<std::atomic<std::uint8_t>> seen(n);
  std::atomic<std::uint32_t> got{0};
  std::atomic<std::uint32_t> popped{0};
  const auto see = [&](void* v) {
    ++seen[reinterpret_cast<std::uintptr_t>(v) - 1];
    ++got;
  };
  std::vector<std::thread> thieves;
  for (int i = 0; i < 9; ++i) {
    thieves.emplace_back([&] {
      int in_vain = 0;
      while (got < n) {
        if (void* v = take()) {
          see(v);
          in_vain = 0;
        } else if (++in_vain % 16 == 0) {
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    void* const v = reinterpret_cast<void*>(std::uintptr_t{i} + 1);
    while (!push(v)) std::this_thread::yield();
    if (i % 10 != 0) continue;
    if (void* mine = pop()) {
      see(mine);
      ++popped;
    }
  }
  while (void* mine = pop()) see(mine);
  for (std::thread& t : thieves) t.join();
  EXPECT_EQ(got, n);
  for (std::uint32_t i = 0; i < n; ++i) ASSERT_EQ(seen[i], 1) << i;
  EXPECT_GT(popped, 0U);  // both ends were in use
}

std::uint32_t items() {
  return static_cast<std::uint32_t>(
      by_effort(static_cast<std::uint64_t>(scaled(2'000'000)), 10'000));
}

TEST(Conformance, SYN_14_the_ring_delivers_each_once) {
  rt::pool_ring r(4096);  // a smaller one is full at each change of threads
  deliver(
      items(), [&](void* v) { return r.push(v); }, [&] { return r.pop(); },
      [&] { return r.take(); });
}

TEST(Conformance, SYN_14_the_chain_delivers_each_once) {
  rt::pool_chain c;
  deliver(
      items(),
      [&](void* v) {
        if (c.push(v)) return true;
        c.add(make_unique<rt::pool_ring>(c.next_size()));
        return c.push(v);
      },
      [&] { return c.pop(); }, [&] { return c.take(); });
}

TEST(Conformance, SYN_14_full_rings_and_the_order_of_both_ends) {
  rt::pool_ring r(8);
  std::vector<int> v(16);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_TRUE(r.push(&v[i]));
  EXPECT_FALSE(r.push(&v[8]));
  EXPECT_EQ(r.take(), &v[0]);
  EXPECT_EQ(r.pop(), &v[7]);
  for (std::size_t i = 8; i < 10; ++i) EXPECT_TRUE(r.push(&v[i]));
  EXPECT_FALSE(r.push(&v[10]));
  EXPECT_EQ(r.pop(), &v[9]);
  EXPECT_EQ(r.take(), &v[1]);
  while (r.take() != nullptr) {
  }
  EXPECT_EQ(r.pop(), nullptr);
}

// -- SYN-15

struct counted {
  static inline std::atomic<int> live{0};
  counted() { ++live; }
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;
  ~counted() { --live; }
};

TEST(Conformance, SYN_15_items_survive_one_trim_and_not_two) {
  run_clean(with_procs(1), [] {
    object_pool<counted> p;
    for (int i = 0; i < 100; ++i) p.put(make_unique<counted>());
    p.trim();
    EXPECT_EQ(counted::live, 100);
    EXPECT_NE(p.get(), nullptr);  // and goes here: 99
    p.trim();
    EXPECT_EQ(counted::live, 0);
    EXPECT_EQ(p.get(), nullptr);
  });
}

TEST(Conformance, SYN_15_what_is_used_again_stays) {
  run_clean(with_procs(1), [] {
    object_pool<counted> p;
    p.put(make_unique<counted>());
    for (int i = 0; i < 10; ++i) {
      p.trim();
      auto v = p.get();
      ASSERT_NE(v, nullptr);
      p.put(std::move(v));
    }
    EXPECT_EQ(counted::live, 1);
  });
  EXPECT_EQ(counted::live, 0);  // and they go with the pool
}

}  // namespace
}  // namespace weft::test
