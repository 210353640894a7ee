// SPDX-License-Identifier: Apache-2.0
// SIGQUIT: prints every goroutine, exit status 2; unless the program has a handler of its own.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

#include "weft/weft.hpp"

using namespace std::chrono_literals;

namespace {

[[gnu::noinline]] void idler(weft::chan<int> c) { (void)c.recv(); }

std::atomic<int> there{0};
volatile unsigned turns = 0;

[[gnu::noinline]] void spin() {
  for (++there;;) turns = turns + 1;
}

[[gnu::noinline]] void on_its_system_stack() { weft::on_system_stack(spin); }

[[gnu::noinline]] void in_a_call() {
  int ends[2];
  if (::pipe(ends) != 0) return;
  ++there;
  char c;
  (void)!::read(ends[0], &c, 1);
  turns = 0;  // no tail call
}

// Who is to be seen wherever he is: four that compute, two on their system stacks, two in a call.
void all_over_the_place() {
  for (int i = 0; i < 4; ++i) weft::go({.name = "hog"}, spin);
  for (int i = 0; i < 2; ++i) weft::go({.name = "deep"}, on_its_system_stack);
  weft::go({.name = "reader"}, in_a_call);
  weft::go({.name = "caller"}, [] {
    weft::blocking(in_a_call);
    turns = 1;
  });
  while (there < 8) weft::sleep_for(1ms);
}

// The child of a fork has nobody to report; it ends by the signal, and we with its number.
int quit_in_a_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::kill(::getpid(), SIGQUIT);
    ::sleep(10);
    ::_exit(9);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

int main(int, char** argv) {
  const std::string_view how = argv[1];
  if (how == "handled") {
    std::signal(SIGQUIT, [](int) { ::_exit(6); });
  }
  weft::config c = weft::config::from_env();
  c.procs = how == "all" ? 8 : 2;
  if (how == "child") return weft::run(c, quit_in_a_child);
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
    if (how == "all") all_over_the_place();
    ::kill(::getpid(), SIGQUIT);
    weft::sleep_for(60s);
  });
}
