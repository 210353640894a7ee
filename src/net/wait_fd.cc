// SPDX-License-Identifier: Apache-2.0
// wait_fd: waiting for a descriptor of somebody else's. It is registered for the time of the wait
// under a copy of its number, so that it may be the caller's, a library's or ours, waited for by
// several at once, and nothing of it stays in the poller.
//
// Runs on the caller's stack.
#include "weft/file.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <poll.h>

#include "net/socket.h"
#include "os/clock.h"
#include "sched/bubble.h"

namespace weft {
namespace {

// What poll(2) says now, or waiting: > 0 ready, 0 not, or minus the errno.
[[gnu::noinline]] int ask(int fd, short events, int timeout_ms) noexcept {
  pollfd p{fd, events, 0};
  const int n = ::poll(&p, 1, timeout_ms);
  if (n < 0) return -errno;
  return n > 0 && (p.revents & POLLNVAL) != 0 ? -EBADF : n;
}

std::error_code wait_as_thread(int fd, short events, std::int64_t until) {
  for (;;) {
    int ms = -1;
    if (until != rt::never) {
      const std::int64_t now = rt::nanotime();
      if (until <= now) return errc::deadline_exceeded;
      ms = static_cast<int>(std::min<std::int64_t>((until - now - 1) / 1'000'000 + 1, INT_MAX));
    }
    const int r = ask(fd, events, ms);
    if (r > 0) return {};
    if (r < 0 && r != -EINTR) return detail::system_code(r);
  }
}

// The descriptor's place in the poller.
class registration {
 public:
  // Inside, and with the caller as holder: the end of its run finds it.
  registration(int fd, bool both) noexcept {
    const rt::in_runtime inside;
    fd_ = detail::sys::duplicate(fd);
    if (fd_ < 0) {
      err_ = -fd_;
      return;
    }
    err_ = rt::poll_open(fd_, &d, both);
    if (err_ != 0) return;
    d->of = this;
    d->give_back = [](void* of, rt::poll_mode) noexcept { static_cast<registration*>(of)->end(); };
    d->holder[0].store(rt::current_g(), rt::memory_order_release);  // with poll_leave
  }
  registration(const registration&) = delete;
  registration& operator=(const registration&) = delete;
  ~registration() { end(); }
  int error() const noexcept { return err_; }
  rt::fd_desc* d = nullptr;

 private:
  void end() noexcept {
    const rt::in_runtime inside;
    if (fd_ >= 0 && err_ == 0) {
      d->holder[0].store(nullptr, rt::memory_order_relaxed);
      rt::poll_evict(d);  // its timers
      rt::poll_close(d);
    }
    if (fd_ >= 0) detail::sys::close(fd_);
  }

  int fd_ = -1;
  int err_ = 0;
};

}  // namespace

std::error_code wait_fd(int fd, short events, clock::time_point deadline) {
  rt::maybe_preempt();
  if (fd < 0) return detail::system_code(-EBADF);  // poll(2) would skip it
  const bool for_ever = deadline == clock::time_point::max();
  const std::int64_t until = for_ever ? rt::never : deadline.time_since_epoch().count();
  if (const int r = ask(fd, events, 0); r != 0) {
    if (r < 0 && r != -EINTR) return detail::system_code(r);
    if (r > 0) return {};
  }
  if (rt::current_g() == nullptr) {
    // What the kernel cannot watch is always ready to poll(2), but for these: it would never be.
    constexpr short always = POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM;
    if ((events & always) == 0) {
      if (const registration reg(fd, false); reg.error() == EPERM) return errc::not_pollable;
    }
    return wait_as_thread(fd, events, until);
  }
  if (until <= rt::clock_now()) return errc::deadline_exceeded;
  // A hang-up or an error is reported to both directions.
  constexpr short of_writers = POLLOUT | POLLWRNORM | POLLWRBAND;
  const bool reads = (events & ~of_writers) != 0;
  const bool writes = (events & of_writers) != 0;
  const rt::poll_mode m = writes && !reads ? rt::poll_mode::write : rt::poll_mode::read;
  const registration reg(fd, reads && writes);
  if (reg.error() != 0) {
    return reg.error() == EPERM ? make_error_code(errc::not_pollable)
                                : detail::system_code(-reg.error());
  }
  if (!for_ever) rt::poll_set_deadline(reg.d, 3, until);
  for (;;) {
    if (const int r = ask(fd, events, 0); r != 0 && r != -EINTR)
      return r > 0 ? std::error_code() : detail::system_code(r);
    if (rt::poll_wait(reg.d, m) == rt::poll_result::expired) return errc::deadline_exceeded;
  }
}

}  // namespace weft
