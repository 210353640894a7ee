// SPDX-License-Identifier: Apache-2.0
// core/g_pool.h: dead goroutines go in and come out last in, first out, in batches over block
// borders.
#include "core/g_pool.h"

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/random.h"
#include "unit/support.h"

namespace weft::rt {
namespace {

constexpr std::uint32_t block = g_pool::block_size;

// The pool never looks at its goroutines, so numbers stand for them.
G* fake(std::uint64_t i) { return reinterpret_cast<G*>((i + 1) * 64); }

// A pool with a deque beside it that says what should be in it, bottom first.
class known_pool {
 public:
  void push(std::uint32_t n) {
    const auto fs = make(n);
    p_->push(fs.data(), n);
    model_.insert(model_.end(), fs.begin(), fs.end());
    check();
  }
  void pop(std::uint32_t n) {
    std::vector<G*> out(n + 1, nullptr);
    const std::uint32_t got = p_->pop(out.data(), n);
    ASSERT_EQ(got, std::min<std::size_t>(n, model_.size()));
    for (std::uint32_t i = 0; i < got; ++i) {
      ASSERT_EQ(out[i], model_.back());
      model_.pop_back();
    }
    check();
  }
  std::size_t size() const { return model_.size(); }

 private:
  std::vector<G*> make(std::uint32_t n) {
    std::vector<G*> fs;
    for (std::uint32_t i = 0; i < n; ++i) fs.push_back(fake(next_++));
    return fs;
  }
  void check() { ASSERT_EQ(p_->size_hint(), model_.size()); }

  std::unique_ptr<g_pool> p_ = std::make_unique<g_pool>();
  std::vector<G*> model_;
  std::uint64_t next_ = 0;
};

TEST(GPool, EmptyGivesNothing) {
  known_pool p;
  p.pop(0);
  p.pop(5);
  p.push(0);
  p.pop(1);
}

TEST(GPool, LastInFirstOutOverBlockBorders) {
  for (std::uint32_t n : {1U, block - 1, block, block + 1, 3 * block, 3 * block + 1}) {
    known_pool p;
    p.push(n);
    p.push(1);
    p.pop(n / 2);
    p.push(n);
    p.pop(2 * n + 2);
    EXPECT_EQ(p.size(), 0U);
    p.push(n);  // and again from empty
    p.pop(n);
  }
}

TEST(GPool, RandomOrder) {
  known_pool p;
  random r(11);
  for (int i = 0; i < 5000; ++i) {
    if (r.below(2) == 0) {
      p.push(r.below(150));
    } else {
      p.pop(r.below(150));
    }
  }
}

TEST(GPool, CacheIsLastInFirstOut) {
  const auto gs = std::make_unique<G[]>(g_cache::capacity);
  g_cache c;
  for (std::uint32_t i = 0; i < g_cache::capacity; ++i) {
    c.push(&gs[i]);
  }
  for (std::uint32_t i = g_cache::capacity; i-- > 0;) EXPECT_EQ(c.pop(), &gs[i]);
  EXPECT_EQ(c.n, 0U);
}

TEST(GPool, ManyThreadsLoseNothing) {
  constexpr int threads = 4;
  constexpr std::uint64_t each = 500;
  const auto pool = std::make_unique<g_pool>();
  std::vector<std::thread> ts;
  for (int t = 0; t < threads; ++t) {
    ts.emplace_back([&, t] {
      std::vector<G*> mine;
      for (std::uint64_t i = 0; i < each; ++i)
        mine.push_back(fake(static_cast<std::uint64_t>(t) * each + i));
      random r(static_cast<std::uint64_t>(t));
      for (int i = 0; i < unit_test::scaled(20'000); ++i) {
        const std::uint32_t n = r.below(block);
        if (r.below(2) == 0) {
          const auto k = static_cast<std::uint32_t>(std::min<std::size_t>(n, mine.size()));
          pool->push(mine.data() + mine.size() - k, k);
          mine.resize(mine.size() - k);
        } else {
          G* out[block];
          const std::uint32_t got = pool->pop(out, n);
          mine.insert(mine.end(), out, out + got);
        }
      }
      pool->push(mine.data(), static_cast<std::uint32_t>(mine.size()));
    });
  }
  for (auto& t : ts) t.join();
  std::vector<G*> all(threads * each + 1);
  ASSERT_EQ(pool->size_hint(), threads * each);
  ASSERT_EQ(pool->pop(all.data(), static_cast<std::uint32_t>(all.size())), threads * each);
  std::set<G*> different;
  for (std::uint64_t i = 0; i < threads * each; ++i) different.insert(all[i]);
  EXPECT_EQ(different.size(), threads * each);
}

}  // namespace
}  // namespace weft::rt
