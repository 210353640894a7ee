// SPDX-License-Identifier: Apache-2.0
// What main throws is no goroutine's affair: run throws it.
#include <cstdio>
#include <stdexcept>

#include "weft/weft.hpp"

int main() {
  try {
    weft::run([] {
      std::printf("%d\n", static_cast<int>(weft::goid()));
      throw std::runtime_error("test");
    });
  } catch (const std::runtime_error& e) {
    std::printf("caught %s\n", e.what());
  }
  return weft::run([] { return 3; });
}
