// SPDX-License-Identifier: Apache-2.0
// What the tests of sync objects share.
#pragma once

#include <cstdint>

#include "sched/waiter.h"

namespace weft::sched_test {

// Plain threads that are asleep in a call of ours.
inline std::uint32_t threads_still() {
  return static_cast<std::uint32_t>(rt::threads_still.load(rt::memory_order_seq_cst));
}

}  // namespace weft::sched_test
