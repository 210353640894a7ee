// SPDX-License-Identifier: Apache-2.0
// Dies while a trace goes to a file, or to memory (TRC-06, TRC-07).
#include <stdexcept>
#include <string_view>

#include "weft/weft.hpp"

int main(int, char** argv) {
  const std::string_view how = argv[1];
  return weft::run([&] {
    if (how == "file") {
      weft::debug::trace::start(argv[2]);
    } else {
      weft::debug::trace::record({.on_fatal = argv[2]});
    }
    weft::chan<int> c;
    weft::go([c] {
      for (int i = 0; i < 100; ++i) c.send(i);
      weft::debug::trace::log("just before");
      throw std::runtime_error("boom");
    });
    while (c.recv()) {
    }
  });
}
