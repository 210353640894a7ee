// SPDX-License-Identifier: Apache-2.0
// The command line of the tool `weft`.
#include "options.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "failure.h"

namespace weft::tool {
namespace {

std::string refused(const std::vector<std::string>& words) {
  try {
    (void)parse(words);
  } catch (const failure& f) {
    EXPECT_EQ(f.code, status::usage);
    return f.text.substr(0, f.text.find('\n'));
  }
  return "not refused";
}

TEST(ToolOptions, Commands) {
  const options d = parse({"dump", "17"});
  EXPECT_EQ(d.what, command::dump);
  EXPECT_EQ(d.pid, 17);
  EXPECT_EQ(d.timeout, 30);
  const options t = parse({"trace", "-o", "f", "17", "--seconds=0.5", "--timeout", "2"});
  EXPECT_EQ(t.what, command::trace);
  EXPECT_EQ(t.output, "f");
  EXPECT_EQ(t.seconds, 0.5);
  EXPECT_EQ(t.timeout, 2);
  EXPECT_EQ(parse({"trace", "17"}).output, "weft-17.trace");
  const options p = parse({"top", "--once", "17", "--interval", "0.2"});
  EXPECT_TRUE(p.once);
  EXPECT_EQ(p.interval, 0.2);
  EXPECT_TRUE(parse({"stats", "17", "--prometheus"}).prometheus);
  EXPECT_EQ(parse({"list"}).what, command::list);
  EXPECT_EQ(parse({"--version"}).what, command::version);
  EXPECT_EQ(parse({"top", "--help"}).what, command::help);
}

TEST(ToolOptions, WhatIsRefused) {
  EXPECT_EQ(refused({}), "no command");
  EXPECT_EQ(refused({"look", "17"}), "no command 'look'");
  EXPECT_EQ(refused({"dump"}), "weft dump: which process? A PID is missing");
  EXPECT_EQ(refused({"dump", "17", "18"}), "weft dump: one word too many: '18'");
  EXPECT_EQ(refused({"list", "17"}), "weft list: one word too many: '17'");
  for (const char* bad : {"0", "17x", "x", "99999999999", ""})
    EXPECT_EQ(refused({"dump", bad}), std::string("'") + bad + "' is not a PID");
  EXPECT_EQ(refused({"dump", "17", "--once"}), "weft dump: no option '--once'");
  EXPECT_EQ(refused({"top", "17", "--once=1"}), "weft top: no option '--once=1'");
  EXPECT_EQ(refused({"trace", "17", "--seconds"}), "--seconds: its value is missing");
  for (const char* bad : {"0", "61", "-1", "1s", "nan", ""})
    EXPECT_EQ(refused({"trace", "17", "--seconds", bad}),
              std::string("--seconds ") + bad + ": expected 0.001 to 60 seconds");
}

}  // namespace
}  // namespace weft::tool
