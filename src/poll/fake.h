// SPDX-License-Identifier: Apache-2.0
// A poller without a kernel, for tests: descriptors are any numbers, and become ready when the test
// says so. It keeps poller.h's contract, interruptions and time-outs included. Not part of the
// library: nothing in src/ includes it.
#pragma once

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "poll/poller.h"

namespace weft::rt {

class fake_poller {
 public:
  // -- the test's side.
  void make_ready(int fd, bool read, bool write, bool ended = false) noexcept {
    const std::lock_guard hold(lock_);
    const auto it = watched_.find(fd);
    if (it == watched_.end()) return;
    queue(fd, {it->second, read, write, ended});
    arrived_.notify_one();
  }

  // -- the contract.
  int open() noexcept { return 0; }
  int add(int fd, std::uint64_t token) noexcept {
    if (fd < 0) return EBADF;
    const std::lock_guard hold(lock_);
    return watched_.emplace(fd, token).second ? 0 : EEXIST;
  }
  int remove(int fd) noexcept {
    const std::lock_guard hold(lock_);
    std::erase_if(ready_, [fd](const report& r) { return r.fd == fd; });
    return watched_.erase(fd) != 0 ? 0 : ENOENT;
  }
  std::size_t wait(poll_event* out, std::size_t n, std::int64_t ns) noexcept {
    std::unique_lock hold(lock_);
    const auto something = [this] { return !ready_.empty() || interrupted_; };
    if (ns < 0) {
      arrived_.wait(hold, something);
    } else if (ns > 0) {
      arrived_.wait_for(hold, std::chrono::nanoseconds(ns), something);
    }
    if (ns != 0) interrupted_ = false;
    std::size_t k = 0;
    for (; k < n && !ready_.empty(); ++k) {
      out[k] = ready_.front().event;
      ready_.pop_front();
    }
    if (!ready_.empty()) arrived_.notify_one();
    return k;
  }
  void interrupt() noexcept {
    const std::lock_guard hold(lock_);
    interrupted_ = true;
    arrived_.notify_all();
  }

 private:
  struct report {
    int fd;
    poll_event event;
  };
  void queue(int fd, poll_event e) {
    for (report& r : ready_) {
      if (r.fd != fd) continue;
      r.event.read |= e.read;
      r.event.write |= e.write;
      r.event.ended |= e.ended;
      return;
    }
    ready_.push_back({fd, e});
  }

  std::mutex lock_;
  std::condition_variable arrived_;
  std::map<int, std::uint64_t> watched_;
  std::deque<report> ready_;
  bool interrupted_ = false;
};

static_assert(poller<fake_poller>);

}  // namespace weft::rt
