// SPDX-License-Identifier: Apache-2.0
// net_fd: a socket that goroutines and plain threads share. What conn, listener and packet_conn
// point to.
//
// Two hold it: the handle, and the open descriptor. The descriptor goes when it has been closed and
// its last user has left (fd_mutex.h), the object when the handle has gone too. As with any object,
// the handle must not be destroyed while one of its members runs; it may be closed.
//
// In a bubble that has a network of its own (memory.h) a socket in memory stands in the place of
// the descriptor; every other line is the same for both.
//
// Every call tries first and waits only when the kernel says EAGAIN. Nothing is allocated per call.
//
// But for one: TCP that gave a reader less than it asked for has been read empty, and whatever
// comes after that is reported (the poller is edge-triggered), so the next read waits without
// asking the kernel first: one system call less of three for each message that is answered. It asks
// all the same if
//   - an end, an error or urgent data has been reported (fd_desc::ended): that may have come
//     together with the last bytes, in one report, and no other will follow;
//   - anything but such a read has waited or looked since: it may have used a report up;
//   - the read gave 16 KiB or more: while that was copied more has come.
// A report that comes at any moment after the short read makes the slot `ready`, and nothing takes
// that away before the next read does. Other sockets may give less and have more: a Unix stream
// stops at each set of descriptors or credentials. Nor does it hold for what is put on the socket
// from outside (kernel TLS keeps records back). models/short_read.pml has the whole of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <system_error>
#include <utility>

#include "net/fd_mutex.h"
#include "net/memory.h"
#include "net/sys.h"
#include "os/section.h"
#include "sched/netpoll.h"
#include "sched/park.h"
#include "weft/net.hpp"
#include "weft/thread.hpp"

namespace weft::detail {

inline std::error_code system_code(long minus_errno) noexcept {
  return {static_cast<int>(-minus_errno), std::system_category()};
}

class net_fd {
 public:
  static constexpr std::size_t most = 1U << 30;  // what one system call is asked for
  static constexpr std::size_t small = 16384;    // more than that takes so long that more has come

  // Takes fd over, and closes it if there is an error.
  static net_fd* make(int fd, const char* network, std::error_code& ec);
  static net_fd* make(std::unique_ptr<memory_socket> s, const char* network, std::error_code& ec);

  const char* network;         // "tcp", …: a literal
  net::address local, remote;  // set before it is shared
  bool unlink_on_close = false;

  int number() const noexcept { return mu_.closed() ? -1 : fd_; }
  bool is_stream() const noexcept;
  rt::fd_desc* desc() noexcept { return desc_; }
  void close(std::error_code& ec);
  void drop() noexcept;  // the handle goes; closes if nobody has
  void set_deadline(unsigned modes, std::int64_t when, std::error_code& ec);

  // When writing is over, or rt::never.
  std::int64_t write_deadline() const noexcept {
    return write_until_.load(rt::memory_order_relaxed);
  }

  bool in_memory() const noexcept { return mem_ != nullptr; }

