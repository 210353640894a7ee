// SPDX-License-Identifier: Apache-2.0
// Files, pipes and terminals that block goroutines (and plain threads), never a P; and waiting for
// descriptors of others.
//
// file is a move-only owner; the destructor closes. Members may run concurrently: read_some
// excludes read_some, write_all excludes write_all, read_at and write_at exclude nobody. Each call
// has an overload with a last std::error_code& that does not throw; the others throw path_error,
// whose text is Go's (`open /x: no such file or directory`).
//
// What the kernel can watch (a pipe, a FIFO, a terminal) waits in the poller, and close() wakes all
// who wait with errc::closed. On all else the call itself blocks, elsewhere than on a P: close()
// does not wait for it, and the descriptor goes when it has returned.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/types.h>
#include <system_error>
#include <utility>

#include <weft/detail/clock.hpp>
#include <weft/detail/errc.hpp>
#include <weft/detail/given.hpp>
#include <weft/time.hpp>

namespace weft {

// What file's throwing calls throw. what(): `op path: cause`.
class WEFT_API path_error : public std::system_error {
 public:
  path_error(std::error_code cause, std::string text)
      : std::system_error(cause), text_(std::move(text)) {}
  ~path_error() override;
  const char* what() const noexcept override { return text_.c_str(); }
  bool timeout() const noexcept { return code() == errc::deadline_exceeded; }

 private:
  std::string text_;
};

namespace detail {
class file_fd;
}

class WEFT_API file {
  // What stands beside a buffer; {} is an empty buffer.
  using chars = detail::given<std::span<char>>;
  using text = detail::given<std::string_view, std::span<const char>>;
  using path = detail::given_path;

 public:
  using buffer = std::span<std::byte>;
  using const_buffer = std::span<const std::byte>;

  file() noexcept = default;  // none: every call gives errc::closed
  file(file&& o) noexcept : f_(std::exchange(o.f_, nullptr)) {}
  file& operator=(file&& o) noexcept {
    file from(std::move(o));  // first: o may be *this
    std::swap(f_, from.f_);
    return *this;
  }
  ~file();

  // name: text or a std::filesystem::path; flags and mode as for open(2). O_CLOEXEC is always set.
  [[nodiscard]] static file open(path name, int flags = O_RDONLY, mode_t mode = 0666);
  [[nodiscard]] static file open(path name, int flags, mode_t mode, std::error_code& ec);
  [[nodiscard]] static file open(path name, int flags, std::error_code& ec) {
    return open(name, flags, 0666, ec);
  }
  [[nodiscard]] static file open(path name, std::error_code& ec) {
    return open(name, O_RDONLY, 0666, ec);
  }
  // To read and write, empty whether or not it was there.
  [[nodiscard]] static file create(path name) { return open(name, O_RDWR | O_CREAT | O_TRUNC); }
  [[nodiscard]] static file create(path name, std::error_code& ec) {
    return open(name, O_RDWR | O_CREAT | O_TRUNC, ec);
  }
  // The end to read from, the end to write to.
  [[nodiscard]] static std::pair<file, file> pipe();
  [[nodiscard]] static std::pair<file, file> pipe(std::error_code& ec);
  // Takes a descriptor over, in the mode it is in: one in non-blocking mode waits in the poller, if
  // the kernel can watch it. The name is for errors.
  [[nodiscard]] static file adopt(int fd, std::string_view name);
  [[nodiscard]] static file adopt(int fd, std::string_view name, std::error_code& ec);

  // What there is, at least one byte; 0: the end (or an empty buffer).
  std::size_t read_some(buffer b) const;
  std::size_t read_some(buffer b, std::error_code& ec) const;
  std::size_t read_some(chars b) const {
    return read_some(std::as_writable_bytes(std::span<char>(b)));
  }
  std::size_t read_some(chars b, std::error_code& ec) const {
    return read_some(std::as_writable_bytes(std::span<char>(b)), ec);
  }
  // From that offset; less than b only at the end of the file. The position stays.
  std::size_t read_at(buffer b, std::int64_t offset) const;
  std::size_t read_at(buffer b, std::int64_t offset, std::error_code& ec) const;
  std::size_t read_at(chars b, std::int64_t offset) const {
    return read_at(std::as_writable_bytes(std::span<char>(b)), offset);
  }
  std::size_t read_at(chars b, std::int64_t offset, std::error_code& ec) const {
    return read_at(std::as_writable_bytes(std::span<char>(b)), offset, ec);
  }

