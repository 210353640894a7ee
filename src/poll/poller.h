// SPDX-License-Identifier: Apache-2.0
// The contract of a poller: it says which descriptors have become ready, and never schedules.
//
//   open()            once, before anything else; 0 or an errno value.
//   add(fd, token)    watches both directions, edge-triggered: each change to ready is reported at
//                     least once, to one caller of wait(). What is ready already when it is added
//                     counts as a change. 0 or an errno value; EPERM: the kernel cannot watch it.
//   remove(fd)        no report of it begins after this; one that has begun may still come out of
//                     a wait() on another thread, so tokens carry a generation (desc.h).
//   wait(out, n, t)   up to n reports. t: nanoseconds; 0 does not block, < 0 is for ever. Comes
//   back
//                     with none when the time is up, when interrupted, and now and then without
//                     any reason. Any number of threads at once.
//   interrupt()       a wait() that blocks, now or next, returns. Several before it does so count
//                     as one. A wait that does not block takes no interruption away from one that
//                     does.
//
// An error or a hang-up is reported as ready in both directions: the call that the waiter then
// makes will say what it is. These, the peer's half-close and urgent data are `ended` as well: a
// call that gives less than was asked for may have more to give, without another report.
//
// All of it runs on any stack, allocates nothing and leaves errno as it was; every descriptor is
// close-on-exec. tests/unit/poll/poller_test.cc holds every implementation to this.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace weft::rt {

struct poll_event {
  std::uint64_t token = 0;
  bool read = false;
  bool write = false;
  bool ended = false;
};

template <class P>
concept poller = requires(P p, int fd, std::uint64_t token, poll_event* out, std::size_t n,
                          std::int64_t ns) {
  { p.open() }
  noexcept->std::same_as<int>;
  { p.add(fd, token) }
  noexcept->std::same_as<int>;
  { p.remove(fd) }
  noexcept->std::same_as<int>;
  { p.wait(out, n, ns) }
  noexcept->std::same_as<std::size_t>;
  { p.interrupt() }
  noexcept->std::same_as<void>;
};

}  // namespace weft::rt
