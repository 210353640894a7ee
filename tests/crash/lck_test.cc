// SPDX-License-Identifier: Apache-2.0
// LCK and SYS: what ends or would hang the process.
#include <csignal>
#include <gtest/gtest.h>
#include <regex>

#include "support/process.h"

namespace weft::test {
namespace {

TEST(Conformance, LCK_03_a_locked_goexit_of_main_parks_the_thread_of_run) {
  const outcome o = run_crash("locked_main", {"goexit"}, std::chrono::seconds(20));
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_EQ(o.out, "alive\n") << o;
}

TEST(Conformance, SYS_01_thread_exhaustion) {
  for (const char* how : {"locked", "blocking", "asleep"}) {
    const outcome o = run_crash("threads", {how}, std::chrono::seconds(20));
    EXPECT_EQ(o.status, 2) << how << o;
    EXPECT_EQ(
        o.err.rfind("runtime: program exceeds 10-thread limit\nfatal error: thread exhaustion", 0),
        0U)
        << how << o;
  }
}

// Who computes is stopped by giving its P to another thread; without one the others would wait.
TEST(Conformance, SYS_01_thread_exhaustion_by_computing) {
  const outcome o = run_crash("threads", {"hogs"}, std::chrono::seconds(60));
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_EQ(
      o.err.rfind("runtime: program exceeds 10-thread limit\nfatal error: thread exhaustion", 0),
      0U)
      << o;
}

TEST(Conformance, SYS_01_no_thread_to_be_had) {
  const std::regex text(
      "^runtime: failed to create new OS thread \\(have \\d+ already; errno=11\\)\n"
      "runtime: may need to increase max user processes \\(ulimit -u\\)\n"
      "fatal error: newosproc\n");
  for (const char* how : {"none-at-start", "none-for-timers", "none-later"}) {
    const outcome o = run_crash("threads", {how}, std::chrono::seconds(20));
    EXPECT_EQ(o.status, 2) << how << o;
    EXPECT_TRUE(std::regex_search(o.err, text)) << how << o;
  }
}

TEST(Conformance, SYS_01_at_the_limit_is_not_past_it) {
  for (const char* how : {"hogs_that_end", "hogs_alone"}) {
    const outcome o = run_crash("threads", {how}, std::chrono::seconds(60));
    EXPECT_EQ(o.status, 0) << how << o;
    EXPECT_EQ(o.out, "had its turn\n") << how << o;
  }
}

TEST(Conformance, SYS_01_a_large_limit_does_not_overflow) {
  const outcome o = run_crash("threads", {"large"}, std::chrono::seconds(20));
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_EQ(o.out, "10000 2147483648\n") << o;
}

TEST(Conformance, SYS_04_an_unhandled_signal_ends_the_process) {
  const outcome o = run_crash("threads", {"sigterm"}, std::chrono::seconds(20));
  EXPECT_EQ(o.signal, SIGTERM) << o;
}

TEST(Conformance, SYS_04_an_ignored_signal_is_ignored) {
  const outcome o = run_crash("threads", {"sigtrap"}, std::chrono::seconds(20));
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_EQ(o.out, "ignored\n") << o;
}

}  // namespace
}  // namespace weft::test
