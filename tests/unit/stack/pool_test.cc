// SPDX-License-Identifier: Apache-2.0
// The pools: order of reuse, batches, colours, trimming, huge stacks, and four threads at once.
#include <array>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "base/random.h"
#include "unit/stack/support.h"

namespace weft::rt {
namespace {

using namespace stack_test;

class StackPool : public StackTest {};

memory_range usable(const stack& s) { return {s.lo, s.hi - s.lo}; }

TEST_F(StackPool, AStackIsASlotWithItsGuardBelow) {
  for (std::size_t wanted : {128 * kib, 256 * kib, mib, 3 * mib, 8 * mib}) {
    const std::size_t slot = stack_slot_size(wanted);
    const stack s = stack_alloc(slot);
    ASSERT_TRUE(s);
    EXPECT_EQ(s.hi - s.base, slot);
    EXPECT_EQ(s.lo - s.base, guard_size);
    byte_at(s.lo) = 1;
    byte_at(s.hi - 1) = 1;
    stack_free(s);
  }
  EXPECT_FALSE(stack{});
}

TEST_F(StackPool, AFreshStackHasNothingInMemory) {
  testing::forget_pools();
  const stack s = stack_alloc(default_slot);
  EXPECT_EQ(resident_pages(usable(s)), 0U);
  stack_free(s);
  EXPECT_EQ(resident_pages(usable(s)), 0U);  // the pool's links are not in it either
}

TEST_F(StackPool, TheLastFreedComesFirst) {
  std::array<stack, 5> s;
  for (stack& x : s) x = stack_alloc(default_slot);
  for (const stack& x : s) stack_free(x);
  for (std::size_t i = s.size(); i-- > 0;) EXPECT_EQ(stack_alloc(default_slot).base, s[i].base);
  stack_free_batch(s.data(), s.size());
  for (std::size_t i = s.size(); i-- > 0;) EXPECT_EQ(stack_alloc(default_slot).base, s[i].base);
  stack_free_batch(s.data(), s.size());
}

TEST_F(StackPool, WarmComesBeforeTrimmedBeforeBare) {
  testing::forget_pools();
  std::array<stack, 3> s;
  ASSERT_EQ(stack_alloc_batch(default_slot, s.data(), 3), 3U);  // carving leaves others bare
  stack_free(s[0]);
  EXPECT_EQ(stack_trim_pool(10), 1U);
  EXPECT_EQ(stack_drop_pool(10), 1U);
  stack_free(s[1]);
  EXPECT_EQ(stack_trim_pool(10), 1U);
  stack_free(s[2]);
  const stack_stats st = get_stack_stats();
  EXPECT_EQ(st.free_warm, 1U);
  EXPECT_EQ(st.free_trimmed, 1U);
  EXPECT_GE(st.free_bare, 1U);
  for (std::size_t i = 3; i-- > 0;) EXPECT_EQ(stack_alloc(default_slot).base, s[i].base) << i;
  stack_free_batch(s.data(), 3);
}

TEST_F(StackPool, ABatchGivesWhatThereIsAndCarvesOnlyWhenThereIsNone) {
  testing::forget_pools();
  std::vector<stack> s(300);
  std::size_t got = 0;
  std::set<std::uintptr_t> bases;
  while (got < s.size()) {
    const std::size_t k = stack_alloc_batch(default_slot, &s[got], s.size() - got);
    ASSERT_GE(k, 1U);
    got += k;
  }
  for (const stack& x : s) EXPECT_TRUE(bases.insert(x.base).second);
  const std::size_t slots = get_stack_stats().slots;
  stack_free_batch(s.data(), 7);
  EXPECT_GE(stack_alloc_batch(default_slot, s.data(), 7), 7U);
  EXPECT_EQ(get_stack_stats().slots, slots);
  stack_free_batch(s.data(), s.size());
}

TEST_F(StackPool, SizesDoNotMixButMayBeFreedTogether) {
  const std::size_t other = stack_slot_size(512 * kib);
  const std::array<stack, 2> s = {stack_alloc(default_slot), stack_alloc(other)};
  stack_free_batch(s.data(), 2);
  EXPECT_EQ(stack_alloc(other).base, s[1].base);
  EXPECT_EQ(stack_alloc(default_slot).base, s[0].base);
  stack_free_batch(s.data(), 2);
}

TEST_F(StackPool, ColoursSpreadTheTops) {
  testing::forget_pools();
  std::array<stack, 32> s;
  ASSERT_EQ(stack_alloc_batch(default_slot, s.data(), s.size()), s.size());
  std::array<int, 16> seen{};
  for (const stack& x : s) {
    EXPECT_EQ(stack_top(x), x.hi - x.colour);
    EXPECT_EQ(stack_top(x) % 16, 0U);
    ASSERT_EQ(x.colour % 128, 0U);
    ASSERT_LT(x.colour / 128, 16U);
    ++seen[x.colour / 128];
  }
  for (int n : seen) EXPECT_EQ(n, 2);
  stack_free_batch(s.data(), s.size());
  // One mapping each, yet not all of one colour.
  std::array<stack, 3> h;
  for (stack& x : h) x = stack_alloc(stack_slot_size(8 * mib));
  EXPECT_FALSE(h[0].colour == h[1].colour && h[1].colour == h[2].colour);
  stack_free_batch(h.data(), h.size());
}

TEST_F(StackPool, TrimGivesBackAllButTheTopPage) {
  const std::size_t page = page_size();
  const stack s = stack_alloc(default_slot);
  const std::size_t pages = (s.hi - s.lo) / page;
  for (std::uintptr_t a = s.lo; a < s.hi; a += page) byte_at(a) = 1;
  byte_at(s.hi - 1) = 42;
  EXPECT_EQ(resident_pages(usable(s)), pages);
  EXPECT_EQ(stack_trim(s), pages - 1);
  EXPECT_EQ(resident_pages(usable(s)), 1U);
  EXPECT_EQ(byte_at(s.hi - 1), 42);
  EXPECT_EQ(stack_trim(s), 0U);
  if (pages > 1) {
    EXPECT_EQ(byte_at(s.lo), 0);
  }
  stack_trim_batch(&s, 1);
  EXPECT_EQ(resident_pages(usable(s)), 1U);
  EXPECT_FALSE(is_readable(s.lo - 1)) << "the guard went with the pages";
  stack_free(s);
}

TEST_F(StackPool, TheMonitorTrimsTheOldestFirstAndEachOnce) {
  testing::forget_pools();
  const std::size_t page = page_size();
  std::array<stack, 50> s;
  for (stack& x : s) x = stack_alloc(default_slot);
  for (const stack& x : s) {
    for (std::size_t i = 1; i <= 5; ++i) byte_at(x.hi - i * page) = 1;
  }
  const auto resident = [&](std::size_t i) { return resident_pages(usable(s[i])); };
  stack_free_batch(s.data(), s.size());
  EXPECT_EQ(stack_trim_pool(10), 10U);
  EXPECT_EQ(resident(9), 1U);
  EXPECT_EQ(resident(10), 5U);
  EXPECT_EQ(stack_trim_pool(1000), 40U);
  EXPECT_EQ(stack_trim_pool(1000), 0U);
  EXPECT_EQ(resident(49), 1U);
  EXPECT_EQ(stack_drop_pool(20), 20U);
  EXPECT_EQ(resident(19), 0U);
  EXPECT_EQ(resident(20), 1U);
  // The order of reuse is still the order of freeing, among those with a page.
  EXPECT_EQ(stack_alloc(default_slot).base, s[49].base);
  stack_free(s[49]);
  EXPECT_EQ(stack_trim_pool(1000), 1U);
}

TEST_F(StackPool, HugeStacksAreUnmappedBeyondASmallCache) {
  testing::forget_pools();
  const std::size_t slot = stack_slot_size(64 * mib);
  const stack_stats before = get_stack_stats();
  for (int round = 0; round < 3; ++round) {
    std::array<stack, 10> s;
    for (stack& x : s) {
      x = stack_alloc(slot);
      byte_at(stack_top(x) - 1) = 1;
    }
    EXPECT_EQ(get_stack_stats().bytes_reserved, before.bytes_reserved + 10 * slot);
    stack_free_batch(s.data(), s.size());
    const stack_stats after = get_stack_stats();
    EXPECT_LE(after.bytes_reserved, before.bytes_reserved + 4 * slot);
    EXPECT_EQ(after.slots - before.slots, after.chunks - before.chunks);
    std::size_t found = 0;
    for (const stack& x : s) {
      stack f;
      bool in_guard = false;
      found += find_stack(x.hi - 1, &f, &in_guard);
    }
    EXPECT_EQ(found, 4U);
  }
}

TEST_F(StackPool, FindsTheStackOfAnAddress) {
  testing::forget_pools();
  const stack s = stack_alloc(default_slot);
  stack f;
  bool in_guard = true;
  for (std::uintptr_t a : {s.lo, s.lo + 12345, s.hi - 1}) {
    ASSERT_TRUE(find_stack(a, &f, &in_guard));
    EXPECT_FALSE(in_guard);
    EXPECT_EQ(f.base, s.base);
    EXPECT_EQ(f.lo, s.lo);
    EXPECT_EQ(f.hi, s.hi);
    EXPECT_EQ(f.colour, s.colour);
    EXPECT_EQ(f.id, s.id);
  }
  for (std::uintptr_t a : {s.base, s.lo - 1}) {
    ASSERT_TRUE(find_stack(a, &f, &in_guard));
    EXPECT_TRUE(in_guard);
    EXPECT_EQ(f.base, s.base);
  }
  int local = 0;
  EXPECT_FALSE(find_stack(reinterpret_cast<std::uintptr_t>(&local), &f, &in_guard));
  EXPECT_FALSE(find_stack(0, &f, &in_guard));
  EXPECT_FALSE(find_stack(~std::uintptr_t{0}, &f, &in_guard));
  EXPECT_FALSE(find_stack(s.base + 200 * default_slot, &f, &in_guard))
      << "reserved, but no stack yet";
  stack_free(s);
}

TEST_F(StackPool, FreeingTwiceIsFatal) {
  const child_result r = in_child([] {
    const stack s = stack_alloc(default_slot);
    stack_free(s);
    stack_free(s);
  });
  EXPECT_EQ(r.exit_status, 2);
  EXPECT_NE(r.err.find("fatal error: stack freed twice\n"), r.err.npos) << r.err;
}

TEST_F(StackPool, AnInventedSizeIsFatal) {
  const child_result r = in_child([] { stack_alloc(100); });
  EXPECT_EQ(r.exit_status, 2);
  EXPECT_NE(r.err.find("fatal error: stack_alloc: not a size"), r.err.npos) << r.err;
}

// Each holder stamps its stacks at both ends; two holders of one slot, or a trim of a stack in use,
// show.
TEST_F(StackPool, FourThreadsAMonitorAndAFinder) {
  std::atomic<bool> stop{false};
  std::atomic<int> bad{0};
  const std::array<std::size_t, 3> slots = {default_slot, stack_slot_size(512 * kib),
                                            stack_slot_size(8 * mib)};
  const auto worker = [&](std::uint64_t me) {
    random rnd(me);
    std::vector<stack> held;
    const auto stamp = [&](const stack& s) {
      *reinterpret_cast<std::uint64_t*>(stack_top(s) - 64) = me;
      *reinterpret_cast<std::uint64_t*>(s.lo) = me;
    };
    const auto check = [&](const stack& s) {
      if (*reinterpret_cast<std::uint64_t*>(stack_top(s) - 64) != me) ++bad;
      if (*reinterpret_cast<std::uint64_t*>(s.lo) != me) ++bad;
    };
    while (!stop.load(std::memory_order_relaxed)) {
      const std::size_t slot = slots[rnd.below(64) == 0 ? 2 : rnd.below(2)];
      switch (held.size() > 40 ? 2 : rnd.below(4)) {
        case 0:
          held.push_back(stack_alloc(slot));
          stamp(held.back());
          break;
        case 1: {
          std::array<stack, 8> b;
          const std::size_t n = stack_alloc_batch(slot, b.data(), b.size());
          if (n < 1 || n > b.size()) ++bad;
          for (std::size_t k = 0; k < n; ++k) {
            stamp(b[k]);
            held.push_back(b[k]);
          }
          break;
        }
        case 2: {
          const std::size_t n = rnd.below(static_cast<std::uint32_t>(held.size()) + 1);
          for (std::size_t k = held.size() - n; k < held.size(); ++k) check(held[k]);
          stack_free_batch(held.data() + held.size() - n, n);
          held.resize(held.size() - n);
          break;
        }
        default:
          if (!held.empty()) {
            std::swap(held[rnd.below(static_cast<std::uint32_t>(held.size()))], held.back());
            check(held.back());
            stack_free(held.back());
            held.pop_back();
          }
      }
    }
    for (const stack& s : held) check(s);
    stack_free_batch(held.data(), held.size());
  };
  std::thread monitor([&] {
    while (!stop.load()) {
      stack_trim_pool(20);
      stack_drop_pool(5);
      get_stack_stats();
      std::this_thread::yield();
    }
  });
  std::thread finder([&] {
    const stack s = stack_alloc(default_slot);
    while (!stop.load()) {
      stack f;
      bool in_guard = false;
      if (!find_stack(s.lo + 8, &f, &in_guard) || f.id != s.id || in_guard) ++bad;
      std::this_thread::yield();
    }
    stack_free(s);
  });
  std::array<std::thread, 4> threads;
  for (std::size_t i = 0; i < threads.size(); ++i) threads[i] = std::thread(worker, i + 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  stop = true;
  for (std::thread& t : threads) t.join();
  monitor.join();
  finder.join();
  EXPECT_EQ(bad.load(), 0);
  const stack_stats st = get_stack_stats();
  EXPECT_EQ(st.slots, st.in_use + st.free);
}

}  // namespace
}  // namespace weft::rt
