// SPDX-License-Identifier: Apache-2.0
// STK: stacks that overflow, and faults that are somebody else's.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <unistd.h>

#include "context/context.h"
#include "core/current.h"
#include "weft/weft.hpp"

namespace {

volatile char sink;

// 64 KiB a frame, as in Go's test.
[[gnu::noinline]] int deep(int n) {
  char frame[64 * 1024];
  std::memset(frame, n, sizeof frame);
  sink = frame[n % 1000];
  if (n > 1'000'000) return sink;
  return deep(n + 1) + sink;
}

[[gnu::noinline]] int shallow(int n) {
  sink = static_cast<char>(n);
  if (n > 1'000'000'000) return sink;
  return shallow(n + 1) + sink;
}

int* volatile nowhere = nullptr;
[[gnu::noinline]] __attribute__((no_sanitize("undefined"))) void touch_null() { *nowhere = 1; }

[[noreturn]] void users(int, siginfo_t* info, void*) {
  char text[] = "user's handler: 0\n";
  text[16] = static_cast<char>('0' + (info->si_addr == nullptr ? 1 : 0));
  (void)!::write(1, text, sizeof text - 1);
  ::_exit(5);
}

void on_g0(void*, void*) { sink = static_cast<char>(shallow(0)); }

}  // namespace

int main(int, char** argv) {
  const std::string_view how = argv[1];
  weft::config c;
  if (how == "main") {
    c.main_stack_size = 1'474'560;
    return weft::run(c, [] { return deep(0); });
  }
  if (how == "goroutine") {
    return weft::run(c, [] {
      weft::go({.name = "diver"}, [] { sink = static_cast<char>(shallow(0)); });
      weft::chan<int>().recv();
    });
  }
  if (how == "null" || how == "null-handled") {
    if (how == "null-handled") {
      struct sigaction sa {};
      sa.sa_sigaction = users;
      sa.sa_flags = SA_SIGINFO;
      ::sigaction(SIGSEGV, &sa, nullptr);
    }
    return weft::run(c, [] { touch_null(); });
  }
  if (how == "sent") {
    return weft::run(c, [] { ::raise(SIGSEGV); });
  }
  if (how == "g0") {
    return weft::run(c, [] {
      weft::rt::M* m = weft::rt::current_m();
      void* sp = nullptr;
      weft_switch(&sp, m->g0.sp, on_g0, nullptr, nullptr);
    });
  }
  return 9;
}
