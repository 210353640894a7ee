// SPDX-License-Identifier: Apache-2.0
// STW: what would hang if it went wrong, as programs of their own with a limit.
#include <gtest/gtest.h>

#include "support/process.h"

namespace weft::test {
namespace {

TEST(Conformance, STW_02_run_returns_after_main_has_stopped_the_world) {
  for (const char* how : {"nothing", "audit", "grow", "shrink"}) {
    SCOPED_TRACE(how);
    const outcome o = run_crash("resize_by_main", {how}, std::chrono::seconds(20));
    EXPECT_EQ(o.status, 0) << o;
    EXPECT_EQ(o.out, "returned\n") << o;
    EXPECT_EQ(o.err, "") << o;
  }
}

}  // namespace
}  // namespace weft::test
