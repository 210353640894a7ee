// SPDX-License-Identifier: Apache-2.0
// See calls.h. Runs on the caller's stack, in the state of a system call where it may take long.
#include "file/calls.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "base/chaos.h"
#include "net/sys.h"
#include "os/section.h"
#include "weft/thread.hpp"

namespace weft::detail {
namespace {

// What one call transfers at most on Linux, rounded down to a page.
constexpr std::size_t most = 0x7fff'f000;

long value(ssize_t r) noexcept { return r >= 0 ? static_cast<long>(r) : -static_cast<long>(errno); }
int value(int r) noexcept { return r >= 0 ? r : -errno; }

[[gnu::noinline]] long perform_here(const file_call& c) noexcept {
  const std::size_t n = std::min(c.size, most);
  switch (c.what) {
    case file_call::op::read:
      return value(c.offset < 0 ? ::read(c.fd, c.data, n) : ::pread(c.fd, c.data, n, c.offset));
    case file_call::op::write:
      if (c.quiet) return sys::write(c.fd, c.data, n, c.offset);
      return value(c.offset < 0 ? ::write(c.fd, c.data, n) : ::pwrite(c.fd, c.data, n, c.offset));
    case file_call::op::sync:
      return value(::fsync(c.fd));
  }
  return -EINVAL;
}
[[gnu::noinline]] int open_here(const char* path, int flags, mode_t mode) noexcept {
  return value(::open(path, flags, mode));
}
[[gnu::noinline]] int close_here(int fd) noexcept {
  const int r = value(::close(fd));
  return r == -EINTR ? 0 : r;  // on Linux it is closed nevertheless
}
[[gnu::noinline]] int truncate_here(int fd, std::int64_t size) noexcept {
  return value(::ftruncate(fd, size));
}
[[gnu::noinline]] int stat_here(int fd, struct ::stat* out) noexcept {
  return value(::fstat(fd, out));
}

}  // namespace

long perform_blocking(const file_call& c) {
  return blocking([&]() noexcept { return perform_here(c); });
}

namespace calls {

[[gnu::noinline]] long read_now(int fd, void* b, std::size_t n) noexcept {
  return value(::read(fd, b, std::min(n, most)));
}
long write_now(int fd, const void* b, std::size_t n) noexcept {
  return sys::write(fd, b, std::min(n, most), -1);
}
int open(const char* path, int flags, mode_t mode) {
  return blocking([&]() noexcept { return open_here(path, flags, mode); });
}
int close(int fd) {
  return blocking([&]() noexcept { return close_here(fd); });
}
int close_now(int fd) noexcept { return close_here(fd); }
int truncate(int fd, std::int64_t size) {
  return blocking([&]() noexcept { return truncate_here(fd, size); });
}
int stat(int fd, struct ::stat* out) {
  return blocking([&]() noexcept { return stat_here(fd, out); });
}
[[gnu::noinline]] int pipe(int fd[2]) noexcept {
  if (const int err = rt::chaos::fault("pipe"); err != 0) return -err;
  return value(::pipe2(fd, O_CLOEXEC | O_NONBLOCK));
}
[[gnu::noinline]] std::int64_t seek(int fd, std::int64_t offset, int whence) noexcept {
  return value(static_cast<ssize_t>(::lseek(fd, offset, whence)));
}
[[gnu::noinline]] int status_flags(int fd) noexcept { return value(::fcntl(fd, F_GETFL)); }
[[gnu::noinline]] int set_nonblocking(int fd) noexcept {
  const int flags = ::fcntl(fd, F_GETFL);
  return value(flags < 0 ? flags : ::fcntl(fd, F_SETFL, flags | O_NONBLOCK));
}

}  // namespace calls
}  // namespace weft::detail
