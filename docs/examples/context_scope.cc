// SPDX-License-Identifier: Apache-2.0
// An example of docs/context.md.
#include <cassert>
#include <stdexcept>
#include <string>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    weft::scope s;
    s.go([&] { s.context().done().recv(); });  // would wait for ever, but for its brother
    s.go([] { throw std::runtime_error("disk full"); });
    try {
      s.wait();
    } catch (const std::runtime_error& e) {
      assert(e.what() == std::string("disk full"));
    }
    assert(s.context().err() == weft::errc::canceled);
    assert(s.context().cause() != nullptr);  // the very exception
  });
}
