// SPDX-License-Identifier: Apache-2.0
// A server of examples/ as a process of its own. It prints `<name>: listening on <address>` for
// each place when it is ready; stop() sends SIGTERM and tells how it ended.
#pragma once

#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/process.h"

namespace weft::test {

// The words that start an example; an emulator comes first when cross-compiled.
inline std::vector<std::string> example_words(const std::string& name,
                                              const std::vector<std::string>& args) {
  std::vector<std::string> words;
  std::istringstream emulator(WEFT_EXAMPLES_EMULATOR);
  for (std::string w; emulator >> w;) words.push_back(w);
  words.push_back(std::string(WEFT_EXAMPLES_DIR) + "/" + name);
  words.insert(words.end(), args.begin(), args.end());
  return words;
}

inline outcome run_example(const std::string& name, const std::vector<std::string>& args) {
  return run_process(example_words(name, args), std::chrono::seconds(60));
}

class server_process {
 public:
  server_process(const std::string& name, const std::vector<std::string>& args,
                 std::size_t places = 1) {
    const std::vector<std::string> words = example_words(name, args);
    std::vector<char*> argv;
    for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
    argv.push_back(nullptr);
    process_detail::pipe_pair out;
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(out.fd[1], 1);
      ::close(out.fd[0]);
      ::close(out.fd[1]);
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(out.fd[1]);
    out_ = out.fd[0];
    const std::string mark = ": listening on ";
    while (at_.size() < places) {
      const std::string line = read_line();
      const std::size_t i = line.find(mark);
      if (i == std::string::npos) break;
      at_.push_back(line.substr(i + mark.size()));
    }
    EXPECT_EQ(at_.size(), places) << "it did not come up";
    at_.resize(places);
  }
  server_process(const server_process&) = delete;
  server_process& operator=(const server_process&) = delete;
  ~server_process() {
    if (child_ > 0) stop(SIGKILL);
    ::close(out_);
  }

  const std::string& at(std::size_t i = 0) const { return at_[i]; }
  pid_t pid() const { return child_; }

  // Its exit status; minus the signal that ended it.
  int stop(int signal = SIGTERM) {
    ::kill(child_, signal);
    int status = 0;
    while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  std::string read_line() const {
    std::string line;
    char c = 0;
    while (::read(out_, &c, 1) == 1 && c != '\n') line += c;
    return line;
  }

  pid_t child_ = -1;
  int out_ = -1;
  std::vector<std::string> at_;
};

}  // namespace weft::test
