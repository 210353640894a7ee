// SPDX-License-Identifier: Apache-2.0
// Guards: each way of making them, real overflows with frames up to 60 KiB, and what happens when
// there are no more to be had. Overflows run in children whose SIGSEGV handler asks find_stack.
#include <array>
#include <vector>

#include "unit/stack/support.h"

namespace weft::rt {
namespace {

using namespace stack_test;
using testing::guard_mode;

class StackGuard : public StackTest {};

TEST_F(StackGuard, TheKernelsBestIsChosen) {
  const child_result r = in_child([] {
    testing::force_guard_mode(guard_mode::automatic);
    testing::forget_pools();
    const stack_stats before = get_stack_stats();
    const stack s = stack_alloc(default_slot);
    const stack_stats after = get_stack_stats();
    CHILD_CHECK(!is_readable(s.base));
    CHILD_CHECK(!is_readable(s.lo - 1));
    CHILD_CHECK(is_readable(s.lo));
    CHILD_CHECK(is_readable(s.hi - 1));
    CHILD_CHECK(after.guards_missing == before.guards_missing);
    const std::size_t slots = after.slots - before.slots;
    if (kernel_has_guards()) {
      CHILD_CHECK(after.guards_madvise - before.guards_madvise == slots);
    } else {
      CHILD_CHECK(after.guards_mprotect - before.guards_mprotect ==
                  slots);  // an emulator's yes is not believed
    }
  });
  EXPECT_EQ(r.exit_status, 0) << r.err;
  EXPECT_EQ(r.err, "");
}

TEST_F(StackGuard, MprotectInstead) {
  const child_result r = in_child([] {
    testing::force_guard_mode(guard_mode::mprotect);
    testing::forget_pools();
    const stack_stats before = get_stack_stats();
    std::array<stack, 40> s;
    for (stack& x : s) {
      x = stack_alloc(default_slot);
      CHILD_CHECK(!is_readable(x.base));
      CHILD_CHECK(!is_readable(x.lo - 1));
      byte_at(x.lo) = 1;
    }
    const stack_stats after = get_stack_stats();
    CHILD_CHECK(after.guards_mprotect - before.guards_mprotect == after.slots - before.slots);
    CHILD_CHECK(after.guards_madvise == before.guards_madvise);
  });
  EXPECT_EQ(r.exit_status, 0) << r.err;
}

TEST_F(StackGuard, NoneAtAllStillGivesStacks) {
  const child_result r = in_child([] {
    testing::force_guard_mode(guard_mode::none);
    testing::forget_pools();
    const stack s = stack_alloc(default_slot);
    CHILD_CHECK(is_readable(s.base));
    CHILD_CHECK(get_stack_stats().guards_missing > 0);
  });
  EXPECT_EQ(r.exit_status, 0) << r.err;
}

TEST_F(StackGuard, GuardsSurviveAForkAndATrim) {
  const stack s = stack_alloc(default_slot);
  stack_trim(s);
  EXPECT_FALSE(is_readable(s.lo - 1));
  EXPECT_EQ(in_child([&] { CHILD_CHECK(!is_readable(s.lo - 1)); }).exit_status, 0);
  stack_free(s);
}

// --- overflows ---

stack running;

constexpr int caught_in_guard = 77;
constexpr int caught_elsewhere = 78;

void on_fault(int, siginfo_t* info, void*) {
  stack f;
  bool in_guard = false;
  const bool found = find_stack(reinterpret_cast<std::uintptr_t>(info->si_addr), &f, &in_guard);
  ::_exit(found && in_guard && f.base == running.base ? caught_in_guard : caught_elsewhere);
}

void catch_faults() {
  static char alt[64 * kib];
  stack_t ss{};
  ss.ss_sp = alt;
  ss.ss_size = sizeof alt;
  ::sigaltstack(&ss, nullptr);
  struct sigaction sa {};
  sa.sa_sigaction = on_fault;
  sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGSEGV, &sa, nullptr);
  ::sigaction(SIGBUS, &sa, nullptr);
}

// A frame that only its lowest bytes are written of, as if it were a buffer filled from the start.
template <std::size_t Size>
[[gnu::noinline]] int big_frame(int x) {
  char buf[Size];
  std::memset(buf, x, 64);
  asm volatile("" ::"r"(buf) : "memory");
  return buf[3];
}

int (*at_the_bottom)(int);

[[gnu::noinline]] int recurse(std::uintptr_t n) {
  char pad[1000];
  pad[0] = static_cast<char>(n);
  asm volatile("" ::"r"(pad) : "memory");
  if (n == 0) return at_the_bottom(pad[0]);
  return recurse(n - 1) + pad[0];
}

int nothing_more(int x) { return x; }

void enter(std::uintptr_t depth) { recurse(depth); }

// Runs `depth` frames of 1 KiB and then `last` on a stack with 64 KiB, with an unused stack below.
child_result overflow(guard_mode mode, int (*last)(int), std::uintptr_t depth) {
  return in_child([=] {
    testing::force_guard_mode(mode);
    testing::forget_pools();
    std::array<stack, 2> s;
    CHILD_CHECK(stack_alloc_batch(stack_slot_size(128 * kib), s.data(), 2) == 2);
    CHILD_CHECK(s[0].hi == s[1].base);
    running = s[1];
    at_the_bottom = last;
    catch_faults();
    run_on(running, enter, depth);
    CHILD_CHECK(resident_pages({s[0].lo, s[0].hi - s[0].lo}) ==
                0);  // nobody wrote into the neighbour
  });
}

class StackOverflow : public StackTest, public ::testing::WithParamInterface<guard_mode> {};

TEST_P(StackOverflow, RunawayRecursionHitsTheGuard) {
  EXPECT_EQ(overflow(GetParam(), nothing_more, 1000000).exit_status, caught_in_guard);
}

TEST_P(StackOverflow, ByDefaultItIsTheSignalThatEndsTheProcess) {
  if (sanitized) GTEST_SKIP() << "the sanitizer has a handler of its own";
  const child_result r = in_child([&] {
    testing::force_guard_mode(GetParam());
    testing::forget_pools();
    at_the_bottom = nothing_more;
    ::signal(SIGSEGV, SIG_DFL);
    run_on(stack_alloc(default_slot), enter, 1000000);
  });
  EXPECT_EQ(r.signal, SIGSEGV);
}

// Every depth either fits or is caught in the guard, whatever the last frame steps over.
TEST_P(StackOverflow, LargeFramesDoNotStepOverTheGuard) {
  for (auto last : {big_frame<16 * 1024>, big_frame<60 * 1024>}) {
    int caught = 0;
    for (std::uintptr_t depth = 0; depth < 60; depth += sanitized ? 7 : 2) {
      const child_result r = overflow(GetParam(), last, depth);
      ASSERT_TRUE(r.exit_status == 0 || r.exit_status == caught_in_guard)
          << "depth " << depth << " status " << r.exit_status << " signal " << r.signal << r.err;
      caught += r.exit_status == caught_in_guard;
    }
    EXPECT_GT(caught, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, StackOverflow,
                         ::testing::Values(guard_mode::automatic, guard_mode::mprotect),
                         [](const auto& p) {
                           return p.param == guard_mode::automatic ? "automatic" : "mprotect";
                         });

// --- past vm.max_map_count ---

// One area that merges with no neighbour; false when there are no more to be had.
bool make_area(int i) {
  const int prot = i % 2 != 0 ? PROT_READ : PROT_NONE;
  return ::mmap(nullptr, page_size(), prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

TEST_F(StackGuard, PastTheMappingsWarnsOnceAndLeavesRoomForOthers) {
  if (max_map_count() > 70000) GTEST_SKIP() << "vm.max_map_count is " << max_map_count();
  const child_result r = in_child([] {
    constexpr std::size_t n = 40000;
    testing::force_guard_mode(guard_mode::mprotect);
    testing::set_mprotect_budget(0);
    testing::forget_pools();
    for (int i = 0; i < 10000; ++i) make_area(i);  // the program has mappings too
    const stack_stats before = get_stack_stats();
    for (std::size_t i = 0; i < n; ++i) {
      const stack s = stack_alloc(default_slot);
      if (i % 1000 == 0) byte_at(s.lo) = 1;
      if (i % 1000 == 0) byte_at(stack_top(s) - 1) = 1;
    }
    const stack_stats after = get_stack_stats();
    CHILD_CHECK(after.in_use - before.in_use == n);
    const std::size_t guarded = after.guards_mprotect - before.guards_mprotect;
    CHILD_CHECK(guarded + after.guards_missing - before.guards_missing ==
                after.slots - before.slots);
    CHILD_CHECK(guarded > max_map_count() / 3);
    // Threads and large mallocs of the program still find a mapping.
    for (int i = 0; i < 5000; ++i) CHILD_CHECK(make_area(i));
  });
  EXPECT_EQ(r.exit_status, 0) << r.err;
  EXPECT_EQ(count(r.err, "runtime: vm.max_map_count ("), 1U) << r.err;
  EXPECT_EQ(count(r.err, "\n"), 1U) << r.err;
}

TEST_F(StackGuard, WhereTheKernelSaysNoStacksGoWithout) {
  if (max_map_count() > 70000) GTEST_SKIP() << "vm.max_map_count is " << max_map_count();
  if (sanitized || emulated()) GTEST_SKIP() << "the mappings are not ours alone";
  const child_result r = in_child([] {
    testing::force_guard_mode(guard_mode::mprotect);
    testing::set_mprotect_budget(0);
    testing::forget_pools();
    stack_alloc(default_slot);  // makes the chunk
    const stack_stats before = get_stack_stats();
    for (int i = 0; make_area(i); ++i) {
    }
    for (int i = 0; i < 200; ++i) byte_at(stack_top(stack_alloc(default_slot)) - 1) = 1;
    const stack_stats after = get_stack_stats();
    CHILD_CHECK(after.guards_missing > before.guards_missing);
  });
  EXPECT_EQ(r.exit_status, 0) << r.err;
  EXPECT_EQ(count(r.err, "runtime: vm.max_map_count ("), 1U) << r.err;
}

TEST_F(StackGuard, HugeStacksGiveTheirShareBack) {
  const child_result r = in_child([] {
    testing::force_guard_mode(guard_mode::mprotect);
    testing::set_mprotect_budget(50);
    testing::forget_pools();
    for (int i = 0; i < 100; ++i) {
      std::array<stack, 10> s;
      for (stack& x : s) x = stack_alloc(stack_slot_size(64 * mib));
      stack_free_batch(s.data(), s.size());
    }
    CHILD_CHECK(get_stack_stats().guards_missing == 0);
  });
  EXPECT_EQ(r.exit_status, 0) << r.err;
}

}  // namespace
}  // namespace weft::rt
