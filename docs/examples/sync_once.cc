// SPDX-License-Identifier: Apache-2.0
// An example of docs/sync.md.
#include <cassert>
#include <stdexcept>
#include <string>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    weft::once first;
    int attempts = 0;
    const auto connect = [&] {
      if (++attempts == 1) throw std::runtime_error("no route");
    };
    try {
      first.call(connect);
    } catch (const std::runtime_error&) {
    }
    first.call(connect);  // has not run yet: runs now
    first.call(connect);
    assert(attempts == 2);

    int reads = 0;
    const auto settings = weft::once_value([&] {
      ++reads;
      return std::string("verbose");
    });
    weft::wait_group wg;
    for (int i = 0; i < 4; ++i) wg.go([&] { assert(settings() == "verbose"); });
    wg.wait();
    assert(reads == 1);

    const auto greet = weft::once_func([&] { ++reads; });
    greet();
    greet();
    assert(reads == 2);
  });
}
