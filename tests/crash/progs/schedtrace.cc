// SPDX-License-Identifier: Apache-2.0
// TRC: runs for a while with the WEFT_DEBUG that the test has set.
#include <chrono>

#include "weft/weft.hpp"

using namespace std::chrono_literals;

int main() {
  return weft::run([] {
    weft::chan<int> never;
    weft::go([never] { (void)never.recv(); });
    weft::sleep_for(400ms);
  });
}
