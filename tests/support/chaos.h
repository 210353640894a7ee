// SPDX-License-Identifier: Apache-2.0
// What tests say to the chaos build (base/chaos.h); nothing in the others.
#pragma once

#include <gtest/gtest.h>

#include "base/chaos.h"

namespace weft::test {

// For a test that is about the order or the place in which goroutines run: a forced steal, move or
// stop is no fault of the scheduler there. Delays stay. In the test's first line, for its length:
// `const order_matters here("why");`
class order_matters {
 public:
  explicit order_matters(const char*) {}

#if defined(WEFT_CHAOS)
 private:
  rt::chaos::no_force none_;
#endif
};

}  // namespace weft::test

// For one that measures how long something takes: no delays, no choices. Says so in its output.
#if defined(WEFT_CHAOS)
#define WEFT_SKIP_UNDER_CHAOS(why)                                         \
  do {                                                                     \
    if (std::string_view(::weft::rt::chaos::setting()) != "off")           \
      GTEST_SKIP() << "not under chaos: " why " (WEFT_CHAOS=off runs it)"; \
  } while (false)
#else
#define WEFT_SKIP_UNDER_CHAOS(why) (void)0
#endif
