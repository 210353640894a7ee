// SPDX-License-Identifier: Apache-2.0
// What the unit tests of base, os, core, context, sched and sync share: what kind of build this is,
// and programs run as children whose output is looked at.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "support/effort.h"

namespace weft::unit_test {

inline constexpr bool asan = test::under_asan, tsan = test::under_tsan, dev = test::dev_build;
using test::sanitized;
using test::scaled;

struct child_end {
  int exit_status = -1;  // -1: by a signal
  int signal = 0;
  std::string err;  // its standard error
  std::string out;  // its standard output
};

namespace detail {
inline void read_all(int fd, std::string& to) {
  char buf[4096];
  for (ssize_t k = 0; (k = ::read(fd, buf, sizeof buf)) > 0;)
    to.append(buf, static_cast<std::size_t>(k));
  ::close(fd);
}
inline void reap(pid_t pid, child_end& e) {
  int st = 0;
  if (pid < 0 || ::waitpid(pid, &st, 0) != pid) return;
  if (WIFEXITED(st)) e.exit_status = WEXITSTATUS(st);
  if (WIFSIGNALED(st)) e.signal = WTERMSIG(st);
}
}  // namespace detail

// Runs f in a child process, which ends with status 0 if f returns. f must not use the runtime: the
// child of a fork has one thread.
template <class F>
child_end in_child(F f) {
  child_end e;
  int fds[2];
  if (::pipe(fds) != 0) return e;
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
  detail::read_all(fds[0], e.err);
  detail::reap(pid, e);
  return e;
}

// Runs a command by the shell; its standard error is put among its output, line by line.
inline child_end shell(const std::string& command) {
  child_end e;
  std::fflush(nullptr);
  std::FILE* p = ::popen((command + " 2>&1").c_str(), "re");
  if (p == nullptr) return e;
  char buf[4096];
  while (std::size_t k = std::fread(buf, 1, sizeof buf, p)) e.out.append(buf, k);
  const int st = ::pclose(p);
  if (WIFEXITED(st)) e.exit_status = WEXITSTATUS(st);
  if (WIFSIGNALED(st)) e.signal = WTERMSIG(st);
  return e;
}

inline std::string own_program() {
  char path[4096];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  return n > 0 ? std::string(path, static_cast<std::size_t>(n)) : std::string();
}

}  // namespace weft::unit_test
