// SPDX-License-Identifier: Apache-2.0
// SYN-08: an exception out of wait_group::go's function; wait must not return before the report.
#include <cstdio>
#include <stdexcept>

#include "weft/run.hpp"
#include "weft/sync.hpp"

int main() {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  weft::run([] {
    weft::wait_group wg;
    wg.go([] { throw std::runtime_error("test"); });
    wg.wait();
    std::puts("behind");
  });
}
