// SPDX-License-Identifier: Apache-2.0
// What tests of the running scheduler share: a run that proves that it left nothing behind, and
// waits with a limit.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <sched.h>
#include <utility>

#include "base/atomic.h"
#include "support/effort.h"
#include "weft/debug.hpp"
#include "weft/go.hpp"
#include "weft/run.hpp"

namespace weft::test {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

// Far beyond what anything here takes: a wait that lasts this long has failed.
inline constexpr auto patience = 10s;

// Waits until pred() holds, giving way between looks: to other goroutines, and to other threads.
// False if it still does not hold after `limit`.
template <class Pred>
bool eventually(Pred pred, std::chrono::nanoseconds limit = patience) {
  const auto until = steady::now() + limit;
  while (!pred()) {
    if (steady::now() >= until) return pred();
    weft::yield();
    ::sched_yield();
  }
  return true;
}

// The same without a call into the runtime: a goroutine keeps its P meanwhile.
template <class Pred>
bool spin_until(Pred pred, std::chrono::nanoseconds limit = patience) {
  for (int i = 0; i < 2000; ++i) {
    if (pred()) return true;
    rt::cpu_relax();
  }
  const auto until = steady::now() + limit;
  while (!pred()) {
    if (steady::now() >= until) return pred();
    ::sched_yield();  // the CPU may be wanted by the one we wait for
  }
  return true;
}

// The environment's configuration (WEFT_PROCS) with a number of Ps that the test needs.
inline config with_procs(int n) {
  config c = config::from_env();
  c.procs = n;
  return c;
}
// The environment's configuration, but at least n Ps.
inline config at_least_procs(int n) {
  config c = config::from_env();
  c.procs = std::max(n, c.procs > 0 ? c.procs : weft::procs());
  return c;
}

// Runs f as main. When f returns, every goroutine it has started must end within `patience`, and
// the scheduler must be sound.
template <class F>
void run_clean(const config& c, F f) {
  weft::run(c, [&f] {
    f();
    EXPECT_TRUE(eventually([] { return num_goroutines() == 1; }))
        << num_goroutines() - 1 << " goroutines left behind";
    EXPECT_EQ(debug::audit(), 0);
  });
  EXPECT_EQ(num_goroutines(), 0U);
}
template <class F>
void run_clean(F f) {
  run_clean(config::from_env(), std::move(f));
}

}  // namespace weft::test
