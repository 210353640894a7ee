// SPDX-License-Identifier: Apache-2.0
// What goroutines own that a run leaves behind is never destroyed (API.md). A test that leaves some
// says so; it is a process of its own, so no other loses its check.
#pragma once

#include <atomic>

namespace weft::test {

extern constinit std::atomic<bool> goroutines_are_left_behind;

}  // namespace weft::test
