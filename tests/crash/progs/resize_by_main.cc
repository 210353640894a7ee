// SPDX-License-Identifier: Apache-2.0
// Main stops the world before it has left the thread that called run, and others never stop
// yielding: run must still return when main does.
#include <cstdio>
#include <string_view>

#include "weft/weft.hpp"

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  for (int i = 0; i < 10; ++i) {
    weft::config c;
    c.procs = 2;
    weft::run(c, [how] {
      for (int k = 0; k < 4; ++k) {
        weft::go([] {
          for (;;) weft::yield();
        });
      }
      if (how == "audit") weft::debug::audit();
      if (how == "grow") weft::set_procs(3);
      if (how == "shrink") weft::set_procs(1);
      weft::yield();
    });
  }
  std::puts("returned");
}