  // All of it; with an error_code how much was written before the error. Writes of several
  // goroutines do not mix.
  std::size_t write_all(const_buffer b) const;
  std::size_t write_all(const_buffer b, std::error_code& ec) const;
  std::size_t write_all(text s) const { return write_all(std::as_bytes(std::span(s))); }
  std::size_t write_all(text s, std::error_code& ec) const {
    return write_all(std::as_bytes(std::span(s)), ec);
  }
  template <std::same_as<char> C>
  std::size_t write_all(const C* s) const {
    return write_all(std::string_view(s));
  }
  template <std::same_as<char> C>
  std::size_t write_all(const C* s, std::error_code& ec) const {
    return write_all(std::string_view(s), ec);
  }
  // All of it from that offset on; not for a file opened with O_APPEND (std::errc::
  // invalid_argument: the kernel would append).
  std::size_t write_at(const_buffer b, std::int64_t offset) const;
  std::size_t write_at(const_buffer b, std::int64_t offset, std::error_code& ec) const;
  std::size_t write_at(text s, std::int64_t offset) const {
    return write_at(std::as_bytes(std::span(s)), offset);
  }
  std::size_t write_at(text s, std::int64_t offset, std::error_code& ec) const {
    return write_at(std::as_bytes(std::span(s)), offset, ec);
  }
  template <std::same_as<char> C>
  std::size_t write_at(const C* s, std::int64_t offset) const {
    return write_at(std::string_view(s), offset);
  }
  template <std::same_as<char> C>
  std::size_t write_at(const C* s, std::int64_t offset, std::error_code& ec) const {
    return write_at(std::string_view(s), offset, ec);
  }

  // Until what was written is on the medium.
  void sync() const;
  void sync(std::error_code& ec) const;
  // whence: SEEK_SET, SEEK_CUR, SEEK_END. The new position.
  std::int64_t seek(std::int64_t offset, int whence) const;
  std::int64_t seek(std::int64_t offset, int whence, std::error_code& ec) const;
  void truncate(std::int64_t size) const;
  void truncate(std::int64_t size, std::error_code& ec) const;
  struct ::stat stat() const;
  struct ::stat stat(std::error_code& ec) const;
  std::int64_t size() const { return stat().st_size; }
  std::int64_t size(std::error_code& ec) const { return stat(ec).st_size; }

  // A second one is errc::closed.
  void close() const;
  void close(std::error_code& ec) const;
  // The descriptor stays ours; -1 when closed.
  int fd() const noexcept;
  std::string_view name() const noexcept;                            // while the handle lives
  explicit operator bool() const noexcept { return f_ != nullptr; }  // not empty or moved-from

  // As a conn's; errc::not_pollable if it does not wait in the poller.
  template <class Clock, class Duration>
  void set_deadline(std::chrono::time_point<Clock, Duration> tp) const {
    std::error_code ec;
    set_deadline(tp, ec);
    if (ec) fail("set deadline", ec);
  }
  template <class Clock, class Duration>
  void set_deadline(std::chrono::time_point<Clock, Duration> tp, std::error_code& ec) const {
    const std::int64_t t = detail::deadline_at(tp);
    deadline(3, t > 0 ? t : 1, ec);
  }

 private:
  explicit file(detail::file_fd* f) noexcept : f_(f) {}
  void deadline(unsigned modes, std::int64_t when, std::error_code& ec) const;
  [[noreturn]] void fail(const char* op, std::error_code ec) const;
  detail::file_fd* f_ = nullptr;
};

// Waits until poll(2) would report one of `events` (POLLIN, POLLOUT, POLLRDHUP), an error or a
// hang-up for fd: a pidfd, an inotify, a C library's socket. fd stays the caller's, in whichever
// mode it is, and must stay open meanwhile. errc::deadline_exceeded. What the
// kernel cannot watch (a regular file) is always ready to read and to write, as poll(2) has it, and
// errc::not_pollable for other events.
WEFT_API std::error_code wait_fd(int fd, short events,
                                 clock::time_point deadline = (clock::time_point::max)());

}  // namespace weft
