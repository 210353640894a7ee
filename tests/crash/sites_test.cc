// SPDX-License-Identifier: Apache-2.0
// A report names the user's place: function, file and line of a throw, a wait and a `go`.
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include "support/process.h"

namespace weft::test {
namespace {

// "sites.cc:N", N the line of the program with this text.
std::string line_of(const std::string& text) {
  std::ifstream source(WEFT_CRASH_SOURCES "/sites.cc");
  std::string line;
  for (int n = 1; std::getline(source, line); ++n) {
    if (line.find(text) != std::string::npos) return "sites.cc:" + std::to_string(n) + " ";
  }
  return "no such line";
}

TEST(Sites, ALambdaInABlockOfMain) {
  const outcome o = run_crash("sites", {"local-lambda"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_NE(o.err.find(line_of("// waits here")), std::string::npos) << o;
  const std::size_t created = o.err.find("created by main::");
  ASSERT_NE(created, std::string::npos) << o;
  EXPECT_NE(o.err.find(line_of("// started here"), created), std::string::npos) << o;
  EXPECT_EQ(o.err.find("_Z"), std::string::npos) << o;
}

// Not the one that threw first, whose clean-ups never end.
TEST(Sites, WhoeverReportsShowsItsOwnThrow) {
  const outcome o = run_crash("sites", {"second-thrower-reports"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(o.err.starts_with("panic: second\n")) << o;
  EXPECT_NE(o.err.find("throw_second()\n"), std::string::npos) << o;
  EXPECT_EQ(o.err.find("weft::rt::"), std::string::npos) << o;
}

TEST(Sites, AThrowInAWaitGroup) {
  const outcome o = run_crash("sites", {"wait-group"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(o.err.starts_with("panic: first\n")) << o;
  EXPECT_NE(o.err.find("throw_first()\n"), std::string::npos) << o;
  EXPECT_EQ(o.err.find("rethrow"), std::string::npos) << o;
}

TEST(Sites, AParkOnTheSystemStack) {
  const outcome o = run_crash("sites", {"parks-on-the-system-stack"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_NE(o.err.find("park_down_there()\n"), std::string::npos) << o;
  EXPECT_NE(o.err.find("\nmain::"), std::string::npos) << o;  // and below, on its own stack
  EXPECT_EQ(o.err.find("weft::rt::"), std::string::npos) << o;
}

}  // namespace
}  // namespace weft::test
