// SPDX-License-Identifier: Apache-2.0
// See epoll.h. Edge-triggered, both directions and the peer's half-close at once, so that a
// descriptor costs two calls of epoll_ctl in its life and none per wait.
//
// The interruption is an eventfd, level-triggered: it stays readable until a wait that blocks reads
// it, and waits that do not block pass it over. A flag keeps the second and third interruption from
// becoming system calls.
//
// epoll_pwait2 takes nanoseconds; where it is missing the time is rounded up to milliseconds.
//
// Runs on any stack; system calls are raw where libc's wrapper would be a cancellation point.
#include "poll/epoll.h"
#include "base/chaos.h"

#include <cerrno>
#include <climits>
#include <ctime>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::rt {
namespace {

constexpr std::uint64_t interrupt_token = ~std::uint64_t{0};

class keep_errno {
 public:
  keep_errno() noexcept : saved_(errno) {}
  keep_errno(const keep_errno&) = delete;
  keep_errno& operator=(const keep_errno&) = delete;
  ~keep_errno() { errno = saved_; }

 private:
  int saved_;
};

long wait_ns(int epoll, epoll_event* ev, int n, std::int64_t ns) noexcept {
  const timespec ts{ns / 1'000'000'000, ns % 1'000'000'000};
  return ::syscall(SYS_epoll_pwait2, epoll, ev, n, ns < 0 ? nullptr : &ts, nullptr, 0);
}

long wait_ms(int epoll, epoll_event* ev, int n, std::int64_t ns) noexcept {
  int ms = -1;
  if (ns >= 0) {
    const std::int64_t up = ns / 1'000'000 + (ns % 1'000'000 != 0 ? 1 : 0);
    ms = up < INT_MAX ? static_cast<int>(up) : INT_MAX;
  }
  return ::syscall(SYS_epoll_pwait, epoll, ev, n, ms, nullptr, 0);
}

}  // namespace

int epoll_poller::open() noexcept {
  const keep_errno keep;
  if (const int err = chaos::fault("epoll_create"); err != 0) return err;
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) return errno;
  const int refused = chaos::fault("eventfd");
  event_ = refused == 0 ? ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
  if (refused != 0) errno = refused;
  epoll_event ev{};
  ev.events = EPOLLIN;
  ev.data.u64 = interrupt_token;
  if (event_ < 0 || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &ev) != 0) {
    const int err = errno;
    shut();
    return err;
  }
  return 0;
}

void epoll_poller::shut() noexcept {
  if (event_ >= 0) ::close(event_);
  if (epoll_ >= 0) ::close(epoll_);
  event_ = epoll_ = -1;
  interrupted_.store(false, memory_order_relaxed);
}

int epoll_poller::add(int fd, std::uint64_t token) noexcept {
  if (const int err = chaos::fault("epoll_ctl"); err != 0) return err;
  const keep_errno keep;
  epoll_event ev{};
  ev.events = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  ev.data.u64 = token;
  return ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &ev) == 0 ? 0 : errno;
}

int epoll_poller::remove(int fd) noexcept {
  const keep_errno keep;
  epoll_event ev{};  // kernels before 2.6.9 want one
  return ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, &ev) == 0 ? 0 : errno;
}

std::size_t epoll_poller::wait(poll_event* out, std::size_t n, std::int64_t ns) noexcept {
  if (chaos::fault("epoll_wait") != 0) return 0;  // EINTR
  const keep_errno keep;
  epoll_event ev[batch];
  const int most = static_cast<int>(n < batch ? n : batch);
  long got = -1;
  bool old = no_pwait2_.load(memory_order_relaxed);
  if (!old) {
    got = wait_ns(epoll_, ev, most, ns);
    if (got < 0 && (errno == ENOSYS || errno == EPERM)) {
      no_pwait2_.store(true, memory_order_relaxed);
      old = true;
    }
  }
  if (old) got = wait_ms(epoll_, ev, most, ns);
  std::size_t k = 0;
  for (long i = 0; i < got; ++i) {  // got < 0: EINTR
    if (ev[i].data.u64 == interrupt_token) {
      if (ns != 0) take_interrupt();
      continue;
    }
    const std::uint32_t e = ev[i].events;
    out[k].token = ev[i].data.u64;
    out[k].read = (e & (EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    out[k].write = (e & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
    out[k].ended = (e & (EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    ++k;
  }
  return k;
}

void epoll_poller::interrupt() noexcept {
  // seq_cst, with take_interrupt: whoever finds the flag set knows that it will be cleared after
  // this, and that the one who clears it looks at the world afterwards.
  if (interrupted_.exchange(true, memory_order_seq_cst)) return;
  const keep_errno keep;
  const std::uint64_t one = 1;
  while (::write(event_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void epoll_poller::take_interrupt() noexcept {
  std::uint64_t count = 0;
  while (::read(event_, &count, sizeof count) < 0 && errno == EINTR) {
  }
  interrupted_.exchange(false, memory_order_seq_cst);
}

}  // namespace weft::rt
