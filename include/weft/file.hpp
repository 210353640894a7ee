// SPDX-License-Identifier: Apache-2.0
// Descriptors that are not the network's.
#pragma once

#include <system_error>

#include <weft/detail/clock.hpp>
#include <weft/detail/errc.hpp>

namespace weft {

// Waits until poll(2) would report one of `events` (POLLIN, POLLOUT, POLLRDHUP), an error or a
// hang-up for fd: a pidfd, an inotify, a C library's socket. fd stays the caller's, in whichever
// mode it is, and must stay open meanwhile. errc::deadline_exceeded; errc::not_pollable for what
// the kernel cannot watch (a regular file is always ready: do not wait for it).
WEFT_API std::error_code wait_fd(int fd, short events,
                                 clock::time_point deadline = clock::time_point::max());

}  // namespace weft
