// SPDX-License-Identifier: Apache-2.0
// BUB: what ends the process. Each case is a program (progs/bubble.cc).
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "support/process.h"

namespace weft::test {
namespace {

void is_fatal(const std::string& how, bool in_another, const std::string& what) {
  std::vector<std::string> args{how};
  if (in_another) args.emplace_back("another");
  const outcome o = run_crash("bubble", args);
  EXPECT_EQ(o.status, 2) << how << '\n' << o;
  EXPECT_TRUE(o.err.starts_with("fatal error: " + what + "\n")) << how << '\n' << o;
  EXPECT_EQ(o.out, "") << how << '\n' << o;
}

TEST(Conformance, BUB_07_use_from_outside_is_fatal) {
  const std::string channel = " on synctest channel from outside bubble";
  const std::string timer = " of synctest timer from outside bubble";
  const std::string wake = "semaphore wake of synctest goroutine from outside bubble";
  for (const bool in_another : {false, true}) {
    is_fatal("receive", in_another, "receive" + channel);
    is_fatal("try_recv", in_another, "receive" + channel);
    is_fatal("send", in_another, "send" + channel);
    is_fatal("try_send", in_another, "send" + channel);
    is_fatal("close", in_another, "close of synctest channel from outside bubble");
    is_fatal("select", in_another, "select" + channel);
    is_fatal("timer", in_another, "receive" + channel);
    is_fatal("reset", in_another, "reset" + timer);
    is_fatal("stop", in_another, "stop" + timer);
    is_fatal("signal", in_another, wake);
    is_fatal("semaphore", in_another, wake);
  }
}

TEST(Conformance, BUB_08_a_wait_group_of_two_worlds_is_fatal) {
  for (const char* how : {"add", "done"}) {
    is_fatal(how, false, "sync: WaitGroup.Add called from inside and outside synctest bubble");
    is_fatal(how, true, "sync: WaitGroup.Add called from multiple synctest bubbles");
  }
}

}  // namespace
}  // namespace weft::test
