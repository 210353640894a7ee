// SPDX-License-Identifier: Apache-2.0
// GoogleTest's main, with --replay=STRING: see checker.h.
#include <cstring>
#include <gtest/gtest.h>

#include "systematic/checker.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--replay=", 9) == 0) systematic::replay_option() = argv[i] + 9;
  }
  return RUN_ALL_TESTS();
}
