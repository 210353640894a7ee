// SPDX-License-Identifier: Apache-2.0
// A process by its PID: its socket is found, and it is made sure that it is this process that
// listens there.
#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "facts.h"

namespace weft::tool {

// A descriptor that is closed.
class descriptor {
 public:
  explicit descriptor(int fd = -1) noexcept : fd_(fd) {}
  descriptor(descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  descriptor& operator=(descriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~descriptor();
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_;
};

class connection {
 public:
  pid_t pid() const noexcept { return pid_; }
  void send(std::string_view text);
  // Empty: the other side has hung up. Waits for `timeout` and `extra` seconds.
  std::string receive(double extra);
  [[noreturn]] void fail_at_end() const;  // it hung up too early

 private:
  friend class target;
  connection(pid_t pid, descriptor socket, descriptor alive, int interrupt, double timeout) noexcept
      : pid_(pid),
        socket_(std::move(socket)),
        alive_(std::move(alive)),
        interrupt_(interrupt),
        timeout_(timeout) {}
  void wait(short events, double seconds) const;

  pid_t pid_;
  descriptor socket_, alive_;
  int interrupt_;
  double timeout_;
};

class target {
 public:
  // interrupt: throws `interrupted` out of a wait when this descriptor can be read; -1: none.
  target(pid_t pid, double timeout, int interrupt = -1);
  pid_t pid() const noexcept { return pid_; }
  // Finds the socket and connects. Throws failure with what is in the way.
  connection connect() const;

 private:
  pid_t pid_;
  double timeout_;
  int interrupt_;
  descriptor alive_;  // of the process, so that its PID cannot become another's unnoticed
};

// Everybody's sockets whom we may look at, in order of PID.
struct listed {
  pid_t pid = 0;
  std::string path;
};
std::vector<listed> list_attached();

}  // namespace weft::tool
