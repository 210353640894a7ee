// SPDX-License-Identifier: Apache-2.0
// A run that ends beside goroutines inside libc leaves no lock of libc behind.
#include <gtest/gtest.h>
#include <string_view>

#include "support/process.h"

namespace weft::test {
namespace {

class LeftBehind : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(In, LeftBehind, ::testing::Values("malloc", "printf", "dlopen", "throw"),
                         [](const auto& i) { return std::string(i.param); });

TEST_P(LeftBehind, NothingHangsAfterwards) {
#if defined(WEFT_ASAN)
  GTEST_SKIP() << "GCC 12's ASan does not lock its allocator around a fork: the child may hang";
#endif
#if defined(WEFT_TSAN)
  if (std::string_view(GetParam()) == "dlopen")
    GTEST_SKIP() << "TSan calls handlers late: nobody can tell where a thread stands";
#endif
  const outcome o = run_crash("left_behind", {GetParam(), "50"}, std::chrono::seconds(100));
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_EQ(o.out, "alive\n") << o;
}

}  // namespace
}  // namespace weft::test
