// SPDX-License-Identifier: Apache-2.0
// What the tests of the public interface share: runs that prove they left nobody behind, and things
// that count how many of them there are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <utility>

#include <weft/detail/event.hpp>
#include <weft/go.hpp>
#include <weft/run.hpp>

#include "support/runtime.h"
#include "unit/support.h"

namespace weft::sched_test {

using unit_test::asan;
using unit_test::sanitized;
using unit_test::scaled;
using unit_test::tsan;
using weft::detail::event;

using test::eventually;

// Until the calling goroutine is the only one.
inline bool alone() {
  return eventually([] { return num_goroutines() == 1; });
}

// Runs f as main on so many Ps; it must leave nothing behind and the scheduler sound.
template <class F>
void run_on(int procs, F f) {
  SCOPED_TRACE(::testing::Message() << "procs " << procs);
  test::run_clean(test::with_procs(procs), std::move(f));
}

// Where the order is what is tested: nobody's slice ends because the machine held its thread up.
template <class F>
void run_unpreempted(int procs, F f) {
  config c = test::with_procs(procs);
  c.preempt = false;
  SCOPED_TRACE(::testing::Message() << "procs " << procs);
  test::run_clean(c, std::move(f));
}

template <class F>
void run_on_each(F f) {
  for (int procs : {1, 2, 3, 16}) run_on(procs, f);
}

// Counts its own instances; copies from the copies_until_throw-th on throw.
struct counted {
  static inline std::atomic<int> alive{0}, copies{0}, moves{0};
  static inline std::atomic<int> copies_until_throw{-1};
  static void reset() {
    copies = moves = 0;
    copies_until_throw = -1;
  }

  int value = 0;
  explicit counted(int v = 0) : value(v) { ++alive; }
  counted(const counted& o) : value(o.value) {
    if (copies_until_throw >= 0 && copies_until_throw-- == 0)
      throw std::runtime_error("copy refused");
    ++copies;
    ++alive;
  }
  counted(counted&& o) noexcept : value(std::exchange(o.value, -1)) {
    ++moves;
    ++alive;
  }
  counted& operator=(const counted&) = default;
  counted& operator=(counted&&) = default;
  ~counted() { --alive; }
};

// The text of what f throws, "" if it throws nothing.
template <class E = std::exception, class F>
std::string thrown_by(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

// After each test nothing lives that was counted, and no goroutine is on the books.
class GoTest : public ::testing::Test {
 protected:
  void SetUp() override { counted::reset(); }
  void TearDown() override {
    EXPECT_EQ(counted::alive, 0);
    EXPECT_EQ(num_goroutines(), 0U);
  }
};

// Takes its time to go, and says so.
class slow_to_go {
 public:
  explicit slow_to_go(std::atomic<bool>& gone) : gone_(&gone) {}
  slow_to_go(slow_to_go&& o) noexcept : gone_(std::exchange(o.gone_, nullptr)) {}
  slow_to_go& operator=(slow_to_go&&) = delete;
  ~slow_to_go() {
    if (gone_ == nullptr) return;
    for (int i = 0; i < 20; ++i) weft::yield();
    *gone_ = true;
  }

 private:
  std::atomic<bool>* gone_;
};

}  // namespace weft::sched_test
