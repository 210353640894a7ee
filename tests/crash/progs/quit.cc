// SPDX-License-Identifier: Apache-2.0
// SIGQUIT: prints every goroutine, exit status 2; unless the program has a handler of its own.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <unistd.h>

#include "weft/weft.hpp"

using namespace std::chrono_literals;

namespace {

[[gnu::noinline]] void idler(weft::chan<int> c) { (void)c.recv(); }

}  // namespace

int main(int, char** argv) {
  const std::string_view how = argv[1];
  if (how == "handled") {
    std::signal(SIGQUIT, [](int) { ::_exit(6); });
  }
  weft::config c;
  c.procs = 2;
  return weft::run(c, [&] {
    weft::chan<int> never;
    for (int i = 0; i < 3; ++i) weft::go({.name = "idler"}, idler, never);
    weft::after_func(1h, [] {});
    if (how == "busy") {
      weft::go({.name = "hog"}, [] {
        volatile unsigned n = 0;
        for (;;) n = n + 1;
      });
    }
    while (weft::debug::runtime_stats().waiting < 3) weft::yield();
    if (how == "busy") weft::sleep_for(50ms);
    ::kill(::getpid(), SIGQUIT);
    weft::sleep_for(60s);
  });
}
