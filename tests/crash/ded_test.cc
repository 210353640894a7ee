// SPDX-License-Identifier: Apache-2.0
// DED: nobody can run any more, and the report says so; and those cases in which somebody still
// can. SIGQUIT.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <gtest/gtest.h>
#include <regex>
#include <string>
#include <vector>

#include "support/dumped.h"
#include "support/effort.h"
#include "support/process.h"

namespace weft::test {
namespace {

const std::string asleep = "fatal error: all goroutines are asleep - deadlock!\n";
const std::string gone = "fatal error: no goroutines (main called runtime.Goexit) - deadlock!\n";

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

outcome run_with(const char* variable, const char* value, const char* program, const char* how) {
  ::setenv(variable, value, 1);
  outcome o = run_crash(program, {how});
  ::unsetenv(variable);
  return o;
}

void expect_deadlock(const outcome& o, const std::string& head) {
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(o.err.starts_with(head)) << o;
}

TEST(Conformance, DED_01_main_blocks_for_ever) {
  const std::pair<const char*, const char*> ways[] = {
      {"receive", "chan receive"}, {"mutex", "sync.Mutex.Lock"}, {"select", "select (no cases)"}};
  for (const auto& [how, reason] : ways) {
    SCOPED_TRACE(how);
    const outcome o = run_crash("deadlock", {how});
    expect_deadlock(o, asleep + "\ngoroutine 1 [" + reason + "]:\n");
    EXPECT_EQ(o.out, "") << o;
  }
}

TEST(Conformance, DED_01_the_trace_names_the_place) {
  const outcome o = run_crash("deadlock", {"receive"});
  const std::regex frame(R"(\n.*wait_for_nobody\(\)\n\t/.*/deadlock\.cc:\d+ \+0x[0-9a-f]+\n)");
  EXPECT_TRUE(std::regex_search(o.err, frame)) << o;
}

TEST(Conformance, DED_01_every_goroutine_is_printed) {
  const outcome o = run_crash("deadlock", {"many"});
  expect_deadlock(o, asleep);
  EXPECT_EQ(count(o.err, "\ngoroutine "), 4U) << o;
  EXPECT_EQ(count(o.err, " [chan receive]:\n"), 3U) << o;
  EXPECT_EQ(count(o.err, "goroutine 1 [sync.WaitGroup.Wait]:\n"), 1U) << o;
  const std::regex creator(R"(\ncreated by main::.* in goroutine 1\n\t/.*/deadlock\.cc:\d+ \+0x)");
  EXPECT_TRUE(std::regex_search(o.err, creator)) << o;
  const std::vector<std::uint64_t> ids = listed(o.err);
  EXPECT_EQ(ids.size(), 4U) << o;
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end())) << o;
}

TEST(Conformance, DED_01_after_a_run_that_left_somebody_in_a_call) {
  expect_deadlock(run_crash("deadlock", {"after-a-run"}), asleep);
}

TEST(Conformance, DED_01_a_cycle_of_locks_is_named) {
  const outcome o = run_crash("deadlock", {"abba"});
  expect_deadlock(o, asleep);
  EXPECT_EQ(count(o.err, " [sync.Mutex.Lock]:\n"), 2U) << o;
  const std::regex cycle(
      R"(\ncycle of locks:\n\tgoroutine 1 waits for the mutex at (0x[0-9a-f]+), locked by goroutine (\d+)\n)"
      R"(\tgoroutine \2 waits for the mutex at (0x[0-9a-f]+), locked by goroutine 1\n$)");
  std::smatch m;
  ASSERT_TRUE(std::regex_search(o.err, m, cycle)) << o;
  EXPECT_NE(m[1], m[3]) << o;
}

