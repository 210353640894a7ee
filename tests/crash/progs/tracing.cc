// SPDX-License-Identifier: Apache-2.0
// Dies while a trace goes to a file, or to memory (TRC-06, TRC-07).
#include <cstddef>
#include <stdexcept>
#include <string_view>

#include "weft/weft.hpp"

int main(int, char** argv) {
  const std::string_view how = argv[1];
  return weft::run([&] {
    if (how == "file") {
      weft::debug::trace::start(argv[2]);
    } else {  // busy: far more happens in a second than fits
      weft::debug::trace::record(
          {.bytes = how == "busy" ? std::size_t{1} << 20 : std::size_t{1} << 24,
           .on_fatal = argv[2]});
    }
    weft::chan<int> c;
    weft::go([c, n = how == "busy" ? 2'000'000 : 100] {
      for (int i = 0; i < n; ++i) c.send(i);
      weft::debug::trace::log("just before");
      throw std::runtime_error("boom");
    });
    while (c.recv()) {
    }
  });
}
