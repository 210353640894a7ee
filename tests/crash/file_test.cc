// SPDX-License-Identifier: Apache-2.0
// Files where the kernel keeps io_uring from us.
#include <gtest/gtest.h>

#include "support/process.h"

namespace weft::test {
namespace {

TEST(File, WorksWithoutUring) {
  const outcome o = run_crash("file_without_uring", {}, std::chrono::seconds(60));
  EXPECT_EQ(o.status, 0) << o;
  if (o.out == "no seccomp\n") GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(o.out, "1000 1049\n") << o;
}

}  // namespace
}  // namespace weft::test
