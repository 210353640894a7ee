// SPDX-License-Identifier: Apache-2.0
// TRC: runs with the WEFT_DEBUG that the test has set, until that closes our stdin.
#include <atomic>
#include <chrono>
#include <thread>
#include <unistd.h>

#include "weft/weft.hpp"

using namespace std::chrono_literals;

int main() {
  std::atomic<bool> over{false};
  std::thread reader([&] {
    char c = 0;
    while (::read(0, &c, 1) > 0) {
    }
    over = true;
  });
  const int status = weft::run([&] {
    weft::chan<int> late;
    weft::scope s;
    s.go([late] { (void)late.recv(); });
    while (!over) weft::sleep_for(50ms);
    late.close();
    s.wait();
  });
  reader.join();
  return status;
}
