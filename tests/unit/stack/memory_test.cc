// SPDX-License-Identifier: Apache-2.0
// os/memory.h: mappings, advice in batches, residence, the question whether an address can be read.
#include "os/memory.h"

#include <array>
#include <vector>

#include "unit/stack/support.h"

namespace weft::rt {
namespace {

using namespace stack_test;

TEST(Memory, ReservedIsNoMemoryUntilAllowed) {
  const std::size_t bytes = 16 * page_size();
  const mapping m = map_reserved(bytes);
  ASSERT_TRUE(m);
  const memory_range r{m.addr, bytes};
  EXPECT_FALSE(is_readable(m.addr));
  EXPECT_EQ(allow_access(r), 0);
  EXPECT_TRUE(is_readable(m.addr));
  byte_at(m.addr) = 1;
  EXPECT_EQ(resident_pages(r), 1U);
  EXPECT_EQ(forbid_access(r), 0);
  EXPECT_FALSE(is_readable(m.addr));
  EXPECT_EQ(unmap(r), 0);
}

TEST(Memory, ErrorsAreValuesAndErrnoStays) {
  errno = 4711;
  EXPECT_FALSE(map_reserved(~std::size_t{0} / 2));
  EXPECT_EQ(map_reserved(~std::size_t{0} / 2).err, ENOMEM);
  EXPECT_EQ(unmap({1, 1}), EINVAL);
  EXPECT_EQ(advise({page_size() + 1, page_size()}, MADV_DONTNEED), EINVAL);
  EXPECT_FALSE(is_readable(8));
  EXPECT_EQ(resident_pages({page_size(), page_size()}), 0U);
  EXPECT_GT(max_map_count(), 1000U);
  EXPECT_EQ(errno, 4711);
}

TEST(Memory, AskingWhetherAnAddressCanBeReadChangesNothing) {
  sigset_t before, after;
  ::sigprocmask(SIG_SETMASK, nullptr, &before);
  std::array<unsigned char, 64> all;
  all.fill(0xff);
  EXPECT_TRUE(is_readable(reinterpret_cast<std::uintptr_t>(all.data())));
  ::sigprocmask(SIG_SETMASK, nullptr, &after);
  for (int s = 1; s < 64; ++s) EXPECT_EQ(sigismember(&before, s), sigismember(&after, s));
}

TEST(Memory, AdviceInBatchesReachesEveryRange) {
  const std::size_t page = page_size();
  const mapping m = map_memory(400 * page);
  ASSERT_TRUE(m);
  for (std::size_t n : {1U, 2U, 31U, 32U, 33U, 100U, 200U}) {
    for (std::size_t i = 0; i < 400; ++i) byte_at(m.addr + i * page) = 1;
    std::vector<memory_range> r;
    for (std::size_t i = 0; i < n; ++i) r.push_back({m.addr + 2 * i * page, page});
    std::size_t done = 0;
    EXPECT_EQ(advise_ranges(r.data(), n, MADV_DONTNEED, &done), 0);
    EXPECT_EQ(done, n);
    EXPECT_EQ(resident_pages({m.addr, 400 * page}), 400 - n);
  }
  unmap({m.addr, 400 * page});
}

TEST(Memory, ABatchStopsAtTheRangeThatFailsAndSaysWhich) {
  const std::size_t page = page_size();
  const mapping m = map_memory(100 * page);
  ASSERT_TRUE(m);
  for (std::size_t bad : {0U, 1U, 7U, 40U, 49U}) {
    std::vector<memory_range> r;
    for (std::size_t i = 0; i < 50; ++i) r.push_back({m.addr + 2 * i * page, page});
    r[bad].addr += 1;  // not a page's address
    std::size_t done = 99;
    EXPECT_EQ(advise_ranges(r.data(), r.size(), MADV_DONTNEED, &done), EINVAL);
    EXPECT_EQ(done, bad);
  }
  unmap({m.addr, 100 * page});
}

TEST(Memory, ResidenceIsCountedAcrossWindows) {
  const std::size_t page = page_size();
  const mapping m = map_memory(2000 * page);
  ASSERT_TRUE(m);
  advise({m.addr, 2000 * page}, MADV_NOHUGEPAGE);
  for (std::size_t i = 0; i < 2000; i += 3) byte_at(m.addr + i * page) = 1;
  EXPECT_EQ(resident_pages({m.addr, 2000 * page}), 667U);
  unmap({m.addr, 2000 * page});
}

}  // namespace
}  // namespace weft::rt