// Whichever thread reports: the one that fails, or the last that went idle.
TEST(Conformance, DED_01_nobody_reads_the_report) {
  const char* given = std::getenv("WEFT_PROCS");
  const std::string before = given != nullptr ? given : "";
  for (const char* procs : {"1", "2", "4"}) {
    ::setenv("WEFT_PROCS", procs, 1);
    for (const char* how : {"receive", "many", "unlock", "throw"}) {
      const outcome o = run_crash("deadlock", {how, "broken-stderr"});
      EXPECT_EQ(o.status, 2) << how << " with " << procs << '\n' << o;
    }
  }
  given != nullptr ? ::setenv("WEFT_PROCS", before.c_str(), 1) : ::unsetenv("WEFT_PROCS");
}

TEST(Conformance, DED_02_main_goexits_and_the_rest_finish) {
  const outcome o = run_crash("deadlock", {"goexit"});
  expect_deadlock(o, gone);
  EXPECT_EQ(o.out, "slept\n") << o;  // not before the sleeper was done
}

TEST(Conformance, DED_02_main_goexits_and_the_rest_sleep) {
  const outcome o = run_crash("deadlock", {"goexit-others"});
  expect_deadlock(o, asleep);
  EXPECT_EQ(count(o.err, "goroutine 1 "), 0U) << o;
}

TEST(Conformance, DED_03_the_service_of_signals_hides_nothing) {
  expect_deadlock(run_crash("deadlock", {"signals-stopped"}), asleep);
  expect_deadlock(run_crash("deadlock", {"after-a-signal"}), asleep);
}

TEST(Conformance, DED_03_a_signal_may_still_come) {
  const outcome o = run_crash("deadlock", {"signal-comes"});
  EXPECT_EQ(o.status, SIGALRM) << o;
  EXPECT_EQ(o.err, "") << o;
}

TEST(Conformance, DED_03_nor_do_the_threads_that_look_names_up) {
  for (int i = 0; i < 3; ++i) expect_deadlock(run_crash("deadlock", {"after-a-lookup"}), asleep);
}

TEST(Conformance, DED_03_nor_does_the_writer_of_a_trace) {
  for (int i = 0; i < 10; ++i) expect_deadlock(run_crash("deadlock", {"after-a-trace"}), asleep);
}

TEST(Conformance, DED_03_nor_do_the_workers_of_an_io_uring) {
  for (int i = 0; i < 3; ++i) expect_deadlock(run_crash("deadlock", {"after-a-sync"}), asleep);
}

TEST(Conformance, DED_03_nor_does_an_m_in_the_poller) {
  for (int i = 0; i < 3; ++i) {
    const outcome o = run_crash("deadlock", {"beside-the-poller"});
    expect_deadlock(o, asleep);
    EXPECT_EQ(count(o.err, " [chan receive]:\n"), 2U) << o;
  }
}

TEST(Conformance, DED_04_a_thread_that_may_still_send) {
  const outcome o = run_crash("deadlock", {"thread-sends"});
  EXPECT_EQ(o.status, 7) << o;
  EXPECT_EQ(o.err, "") << o;
}

TEST(Conformance, DED_04_a_host_that_owns_the_process) {
  const outcome o = run_crash("deadlock", {"embedded"});
  EXPECT_EQ(o.status, 7) << o;
  EXPECT_EQ(o.err, "") << o;
  expect_deadlock(run_with("WEFT_DEBUG", "embedded=0", "deadlock", "receive"), asleep);
}

TEST(Conformance, DED_04_a_timer_that_never_comes_is_pending) {
  for (const char* how :
       {"sleep-max", "until-max", "after-max", "select-max", "recv-max", "context-max"}) {
    const outcome o = run_crash("deadlock", {how});
    EXPECT_EQ(o.status, 7) << how << o;
    EXPECT_EQ(o.err, "") << how << o;
  }
}

TEST(Conformance, DED_04_a_timer_is_pending) {
  const outcome o = run_crash("deadlock", {"timer"});
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_EQ(o.err, "") << o;
}

