// SPDX-License-Identifier: Apache-2.0
// core/global_queue.h: first in, first out over block borders, in batches of every size.
#include "core/global_queue.h"

#include <cstdint>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "base/random.h"
#include "os/memory.h"

namespace weft::rt {
namespace {

constexpr std::uint32_t block = global_queue_block::capacity;

// The queue never looks at its goroutines, so addresses stand for them.
G* fake(std::uint64_t i) { return reinterpret_cast<G*>((i + 1) * 64); }

// A queue whose contents are known: the next number to go in and to come out.
class numbered_queue {
 public:
  void push(std::uint32_t n) {
    std::vector<G*> gs;
    for (std::uint32_t i = 0; i < n; ++i) gs.push_back(fake(in_++));
    q_->push(gs.data(), n);
    check();
  }
  void pop(std::uint32_t n) {
    std::vector<G*> gs(n + 1, nullptr);
    const std::uint32_t got = q_->pop(gs.data(), n);
    ASSERT_EQ(got, n < in_ - out_ ? n : in_ - out_);
    for (std::uint32_t i = 0; i < got; ++i) ASSERT_EQ(gs[i], fake(out_++));
    ASSERT_EQ(gs[got], nullptr);  // nothing written behind the end
    check();
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(in_ - out_); }

 private:
  void check() {
    ASSERT_EQ(q_->size(), size());
    ASSERT_EQ(q_->size_hint(), size());
    std::uint64_t at = out_;
    q_->for_each([&](G* g) { ASSERT_EQ(g, fake(at++)); });
    ASSERT_EQ(at, in_);
  }
  std::unique_ptr<global_queue> q_ = std::make_unique<global_queue>();
  std::uint64_t in_ = 0, out_ = 0;
};

TEST(GlobalQueue, EmptyGivesNothing) {
  numbered_queue q;
  q.pop(0);
  q.pop(1);
  q.pop(200);
  q.push(0);
  q.pop(5);
}

TEST(GlobalQueue, OneByOne) {
  numbered_queue q;
  for (std::uint32_t i = 0; i < 3 * block; ++i) q.push(1);
  while (q.size() > 0) q.pop(1);
  q.push(1);  // and again from empty
  q.pop(1);
}

TEST(GlobalQueue, BatchesAcrossBlockBorders) {
  for (std::uint32_t n :
       {1U, 2U, block - 1, block, block + 1, 2 * block - 1, 2 * block, 2 * block + 1, 5 * block}) {
    for (std::uint32_t start : {0U, 1U, block - 1, block, block + 1}) {
      numbered_queue q;
      q.push(start);  // shifts where the borders fall
      q.push(n);
      q.pop(start);
      q.push(n);
      q.pop(n);
      q.pop(n);
      EXPECT_EQ(q.size(), 0U);
    }
  }
}

TEST(GlobalQueue, PopsOfEveryLength) {
  for (std::uint32_t n = 0; n <= 2 * block + 2; ++n) {
    numbered_queue q;
    q.push(2 * block + 1);
    q.pop(n);
    q.pop(2 * block + 2);  // more than there is: the rest
    EXPECT_EQ(q.size(), 0U);
  }
}

TEST(GlobalQueue, RandomOrderOfBatches) {
  numbered_queue q;
  random r(2026);
  for (int i = 0; i < 3000; ++i) {
    if (r.below(2) == 0) {
      q.push(r.below(300));
    } else {
      q.pop(r.below(300));
    }
  }
  while (q.size() > 0) q.pop(100);
}

std::size_t resident_bytes() {
  std::ifstream f("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  f >> total >> resident;
  return resident * page_size();
}

TEST(GlobalQueue, BlocksAreRecycled) {
  const auto q = std::make_unique<global_queue>();
  std::vector<G*> gs(4 * block);
  for (std::size_t i = 0; i < gs.size(); ++i) gs[i] = fake(i);
  const auto n = static_cast<std::uint32_t>(gs.size());
  const std::size_t before = resident_bytes();
  for (int round = 0; round < 20'000; ++round) {  // 80 MB of blocks if each were used once
    q->push(gs.data(), n);
    ASSERT_EQ(q->pop(gs.data(), n), n);
  }
  EXPECT_EQ(q->size(), 0U);
  EXPECT_LT(resident_bytes(), before + (4 << 20));
}

}  // namespace
}  // namespace weft::rt
