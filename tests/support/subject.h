// SPDX-License-Identifier: Apache-2.0
// A program of tests/crash/progs that lives while a test looks at it, and the tool `weft` that
// does.
#pragma once

#include <csignal>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/process.h"

namespace weft::test {

// A directory of our own, with what is in it gone at the end.
class scratch_dir {
 public:
  scratch_dir() {
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~scratch_dir() { run_process({"rm", "-r", path_}, std::chrono::seconds(60)); }
  scratch_dir(const scratch_dir&) = delete;
  scratch_dir& operator=(const scratch_dir&) = delete;
  const std::string& path() const { return path_; }
  // The names in a folder of it, one a line.
  std::string list(const std::string& in) const {
    return run_process({"ls", "-A", path_ + '/' + in}, std::chrono::seconds(60)).out;
  }

 private:
  std::string path_ = "/tmp/weft-attach-XXXXXX";
};

inline std::vector<std::string> emulated(std::vector<std::string> words) {
  std::istringstream in(WEFT_CRASH_EMULATOR);
  std::vector<std::string> all;
  for (std::string w; in >> w;) all.push_back(w);
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

// Started with WEFT_DEBUG=debug (empty: without) and `dir` as its XDG_RUNTIME_DIR. first_line() is
// what it says when it is ready; one that `speaks` not is not waited for.
class subject {
 public:
  subject(const std::string& dir, const std::string& debug, const std::vector<std::string>& words,
          const std::function<void()>& in_child = {}, bool speaks = true) {
    process_detail::pipe_pair in, out, err;
    const std::vector<std::string> all = emulated(words);
    std::vector<char*> argv;
    for (const std::string& w : all) argv.push_back(const_cast<char*>(w.c_str()));
    argv.push_back(nullptr);
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(in.fd[0], 0);
      ::dup2(out.fd[1], 1);
      ::dup2(err.fd[1], 2);
      for (const auto& p : {in, out, err})
        for (const int fd : p.fd) ::close(fd);
      ::setenv("XDG_RUNTIME_DIR", dir.c_str(), 1);
      if (!debug.empty()) ::setenv("WEFT_DEBUG", debug.c_str(), 1);
      if (in_child) in_child();
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(in.fd[0]);
    ::close(out.fd[1]);
    ::close(err.fd[1]);
    in_ = in.fd[1];
    out_ = out.fd[0];
    err_ = err.fd[0];
    if (speaks) first_line_ = read_until("\n");
    if (!first_line_.empty()) first_line_.pop_back();
  }
  ~subject() {
    if (child_ > 0) end(SIGKILL);
    ::close(out_);
    ::close(err_);
  }
  subject(const subject&) = delete;
  subject& operator=(const subject&) = delete;

  pid_t pid() const { return child_; }
  const std::string& first_line() const { return first_line_; }

  // What it says up to this, or to its end.
  std::string read_until(const std::string& mark) const {
    std::string all;
    for (char c = 0; !all.ends_with(mark) && ::read(out_, &c, 1) == 1;) all += c;
    return all;
  }
  // Until it has said enough on stderr, which end() tells as well; for 20 s at most.
  template <class Pred>
  void hear(Pred enough) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    pollfd p{err_, POLLIN, 0};
    char buf[4096];
    while (!enough(heard_) && std::chrono::steady_clock::now() < until) {
      if (::poll(&p, 1, 100) <= 0) continue;
      const ssize_t n = ::read(err_, buf, sizeof buf);
      if (n <= 0) break;
      heard_.append(buf, static_cast<std::size_t>(n));
    }
  }
  // Lets it come to its end (0), or sends it a signal, and tells how it ended.
  outcome end(int signal = 0) {
    outcome o;
    o.err = heard_;
    ::close(std::exchange(in_, -1));
    if (signal != 0) ::kill(child_, signal);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    o.timed_out = !process_detail::drain(out_, err_, o, until);
    if (o.timed_out) ::kill(child_, SIGKILL);
    int status = 0;
    while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    child_ = -1;
    if (WIFEXITED(status)) o.status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) o.signal = WTERMSIG(status);
    return o;
  }

 private:
  pid_t child_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
  std::string first_line_, heard_;
};

}  // namespace weft::test
