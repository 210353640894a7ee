// SPDX-License-Identifier: Apache-2.0
// Debuggers and checkers on a program with goroutines: gdb walks from a goroutine to its entry, and
// at every instruction of the switch; Valgrind finds nothing to complain about. The program is a
// test of this very executable, Tools.SmallProgram, so that it is built as all the others are.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "os/memory.h"
#include "unit/sched/support.h"

extern "C" {
// Where gdb stops: inside a goroutine, a few calls deep.
__attribute__((noinline, used, visibility("default"))) void weft_tools_stop(int n) {
  asm volatile("" ::"r"(n) : "memory");
}
__attribute__((noinline, used)) void weft_tools_middle(int n) {
  if (n > 0) {
    weft_tools_middle(n - 1);
  } else {
    weft_tools_stop(n);
  }
  asm volatile("" ::: "memory");  // no tail call
}
}

namespace weft {
namespace {

using unit_test::shell;

TEST(Tools, SmallProgram) {
  sched_test::run_on(2, [] {
    int sum = 0;
    {
      weft::scope s;
      for (int i = 0; i < 20; ++i) {
        s.go([&sum, i] {
          weft::yield();
          if (i == 7) weft_tools_middle(5);
          try {
            if (i % 2 == 0) throw i;
            std::atomic_ref<int>(sum) += i;
          } catch (int k) {
            weft::yield();  // in a handler
            std::atomic_ref<int>(sum) += k;
          }
        });
      }
      s.wait();
    }
    EXPECT_EQ(sum, 190);
    EXPECT_EQ(weft::async([] { return std::string(100, 'x').size(); }).get(), 100U);
    weft::async([] { weft::goexit(); }).wait();
  });
}

// Emulators of user programs know nothing of ptrace, and take any advice without doing anything.
bool emulated() {
  const rt::mapping m = rt::map_memory(rt::page_size());
  const rt::memory_range r{m.addr, rt::page_size()};
  const bool lied = rt::advise(r, rt::advice_guard_install) == 0 && rt::is_readable(r.addr);
  rt::unmap(r);
  return lied;
}

std::string why_not(const std::string& tool) {
  if (unit_test::sanitized) return "sanitized programs do not get on with " + tool;
  if (emulated()) return "emulated";
  if (shell("command -v " + tool).exit_status != 0) return tool + " is not installed";
  return "";
}

const char target[] = " --gtest_filter=Tools.SmallProgram";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string run_gdb(const std::string& commands) {
  const std::string script = testing::TempDir() + "/weft-gdb-" + std::to_string(::getpid());
  std::ofstream(script)
      << "set confirm off\nset pagination off\nset width 0\nset debuginfod enabled off\n"
      << commands;
  const auto end =
      shell("gdb -nx -q -batch -x " + script + " --args " + unit_test::own_program() + target);
  ::unlink(script.c_str());
  return end.out;
}

// gdb could not start the program at all, as in containers without ptrace.
bool refused(const std::string& out) {
  return out.find("Operation not permitted") != std::string::npos &&
         out.find("Breakpoint 1, ") == std::string::npos;
}

bool is_frame(const std::string& line) { return !line.empty() && line[0] == '#'; }

void expect_no_complaint(const std::string& out) {
  for (const char* bad : {"Backtrace stopped", "corrupt", "previous frame", "Cannot access memory",
                          "internal-error"}) {
    EXPECT_EQ(out.find(bad), std::string::npos) << bad << " in:\n" << out;
  }
}

TEST(Tools, GdbWalksFromAGoroutineToItsEntry) {
  if (const auto why = why_not("gdb"); !why.empty()) GTEST_SKIP() << why;
  const std::string out =
      run_gdb("break weft_tools_stop\nrun\necho <<<\\n\nbt\necho >>>\\n\nkill\n");
  if (refused(out)) GTEST_SKIP() << "no ptrace here";
  ASSERT_NE(out.find("Breakpoint 1, weft_tools_stop"), std::string::npos) << out;
  expect_no_complaint(out);
  std::vector<std::string> frames;
  for (const auto& line : lines_of(out)) {
    if (is_frame(line)) frames.push_back(line);
  }
  ASSERT_GE(frames.size(), 8U) << out;
  EXPECT_NE(frames.front().find("weft_tools_stop"), std::string::npos) << out;
  EXPECT_NE(frames.back().find("weft_entry"), std::string::npos) << out;
}

TEST(Tools, GdbWalksAtEveryInstructionOfTheSwitch) {
  if (const auto why = why_not("gdb"); !why.empty()) GTEST_SKIP() << why;
  // The tenth switch, when goroutines switch to each other; a step at a time until well behind it.
  const std::string out = run_gdb(
      "break weft_switch\nignore 1 10\nrun\nset scheduler-locking on\n"
      "set $i = 0\nwhile $i < 60\n  echo <<<\\n\n  bt\n  echo >>>\\n\n  stepi\n  set $i = $i + "
      "1\nend\nkill\n");
  if (refused(out)) GTEST_SKIP() << "no ptrace here";
  ASSERT_NE(out.find("Breakpoint 1, "), std::string::npos) << out;
  expect_no_complaint(out);
  int walks = 0, inside = 0;
  std::string last;
  for (const auto& line : lines_of(out)) {
    if (line == "<<<") {
      last.clear();
    } else if (is_frame(line)) {
      if (last.empty() && line.find("weft_switch") != std::string::npos) ++inside;
      last = line;
    } else if (line == ">>>") {
      ++walks;
      const bool whole = last.find("weft_entry") != std::string::npos ||  // a goroutine
                         last.find("clone") != std::string::npos ||       // g0 of an M
                         last.find("_start") != std::string::npos;        // g0 of the main thread
      EXPECT_TRUE(whole) << "walk " << walks << " ends at " << last << "\n" << out;
      if (!whole) break;
    }
  }
  EXPECT_EQ(walks, 60) << out;
  EXPECT_GE(inside, 20) << out;
}

TEST(Tools, ValgrindFindsNothing) {
  if (const auto why = why_not("valgrind"); !why.empty()) GTEST_SKIP() << why;
  const auto end = shell("valgrind -q --error-exitcode=99 " + unit_test::own_program() + target);
  EXPECT_EQ(end.exit_status, 0) << end.out;
  for (const auto& line : lines_of(end.out)) EXPECT_NE(line.rfind("==", 0), 0U) << line;
}

}  // namespace
}  // namespace weft
