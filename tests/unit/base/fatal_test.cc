// SPDX-License-Identifier: Apache-2.0
// base/fatal.h: the form of the report, the exit status, the hook, and that only one thread
// reports.
#include "base/fatal.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <unistd.h>

#include "base/print.h"
#include "unit/support.h"

namespace weft::rt {
namespace {

using unit_test::in_child;

TEST(Fatal, PrintsGosFormAndExitsWith2) {
  const auto end = in_child([] { fatal("the sky is falling"); });
  EXPECT_EQ(end.exit_status, 2);
  EXPECT_EQ(end.err, "fatal error: the sky is falling\n");
}

TEST(Fatal, NamesTheErrorNumber) {
  const auto end = in_child([] { fatal_errno("mmap", ENOMEM); });
  EXPECT_EQ(end.exit_status, 2);
  EXPECT_EQ(end.err, "fatal error: mmap: errno 12\n");
}

TEST(Fatal, TheHookAddsToTheReport) {
  const auto end = in_child([] {
    set_fatal_hook([](bool) noexcept { printer(2) << "and here is why\n"; });
    fatal("x");
  });
  EXPECT_EQ(end.exit_status, 2);
  EXPECT_EQ(end.err, "fatal error: x\nand here is why\n");
}

TEST(Fatal, OnlyOneThreadReports) {
  if (unit_test::tsan) GTEST_SKIP() << "no threads after a fork under TSan";
  const auto end = in_child([] {
    std::thread others[3];
    for (auto& t : others) t = std::thread([] { fatal("one of many"); });
    fatal("one of many");
  });
  EXPECT_EQ(end.exit_status, 2);
  EXPECT_EQ(end.err, "fatal error: one of many\n");
}

TEST(Fatal, DebugAssertIsThereInDevBuildsOnly) {
  [[maybe_unused]] int evaluated = 0;
  const auto end = in_child([&] {
    WEFT_DEBUG_ASSERT(evaluated++ == 0);
    WEFT_DEBUG_ASSERT(evaluated == 7);
  });
  if (unit_test::dev) {
    EXPECT_EQ(end.exit_status, 2);
    EXPECT_NE(end.err.find("fatal error: assertion failed: evaluated == 7 ("), std::string::npos)
        << end.err;
  } else {
    EXPECT_EQ(end.exit_status, 0);
    EXPECT_EQ(end.err, "");
  }
}

}  // namespace
}  // namespace weft::rt