// A thread that waits inside weft is as stuck as a goroutine; one that has ended is no hope either.
TEST(Conformance, DED_04_threads_that_cannot_help) {
  expect_deadlock(run_crash("deadlock", {"thread-waits-too"}), asleep);
  expect_deadlock(run_crash("deadlock", {"thread-ends"}), asleep);
}

// Threads that wake one another in a ring, the last one ends: somebody can always run.
TEST(Conformance, DED_05_no_false_alarm_while_threads_hand_over) {
  const outcome o = run_crash("deadlock", {"relay"});
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_EQ(o.err, "") << o;
}

TEST(Conformance, DED_07_chains_oldest_first) {
  const std::pair<const char*, const char*> ways[] = {
      {"in-a-handler", "panic: first [recovered]\n\tpanic: second\n"},
      {"nested",
       "panic: first [recovered]\n"
       "\tpanic: second [recovered]\n"
       "\tpanic: third\n"},
      {"nested-in-a-handler",
       "panic: first [recovered]\n\tpanic: second [recovered]\n\tpanic: third\n"},
      {"rethrown", "panic: again [recovered, repanicked]\n"},
      {"rethrown-pointer", "panic: again [recovered, repanicked]\n"},
      {"behind-a-handler", "panic: second\n"}};
  for (const auto& [how, text] : ways) {
    SCOPED_TRACE(how);
    const outcome o = run_crash("uncaught", {how});
    EXPECT_EQ(o.status, 2) << o;
    EXPECT_TRUE(o.err.starts_with(std::string(text) + "\ngoroutine ")) << o;
  }
}

#if defined(__x86_64__)
TEST(Conformance, DED_11_a_null_pointer_that_nobody_catches) {
  const outcome o = run_crash("uncaught", {"fault"});
  EXPECT_EQ(o.status, 2) << o;
  const std::regex head(
      "^panic: runtime error: invalid memory address or nil pointer dereference\n"
      "\\[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x[0-9a-f]+\\]\n\n"
      "goroutine \\d+ \\[running\\]:\n");
  EXPECT_TRUE(std::regex_search(o.err, head)) << o;
  EXPECT_NE(o.err.find("touch("), std::string::npos) << o;
}
#endif

constexpr const char* tsan_keeps_back =
    "TSan keeps a handler back until its thread makes a call that it knows; none does here";

TEST(Conformance, DED_08_sigquit_dumps_every_goroutine) {
  if (under_tsan) GTEST_SKIP() << tsan_keeps_back;
  const outcome o = run_crash("quit", {"idle"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(o.err.starts_with("SIGQUIT: quit\n\ngoroutine ")) << o;
  EXPECT_EQ(count(o.err, " \"idler\" [chan receive]:\n"), 3U) << o;
  const std::vector<std::uint64_t> ids = listed(o.err);
  EXPECT_EQ(ids.size(), 4U) << o;  // no helper of the runtime among them
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end())) << o;
}

TEST(Conformance, DED_08_one_that_computes_is_listed) {
  if (under_tsan) GTEST_SKIP() << tsan_keeps_back;
  const outcome o = run_crash("quit", {"busy"});
  EXPECT_EQ(o.status, 2) << o;
  // It may just have been stopped for the sake of another.
  const std::regex hog(
      R"(\ngoroutine \d+ "hog" \[runn(ing|able)\]:\n.*operator\(\).*\n\t/.*/quit\.cc:)");
  EXPECT_TRUE(std::regex_search(o.err, hog)) << o;
}

// The part of a report that is about one goroutine of that name, wherever it stands.
std::vector<std::string> blocks(const std::string& text, const std::string& name) {
  std::vector<std::string> found;
  for (std::size_t at = 0; (at = text.find("\ngoroutine ", at)) != std::string::npos; ++at) {
    const std::string block = text.substr(at + 1, text.find("\n\n", at) - at);
    if (block.substr(0, block.find('\n')).find('"' + name + '"') != std::string::npos)
      found.push_back(block);
  }
  return found;
}

