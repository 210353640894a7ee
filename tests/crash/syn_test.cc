// SPDX-License-Identifier: Apache-2.0
// SYN: what ends the process, or needs an operator new of its own. Each case is a program (progs/).
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "support/process.h"

namespace weft::test {
namespace {

TEST(Conformance, SYN_02_misuse_is_fatal) {
  const std::string mutex = "sync: unlock of unlocked mutex";
  const std::string write = "sync: Unlock of unlocked RWMutex";
  const std::string read = "sync: RUnlock of unlocked RWMutex";
  for (const auto& [how, what] : {std::pair("Mutex.Unlock", mutex),
                                  {"Mutex.Unlock2", mutex},
                                  {"RWMutex.Unlock", write},
                                  {"RWMutex.Unlock2", write},
                                  {"RWMutex.Unlock3", write},
                                  {"RWMutex.RUnlock", read},
                                  {"RWMutex.RUnlock2", read},
                                  {"RWMutex.RUnlock3", read}}) {
    for (const bool plain : {false, true}) {
      SCOPED_TRACE(how);
      std::vector<std::string> args{how};
      if (plain) args.emplace_back("plain");
      const outcome o = run_crash("sync_misuse", args);
      EXPECT_EQ(o.status, 2) << o;
      EXPECT_TRUE(o.err.starts_with("fatal error: " + what + "\n")) << o;
      EXPECT_EQ(o.out, "") << o;
    }
  }
}

TEST(Conformance, SYN_08_an_exception_ends_the_process_before_wait_returns) {
  for (const char* how : {"plainly", "in-a-goexit"}) {
    SCOPED_TRACE(how);
    const outcome o = run_crash("wait_group_throws", {how});
    EXPECT_EQ(o.status, 2) << o;
    EXPECT_TRUE(o.err.starts_with("panic: test\n\ngoroutine ")) << o;
    EXPECT_EQ(o.out, "") << o;
  }
}

TEST(Conformance, SYN_10_repeats_allocate_nothing) {
  const outcome o = run_crash("once_allocations");
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_EQ(o.out, "0 allocations\n") << o;
}

}  // namespace
}  // namespace weft::test
