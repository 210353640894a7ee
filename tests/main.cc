// SPDX-License-Identifier: Apache-2.0
// main of every test program. Tests that need the runtime call weft::run themselves.
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
