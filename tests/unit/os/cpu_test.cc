// SPDX-License-Identifier: Apache-2.0
// os/cpu.h: counting masks, and the mask of this very thread. Runs on the test's own thread; every
// test that narrows the affinity puts it back.
#include "os/cpu.h"

#include <array>
#include <cerrno>
#include <gtest/gtest.h>
#include <sched.h>
#include <thread>

namespace weft::rt {
namespace {

using mask_bytes = std::array<unsigned char, max_cpus / 8>;

TEST(Cpu, CountsOnlyWhatTheKernelWrote) {
  mask_bytes mask{};
  mask[0] = 0b1011;
  mask[7] = 0x80;
  mask[8] = 0xff;  // stale bytes past the answer
  EXPECT_EQ(count_allowed(mask, 8), 4);
  EXPECT_EQ(count_allowed(mask, 16), 12);
}

TEST(Cpu, CountsTheLargestMachine) {
  mask_bytes mask;
  mask.fill(0xff);
  EXPECT_EQ(count_allowed(mask, static_cast<long>(mask.size())), max_cpus);
  EXPECT_EQ(count_allowed(mask, 1L << 20), max_cpus);  // never past the buffer
}

TEST(Cpu, ErrorsAndEmptyMasksCountAsOne) {
  mask_bytes mask{};
  EXPECT_EQ(count_allowed(mask, 8), 1);
  mask.fill(0xff);
  EXPECT_EQ(count_allowed(mask, 0), 1);
  EXPECT_EQ(count_allowed(mask, -1), 1);
}

TEST(Cpu, AgreesWithTheAffinityOfTheThread) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(online_cpus_allowed(), CPU_COUNT(&before));

  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(online_cpus_allowed(), 1);

  // A new thread inherits the mask; what it does to its own does not touch ours.
  std::thread([&before] {
    EXPECT_EQ(online_cpus_allowed(), 1);
    ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
    EXPECT_EQ(online_cpus_allowed(), CPU_COUNT(&before));
  }).join();
  EXPECT_EQ(online_cpus_allowed(), 1);

  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(online_cpus_allowed(), CPU_COUNT(&before));
}

TEST(Cpu, LeavesErrnoAlone) {
  errno = 1234;
  EXPECT_GE(online_cpus_allowed(), 1);
  EXPECT_EQ(errno, 1234);
}

}  // namespace
}  // namespace weft::rt
