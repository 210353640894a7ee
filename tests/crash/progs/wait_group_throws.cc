// SPDX-License-Identifier: Apache-2.0
// SYN-08: an exception out of wait_group::go's function; wait must not return before the report.
// Nor if it comes out of a goexit.
#include <cstdio>
#include <stdexcept>
#include <string_view>

#include "weft/run.hpp"
#include "weft/sync.hpp"

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  weft::run([what] {
    weft::wait_group wg;
    wg.go([what] {
      if (what == "in-a-goexit") {
        try {
          weft::goexit();
        } catch (...) {
          throw std::runtime_error("test");
        }
      }
      throw std::runtime_error("test");
    });
    wg.wait();
    std::puts("behind");
  });
}
