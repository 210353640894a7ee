// SPDX-License-Identifier: Apache-2.0
// LCK-03: main ends locked to the thread of run, by goexit; the others run on.
#include <cstdio>

#include "weft/chan.hpp"
#include "weft/go.hpp"
#include "weft/run.hpp"
#include "weft/thread.hpp"
#include "weft/time.hpp"

int main() {
  weft::config c;
  c.procs = 1;
  return weft::run(c, [] {
    weft::lock_os_thread();
    weft::go([] {
      weft::sleep_for(std::chrono::milliseconds(20));
      std::puts("alive");
      weft::exit(0);
    });
    weft::goexit();
  });
}