TEST(Conformance, DED_08_everybody_is_shown_wherever_he_is) {
  if (under_tsan) GTEST_SKIP() << tsan_keeps_back;
  const outcome o = run_crash("quit", {"all"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_EQ(count(o.err, "stack unavailable"), 0U) << o;
  const auto expect = [&](const char* name, std::size_t n, const char* frames) {
    const std::vector<std::string> them = blocks(o.err, name);
    EXPECT_EQ(them.size(), n) << name << o;
    for (const std::string& b : them)
      EXPECT_TRUE(std::regex_search(b, std::regex(frames))) << name << '\n' << b;
  };
  expect("hog", 4, R"(^goroutine.*\n.*spin\(\)\n\t/.*/quit\.cc:\d+)");
  expect("deep", 2, R"(spin\(.*\)\n\t(.*\n)+.*on_its_system_stack\(\)\n)");
  expect("reader", 1, R"(read\(\)\n\t.*\n.*in_a_call\(\)\n)");
  expect("caller", 1, R"(read\(\)\n\t.*\n(.*\n)*.*in_a_call\(.*\)\n)");
}

// -- traceback levels

TEST(Conformance, DED_08_in_crash_mode_it_ends_with_a_core) {
  if (under_tsan) GTEST_SKIP() << tsan_keeps_back;
  const outcome o = run_with("WEFT_TRACEBACK", "crash", "quit", "busy");
  EXPECT_EQ(o.signal, SIGABRT) << o;
  EXPECT_TRUE(o.err.starts_with("SIGQUIT: quit\n\ngoroutine ")) << o;
  EXPECT_NE(o.err.find("weft::rt::"), std::string::npos) << o;  // the runtime's own functions, too
}

TEST(Report, TracebackLevels) {
  const auto said = [](const char* level) {
    const outcome o = run_with("WEFT_TRACEBACK", level, "uncaught", "beside-others");
    EXPECT_EQ(o.status, 2) << level << o;
    EXPECT_TRUE(o.err.starts_with("panic: alone\n")) << level << o;
    return o.err;
  };
  EXPECT_EQ(said("none"), "panic: alone\n");
  EXPECT_EQ(count(said("single"), "\ngoroutine "), 1U);
  const std::string all = said("all"), system = said("system");
  EXPECT_EQ(count(all, "\ngoroutine "), 4U) << all;
  EXPECT_EQ(count(all, "weft::rt::"), 0U) << all;
  EXPECT_EQ(count(system, "\ngoroutine "), 4U) << system;
  EXPECT_GT(count(system, "weft::rt::"), 0U) << system;
}

TEST(Report, AChildOfAForkEndsBySigquit) {
  if (under_tsan) GTEST_SKIP() << tsan_keeps_back;
  EXPECT_EQ(run_crash("quit", {"child"}).status, SIGQUIT);
}

// -- a report where little is left

TEST(Report, AtTheEndOfAStack) {
  for (const char* left : {"300", "600", "1000", "2000", "3000", "6000"}) {
    const outcome o = run_crash("last_words", {"stack", left});
    EXPECT_EQ(o.status, 2) << left << o;
    EXPECT_NE(o.err.find("fatal error: "), std::string::npos) << left << o;
    EXPECT_NE(o.err.find("\ngoroutine "), std::string::npos) << left << o;
    EXPECT_NE(o.err.find("last_words.cc:"), std::string::npos) << left << o;
  }
}

TEST(Report, WithoutADescriptor) {
  const outcome o = run_crash("last_words", {"descriptors"});
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(o.err.starts_with("fatal error: sync: unlock of unlocked mutex\n")) << o;
  EXPECT_NE(o.err.find("last_words.cc:"), std::string::npos) << o;
}

TEST(Conformance, DED_08_a_handler_of_the_program_stays) {
  EXPECT_EQ(run_crash("quit", {"handled"}).status, 6);
}

}  // namespace
}  // namespace weft::test