  // Calls f(fd), which gives a result or minus an errno, until it does something else than block.
  // In memory f(memory_socket*) is called, here and below; an f of descriptors alone is never
  // called with one in memory. asked: how many bytes f reads at most, if it reads of a stream.
  template <class F>
  long call(rt::poll_mode m, std::error_code& ec, F f, std::size_t asked = 0) {
    if constexpr (std::is_invocable_v<F&, memory_socket*>) {
      if (mem_ != nullptr) [[unlikely]]
        return call_in_memory(m, ec, f);
    }
    const user in(*this, m);
    return in.entered() ? retry(m, ec, f, asked) : refused(ec);
  }
  // The same several times under one lock: f(fd, done) until it has done n in all, or gives 0.
  template <class F>
  std::size_t call_all(rt::poll_mode m, std::size_t n, std::error_code& ec, F f) {
    if (mem_ != nullptr) [[unlikely]]
      return call_all_in_memory(m, n, ec, f);
    const user in(*this, m);
    if (!in.entered()) return refused(ec), 0;
    std::size_t done = 0;
    do {
      const long r = retry(
          m, ec, [&](int fd) noexcept { return f(fd, done); }, n - done);
      if (r <= 0) break;
      done += static_cast<std::size_t>(r);
    } while (done < n);
    return done;
  }
  // Not inlined, and with an f of its own: what f holds stays in registers on the real way.
  template <class F>
  [[gnu::noinline]] long call_in_memory(rt::poll_mode m, std::error_code& ec, F f) {
    if (!mem_->inside()) return not_here(ec);
    const user in(*this, m);
    return in.entered() ? mem_->retry(m, ec, f) : refused(ec);
  }
  // Calls f(fd) once, beside readers and writers: socket options.
  template <class F>
  int control(std::error_code& ec, F f) {
    const user in(*this);
    if (!in.entered()) return static_cast<int>(refused(ec));
    if (mem_ != nullptr && !mem_->inside()) return static_cast<int>(not_here(ec));
    const int r = mem_ != nullptr ? mem_->control(f) : f(fd_);
    ec = r < 0 ? system_code(r) : std::error_code();
    return r;
  }

 private:
  net_fd(int fd, rt::fd_desc* d, const char* net) noexcept
      : network(net), fd_(fd), desc_(d), is_tcp_(net[0] == 't') {}
  explicit net_fd(std::unique_ptr<memory_socket> s, const char* net) noexcept
      : network(net),
        local(s->local),
        remote(s->remote),
        fd_(-1),
        desc_(nullptr),
        is_tcp_(false),
        mem_(std::move(s)) {}
  ~net_fd() = default;
  friend std::default_delete<net_fd>;

  class user {
   public:
    explicit user(net_fd& s) : s_(s), kind_(2), entered_(s.mu_.enter()) {}
    user(net_fd& s, rt::poll_mode m) : s_(s), kind_(static_cast<int>(m)), entered_(enter(s, m)) {}
    user(const user&) = delete;
    user& operator=(const user&) = delete;
    ~user() {
      if (!entered_) return;
      if (kind_ != 2) {
        s_.unlock(static_cast<rt::poll_mode>(kind_));
      } else {
        s_.leave();
      }
    }
    bool entered() const noexcept { return entered_; }

   private:
    static bool enter(net_fd& s, rt::poll_mode m) {
      rt::maybe_preempt();
      return s.mu_.lock(m, s.desc_);
    }
    net_fd& s_;
    int kind_;
    bool entered_;
  };

