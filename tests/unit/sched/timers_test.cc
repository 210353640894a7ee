// SPDX-License-Identifier: Apache-2.0
// Timers on the stacks of goroutines (sched/timers.h), where time_test.cc cannot reach.
#include "sched/timers.h"

#include <gtest/gtest.h>

#include "core/current.h"
#include "os/clock.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

// One that had lost its P when its run ended, and only then comes to wait with a deadline: what its
// timer refers to may be gone when the next run fires it.
TEST(Timers, NobodyOfAnEndedRunIsArmed) {
  rt::G* g = nullptr;
  sched_test::run_on(2, [&g] { g = rt::current_g(); });
  static bool fired = false;
  rt::timer t;
  t.fire = [](rt::timer*) noexcept -> rt::G* {
    fired = true;
    return nullptr;
  };
  rt::arm(&t, rt::nanotime(), g);
  EXPECT_EQ(t.home, nullptr);
  EXPECT_FALSE(rt::disarm(&t));

  // The P that it would have gone to may have been abandoned, too.
  rt::P* p = rt::sched.allp[0].exchange(nullptr);
  rt::arm(&t, rt::nanotime(), g);
  rt::sched.allp[0].store(p);
  EXPECT_EQ(t.home, nullptr);

  sched_test::run_on(1, [] { yield(); });
  EXPECT_FALSE(fired);
}

}  // namespace
}  // namespace weft
