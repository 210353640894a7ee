// SPDX-License-Identifier: Apache-2.0
// Sleeping, timers and tickers.
#include <cassert>
#include <weft/weft.hpp>

using namespace std::chrono_literals;

int main() {
  return weft::run([] {
    const auto begin = weft::clock::now();
    weft::sleep_for(2ms);  // the goroutine waits; its thread runs others
    assert(weft::clock::now() - begin >= 2ms);

    weft::timer t(1h);
    assert(t.stop());       // it will not fire
    assert(!t.reset(1ms));  // it was not pending any more; now it is
    assert(t.c.recv().has_value());

    int ticks = 0;
    const weft::ticker every(1ms);
    for (auto at : every.c) {
      assert(at > begin);
      if (++ticks == 3) break;
    }
    every.stop();

    weft::chan<void> ran;
    weft::after_func(1ms, [ran] { ran.close(); });  // in a goroutine of its own
    ran.recv();
  });
}
