// SPDX-License-Identifier: Apache-2.0
// An example of docs/sync.md.
#include <cassert>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    int rounds = 0;
    const auto swap_buffers = [&]() noexcept { ++rounds; };  // by the last to arrive, once a round
    weft::barrier sync(4, swap_buffers);
    weft::wait_group wg;
    for (int i = 0; i < 4; ++i) {
      wg.go([&] {
        for (int round = 1; round <= 5; ++round) {
          sync.arrive_and_wait();
          assert(rounds == 2 * round - 1);
          sync.arrive_and_wait();
        }
      });
    }
    wg.wait();
    assert(rounds == 10);
  });
}
