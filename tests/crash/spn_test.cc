// SPDX-License-Identifier: Apache-2.0
// SPN: what ends the process. Each case is a program of its own (progs/), whose output and exit
// status are compared.
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

#include "support/process.h"

namespace weft::test {
namespace {

// "fatal error: <what>" opens standard error, status 2.
void expect_fatal(const outcome& o, const std::string& what) {
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(o.err.starts_with("fatal error: " + what + "\n")) << o;
}

TEST(Conformance, SPN_02_go_of_nil) {
  for (const char* how : {"function", "pointer", "pointer-with-argument", "options", "async",
                          "scope", "after-func", "after-func-pointer", "after-cancel"}) {
    SCOPED_TRACE(how);
    const outcome o = run_crash("go_nil", {how});
    expect_fatal(o, "go of nil func value");
    EXPECT_EQ(o.out, "");
  }
}

TEST(Conformance, SPN_02_what_never_fires_needs_no_function) {
  const outcome o = run_crash("go_nil", {"stopped"});
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_EQ(o.out, "1 1\nbehind\n") << o;
}

// The first line of what the program printed: the goroutine.
std::string first_line(const std::string& s) { return s.substr(0, s.find('\n')); }

void expect_panic(const outcome& o, const std::string& text) {
  const std::string id = first_line(o.out);
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(o.err.starts_with("panic: " + text + "\n\ngoroutine " + id + " [running]:\n")) << o;
  EXPECT_EQ(o.out, id + "\n") << o;  // no terminate handler, nothing behind
}

// A goroutine that fails is about to report it when main returns, and main lets it: always.
TEST(Conformance, SPN_04_main_returns_while_another_fails) {
  for (const char* procs : {"1", "2", "3", "16"}) {
    ::setenv("WEFT_PROCS", procs, 1);
    for (int i = 0; i < 10; ++i) {
      const outcome o = run_crash("uncaught", {"", "while-main-returns"});
      EXPECT_EQ(o.status, 2) << procs << o;
      EXPECT_TRUE(o.err.starts_with("panic: crash\n\ngoroutine ")) << procs << o;
      EXPECT_NE(o.err.find("uncaught.cc:"), std::string::npos) << procs << o;
    }
  }
  ::unsetenv("WEFT_PROCS");
}

TEST(Conformance, SPN_04_uncaught_after_goexit) {
  expect_panic(run_crash("uncaught", {"after-goexit"}), "hello");
}

// The language has no way out of a destructor that an unwind runs; a clear word is what is left.
TEST(Conformance, SPN_04_goexit_in_a_cleanup) {
  outcome o = run_crash("goexit", {"while-an-exception-unwinds"});
  expect_fatal(o, "goexit called in a destructor while an exception unwinds");
  EXPECT_EQ(o.out, "") << o;
  o = run_crash("goexit", {"while-goexit-unwinds"});
  expect_fatal(o, "goexit called in a destructor while goexit unwinds");
  EXPECT_EQ(o.out, "") << o;
}

TEST(Conformance, SPN_05_main_goexits_and_the_others_run_on) {
  outcome o = run_crash("goexit", {"status"});
  EXPECT_EQ(o.status, 7) << o;
  EXPECT_EQ(o.out, "main is gone\nalone\n") << o;
  EXPECT_EQ(o.err, "") << o;
  o = run_crash("goexit", {"zero"});
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_EQ(o.out, "main is gone\nalone\n") << o;
  o = run_crash("goexit", {"later"});
  EXPECT_EQ(o.status, 8) << o;
  EXPECT_EQ(o.out, "main is gone\nalone\n") << o;
}

TEST(Conformance, SPN_05_goexit_needs_a_goroutine) {
  for (const char* how : {"plain-thread", "before-run"}) {
    SCOPED_TRACE(how);
    expect_fatal(run_crash("goexit", {how}),
                 "runtime.Goexit called in a thread that was not created by the Go runtime");
  }
}

TEST(Conformance, SPN_08_crash_header) {
  const outcome o = run_crash("uncaught", {"error"});
  expect_panic(o, "test");
  EXPECT_GT(std::stoul(first_line(o.out)), 1UL);  // main is 1
}

TEST(Conformance, SPN_08_what_was_thrown) {
  expect_panic(run_crash("uncaught", {"derived"}), "a pear");
  expect_panic(run_crash("uncaught", {"long"}), std::string(5000, 'x'));
  expect_panic(run_crash("uncaught", {"int"}), "(int)");
  expect_panic(run_crash("uncaught", {"string"}), "(const char*)");
  expect_panic(run_crash("uncaught", {"object"}), "(fruit::apple)");
  expect_panic(run_crash("uncaught", {"std-string"}), "(std::string)");
  expect_panic(run_crash("uncaught", {"template"}), "(fruit::basket<fruit::apple, 3>)");
  expect_panic(run_crash("uncaught", {"pointer"}), "(char***)");
  expect_panic(run_crash("uncaught", {"nullptr"}), "(std::nullptr_t)");
  expect_panic(run_crash("uncaught", {"anonymous"}), "((anonymous namespace)::secret)");
  expect_panic(run_crash("uncaught", {"local"}), "((anonymous namespace)::leave_with::local)");
}

TEST(Conformance, SPN_08_an_exception_with_nothing_to_say) {
  expect_panic(run_crash("uncaught", {"mute"}), "(fruit::stone)");
}

TEST(Conformance, SPN_08_cleanups_have_run_before_the_report) {
  const outcome o = run_crash("uncaught", {"in-a-cleanup"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(o.err.starts_with("panic: test\n\n")) << o;
  EXPECT_EQ(o.out, first_line(o.out) + "\ncleanup\n") << o;
}

TEST(Conformance, SPN_08_exception_that_no_scope_has_rethrown) {
  const outcome o = run_crash("uncaught", {"error", "scope"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(o.err.starts_with("panic: test\n\ngoroutine ")) << o;
  EXPECT_EQ(o.out.find("behind"), std::string::npos) << o;
  EXPECT_EQ(o.out.find("terminate"), std::string::npos) << o;
}

TEST(Conformance, SPN_08_what_main_throws_run_throws) {
  const outcome o = run_crash("main_throws");
  EXPECT_EQ(o.status, 3) << o;
  EXPECT_EQ(o.out, "1\ncaught test\n") << o;
  EXPECT_EQ(o.err, "") << o;
}

// -- SPN-10

void expect_output(const std::string& how, int status, const std::string& out) {
  SCOPED_TRACE(how);
  const outcome o = run_crash("exit_hooks", {how});
  EXPECT_EQ(o.status, status) << o;
  EXPECT_EQ(o.out, out) << o;
  EXPECT_EQ(o.err, "") << o;
}

TEST(Conformance, SPN_10_hooks_run_last_in_first_out) {
  expect_output("return", 0, "baz bar foo run");
  expect_output("exit-0", 0, "orange apple ");
  expect_output("exit-0-goroutine", 0, "orange apple ");
  expect_output("goexit", 0, "foo ");
}

TEST(Conformance, SPN_10_on_failure_only_those_that_asked) {
  expect_output("exit-1", 1, "blix blub ");
  expect_output("return-1", 1, "bar run");
}

TEST(Conformance, SPN_10_a_hook_may_park) { expect_output("parks", 0, "task 1 after "); }

TEST(Conformance, SPN_10_a_hook_that_throws) {
  expect_fatal(run_crash("exit_hooks", {"throws"}), "exit hook invoked panic");
  expect_fatal(run_crash("exit_hooks", {"throws-on-return"}), "exit hook invoked panic");
}

TEST(Conformance, SPN_10_a_hook_that_exits) {
  expect_fatal(run_crash("exit_hooks", {"exits"}), "exit hook invoked exit");
  expect_fatal(run_crash("exit_hooks", {"exits-on-return"}), "exit hook invoked exit");
}

TEST(Conformance, SPN_10_ten_that_race_to_exit) {
  for (int i = 0; i < 5; ++i) expect_output("race", 0, "");
}

}  // namespace
}  // namespace weft::test
