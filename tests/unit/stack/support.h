// SPDX-License-Identifier: Apache-2.0
// What the stack tests share: a fixture that proves that no stack was left behind, and children,
// for tests that end a process or change it for good.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "os/memory.h"
#include "stack/stack.h"
#include "stack/stack_testing.h"
#include "support/effort.h"

namespace weft::rt::stack_test {

using test::sanitized;  // shadow memory spoils limits and counts

inline constexpr std::size_t kib = 1024;
inline constexpr std::size_t mib = 1024 * kib;
inline const std::size_t default_slot = stack_slot_size(256 * kib);

class StackTest : public ::testing::Test {
 protected:
  void SetUp() override { in_use_ = get_stack_stats().in_use; }
  void TearDown() override {
    EXPECT_EQ(get_stack_stats().in_use, in_use_) << "the test left stacks behind";
  }

 private:
  std::size_t in_use_ = 0;
};

// Emulators of user programs take any advice and do nothing; their limits and counts are the
// host's.
inline bool emulated() {
  const mapping m = map_memory(page_size());
  const memory_range r{m.addr, page_size()};
  const bool lied = advise(r, advice_guard_install) == 0 && is_readable(r.addr);
  unmap(r);
  return lied;
}

inline bool kernel_has_guards() {
  const mapping m = map_memory(page_size());
  const memory_range r{m.addr, page_size()};
  const bool has = advise(r, advice_guard_install) == 0 && !is_readable(r.addr);
  unmap(r);
  return has;
}

struct child_result {
  int exit_status = -1;  // -1: by a signal
  int signal = 0;
  std::string err;  // its standard error
};

// Runs f in a child process, which ends with status 0 if f returns.
template <class F>
child_result in_child(F f) {
  child_result r;
  int fds[2];
  if (::pipe(fds) != 0) return r;
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(fds[1], 2);
    ::close(fds[0]);
    ::close(fds[1]);
    f();
    ::_exit(0);
  }
  ::close(fds[1]);
  char buf[512];
  for (ssize_t k = 0; (k = ::read(fds[0], buf, sizeof buf)) > 0;)
    r.err.append(buf, static_cast<std::size_t>(k));
  ::close(fds[0]);
  int st = 0;
  if (pid > 0 && ::waitpid(pid, &st, 0) == pid) {
    if (WIFEXITED(st)) r.exit_status = WEXITSTATUS(st);
    if (WIFSIGNALED(st)) r.signal = WTERMSIG(st);
  }
  return r;
}

// In a child: says what does not hold and ends it.
#define CHILD_CHECK(e)                                                            \
  do {                                                                            \
    if (!(e)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #e); \
      ::_exit(1);                                                                 \
    }                                                                             \
  } while (false)

inline std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; at += what.size()) ++n;
  return n;
}

// A field of /proc/self/status, in KiB, without malloc.
inline std::size_t status_kib(const char* name) {
  static char buf[8192];
  std::FILE* f = std::fopen("/proc/self/status", "r");
  if (f == nullptr) return 0;
  const std::size_t n = std::fread(buf, 1, sizeof buf - 1, f);
  std::fclose(f);
  buf[n] = 0;
  const char* at = std::strstr(buf, name);
  return at == nullptr ? 0 : std::strtoul(at + std::strlen(name) + 1, nullptr, 10);
}

inline volatile char& byte_at(std::uintptr_t a) { return *reinterpret_cast<volatile char*>(a); }

// Calls f(arg) on the stack, and returns when it does.
inline void run_on(const stack& s, void (*f)(std::uintptr_t), std::uintptr_t arg) {
  static ucontext_t back, there;
  static void (*fn)(std::uintptr_t);
  static std::uintptr_t fn_arg;
  fn = f;
  fn_arg = arg;
  ::getcontext(&there);
  there.uc_stack.ss_sp = reinterpret_cast<void*>(s.lo);
  there.uc_stack.ss_size = stack_top(s) - s.lo;
  there.uc_link = &back;
  ::makecontext(
      &there, [] { fn(fn_arg); }, 0);
  ::swapcontext(&back, &there);
}

}  // namespace weft::rt::stack_test
