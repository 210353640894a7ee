// SPDX-License-Identifier: Apache-2.0
// Runs a program of tests/crash/progs and tells how it ended and what it printed. A program that
// does not end within the limit is killed and says so.
#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <ostream>
#include <poll.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace weft::test {

struct outcome {
  int status = -1;  // exit status; -1 if it did not exit
  int signal = 0;   // that ended it
  bool timed_out = false;
  std::string out, err;
};

inline std::ostream& operator<<(std::ostream& os, const outcome& o) {
  os << "status " << o.status << ", signal " << o.signal << (o.timed_out ? ", timed out" : "");
  return os << "\n-- stdout\n" << o.out << "\n-- stderr\n" << o.err << "\n--";
}

namespace process_detail {

struct pipe_pair {
  int fd[2];
  pipe_pair() {
    // Closed in what other threads start at the same time: it would keep our end from being one.
    if (::pipe2(fd, O_CLOEXEC) != 0) std::abort();
  }
};

// Reads both until both are closed. False: not within the limit.
inline bool drain(int out, int err, outcome& o, std::chrono::steady_clock::time_point until) {
  pollfd fds[2] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
  std::string* to[2] = {&o.out, &o.err};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    if (::poll(fds, 2, static_cast<int>(left.count())) < 0 && errno != EINTR) return false;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      char buf[4096];
      const ssize_t n = ::read(fds[i].fd, buf, sizeof buf);
      if (n > 0) {
        to[i]->append(buf, static_cast<std::size_t>(n));
      } else if (n == 0 || errno != EINTR) {
        fds[i].fd = -1;
      }
    }
  }
  return true;
}

}  // namespace process_detail

// words: the program and its arguments.
inline outcome run_process(const std::vector<std::string>& words, std::chrono::seconds limit) {
  process_detail::pipe_pair out, err;
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(out.fd[1], 1);
    ::dup2(err.fd[1], 2);
    for (const int fd : {out.fd[0], out.fd[1], err.fd[0], err.fd[1]}) ::close(fd);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(out.fd[1]);
  ::close(err.fd[1]);
  outcome o;
  o.timed_out =
      !process_detail::drain(out.fd[0], err.fd[0], o, std::chrono::steady_clock::now() + limit);
  if (o.timed_out) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  ::close(out.fd[0]);
  ::close(err.fd[0]);
  if (WIFEXITED(status)) o.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) o.signal = WTERMSIG(status);
  return o;
}

#if defined(WEFT_CRASH_DIR)
// tests/crash/progs/<name>.cc with these arguments.
inline outcome run_crash(const std::string& name, const std::vector<std::string>& args = {},
                         std::chrono::seconds limit = std::chrono::seconds(60)) {
  std::vector<std::string> words;
  std::istringstream emulator(WEFT_CRASH_EMULATOR);  // empty unless cross-compiled
  for (std::string w; emulator >> w;) words.push_back(w);
  words.push_back(std::string(WEFT_CRASH_DIR) + "/crash_" + name);
  words.insert(words.end(), args.begin(), args.end());
  return run_process(words, limit);
}
#endif

}  // namespace weft::test
