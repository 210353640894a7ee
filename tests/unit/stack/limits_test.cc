// SPDX-License-Identifier: Apache-2.0
// Stacks against the limits of the machine: a million of them, locked memory, and address space
// that runs out. Everything that changes the process runs in a child.
#include <array>
#include <sys/resource.h>
#include <vector>

#include "unit/stack/support.h"

namespace weft::rt {
namespace {

using namespace stack_test;

class StackLimits : public StackTest {};

std::size_t available_kib() {
  std::FILE* f = std::fopen("/proc/meminfo", "r");
  std::size_t kb = 0;
  char line[256];
  while (f != nullptr && std::fgets(line, sizeof line, f) != nullptr) {
    if (std::sscanf(line, "MemAvailable: %zu kB", &kb) == 1) break;
  }
  if (f != nullptr) std::fclose(f);
  return kb;
}

TEST_F(StackLimits, AMillionStacksWithAPageEach) {
  // 100 000 make no real difference to the figure, but then nobody would believe the name.
  std::size_t n = sanitized || emulated() ? 20000 : 1000000;
  if (available_kib() < 6 * 1024 * 1024) n = std::min<std::size_t>(n, available_kib() / 16);
  const child_result r = in_child([n] {
    testing::forget_pools();
    std::vector<stack> s(n);
    for (stack& x : s) x.colour = 1;
    const std::size_t before = status_kib("VmRSS:") + status_kib("VmPTE:");
    for (std::size_t i = 0; i < n;)
      i += stack_alloc_batch(default_slot, &s[i], std::min<std::size_t>(32, n - i));
    for (const stack& x : s) byte_at(stack_top(x) - 8) = 1;
    const double each = static_cast<double>(status_kib("VmRSS:") + status_kib("VmPTE:") - before) /
                        static_cast<double>(n);
    std::fprintf(stderr, "%zu stacks, %.3f KiB each\n", n, each);
    CHILD_CHECK(get_stack_stats().guards_missing == 0);
    for (std::size_t i = 0; i < n; i += 1001) CHILD_CHECK(!is_readable(s[i].lo - 1));
    if (!sanitized && !emulated()) CHILD_CHECK(each <= 4.7);
    stack f;
    bool in_guard = false;
    CHILD_CHECK(find_stack(s[n - 1].base, &f, &in_guard) && in_guard && f.id == s[n - 1].id);
  });
  EXPECT_EQ(r.exit_status, 0) << r.err;
  RecordProperty("result", r.err);
}

// --- locked memory ---

TEST_F(StackLimits, UnderMlockallAChunkStaysAbsentAndGuarded) {
  if (sanitized || emulated()) GTEST_SKIP() << "would lock the shadow or the emulator";
  const child_result r = in_child([] {
    testing::forget_pools();
    if (::mlockall(MCL_CURRENT | MCL_FUTURE) != 0) ::_exit(3);
    const std::size_t before = status_kib("VmRSS:");
    const stack_stats stats = get_stack_stats();
    std::array<stack, 100> s;
    for (stack& x : s) {
      x = stack_alloc(default_slot);
      byte_at(stack_top(x) - 1) = 1;
      CHILD_CHECK(!is_readable(x.lo - 1));
    }
    CHILD_CHECK(status_kib("VmRSS:") - before < 2048);  // 100 pages and some tables, not 64 MiB
    const stack_stats after = get_stack_stats();
    CHILD_CHECK(after.guards_missing == stats.guards_missing);
    if (kernel_has_guards()) CHILD_CHECK(after.guards_mprotect == stats.guards_mprotect);
    const stack huge = stack_alloc(stack_slot_size(64 * mib));
    CHILD_CHECK(!is_readable(huge.lo - 1));
    CHILD_CHECK(status_kib("VmRSS:") - before < 2048);
  });
  if (r.exit_status == 3) GTEST_SKIP() << "no mlockall here";
  EXPECT_EQ(r.exit_status, 0) << r.err;
}

TEST_F(StackLimits, MlockallInTheMiddleOfAChunk) {
  if (sanitized || emulated()) GTEST_SKIP() << "would lock the shadow or the emulator";
  const child_result r = in_child([] {
    testing::forget_pools();
    const stack first = stack_alloc(default_slot);
    if (::mlockall(MCL_CURRENT) != 0) ::_exit(3);
    const stack_stats before = get_stack_stats();
    std::array<stack, 100> s;
    for (stack& x : s) {
      x = stack_alloc(default_slot);
      CHILD_CHECK(!is_readable(x.lo - 1));
    }
    const stack_stats after = get_stack_stats();
    CHILD_CHECK(after.guards_missing == before.guards_missing);
    if (kernel_has_guards()) CHILD_CHECK(after.guards_mprotect == before.guards_mprotect);
    // A locked stack can be trimmed too.
    for (std::uintptr_t a = first.lo; a < first.hi; a += page_size()) byte_at(a) = 1;
    stack_trim(first);
    CHILD_CHECK(resident_pages({first.lo, first.hi - first.lo}) == 1);
  });
  if (r.exit_status == 3) GTEST_SKIP() << "no mlockall here";
  EXPECT_EQ(r.exit_status, 0) << r.err;
}

// A user may lock 8 MiB: a mapping of 64 MiB, born locked, is refused; smaller ones are unlocked at
// once.
TEST_F(StackLimits, UnderMlockallWithASmallLimitChunksGetSmaller) {
  if (sanitized || emulated()) GTEST_SKIP() << "would lock the shadow or the emulator";
  const child_result r = in_child([] {
    testing::forget_pools();
    const rlimit l{8 * mib, 8 * mib};
    if (::setrlimit(RLIMIT_MEMLOCK, &l) != 0) ::_exit(3);
    if (::getuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(3);
    if (::mlockall(MCL_FUTURE) != 0) ::_exit(3);
    const stack_stats before = get_stack_stats();
    for (int i = 0; i < 200; ++i) byte_at(stack_top(stack_alloc(default_slot)) - 1) = 1;
    const stack_stats after = get_stack_stats();
    CHILD_CHECK(after.chunks - before.chunks > 1);
    CHILD_CHECK(after.guards_missing == before.guards_missing);
    stack_alloc(stack_slot_size(64 * mib));  // cannot be divided
  });
  if (r.exit_status == 3) GTEST_SKIP() << "no mlockall here";
  EXPECT_EQ(r.exit_status, 2) << r.err;
  EXPECT_NE(r.err.find("KiB for a goroutine stack (200 stacks in use"), r.err.npos) << r.err;
  EXPECT_NE(r.err.find("RLIMIT_MEMLOCK (ulimit -l) allows only 8192 KiB\n"), r.err.npos) << r.err;
}

// --- exhaustion ---

// Sets a limit 200 MiB above what is in use and allocates until the end.
child_result run_out(int limit, const char* in_use) {
  return in_child([=] {
    testing::forget_pools();
    const std::size_t most = status_kib(in_use) * kib + 200 * mib;
    const rlimit l{most, most};
    rlimit seen{};
    const auto which = static_cast<__rlimit_resource>(limit);
    if (::setrlimit(which, &l) != 0 || ::getrlimit(which, &seen) != 0 || seen.rlim_cur != most)
      ::_exit(3);
    for (int i = 0; i < 100000; ++i) stack_alloc(default_slot);
  });
}

void expect_explained(const child_result& r, const char* limit) {
  EXPECT_EQ(r.exit_status, 2) << r.err;
  EXPECT_EQ(r.err.find("runtime: cannot reserve 256 KiB for a goroutine stack ("), 0U) << r.err;
  EXPECT_NE(r.err.find(limit), r.err.npos) << r.err;
  EXPECT_NE(r.err.find("\nfatal error: out of memory for goroutine stacks\n"), r.err.npos) << r.err;
  // Nearly all of it was used, in smaller and smaller chunks.
  std::size_t in_use = 0;
  EXPECT_EQ(
      std::sscanf(r.err.c_str(),
                  "runtime: cannot reserve 256 KiB for a goroutine stack (%zu stacks", &in_use),
      1);
  EXPECT_GE(in_use, 780U);
  EXPECT_LE(in_use, 800U);
}

TEST_F(StackLimits, RunningOutOfAddressSpaceSaysSo) {
  if (sanitized) GTEST_SKIP() << "the shadow needs address space";
  const child_result r = run_out(RLIMIT_AS, "VmSize:");
  if (r.exit_status == 3) GTEST_SKIP() << "the limit cannot be set here";
  expect_explained(r, "RLIMIT_AS (ulimit -v) allows ");
}

// Refused where the chunk is made writable, as under strict overcommit.
TEST_F(StackLimits, RunningOutOfDataSaysSo) {
  if (sanitized) GTEST_SKIP() << "the shadow counts as data";
  const child_result r = run_out(RLIMIT_DATA, "VmData:");
  if (r.exit_status == 3) GTEST_SKIP() << "the limit cannot be set here";
  expect_explained(r, "RLIMIT_DATA (ulimit -d) allows ");
}

TEST_F(StackLimits, RunningOutOfMappingsSaysSo) {
  if (max_map_count() > 70000) GTEST_SKIP() << "vm.max_map_count is " << max_map_count();
  if (sanitized || emulated()) GTEST_SKIP() << "the mappings are not ours alone";
  const child_result r = in_child([] {
    testing::forget_pools();
    for (int i = 0;; ++i) {
      void* p = ::mmap(nullptr, page_size(), i % 2 != 0 ? PROT_READ : PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (p == MAP_FAILED) break;
    }
    stack_alloc(default_slot);
  });
  EXPECT_EQ(r.exit_status, 2) << r.err;
  EXPECT_NE(r.err.find("vm.max_map_count allows "), r.err.npos) << r.err;
}

TEST_F(StackLimits, OneStackTooLargeSaysSo) {
  if (sanitized) GTEST_SKIP() << "the shadow needs address space";
  const child_result r = in_child([] {
    const rlimit l{std::size_t{1} << 39, std::size_t{1} << 39};
    rlimit seen{};
    if (::setrlimit(RLIMIT_AS, &l) != 0 || ::getrlimit(RLIMIT_AS, &seen) != 0 ||
        seen.rlim_cur != l.rlim_cur)
      ::_exit(3);
    stack_alloc(stack_slot_size(std::size_t{1} << 40));
  });
  if (r.exit_status == 3) GTEST_SKIP() << "the limit cannot be set here";
  EXPECT_EQ(r.exit_status, 2) << r.err;
  EXPECT_NE(r.err.find("cannot reserve 1073741888 KiB for a goroutine stack"), r.err.npos) << r.err;
}

TEST_F(StackLimits, SmallChunksWork) {
  testing::forget_pools();
  for (std::size_t most : {std::size_t{1}, mib, 5 * mib}) {
    testing::set_max_chunk_bytes(most);
    std::vector<stack> s(100);
    for (stack& x : s) x = stack_alloc(default_slot);
    for (const stack& x : s) {
      stack f;
      bool in_guard = false;
      EXPECT_TRUE(find_stack(x.lo, &f, &in_guard));
      EXPECT_EQ(f.id, x.id);
      EXPECT_FALSE(is_readable(x.lo - 1));
    }
    stack_free_batch(s.data(), s.size());
    testing::forget_pools();
  }
  testing::set_max_chunk_bytes(0);
}

}  // namespace
}  // namespace weft::rt
