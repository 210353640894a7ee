// SPDX-License-Identifier: Apache-2.0
// STK: overflow is named and traced; any other fault reaches whom it is meant for.
#include <csignal>
#include <gtest/gtest.h>
#include <regex>
#include <string>

#include "support/effort.h"
#include "support/process.h"

namespace weft::test {
namespace {

TEST(Conformance, STK_01_overflow_of_main) {
  const outcome o = run_crash("overflow", {"main"});
  EXPECT_EQ(o.status, 2) << o;
  const std::regex head(
      "^runtime: goroutine stack exceeds 1474560-byte limit\n"
      "runtime: sp=0x[0-9a-f]+ stack=\\[0x[0-9a-f]+, 0x[0-9a-f]+\\]\n"
      "fatal error: stack overflow\n\n"
      "goroutine 1 \\[running\\]:\n.*deep\\(\\)\n\t/.*/overflow\\.cc:\\d+ \\+0x");
  EXPECT_TRUE(std::regex_search(o.err, head)) << o;
}

TEST(Conformance, STK_01_overflow_of_a_goroutine) {
  const outcome o = run_crash("overflow", {"goroutine"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(o.err.starts_with("runtime: goroutine stack exceeds 262144-byte limit\n")) << o;
  // Thousands of frames: 50 at either end, and how many are left out.
  EXPECT_TRUE(std::regex_search(o.err, std::regex("\n\\.\\.\\.\\d+ frames elided\\.\\.\\.\n")))
      << o;
  // The first frame too many may be that of a call which TSan has put there.
  const std::string called = under_tsan ? "(__tsan_\\w+\\(\\)\n\t.*\n)?" : "";
  EXPECT_TRUE(std::regex_search(o.err, std::regex("\ngoroutine \\d+ \"diver\" \\[running\\]:\n" +
                                                  called + ".*shallow\\(\\)\n")))
      << o;
  EXPECT_TRUE(std::regex_search(o.err, std::regex("\ncreated by main::.* in goroutine 1\n"))) << o;
}

TEST(Conformance, STK_01_a_frame_larger_than_the_guard) {
  for (const char* how : {"huge", "huge-by-call"}) {
    SCOPED_TRACE(how);
    const outcome o = run_crash("overflow", {how});
    EXPECT_EQ(o.status, 2) << o;
    const std::regex text(
        "^runtime: goroutine stack exceeds 262144-byte limit\n"
        "runtime: sp=0x[0-9a-f]+ stack=\\[0x[0-9a-f]+, 0x[0-9a-f]+\\]\n"
        "fatal error: stack overflow\n\n"
        "goroutine \\d+ \"giant\" \\[running\\]:\n(.*\n)*.*huge.*\\(\\)\n(.*\n)*"
        "created by main::.* in goroutine 1\n");
    EXPECT_TRUE(std::regex_search(o.err, text)) << o;
  }
}

std::size_t frames_of_shallow(const outcome& o) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = o.err.find("shallow()\n", at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST(Conformance, STK_05_overflow_of_the_schedulers_stack) {
  if (under_tsan) GTEST_SKIP() << "TSan cannot go on after a fault on a thread's own stack";
  const outcome o = run_crash("overflow", {"g0"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(o.err.starts_with("fatal error: morestack on g0\n\nruntime stack:\n")) << o;
  EXPECT_EQ(o.err.find("fatal error", 1), std::string::npos) << o;  // once
  EXPECT_GE(frames_of_shallow(o), 50U) << o;  // from below the end of the stack up
}

TEST(Conformance, STK_05_overflow_of_a_signal_stack) {
  if (sanitized) GTEST_SKIP() << "its handler for the first signal is another one";
  const outcome o = run_crash("overflow", {"signal"});
  EXPECT_EQ(o.status, 2) << o;
  const std::regex head(R"(^runtime: signal stack exceeds \d+-byte limit\nruntime: sp=0x[0-9a-f]+ )"
                        R"(stack=\[0x[0-9a-f]+, 0x[0-9a-f]+\]\nfatal error: stack overflow\n\n)"
                        R"(runtime stack:\n)");
  EXPECT_TRUE(std::regex_search(o.err, head)) << o;
  EXPECT_GE(frames_of_shallow(o), 20U) << o;
}

// The default action, as without us: killed by the signal.
TEST(Conformance, STK_05_other_faults_kill) {
  for (const char* how : {"null", "sent"}) {
    const outcome o = run_crash("overflow", {how});
#if !defined(WEFT_ASAN) && !defined(WEFT_TSAN)  // whose own handlers were there before us
    EXPECT_EQ(o.signal, SIGSEGV) << o;
    EXPECT_EQ(o.err, "") << o;
#else
    EXPECT_NE(o.status, 0) << o;
#endif
  }
}

TEST(Conformance, STK_05_other_faults_reach_the_programs_handler) {
  const outcome o = run_crash("overflow", {"null-handled"});
  EXPECT_EQ(o.status, 5) << o;
  EXPECT_EQ(o.out, "user's handler: 1\n") << o;
}

// A stack pointer outside the goroutine's stack is not yet an overflow.
TEST(Conformance, STK_05_faults_on_a_stack_of_the_programs_own) {
  if (under_tsan) GTEST_SKIP() << "TSan knows nothing of such stacks";
  outcome o = run_crash("overflow", {"own-stack-null"});
  EXPECT_EQ(o.status, 5) << o;
  EXPECT_EQ(o.out, "user's handler: 1\n") << o;
  o = run_crash("overflow", {"own-stack-wild"});
  EXPECT_EQ(o.status, 5) << o;
  EXPECT_EQ(o.out, "user's handler: 0\n") << o;
}

}  // namespace
}  // namespace weft::test
