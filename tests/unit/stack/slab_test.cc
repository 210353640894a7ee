// SPDX-License-Identifier: Apache-2.0
// base/slab.h: type-stable cells. Slabs never give memory back, so those of the tests stay as well.
#include "base/slab.h"

#include <set>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "unit/stack/support.h"

namespace weft::rt {
namespace {

using namespace stack_test;

[[maybe_unused]] constinit slab<int> works_before_main;

int constructed = 0;

struct object {
  object() noexcept : id(++constructed) {}
  int id;
  std::uint64_t generation = 0;
  char rest[84] = {};
};

struct alignas(128) aligned_object {
  atomic<std::uint32_t> word{7};
};

struct large {
  char bytes[30000] = {};
};

TEST(Slab, CellsAreConstructedOnceAndKeepTheirContents) {
  slab<object> s;
  constructed = 0;
  object* a = s.allocate();
  object* b = s.allocate();
  EXPECT_EQ(a->id, 1);
  EXPECT_EQ(b->id, 2);
  a->generation = 99;
  std::memset(a->rest, 'x', sizeof a->rest);
  s.release(a);
  EXPECT_EQ(a->generation, 99U);  // a late reader still sees a T
  EXPECT_EQ(s.allocate(), a);
  EXPECT_EQ(a->generation, 99U);
  EXPECT_EQ(a->id, 1);
  for (char c : a->rest) EXPECT_EQ(c, 'x');
  EXPECT_EQ(constructed, 2);
  EXPECT_EQ(s.live(), 2U);
  EXPECT_EQ(s.size(), 2U);
  s.release(a);
  s.release(b);
  EXPECT_EQ(s.live(), 0U);
  EXPECT_EQ(s.allocate(), b);  // last in, first out
  s.release(b);
}

TEST(Slab, IndicesAndIterationCoverEveryCellEverCarved) {
  slab<object> s;
  constexpr std::size_t n = 5000;
  std::vector<object*> p(n);
  std::set<object*> different;
  for (std::size_t i = 0; i < n; ++i) {
    p[i] = s.allocate();
    different.insert(p[i]);
    ASSERT_EQ(s.index_of(p[i]), i);
    ASSERT_EQ(s.at(i), p[i]);
  }
  EXPECT_EQ(different.size(), n);
  for (std::size_t i = 0; i < n; i += 2) s.release(p[i]);
  std::size_t seen = 0;
  s.for_each([&](object& o) { EXPECT_EQ(&o, p[seen++]); });
  EXPECT_EQ(seen, n);
  std::size_t blocks = 0;
  std::size_t cells = 0;
  s.for_each_block([&](object* first, std::size_t k) {
    EXPECT_EQ(first, p[cells]);
    ++blocks;
    cells += k;
  });
  EXPECT_EQ(cells, n);
  EXPECT_EQ(blocks, (n + s.per_block - 1) / s.per_block);
  EXPECT_GT(s.per_block, 600U);  // 112 bytes and a link: hardly anything is lost
  for (std::size_t i = 0; i < n; i += 2) s.allocate();
  EXPECT_EQ(s.size(), n);
  for (object* o : p) s.release(o);
}

TEST(Slab, AlignmentIsKept) {
  slab<aligned_object> s;
  for (int i = 0; i < 1000; ++i) {
    aligned_object* a = s.allocate();
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(a) % 128, 0U);
    ASSERT_EQ(a->word.load(), 7U);
  }
}

TEST(Slab, LargeObjects) {
  slab<large> s;
  EXPECT_EQ(s.per_block, 2U);
  std::vector<large*> p;
  for (int i = 0; i < 9; ++i) p.push_back(s.allocate());
  for (std::size_t i = 0; i < 9; ++i) p[i]->bytes[29999] = static_cast<char>(i);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(s.at(i)->bytes[29999], static_cast<char>(i));
}

TEST(Slab, ReadersNeedNoLock) {
  slab<aligned_object> s;
  atomic<bool> stop{false};
  atomic<int> bad{0};
  std::thread reader([&] {
    std::size_t last = 0;
    while (!stop.load(memory_order_relaxed)) {
      std::size_t n = 0;
      s.for_each([&](aligned_object& o) {
        if (o.word.load(memory_order_relaxed) != 7) bad.fetch_add(1);
        ++n;
      });
      if (n < last) bad.fetch_add(1);
      last = n;
    }
  });
  std::vector<aligned_object*> p;
  for (int i = 0; i < 20000; ++i) {
    p.push_back(s.allocate());
    if (i % 3 == 0) {
      s.release(p.back());
      p.pop_back();
    }
  }
  stop = true;
  reader.join();
  EXPECT_EQ(bad.load(), 0);
}

TEST(Slab, ReleasingTwiceIsFatal) {
  slab<object> s;
  const child_result r = in_child([&] {
    object* o = s.allocate();
    s.release(o);
    s.release(o);
  });
  EXPECT_EQ(r.exit_status, 2);
  EXPECT_EQ(r.err, "fatal error: slab: object released twice\n");
}

TEST(Slab, RunningOutOfMemoryIsFatal) {
  if (sanitized) GTEST_SKIP() << "the shadow needs address space";
  slab<large> s;
  const child_result r = in_child([&] {
    const rlimit l{status_kib("VmSize:") * kib + 10 * mib, RLIM_INFINITY};
    rlimit seen{};
    if (::setrlimit(RLIMIT_AS, &l) != 0 || ::getrlimit(RLIMIT_AS, &seen) != 0) ::_exit(3);
    if (seen.rlim_cur != l.rlim_cur) ::_exit(3);
    for (;;) s.allocate();
  });
  if (r.exit_status == 3) GTEST_SKIP() << "the limit cannot be set here";
  EXPECT_EQ(r.exit_status, 2);
  EXPECT_NE(r.err.find("\nfatal error: out of memory\n"), r.err.npos) << r.err;
}

TEST(Slab, IsNeverDestroyed) { EXPECT_TRUE(std::is_trivially_destructible_v<slab<object>>); }

}  // namespace
}  // namespace weft::rt
