// SPDX-License-Identifier: Apache-2.0
// WEFT_DEBUG=leakcheck=1: what is leaked when main returns is reported, and the program's status
// stays its own.
#include <cstdlib>
#include <gtest/gtest.h>

#include "support/leaking.h"
#include "support/process.h"

namespace weft::test {
namespace {

struct with_setting {
  explicit with_setting(const char* v) { ::setenv("WEFT_DEBUG", v, 1); }
  ~with_setting() { ::unsetenv("WEFT_DEBUG"); }
};

TEST(Conformance, LEK_06_at_the_end_of_the_run) {
  if (cannot_find_leaks) GTEST_SKIP();
  const with_setting on("leakcheck=1");
  const outcome o = run_crash("leakcheck", {"leak"});
  EXPECT_EQ(o.status, 7) << o;
  EXPECT_TRUE(o.err.starts_with("goroutineleak profile: total 1\n1 @ 0x")) << o;
  EXPECT_NE(o.err.find("\"lost\" [chan receive (leaked)]:\n"), std::string::npos) << o;
  EXPECT_NE(o.err.find("created by "), std::string::npos) << o;
  EXPECT_NE(o.err.find("forgotten"), std::string::npos) << o;
}

TEST(Conformance, LEK_06_nothing_is_said_where_nothing_is_leaked) {
  {
    const with_setting on("leakcheck=1");
    const outcome o = run_crash("leakcheck", {"none"});
    EXPECT_EQ(o.status, 7) << o;
    EXPECT_EQ(o.err, "") << o;
  }
  const outcome o = run_crash("leakcheck", {"leak"});
  EXPECT_EQ(o.status, 7) << o;
  EXPECT_EQ(o.err, "") << o;
}

}  // namespace
}  // namespace weft::test
