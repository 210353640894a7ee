// SPDX-License-Identifier: Apache-2.0
// LeakSanitizer asks this at the end of the program.
#include "support/leaks.h"

namespace weft::test {

constinit std::atomic<bool> goroutines_are_left_behind{false};

}  // namespace weft::test

#if defined(WEFT_ASAN)
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();  // NOLINT
extern "C" int __lsan_is_turned_off() {                                        // NOLINT
  return weft::test::goroutines_are_left_behind ? 1 : 0;
}
#endif
