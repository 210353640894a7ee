// SPDX-License-Identifier: Apache-2.0
// SYS-07: a signal that races with the last stop.
#include <csignal>
#include <gtest/gtest.h>

#include "support/process.h"

namespace weft::test {
namespace {

TEST(Conformance, SYS_07_a_signal_that_races_with_stop_is_not_lost) {
#if defined(WEFT_TSAN)
  GTEST_SKIP() << "TSan calls handlers late, and drops a signal whose default is back by then";
#endif
  int delivered = 0, killed = 0;
  for (int i = 0; i < 10; ++i) {
    const outcome o = run_crash("signal_stop");
    ASSERT_TRUE(o.status == 0 || o.signal == SIGINT) << o;
    EXPECT_EQ(o.err, "") << o;
    ++(o.status == 0 ? delivered : killed);
  }
  RecordProperty("delivered", delivered);
  RecordProperty("killed", killed);
}

}  // namespace
}  // namespace weft::test
