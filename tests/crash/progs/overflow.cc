// SPDX-License-Identifier: Apache-2.0
// STK: stacks that overflow, and faults that are somebody else's.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <ucontext.h>
#include <unistd.h>

#include "context/context.h"
#include "core/current.h"
#include "os/memory.h"
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

// How far it is from here over the guard to memory that cannot be touched. (What lies below a stack
// is not always the same, and a frame that ends in a stranger's memory is nobody's to notice.)
std::size_t over_the_guard() {
  char here;
  std::uintptr_t at = weft::rt::current_g()->stk.base - 1024 * 1024;
  while (weft::rt::is_readable(at)) at -= 4096;
  return reinterpret_cast<std::uintptr_t>(&here) - (at + 2048);
}

[[gnu::noinline]] void fill(char* at, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) at[i] = sink;
}

[[gnu::noinline]] int huge(bool by_call) {
  const std::size_t n = over_the_guard();
  char* frame = static_cast<char*>(__builtin_alloca(n));
  if (by_call) fill(frame, n);
  *static_cast<volatile char*>(frame) = 1;
  return sink;
}

int* volatile nowhere = nullptr;
[[gnu::noinline]] __attribute__((no_sanitize("undefined"))) void touch_null() { *nowhere = 1; }

[[noreturn]] void users(int, siginfo_t* info, void*) {
  char text[] = "user's handler: 0\n";
  text[16] = static_cast<char>('0' + (info->si_addr == nullptr ? 1 : 0));
  (void)!::write(1, text, sizeof text - 1);
  ::_exit(5);
}

void handle_faults() {
  struct sigaction sa {};
  sa.sa_sigaction = users;
  sa.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &sa, nullptr);
}

// One that the program has made itself.
void call_on_own_stack(void (*f)()) {
  static char stack[256 * 1024];
  static ucontext_t here, there;
  ::getcontext(&there);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = sizeof stack;
  there.uc_link = &here;
  ::makecontext(&there, f, 0);
  ::swapcontext(&here, &there);
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
  if (how == "huge" || how == "huge-by-call") {
    return weft::run(c, [by_call = how == "huge-by-call"] {
      weft::go({.name = "giant"}, [by_call] { sink = static_cast<char>(huge(by_call)); });
      weft::chan<int>().recv();
    });
  }
  if (how == "own-stack-null" || how == "own-stack-wild") {
    handle_faults();
    return weft::run(c, [wild = how == "own-stack-wild"] {
      // Between that stack, in the program's data, and the goroutine's.
      if (wild) nowhere = reinterpret_cast<int*>(0x6000'0000'0000);
      call_on_own_stack(touch_null);
    });
  }
  if (how == "null" || how == "null-handled") {
    if (how == "null-handled") handle_faults();
    return weft::run(c, [] { touch_null(); });
  }
  if (how == "sent") {
    return weft::run(c, [] { ::raise(SIGSEGV); });
  }
  if (how == "signal") {  // of the stack that signal handlers have
    struct sigaction sa {};
    sa.sa_handler = [](int) { sink = static_cast<char>(shallow(0)); };
    sa.sa_flags = SA_ONSTACK;
    ::sigaction(SIGUSR1, &sa, nullptr);
    return weft::run(c, [] { ::raise(SIGUSR1); });
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
