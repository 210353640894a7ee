// SPDX-License-Identifier: Apache-2.0
// The life of an open file, and its calls (file_fd.h). Runs on the caller's stack.
#include "file/file_fd.h"

#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <new>

#include "file/uring.h"
#include "sched/park.h"

namespace weft::detail {

file_fd* file_fd::make(int fd, std::string_view name, origin from, std::error_code& ec) {
  struct ::stat st;
  const int flags = calls::status_flags(fd);
  const int err = flags < 0 ? flags : calls::stat(fd, &st);
  if (err < 0) {
    // EBADF: it is not ours to close.
    if (err != -EBADF) calls::close(fd);
    result(err, ec);
    return nullptr;
  }
  file_fd* f = nullptr;
  try {
    f = new file_fd(fd, name);
  } catch (const std::bad_alloc&) {
    calls::close(fd);
    result(-ENOMEM, ec);
    return nullptr;
  }
  const bool regular = S_ISREG(st.st_mode) || S_ISDIR(st.st_mode);
  f->quiet_ = !regular;
  f->append_ = (flags & O_APPEND) != 0;
  f->through_ = (flags & (O_SYNC | O_DSYNC | O_DIRECT)) != 0;
  if (regular) f->use(&perform_uring);
  // What cannot be watched (EPERM) is no error: it is handed to threads. (A regular file never
  // can.) What could be and is not (no memory, no descriptor for the poller) is one: a thread would
  // only hear from a descriptor in non-blocking mode that there is nothing yet.
  if (!regular && (from == origin::opened || (flags & O_NONBLOCK) != 0)) {
    const int refused = rt::poll_open(fd, &f->desc_);
    if (refused != 0) f->desc_ = nullptr;
    if (refused != 0 && refused != EPERM) {
      f->drop();
      result(-refused, ec);
      return nullptr;
    }
  }
  if (f->desc_ != nullptr) {
    f->desc_->of = f;
    f->desc_->give_back = [](void* of, rt::poll_mode m) noexcept {
      static_cast<file_fd*>(of)->give_back(m);
    };
    if ((flags & O_NONBLOCK) == 0) calls::set_nonblocking(fd);
  }
  ec.clear();
  return f;
}

long file_fd::once_polled(rt::poll_mode m, const file_call& c, std::error_code& ec) {
  rt::poll_result why = rt::poll_prepare(desc_, m);
  while (why == rt::poll_result::ready) {
    const long r = c.what == file_call::op::read ? calls::read_now(fd_, c.data, c.size)
                                                 : calls::write_now(fd_, c.data, c.size);
    if (r == -EAGAIN) {
      why = rt::poll_wait(desc_, m);
    } else if (r != -EINTR) {
      return static_cast<long>(result(r, ec));
    }
  }
  ec = why == rt::poll_result::expired ? errc::deadline_exceeded : errc::closed;
  return -1;
}

long file_fd::once_performed(const file_call& c, std::error_code& ec) {
  for (;;) {
    const long r = perform_(c);
    if (r != -EINTR) return static_cast<long>(result(r, ec));
  }
}

long file_fd::once(rt::poll_mode m, const file_call& c, std::error_code& ec) {
  return desc_ != nullptr && c.offset < 0 && c.what != file_call::op::sync ? once_polled(m, c, ec)
                                                                           : once_performed(c, ec);
}

std::size_t file_fd::all(rt::poll_mode m, file_call c, std::error_code& ec) {
  std::size_t done = 0;
  ec.clear();
  while (c.size != 0) {
    const long r = once(m, c, ec);
    if (r <= 0) break;
    const auto n = static_cast<std::size_t>(r);
    done += n;
    c.data = static_cast<std::byte*>(c.data) + n;
    c.size -= n;
    if (c.offset >= 0) c.offset += r;
  }
  return done;
}

std::size_t file_fd::read_some(void* b, std::size_t n, std::error_code& ec) {
  rt::maybe_preempt();
  const user in(*this, rt::poll_mode::read);
  if (!in) return closed(ec), 0;
  ec.clear();
  if (n == 0) return 0;
  const long r = once(rt::poll_mode::read, {file_call::op::read, fd_, b, n}, ec);
  return r > 0 ? static_cast<std::size_t>(r) : 0;
}

std::size_t file_fd::write_all(const void* b, std::size_t n, std::error_code& ec) {
  rt::maybe_preempt();
  const user in(*this, rt::poll_mode::write);
  if (!in) return closed(ec), 0;
  // The data is only read from.
  return all(rt::poll_mode::write,
             {file_call::op::write, fd_, const_cast<void*>(b), n, -1, quiet_, through_}, ec);
}

std::size_t file_fd::read_at(void* b, std::size_t n, std::int64_t offset, std::error_code& ec) {
  rt::maybe_preempt();
  const user in(*this);
  if (!in) return closed(ec), 0;
  if (offset < 0) return result(-EINVAL, ec), 0;
  return all(rt::poll_mode::read, {file_call::op::read, fd_, b, n, offset}, ec);
}

std::size_t file_fd::write_at(const void* b, std::size_t n, std::int64_t offset,
                              std::error_code& ec) {
  rt::maybe_preempt();
  const user in(*this);
  if (!in) return closed(ec), 0;
  if (offset < 0 || append_) return result(-EINVAL, ec), 0;
  return all(rt::poll_mode::write,
             {file_call::op::write, fd_, const_cast<void*>(b), n, offset, quiet_, through_}, ec);
}

void file_fd::sync(std::error_code& ec) {
  rt::maybe_preempt();
  const user in(*this);
  if (!in) return closed(ec);
  once_performed({file_call::op::sync, fd_}, ec);
}

void file_fd::set_deadline(unsigned modes, std::int64_t when, std::error_code& ec) {
  const user in(*this);
  if (!in) return closed(ec);
  ec.clear();
  if (desc_ == nullptr) {
    ec = errc::not_pollable;
  } else if (!rt::poll_set_deadline(desc_, modes, when)) {
    closed(ec);
  }
}

void file_fd::close(std::error_code& ec) {
  ec.clear();
  bool was_open = true;
  const int r = close_if([&] {
    was_open = mu_.close();
    if (!was_open) return false;
    if (desc_ != nullptr) rt::poll_evict(desc_);
    // With others still inside, the last of them closes, and what that gives is nobody's.
    return mu_.leave();
  });
  if (!was_open) return closed(ec);
  result(r, ec);
}

void file_fd::drop() noexcept {
  std::error_code ec;
  close(ec);
  release();  // NOLINT(clang-analyzer-cplusplus.NewDelete): it does not follow the counts
}

int file_fd::really_close() noexcept {
  if (desc_ != nullptr) rt::poll_close(desc_);
  const int r = calls::close_now(fd_);
  release();
  return r;
}

void file_fd::release() noexcept {
  // Release: with the acquire of the one who deletes.
  if (holders_.fetch_sub(1, rt::memory_order_acq_rel) == 1) delete this;
}

}  // namespace weft::detail
