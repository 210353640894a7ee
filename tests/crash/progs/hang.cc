// SPDX-License-Identifier: Apache-2.0
// Goroutines that wait, compute and sit in a system call, for a debugger to look at: a plain thread
// stops the process when all are in place.
#include <csignal>
#include <thread>
#include <unistd.h>

#include "weft/weft.hpp"

namespace {

weft::chan<int> never;
int nothing[2];
volatile bool computing = false;

[[gnu::noinline]] void waits_here() {
  (void)never.recv();
  asm volatile("");
}
[[gnu::noinline]] void computes_here() {
  for (;;) computing = true;
}
[[gnu::noinline]] void reads_here() {
  char c = 0;
  weft::blocking([&] { return ::read(nothing[0], &c, 1); });
  asm volatile("");
}

}  // namespace

int main() {
  if (::pipe(nothing) != 0) return 1;
  return weft::run({.procs = 3}, [] {
    weft::go({.name = "one who waits"}, waits_here);
    weft::go(computes_here);
    weft::go(reads_here);
    std::thread([] {
      for (;;) {
        const weft::debug::stats s = weft::debug::runtime_stats();
        if (s.waiting == 2 && s.syscall == 1 && computing) break;
        ::usleep(1000);
      }
      ::raise(SIGTRAP);
    }).detach();
    (void)never.recv();
  });
}
