// SPDX-License-Identifier: Apache-2.0
// TRC: runs for a while with the WEFT_DEBUG that the test has set.
#include <chrono>

#include "weft/weft.hpp"

using namespace std::chrono_literals;

int main() {
  return weft::run([] {
    weft::chan<int> late;
    weft::scope s;
    s.go([late] { (void)late.recv(); });
    weft::sleep_for(400ms);
    late.close();
    s.wait();
  });
}
