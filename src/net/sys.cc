// SPDX-License-Identifier: Apache-2.0
// See sys.h. Runs on the caller's stack.
#include "net/sys.h"
#include "base/chaos.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/sendfile.h>
#include <unistd.h>

namespace weft::detail::sys {
namespace {

long value(ssize_t r) noexcept { return r >= 0 ? static_cast<long>(r) : -static_cast<long>(errno); }
int value(int r) noexcept { return r >= 0 ? r : -errno; }

// Holds SIGPIPE back on this thread while a call is made that has no flag against it, and takes
// away the one it may have raised.
class no_sigpipe {
 public:
  no_sigpipe() noexcept {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &old_);
  }
  no_sigpipe(const no_sigpipe&) = delete;
  no_sigpipe& operator=(const no_sigpipe&) = delete;
  void raised() noexcept {
    if (was_pending_) return;
    const timespec at_once{0, 0};
    while (::sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  }
  ~no_sigpipe() { ::pthread_sigmask(SIG_SETMASK, &old_, nullptr); }

 private:
  sigset_t pipe_, old_;
  bool was_pending_ = false;
};

}  // namespace

[[gnu::noinline]] long receive(int fd, void* b, std::size_t n) noexcept {
  return value(::recv(fd, b, n, 0));
}
[[gnu::noinline]] long receive(int fd, const iovec* v, std::size_t n) noexcept {
  return value(::readv(fd, v, static_cast<int>(n)));
}
[[gnu::noinline]] long receive_from(int fd, void* b, std::size_t n, sockaddr* from,
                                    socklen_t* size) noexcept {
  return value(::recvfrom(fd, b, n, 0, from, size));
}
[[gnu::noinline]] long send(int fd, const void* b, std::size_t n) noexcept {
  return value(::send(fd, b, n, MSG_NOSIGNAL));
}
[[gnu::noinline]] long send(int fd, const iovec* v, std::size_t n) noexcept {
  iovec nothing{};  // an emulator sends no message of no parts
  msghdr m{};
  m.msg_iov = n == 0 ? &nothing : const_cast<iovec*>(v);  // only read from
  m.msg_iovlen = n == 0 ? 1 : n;
  return value(::sendmsg(fd, &m, MSG_NOSIGNAL));
}
[[gnu::noinline]] long send_to(int fd, const void* b, std::size_t n, const sockaddr* to,
                               socklen_t size) noexcept {
  return value(::sendto(fd, b, n, MSG_NOSIGNAL, to, size));
}
[[gnu::noinline]] long send_file(int fd, int file, off_t offset, std::size_t n) noexcept {
  no_sigpipe hold;
  const long r = value(::sendfile(fd, file, &offset, n));
  if (r == -EPIPE) hold.raised();
  return r;
}
[[gnu::noinline]] long read_at(int fd, void* b, std::size_t n, off_t offset) noexcept {
  return value(::pread(fd, b, n, offset));
}
[[gnu::noinline]] long write(int fd, const void* b, std::size_t n, off_t offset) noexcept {
  no_sigpipe hold;
  const long r = value(offset < 0 ? ::write(fd, b, n) : ::pwrite(fd, b, n, offset));
  if (r == -EPIPE) hold.raised();
  return r;
}
[[gnu::noinline]] int accept(int fd, sockaddr* from, socklen_t* size) noexcept {
  if (const int err = rt::chaos::fault("accept"); err != 0) return -err;
  return value(::accept4(fd, from, size, SOCK_NONBLOCK | SOCK_CLOEXEC));
}
[[gnu::noinline]] int connect(int fd, const sockaddr* to, socklen_t size) noexcept {
  return value(::connect(fd, to, size));
}
[[gnu::noinline]] int connect_error(int fd) noexcept {
  int err = 0;
  socklen_t size = sizeof err;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size) != 0) return errno;
  if (err != 0) return err;
  // Woken in vain? Only a connected socket has a peer.
  sockaddr_storage peer;
  size = sizeof peer;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 ? 0
         : errno == ENOTCONN                                               ? EINPROGRESS
                                                                           : errno;
}
[[gnu::noinline]] int socket(int family, int type) noexcept {
  if (const int err = rt::chaos::fault("socket"); err != 0) return -err;
  return value(::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}
[[gnu::noinline]] int bind(int fd, const sockaddr* a, socklen_t size) noexcept {
  return value(::bind(fd, a, size));
}
[[gnu::noinline]] int listen(int fd) noexcept {
  return value(::listen(fd, 65535));  // the kernel cuts it to net.core.somaxconn
}
[[gnu::noinline]] int set_option(int fd, int level, int name, int v) noexcept {
  return value(::setsockopt(fd, level, name, &v, sizeof v));
}
[[gnu::noinline]] int set_linger(int fd, int seconds) noexcept {
  const linger l{seconds >= 0 ? 1 : 0, seconds >= 0 ? seconds : 0};
  return value(::setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l));
}
[[gnu::noinline]] int shutdown(int fd, int how) noexcept { return value(::shutdown(fd, how)); }
[[gnu::noinline]] int duplicate(int fd) noexcept { return value(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }
[[gnu::noinline]] void close(int fd) noexcept {
  const int saved = errno;
  ::close(fd);  // EINTR: on Linux it is closed nevertheless
  errno = saved;
}
[[gnu::noinline]] void unlink(const char* path) noexcept {
  const int saved = errno;
  ::unlink(path);
  errno = saved;
}

}  // namespace weft::detail::sys
