// SPDX-License-Identifier: Apache-2.0
// net/fd_mutex.h: who waits in line when the descriptor is closed.
#include "net/fd_mutex.h"

#include <gtest/gtest.h>

#include "support/runtime.h"
#include "weft/go.hpp"

namespace weft::detail {
namespace {

class InLine : public ::testing::TestWithParam<fd_mutex::line> {};

// A close that wakes nobody (from outside a bubble) leaves it to the one who is in.
TEST_P(InLine, AllFindItClosed) {
  test::run_clean(test::with_procs(1), [] {
    fd_mutex mu;
    ASSERT_TRUE(mu.lock(rt::poll_mode::read));
    scope s;
    int closed = 0;
    for (int i = 0; i < 3; ++i) {
      s.go([&] { closed += mu.lock(rt::poll_mode::read) ? 0 : 1; });
    }
    yield();  // with one P they are in line now
    ASSERT_TRUE(mu.close(GetParam()));
    EXPECT_FALSE(mu.unlock(rt::poll_mode::read));
    s.wait();
    EXPECT_EQ(closed, 3);
    EXPECT_TRUE(mu.leave());
  });
}

INSTANTIATE_TEST_SUITE_P(Close, InLine,
                         ::testing::Values(fd_mutex::line::stays, fd_mutex::line::wakes));

}  // namespace
}  // namespace weft::detail
