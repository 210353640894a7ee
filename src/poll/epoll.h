// SPDX-License-Identifier: Apache-2.0
// The poller over Linux's epoll. See poller.h for the contract.
#pragma once

#include "base/atomic.h"
#include "poll/poller.h"

namespace weft::rt {

class epoll_poller {
 public:
  constexpr epoll_poller() noexcept = default;
  epoll_poller(const epoll_poller&) = delete;
  epoll_poller& operator=(const epoll_poller&) = delete;
  void shut() noexcept;  // for tests, and for the child of a fork

  int open() noexcept;
  int add(int fd, std::uint64_t token) noexcept;
  int remove(int fd) noexcept;
  std::size_t wait(poll_event* out, std::size_t n, std::int64_t ns) noexcept;
  void interrupt() noexcept;

  static constexpr std::size_t batch = 128;  // at most so many reports a wait

 private:
  void take_interrupt() noexcept;

  int epoll_ = -1;
  int event_ = -1;                   // an eventfd, level-triggered: what interrupts
  atomic<bool> interrupted_{false};  // it has been written to and not yet read
  atomic<bool> no_pwait2_{false};    // a kernel before 5.11, or a filter: milliseconds then
};

static_assert(poller<epoll_poller>);

}  // namespace weft::rt
