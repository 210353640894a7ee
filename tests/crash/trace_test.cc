// SPDX-License-Identifier: Apache-2.0
// A trace of a process that dies: what it did just before is in the file.
#include <gtest/gtest.h>
#include <string>

#include "support/process.h"
#include "support/traces.h"

namespace weft::test {
namespace {

void expect_flushed(const char* how) {
  trace_file f;
  const outcome o = run_crash("tracing", {how, f.path()});
  EXPECT_EQ(o.status, 2) << o;
  const std::size_t at = o.err.find("panic: boom\n");
  EXPECT_NE(at, std::string::npos) << o;
  EXPECT_EQ(o.err.find("panic: boom\n", at + 1), std::string::npos) << o;
  const std::string said = f.events();
  EXPECT_TRUE(has_line(said, {"text='just before'"})) << said;
  EXPECT_TRUE(has_line(said, {"why='chan receive'"})) << said;
}

TEST(Conformance, TRC_06_a_crash_while_tracing) { expect_flushed("file"); }

TEST(Conformance, TRC_07_the_recorder_is_written_when_the_process_dies) {
  expect_flushed("recorder");
}
TEST(Conformance, TRC_07_its_last_words_are_there_however_much_happens) { expect_flushed("busy"); }

}  // namespace
}  // namespace weft::test
