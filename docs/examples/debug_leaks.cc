// SPDX-License-Identifier: Apache-2.0
// docs/debugging.md: goroutines that are leaked.
#include <cassert>
#include <vector>
#include <weft/weft.hpp>

[[gnu::noinline]] void first_of_two() {
  weft::chan<int> result;
  for (int i = 0; i < 2; ++i) weft::go({.name = "asker"}, [result, i] { result.send(i); });
  (void)result.recv();  // and nobody will ever take the other one
}

int main() {
  return weft::run([] {
    first_of_two();
    while (weft::debug::runtime_stats().waiting != 1) weft::yield();
    const std::vector<weft::debug::leak> leaks = weft::debug::find_leaks();
    for (const weft::debug::leak& l : leaks) {
      assert(l.name == "asker");
      assert(l.reason == "chan send");
      assert(l.trace.find(" [chan send (leaked)]:\n") != std::string::npos);
    }
    assert(leaks.size() <= 1);
  });
}
