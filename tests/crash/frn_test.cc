// SPDX-License-Identifier: Apache-2.0
// FRN: what ends the process, or happens at its end, when a host calls in. The rest is in
// tests/conformance/frn_test.cc.
#include <csignal>
#include <gtest/gtest.h>

#include "support/effort.h"
#include "support/process.h"

namespace weft::test {
namespace {

TEST(Conformance, FRN_05_what_a_callback_throws) {
  const outcome o = run_crash("foreign", {"panic"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(o.err.starts_with("panic: BOOM\n\ngoroutine ")) << o;
}

TEST(Conformance, FRN_05_goexit_on_a_foreign_thread) {
  const outcome o = run_crash("foreign", {"goexit"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(
      o.err.starts_with("fatal error: runtime.Goexit called in a thread that was not "
                        "created by the Go runtime\n"))
      << o;
}

TEST(Conformance, FRN_06_a_crash_on_a_foreign_thread_still_kills) {
  if (sanitized) GTEST_SKIP() << "the sanitizer reports faults itself";
  const outcome o = run_crash("foreign", {"fault-unhandled-thread"});
  EXPECT_EQ(o.signal, SIGSEGV) << o;
}

TEST(Conformance, FRN_11_a_call_from_an_elf_destructor) {
  const outcome o = run_crash("foreign", {"destructor"});
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_EQ(o.out, "42\n") << o;
}

// A fault that is not ours goes to the host, wherever it happens and whenever the host came.
TEST(Conformance, FRN_12_the_hosts_handler_gets_its_faults) {
  for (const char* how : {"fault-early-thread", "fault-early-goroutine", "fault-late"}) {
    SCOPED_TRACE(how);
    const outcome o = run_crash("foreign", {how});
    EXPECT_EQ(o.status, 7) << o;
    EXPECT_EQ(o.out, "the host's SIGSEGV\n") << o;
    EXPECT_EQ(o.err, "") << o;
  }
}

TEST(Conformance, FRN_12_ours_stay_ours) {
  const outcome o = run_crash("foreign", {"overflow-early"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_NE(o.err.find("fatal error: stack overflow\n"), std::string::npos) << o;
  EXPECT_EQ(o.out, "") << o;
}

TEST(Conformance, FRN_12_abort_reaches_the_host) {
  for (const char* how : {"abort-early", "abort-late"}) {
    SCOPED_TRACE(how);
    const outcome o = run_crash("foreign", {how});
    EXPECT_EQ(o.status, 7) << o;
    EXPECT_EQ(o.out, "the host's SIGABRT\n") << o;
  }
}

}  // namespace
}  // namespace weft::test
