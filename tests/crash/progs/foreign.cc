// SPDX-License-Identifier: Apache-2.0
// FRN: a host with threads, signal handlers and destructors of its own calls in.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <unistd.h>

#include "weft/weft.hpp"

namespace {

using namespace std::chrono_literals;

void say(const char* text) { (void)!::write(1, text, std::strlen(text)); }

void in_host_handler(int sig) {
  say(sig == SIGABRT ? "the host's SIGABRT\n" : "the host's SIGSEGV\n");
  ::_exit(7);
}
void install(int sig) {
  struct sigaction sa {};
  sa.sa_handler = in_host_handler;
  sa.sa_flags = SA_ONSTACK;
  ::sigaction(sig, &sa, nullptr);
}

volatile int* volatile nowhere = nullptr;
[[gnu::noinline]] __attribute__((no_sanitize("undefined"))) void fault() { *nowhere = 1; }

[[gnu::noinline]] int overflow(int n) {  // NOLINT(misc-no-recursion)
  volatile char frame[4096];
  frame[0] = static_cast<char>(n);
  return n < 0 ? 0 : overflow(n + 1) + frame[0];
}

// Runs f on a plain thread beside a run, and waits for it.
template <class F>
int from_a_thread(F f) {
  return weft::run([&] {
    std::thread t(f);
    weft::blocking([&] { t.join(); });
    weft::sleep_for(10s);  // for what it has started to end the process
  });
}

bool call_at_exit = false;

// After main, after the destructors of every static object.
__attribute__((destructor)) void at_the_very_end() {
  if (!call_at_exit) return;
  const weft::chan<int> c(1);
  c.send(20);
  const int before = *c.recv();
  int in_a_run = 0;
  weft::run([&] {
    std::thread t([&] { c.send(22); });
    in_a_run = *weft::async([&] { return c.recv(); }).get();
    weft::blocking([&] { t.join(); });
  });
  say(before + in_a_run == 42 ? "42\n" : "wrong\n");
}

}  // namespace

int main(int, char** argv) {
  const std::string_view how = argv[1];
  if (how == "panic")
    return from_a_thread([] { weft::go([] { throw std::runtime_error("BOOM"); }); });
  if (how == "goexit") return from_a_thread([] { weft::goexit(); });
  if (how == "destructor") {
    call_at_exit = true;
    return weft::run([] {});
  }
  if (how == "fault-early-thread") {
    install(SIGSEGV);
    return from_a_thread(fault);
  }
  if (how == "fault-early-goroutine") {
    install(SIGSEGV);
    return weft::run([] { weft::async(fault).get(); });
  }
  if (how == "fault-late") {
    return weft::run([] {
      install(SIGSEGV);
      weft::async(fault).get();
    });
  }
  if (how == "fault-unhandled-thread") return from_a_thread(fault);
  if (how == "overflow-early") {
    install(SIGSEGV);
    return weft::run([] { weft::async(overflow, 0).get(); });
  }
  if (how == "abort-early") {
    install(SIGABRT);
    return weft::run([] { weft::async(std::abort).get(); });
  }
  if (how == "abort-late") {
    return weft::run([] {
      install(SIGABRT);
      weft::async(std::abort).get();
    });
  }
  return 9;
}
