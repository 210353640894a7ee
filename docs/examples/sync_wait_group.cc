// SPDX-License-Identifier: Apache-2.0
// An example of docs/sync.md.
#include <cassert>
#include <thread>
#include <vector>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    std::vector<int> squares(10);
    weft::wait_group wg;
    for (int i = 0; i < 10; ++i) {
      wg.go([&squares, i] { squares[static_cast<std::size_t>(i)] = i * i; });
    }
    wg.add(1);  // or by hand
    std::thread t([&] { wg.done(); });
    wg.wait();
    assert(squares[9] == 81);
    t.join();
  });
}
