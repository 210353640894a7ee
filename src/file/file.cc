// SPDX-License-Identifier: Apache-2.0
// The handle over an open file, and Go's texts for what it throws. Runs on the caller's stack.
#include "weft/file.hpp"

#include <cctype>

#include "file/file_fd.h"

namespace weft {
namespace {

// Where it happened, in Go's words: what was done, and to which file.
std::string at(const char* op, std::string_view path) {
  return std::string(op).append(" ").append(path);
}

std::string text_of(std::string text, std::error_code ec) {
  text += ": ";
  if (ec == errc::closed) return text + "file already closed";
  if (ec == errc::deadline_exceeded) return text + "i/o timeout";
  if (ec == errc::not_pollable) return text + "file type does not support deadline";
  std::string cause = ec.message();
  if (!cause.empty())
    cause[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(cause[0])));
  return text + cause;
}

[[noreturn]] void throw_path_error(std::string where, std::error_code ec) {
  throw path_error(ec, text_of(std::move(where), ec));
}

}  // namespace

path_error::~path_error() = default;

file::~file() {
  if (f_ != nullptr) f_->drop();
}

// -- where files come from

file file::open(path name, int flags, mode_t mode, std::error_code& ec) {
  const std::string text(name);
  int fd = -EINVAL;  // a path that the kernel would cut off at a null byte
  if (text.find('\0') == std::string::npos) {
    do {
      fd = detail::calls::open(text.c_str(), flags | O_CLOEXEC, mode);
    } while (fd == -EINTR);
  }
  if (fd < 0) {
    ec.assign(-fd, std::system_category());
    return {};
  }
  return file(detail::file_fd::make(fd, name, detail::file_fd::origin::opened, ec));
}
file file::open(path name, int flags, mode_t mode) {
  std::error_code ec;
  file f = open(name, flags, mode, ec);
  if (ec) throw_path_error(at("open", name), ec);
  return f;
}

std::pair<file, file> file::pipe(std::error_code& ec) {
  int fd[2];
  if (const int r = detail::calls::pipe(fd); r < 0) {
    ec.assign(-r, std::system_category());
    return {};
  }
  file r = adopt(fd[0], "|0", ec);
  if (ec) {
    detail::calls::close(fd[1]);
    return {};
  }
  file w = adopt(fd[1], "|1", ec);
  if (ec) return {};
  return {std::move(r), std::move(w)};
}
std::pair<file, file> file::pipe() {
  std::error_code ec;
  auto both = pipe(ec);
  if (ec) throw_path_error("pipe", ec);
  return both;
}

file file::adopt(int fd, std::string_view name, std::error_code& ec) {
  return file(detail::file_fd::make(fd, name, detail::file_fd::origin::adopted, ec));
}
file file::adopt(int fd, std::string_view name) {
  std::error_code ec;
  file f = adopt(fd, name, ec);
  if (ec) throw_path_error(at("adopt", name), ec);
  return f;
}

// -- calls; an empty handle is a closed one

std::size_t file::read_some(buffer b, std::error_code& ec) const {
  if (f_ == nullptr) return ec = errc::closed, 0;
  return f_->read_some(b.data(), b.size(), ec);
}
std::size_t file::read_at(buffer b, std::int64_t offset, std::error_code& ec) const {
  if (f_ == nullptr) return ec = errc::closed, 0;
  return f_->read_at(b.data(), b.size(), offset, ec);
}
std::size_t file::write_all(const_buffer b, std::error_code& ec) const {
  if (f_ == nullptr) return ec = errc::closed, 0;
  return f_->write_all(b.data(), b.size(), ec);
}
std::size_t file::write_at(const_buffer b, std::int64_t offset, std::error_code& ec) const {
  if (f_ == nullptr) return ec = errc::closed, 0;
  return f_->write_at(b.data(), b.size(), offset, ec);
}
void file::sync(std::error_code& ec) const {
  if (f_ == nullptr) {
    ec = errc::closed;
  } else {
    f_->sync(ec);
  }
}
std::int64_t file::seek(std::int64_t offset, int whence, std::error_code& ec) const {
  if (f_ == nullptr) return ec = errc::closed, -1;
  return f_->control(ec, [&](int fd) { return detail::calls::seek(fd, offset, whence); });
}
void file::truncate(std::int64_t size, std::error_code& ec) const {
  if (f_ == nullptr) {
    ec = errc::closed;
  } else {
    f_->control(ec, [&](int fd) { return detail::calls::truncate(fd, size); });
  }
}
struct ::stat file::stat(std::error_code& ec) const {
  struct ::stat st {};
  if (f_ == nullptr) {
    ec = errc::closed;
  } else {
    f_->control(ec, [&](int fd) { return detail::calls::stat(fd, &st); });
  }
  return st;
}
void file::close(std::error_code& ec) const {
  if (f_ == nullptr) {
    ec = errc::closed;
  } else {
    f_->close(ec);
  }
}
void file::deadline(unsigned modes, std::int64_t when, std::error_code& ec) const {
  if (f_ == nullptr) {
    ec = errc::closed;
  } else {
    f_->set_deadline(modes, when, ec);
  }
}
int file::fd() const noexcept { return f_ == nullptr ? -1 : f_->number(); }
std::string_view file::name() const noexcept {
  return f_ == nullptr ? std::string_view() : f_->name();
}

// -- the same, throwing

void file::fail(const char* op, std::error_code ec) const {
  throw_path_error(f_ == nullptr ? op : at(op, name()), ec);
}

std::size_t file::read_some(buffer b) const {
  std::error_code ec;
  const std::size_t n = read_some(b, ec);
  if (ec) fail("read", ec);
  return n;
}
std::size_t file::read_at(buffer b, std::int64_t offset) const {
  std::error_code ec;
  const std::size_t n = read_at(b, offset, ec);
  if (ec == std::errc::invalid_argument && offset < 0)
    throw path_error(ec, at("readat", name()) + ": negative offset");
  if (ec) fail("read", ec);
  return n;
}
std::size_t file::write_all(const_buffer b) const {
  std::error_code ec;
  const std::size_t n = write_all(b, ec);
  if (ec) fail("write", ec);
  return n;
}
std::size_t file::write_at(const_buffer b, std::int64_t offset) const {
  std::error_code ec;
  const std::size_t n = write_at(b, offset, ec);
  if (ec == std::errc::invalid_argument && f_->appends())
    throw path_error(ec, "os: invalid use of WriteAt on file opened with O_APPEND");
  if (ec == std::errc::invalid_argument && offset < 0)
    throw path_error(ec, at("writeat", name()) + ": negative offset");
  if (ec) fail("write", ec);
  return n;
}
void file::sync() const {
  std::error_code ec;
  sync(ec);
  if (ec) fail("sync", ec);
}
std::int64_t file::seek(std::int64_t offset, int whence) const {
  std::error_code ec;
  const std::int64_t at = seek(offset, whence, ec);
  if (ec) fail("seek", ec);
  return at;
}
void file::truncate(std::int64_t size) const {
  std::error_code ec;
  truncate(size, ec);
  if (ec) fail("truncate", ec);
}
struct ::stat file::stat() const {
  std::error_code ec;
  const struct ::stat st = stat(ec);
  if (ec) fail("stat", ec);
  return st;
}
void file::close() const {
  std::error_code ec;
  close(ec);
  if (ec) fail("close", ec);
}

}  // namespace weft
