// SPDX-License-Identifier: Apache-2.0
// An hour of retries in no time.
#include <cassert>
#include <weft/weft.hpp>

using namespace std::chrono_literals;

// Tries until it works or ctx is done: after 1 s, 2 s, 4 s, ... a minute at most.
template <class F>
std::error_code retry(const weft::context& ctx, F f) {
  for (auto wait = 1s; !f(); wait = std::min(2 * wait, std::chrono::seconds(1min))) {
    if (const auto e = weft::sleep_for(ctx, wait)) return e;
  }
  return {};
}

int main() {
  weft::testing::bubble(1, [] {
    const auto begin = weft::clock::now();
    int tries = 0;
    assert(!retry(weft::background(), [&] { return ++tries == 4; }));
    assert(weft::clock::now() - begin == 7s);  // to the nanosecond

    auto [ctx, cancel] = weft::with_timeout(weft::background(), 1h);
    assert(retry(ctx, [] { return false; }) == weft::errc::deadline_exceeded);
    assert(weft::clock::now() - begin == 1h + 7s);

    // All that the others can do at this moment has been done when wait() returns.
    bool started = false;
    weft::go([&] {
      started = true;
      weft::sleep_for(5s);
    });
    weft::testing::wait();
    assert(started && weft::clock::now() - begin == 1h + 7s);
    weft::sleep_for(5s);
  });

  try {
    weft::testing::bubble(1, [] {
      const weft::chan<int> nobody_sends;
      nobody_sends.recv();
    });
    assert(false);
  } catch (const weft::testing::deadlock&) {
  }
}
