// SPDX-License-Identifier: Apache-2.0
// file_fd: an open file that goroutines and plain threads share; what a file points to.
//
// Two hold it, as they hold a socket (net/socket.h): the handle, and the open descriptor, which
// goes when it has been closed and its last user has left (net/fd_mutex.h). So nobody's read meets
// a number that has been given to somebody else, and close() waits for nobody.
//
// Two ways to wait. With a place in the poller (desc_) a call tries, and parks if the kernel says
// EAGAIN. Without one (a regular file, a descriptor in blocking mode) it is made by perform_.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>

#include "file/calls.h"
#include "net/fd_mutex.h"
#include "os/section.h"
#include "sched/netpoll.h"
#include "weft/file.hpp"
#include "weft/thread.hpp"

namespace weft::detail {

class file_fd {
 public:
  // opened: by us, so its mode is ours to choose. adopted: it stays as it is.
  enum class origin : std::uint8_t { opened, adopted };
  // Takes fd over, and closes it if there is an error.
  static file_fd* make(int fd, std::string_view name, origin from, std::error_code& ec);

  std::size_t read_some(void* b, std::size_t n, std::error_code& ec);
  std::size_t write_all(const void* b, std::size_t n, std::error_code& ec);
  std::size_t read_at(void* b, std::size_t n, std::int64_t offset, std::error_code& ec);
  std::size_t write_at(const void* b, std::size_t n, std::int64_t offset, std::error_code& ec);
  void sync(std::error_code& ec);
  void set_deadline(unsigned modes, std::int64_t when, std::error_code& ec);
  // f(fd) once, beside all others: a result or minus an errno.
  template <class F>
  std::int64_t control(std::error_code& ec, F f) {
    const user in(*this);
    if (!in) return closed(ec), -1;
    return result(f(fd_), ec);
  }

  void close(std::error_code& ec);
  void drop() noexcept;  // the handle goes; closes if nobody has
  int number() const noexcept { return mu_.closed() ? -1 : fd_; }
  const std::string& name() const noexcept { return name_; }
  // Tests choose another way to make the calls, before the file is shared.
  void use(perform_fn f) noexcept { perform_ = f; }
  bool is_polled() const noexcept { return desc_ != nullptr; }
  bool appends() const noexcept { return append_; }  // write_at refuses

 private:
  file_fd(int fd, std::string_view name) : name_(name), fd_(fd) {}
  ~file_fd() = default;

  // Keeps the descriptor open, and others of its direction out.
  class user {
   public:
    explicit user(file_fd& f) : f_(f), side_(none), in_(f.mu_.enter()) {}
    user(file_fd& f, rt::poll_mode m)
        : f_(f), side_(static_cast<int>(m)), in_(f.mu_.lock(m, f.desc_)) {}
    user(const user&) = delete;
    user& operator=(const user&) = delete;
    ~user() {
      if (!in_) return;
      if (side_ != none) {
        f_.unlock(static_cast<rt::poll_mode>(side_));
      } else {
        f_.close_if([this] { return f_.mu_.leave(); });
      }
    }
    explicit operator bool() const noexcept { return in_; }

   private:
    static constexpr int none = -1;
    file_fd& f_;
    int side_;
    bool in_;
  };

  // c until it does something; c.size is not 0 unless it is a sync.
  long once(rt::poll_mode m, const file_call& c, std::error_code& ec);
  long once_polled(rt::poll_mode m, const file_call& c, std::error_code& ec);
  long once_performed(const file_call& c, std::error_code& ec);
  // c again and again, until all is done, the end of the file, or an error.
  std::size_t all(rt::poll_mode m, file_call c, std::error_code& ec);
  static void closed(std::error_code& ec) noexcept { ec = errc::closed; }
  static std::int64_t result(std::int64_t r, std::error_code& ec) noexcept {
    ec = r < 0 ? std::error_code(static_cast<int>(-r), std::system_category()) : std::error_code();
    return r;
  }
  void unlock(rt::poll_mode m) {
    close_if([this, m] { return mu_.unlock(m, desc_); });
  }
  // Leaves, and closes the descriptor if it was the last inside: what close(2) gives, else 0.
  // Nobody else would close it, so from the one to the other this thread is not stopped for good,
  // even if its run is over; the call is announced all the same.
  template <class Leave>
  int close_if(Leave last) {
    int r = 0;
    bool announced = false;
    {
      const rt::in_runtime inside;
      if (!last()) return 0;
      announced = !rt::is_fork_child();  // there nobody would take the P
      if (announced) enter_syscall();
      r = really_close();
    }
    if (announced) exit_syscall();
    return r;
  }
  // What one that has stopped for good holds. It is no goroutine any more that could give its P
  // away or get another.
  void give_back(rt::poll_mode m) {
    if (mu_.unlock(m, desc_)) really_close();
  }
  int really_close() noexcept;
  void release() noexcept;

  const std::string name_;
  const int fd_;
  bool quiet_ = false;    // may raise SIGPIPE
  bool append_ = false;   // O_APPEND
  bool through_ = false;  // writes wait for the disk
  rt::fd_desc* desc_ = nullptr;
  perform_fn perform_ = &perform_blocking;
  fd_mutex mu_;
  rt::atomic<int> holders_{2};  // the handle, the open descriptor
};

}  // namespace weft::detail
