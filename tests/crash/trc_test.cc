// SPDX-License-Identifier: Apache-2.0
// The lines of WEFT_DEBUG=schedtrace, scheddetail: Go's form (appendix A of the conformance list).
#include <cstdlib>
#include <gtest/gtest.h>
#include <iterator>
#include <regex>
#include <string>

#include "support/process.h"

namespace weft::test {
namespace {

outcome traced(const char* debug) {
  ::setenv("WEFT_DEBUG", debug, 1);
  ::setenv("WEFT_PROCS", "2", 1);
  outcome o = run_crash("schedtrace");
  ::unsetenv("WEFT_DEBUG");
  ::unsetenv("WEFT_PROCS");
  return o;
}

std::ptrdiff_t lines(const outcome& o, const std::string& pattern) {
  const std::regex r("(^|\n)" + pattern + "(?=\n)");
  return std::distance(std::sregex_iterator(o.err.begin(), o.err.end(), r), std::sregex_iterator());
}

const std::string head =
    "SCHED \\d+ms: gomaxprocs=2 idleprocs=\\d+ threads=\\d+ spinningthreads=\\d+ needspinning=[01] "
    "idlethreads=\\d+ runqueue=\\d+";

TEST(Conformance, TRC_08_schedtrace_lines) {
  const outcome o = traced("schedtrace=100");
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_GE(lines(o, head + " \\[ \\d+ \\d+ \\] schedticks=\\[ \\d+ \\d+ \\]"), 2) << o;
  EXPECT_EQ(lines(o, "  [PMG].*"), 0) << o;
}

TEST(Conformance, TRC_08_scheddetail_lines) {
  const outcome o = traced("schedtrace=100,scheddetail=1");
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_GE(lines(o, head + " gcwaiting=(true|false) nmidlelocked=\\d+ stopwait=\\d+ "
                            "sysmonwait=(true|false)"),
            2)
      << o;
  EXPECT_GE(lines(o,
                  "  P[01]: status=\\d schedtick=\\d+ syscalltick=\\d+ m=(nil|\\d+) runqsize=\\d+ "
                  "gfreecnt=\\d+ timerslen=\\d+"),
            4)
      << o;
  EXPECT_GE(lines(o,
                  "  M0: p=(nil|\\d+) curg=(nil|\\d+) mallocing=0 throwing=0 preemptoff= locks=0 "
                  "dying=0 spinning=(true|false) blocked=(true|false) lockedg=nil"),
            2)
      << o;
  EXPECT_GE(lines(o, "  G1: status=4\\(sleep\\) m=nil lockedm=nil"), 2) << o;
  EXPECT_GE(lines(o, "  G\\d+: status=4\\(chan receive\\) m=nil lockedm=nil"), 2) << o;
}

TEST(Conformance, TRC_08_unknown_settings_are_refused) {
  EXPECT_NE(traced("schedtrace=soon").status, 0);
}

}  // namespace
}  // namespace weft::test
