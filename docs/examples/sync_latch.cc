// SPDX-License-Identifier: Apache-2.0
// An example of docs/sync.md.
#include <cassert>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    weft::latch ready(3), start(1);
    int loaded[3] = {};
    weft::wait_group wg;
    for (int& l : loaded) {
      wg.go([&] {
        l = 1;
        ready.count_down();
        start.wait();
      });
    }
    ready.wait();
    assert(loaded[0] + loaded[1] + loaded[2] == 3);
    start.count_down();
    wg.wait();
  });
}
