// SPDX-License-Identifier: Apache-2.0
// tools/weft-gdb.py, on a process and on its core file.
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "support/effort.h"
#include "support/process.h"

namespace weft::test {
namespace {

outcome gdb(const std::vector<std::string>& before, const std::vector<std::string>& commands,
            const std::string& program, const std::string& core = {}) {
  std::vector<std::string> words = {"gdb", "-q", "-nx", "-batch"};
  for (const std::string& c : before) words.insert(words.end(), {"-ex", c});
  for (const std::string& c : commands) words.insert(words.end(), {"-ex", c});
  words.push_back(program);
  if (!core.empty()) words.push_back(core);
  return run_process(words, std::chrono::seconds(60));
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void expect_goroutines(const outcome& o) {
  EXPECT_TRUE(has(o.out, "  1     chan receive")) << o;
  EXPECT_TRUE(has(o.out, "chan receive             \"one who waits\"")) << o;
  EXPECT_TRUE(has(o.out, "waits_here")) << o;
  EXPECT_TRUE(has(o.out, "computes_here")) << o;
  EXPECT_TRUE(has(o.out, "reads_here")) << o;
  // The whole stack of each, from where it stands to where it began.
  for (const char* g :
       {"goroutine 1 [chan receive]:", "goroutine 3 \"one who waits\" [chan receive]:",
        "goroutine 4 [running, thread ", "goroutine 5 [syscall, thread "}) {
    const std::size_t at = o.out.find(g);
    ASSERT_NE(at, std::string::npos) << g << o;
    const std::string block = o.out.substr(at, o.out.find("\ngoroutine ", at + 1) - at);
    EXPECT_TRUE(has(block, "weft_entry")) << block;
    EXPECT_TRUE(has(block, "hang.cc")) << block;
  }
}

const std::string program = std::string(WEFT_CRASH_DIR) + "/crash_hang";
const std::string load = std::string("source ") + WEFT_GDB_SCRIPT;

const char* why_not() {
  if (sanitized || under_emulator) return "not in this build";
  if (run_process({"gdb", "--version"}, std::chrono::seconds(60)).status != 0)
    return "there is no gdb here: tools/setup.sh ci installs it";
  return nullptr;
}

TEST(Gdb, GoroutinesOfAProcess) {
  if (const char* why = why_not()) GTEST_SKIP() << why;
  const outcome o = gdb({"handle SIGURG nostop noprint pass", "run"},
                        {load, "info goroutines", "goroutine all bt", "goroutine 77 bt"}, program);
  if (has(o.err + o.out, "not permitted"))
    GTEST_SKIP() << "no process may be traced here: " << o.err;
  expect_goroutines(o);
  EXPECT_TRUE(has(o.err, "no goroutine 77")) << o;
}

// The kernel's: gdb's own gcore leaves out a mapping in which it meets a guard.
TEST(Gdb, GoroutinesOfACoreFile) {
  if (const char* why = why_not()) GTEST_SKIP() << why;
  std::string dir = "/tmp/weft-core-XXXXXX";
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  run_process({"sh", "-c", "cd " + dir + " && ulimit -c unlimited && exec " + program},
              std::chrono::seconds(60));
  const outcome found = run_process({"sh", "-c", "ls " + dir + "/core*"}, std::chrono::seconds(60));
  const std::string core = found.out.substr(0, found.out.find('\n'));
  const outcome o = gdb({}, {load, "info goroutines", "goroutine all bt"}, program, core);
  run_process({"rm", "-r", dir}, std::chrono::seconds(60));
  if (core.empty()) GTEST_SKIP() << "this machine sends core files elsewhere (core_pattern)";
  expect_goroutines(o);
}

}  // namespace
}  // namespace weft::test