  template <class F>
  long retry(rt::poll_mode m, std::error_code& ec, F f, std::size_t asked) {
    const bool reads = m == rt::poll_mode::read;
    const bool wait_first = reads && std::exchange(empty_, false) && asked != 0;
    rt::poll_result why = wait_first ? rt::poll_wait(desc_, m) : rt::poll_prepare(desc_, m);
    while (why == rt::poll_result::ready) {
      const long r = f(fd_);
      if (r >= 0) {
        if (reads && is_tcp_ && r > 0 && static_cast<std::size_t>(r) < std::min(asked, small))
          empty_ = !desc_->ended.load(rt::memory_order_seq_cst);
        ec.clear();
        return r;
      }
      if (r == -EAGAIN) {
        why = rt::poll_wait(desc_, m);
      } else if (r != -EINTR) {
        ec = system_code(r);
        return -1;
      }
    }
    ec = why == rt::poll_result::expired ? errc::deadline_exceeded : errc::closed;
    return -1;
  }
  template <class F>
  [[gnu::noinline]] std::size_t call_all_in_memory(rt::poll_mode m, std::size_t n,
                                                   std::error_code& ec, F f) {
    if (!mem_->inside()) return not_here(ec), 0;
    const user in(*this, m);
    if (!in.entered()) return refused(ec), 0;
    std::size_t done = 0;
    const auto some = [&](memory_socket* s) noexcept { return f(s, done); };
    do {
      const long r = mem_->retry(m, ec, some);
      if (r <= 0) break;
      done += static_cast<std::size_t>(r);
    } while (done < n);
    return done;
  }
  static long not_here(std::error_code& ec) noexcept {
    ec = std::make_error_code(std::errc::operation_not_permitted);
    return -1;
  }
  static long refused(std::error_code& ec) noexcept {
    ec = errc::closed;
    return -1;
  }
  // What one that has stopped for good holds: how far it came, nobody knows.
  void give_back(rt::poll_mode m) {
    if (m == rt::poll_mode::read) empty_ = false;
    unlock(m);
  }
  void unlock(rt::poll_mode m) {
    close_if([this, m] { return mu_.unlock(m, desc_); });
  }
  void leave() {
    close_if([this] { return mu_.leave(); });
  }
  // Who leaves last closes the descriptor, and nobody else would: it is not stopped for good in
  // between. The call is announced all the same: one that lingers may take long.
  template <class Leave>
  void close_if(Leave last) {
    if (mem_ != nullptr) {
      if (last()) really_close();
      return;
    }
    bool announced = false;
    {
      const rt::in_runtime inside;
      if (!last()) return;
      announced = announce();
      really_close();
    }
    if (announced) exit_syscall();
  }
  // False: in the child of a fork, where nobody would take the P.
  static bool announce() noexcept {
    if (rt::is_fork_child()) return false;
    enter_syscall();
    return true;
  }
  void really_close() noexcept;
  void release() noexcept;

  int fd_;
  rt::fd_desc* desc_;
  const bool is_tcp_;
  bool empty_ = false;                        // the reader's: see the head
  const std::unique_ptr<memory_socket> mem_;  // then there is neither of those
  fd_mutex mu_;
  rt::atomic<std::int64_t> write_until_{rt::never};
  rt::atomic<int> holders_{2};  // the handle, the open descriptor
};

// error.cc: throws net::op_error with Go's text. `call` names the system call, for system errors.
[[noreturn]] void throw_op_error(const char* op, std::string_view network, std::string_view where,
                                 std::string_view call, std::error_code ec);

// Why dial, listen or resolve has nothing to give, in Go's words.
struct failure {
  std::error_code ec;
  std::string where;        // a socket's address; if unresolved, `address …` or `lookup …`
  bool unresolved = false;  // there was no socket's address yet
  const char* call = "";    // the system call, for system errors
  std::string cause = {};   // where Go's words are not the code's
};
[[noreturn]] void throw_failure(std::string_view op, std::string_view network, const failure& f);

// address.cc. "host:port" apart; views into text.
struct host_port {
  std::string_view host, port;
  const char* cause = "";  // as a failure's
};
host_port split_host_port(std::string_view text, std::error_code& ec) noexcept;

// Which sockets a network's name stands for.
struct network_kind {
  const char* name = nullptr;  // null: unknown
  int type = 0;                // SOCK_STREAM, SOCK_DGRAM
  int family = 0;              // AF_INET, AF_INET6, AF_UNIX, or AF_UNSPEC: both of IP
};
network_kind kind_of(std::string_view network) noexcept;
// resolve.cc. The addresses of `text` that fit; for a listener an empty host is any address.
std::vector<net::address> addresses_for(const network_kind& k, std::string_view text,
                                        bool listening, const context* ctx, failure& f);
failure unknown_network(std::string_view network);
void require(const context& ctx);  // throws if it is nil
net::address name_of(int fd, bool peer) noexcept;
// Of a Unix socket with a path. No copy, which might throw: an address has room for a zero behind
// the longest path.
void unlink_file_of(const net::address& a) noexcept;
// A listening socket that the poller does not know of; non-blocking. Throws as net::listen does.
int listen_unpolled(std::string_view network, std::string_view text);
void set_tcp_defaults(int fd) noexcept;  // Go's: no delay, keep alive; options that fail are left

}  // namespace weft::detail
