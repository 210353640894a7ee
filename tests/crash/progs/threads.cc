// SPDX-License-Identifier: Apache-2.0
// SYS-01, SYS-04: the fuse, and signals that end the process or do not.
#include <csignal>
#include <cstdio>
#include <string_view>
#include <unistd.h>

#include "weft/chan.hpp"
#include "weft/go.hpp"
#include "weft/run.hpp"
#include "weft/thread.hpp"
#include "weft/time.hpp"

namespace {

void exhaust() {
  weft::config c;
  c.procs = 2;
  c.max_threads = 10;
  weft::run(c, [] {
    for (int i = 0; i < 100; ++i) {
      weft::go([] {
        weft::lock_os_thread();
        weft::chan<int>(nullptr).recv();
      });
    }
    for (;;) weft::sleep_for(std::chrono::seconds(1));
  });
}

void large() {
  weft::run([] {
    const auto before = weft::set_max_threads(std::size_t{1} << 31);
    std::printf("%zu %zu\n", before, weft::set_max_threads(10'000));
    weft::go([] {});
    weft::sleep_for(std::chrono::milliseconds(1));
  });
}

}  // namespace

int main(int, char** argv) {
  const std::string_view how = argv[1];
  if (how == "exhaust") exhaust();
  if (how == "large") large();
  if (how == "sigterm") {
    weft::run([] {
      ::kill(::getpid(), SIGTERM);
      for (;;) weft::sleep_for(std::chrono::seconds(1));
    });
  }
  if (how == "sigtrap") {
    std::signal(SIGTRAP, SIG_IGN);
    weft::run([] {
      ::kill(::getpid(), SIGTRAP);
      weft::sleep_for(std::chrono::milliseconds(20));
      std::puts("ignored");
    });
  }
}
