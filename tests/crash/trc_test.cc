// SPDX-License-Identifier: Apache-2.0
// The lines of WEFT_DEBUG=schedtrace, scheddetail: Go's form (appendix A of the conformance list).
#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "support/process.h"
#include "support/subject.h"

namespace weft::test {
namespace {

std::ptrdiff_t lines(const std::string& text, const std::string& pattern) {
  const std::regex r("(^|\n)" + pattern + "(?=\n)");
  return std::distance(std::sregex_iterator(text.begin(), text.end(), r), std::sregex_iterator());
}

// Runs until it has said all of this so often: on a busy machine a line may be late.
struct wanted {
  std::string line;
  std::ptrdiff_t times = 2;
};
outcome traced(const char* debug, const std::vector<wanted>& all) {
  subject s(
      "/tmp", debug, {std::string(WEFT_CRASH_DIR) + "/crash_schedtrace"},
      [] { ::setenv("WEFT_PROCS", "2", 1); }, false);
  s.hear([&](const std::string& text) {
    return std::ranges::all_of(all,
                               [&](const wanted& w) { return lines(text, w.line) >= w.times; });
  });
  return s.end();
}

const std::string head =
    "SCHED \\d+ms: gomaxprocs=2 idleprocs=\\d+ threads=\\d+ spinningthreads=\\d+ needspinning=[01] "
    "idlethreads=\\d+ runqueue=\\d+";

void expect(const outcome& o, const std::vector<wanted>& all) {
  EXPECT_EQ(o.status, 0) << o;
  for (const wanted& w : all) EXPECT_GE(lines(o.err, w.line), w.times) << w.line << '\n' << o;
}

TEST(Conformance, TRC_08_schedtrace_lines) {
  const std::vector<wanted> all = {{head + " \\[ \\d+ \\d+ \\] schedticks=\\[ \\d+ \\d+ \\]"}};
  const outcome o = traced("schedtrace=100", all);
  expect(o, all);
  EXPECT_EQ(lines(o.err, "  [PMG].*"), 0) << o;
}

TEST(Conformance, TRC_08_scheddetail_lines) {
  const std::vector<wanted> all = {
      {head + " gcwaiting=(true|false) nmidlelocked=\\d+ stopwait=\\d+ sysmonwait=(true|false)"},
      {"  P[01]: status=\\d schedtick=\\d+ syscalltick=\\d+ m=(nil|\\d+) runqsize=\\d+ "
       "gfreecnt=\\d+ timerslen=\\d+",
       4},
      {"  M0: p=(nil|\\d+) curg=(nil|\\d+) mallocing=0 throwing=0 preemptoff= locks=0 "
       "dying=0 spinning=(true|false) blocked=(true|false) lockedg=nil"},
      {"  G1: status=4\\(sleep\\) m=nil lockedm=nil"},
      {"  G\\d+: status=4\\(chan receive\\) m=nil lockedm=nil"}};
  expect(traced("schedtrace=100,scheddetail=1", all), all);
}

TEST(Conformance, TRC_08_unknown_settings_are_refused) {
  EXPECT_NE(traced("schedtrace=soon", {{"nothing"}}).status, 0);
}

}  // namespace
}  // namespace weft::test
