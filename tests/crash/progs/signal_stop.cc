// SPDX-License-Identifier: Apache-2.0
// SYS-07: a signal is sent while the last one who wants it stops. It must be delivered or take its
// default action, and so end this process. Exit status 0: always delivered; 1: one was lost.
#include <chrono>
#include <csignal>
#include <thread>
#include <unistd.h>

#include "weft/weft.hpp"

using namespace std::chrono_literals;

int main() {
  std::signal(SIGINT, SIG_DFL);
  weft::config c;
  c.procs = 4;
  return weft::run(c, [] {
    for (int round = 0; round < 10; ++round) {
      weft::signals s({SIGINT});
      weft::wait_group wg;
      wg.go([] { ::kill(::getpid(), SIGINT); });
      wg.go([&] {
        for (int i = 0; i < round % 3; ++i) weft::yield();
        s.stop();
      });
      wg.wait();
      if (s.c.len() == 1) continue;
      // Then its default action is on its way to some thread.
      std::this_thread::sleep_for(10s);
      return 1;
    }
    return 0;
  });
}
