// SPDX-License-Identifier: Apache-2.0
// The life of a socket (socket.h), and the handles over it. Runs on the caller's stack.
#include "net/socket.h"

#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <new>
#include <sys/un.h>

#include "sched/bubble.h"

namespace weft::detail {

net_fd* net_fd::make(int fd, const char* network, std::error_code& ec) {
  rt::fd_desc* d = nullptr;
  if (const int err = rt::poll_open(fd, &d); err != 0) {
    sys::close(fd);
    ec = err == EPERM ? make_error_code(errc::not_pollable) : system_code(-err);
    return nullptr;
  }
  auto* s = new (std::nothrow) net_fd(fd, d, network);
  if (s == nullptr) {
    rt::poll_close(d);
    sys::close(fd);
    ec = system_code(-ENOMEM);
    return nullptr;
  }
  d->of = s;
  d->give_back = [](void* of, rt::poll_mode m) noexcept { static_cast<net_fd*>(of)->give_back(m); };
  ec.clear();
  return s;
}

net_fd* net_fd::make(std::unique_ptr<memory_socket> s, const char* network, std::error_code& ec) {
  memory_socket* const m = s.get();
  auto* made = new (std::nothrow) net_fd(std::move(s), network);
  if (made == nullptr) {
    m->close();
    ec = system_code(-ENOMEM);
    return nullptr;
  }
  ec.clear();
  return made;
}

void unlink_file_of(const net::address& a) noexcept {
  sys::unlink(reinterpret_cast<const sockaddr_un*>(a.data())->sun_path);
}

bool net_fd::is_stream() const noexcept {
  const network_kind k = kind_of(network);
  return k.type == SOCK_STREAM;
}

void net_fd::close(std::error_code& ec) {
  using line = fd_mutex::line;
  ec.clear();
  const bool forked = rt::is_fork_child();
  if (mem_ != nullptr) {
    if (!mu_.close(mem_->inside() ? line::wakes : line::stays)) {  // N3
      ec = errc::closed;
      return;
    }
    if (!forked) mem_->close();  // there another thread may have had the network's lock
    leave();
    return;
  }
  bool announced = false;
  {
    const rt::in_runtime inside;  // as in close_if
    if (!mu_.close(line::wakes)) {
      ec = errc::closed;
      return;
    }
    rt::poll_evict(desc_);
    announced = announce();
    if (unlink_on_close && !forked) unlink_file_of(local);  // the parent listens there
    if (mu_.leave()) really_close();
  }
  if (announced) exit_syscall();
}

void net_fd::drop() noexcept {
  std::error_code ec;
  close(ec);
  release();  // NOLINT(clang-analyzer-cplusplus.NewDelete): it does not follow the counts
}

void net_fd::really_close() noexcept {
  if (mem_ == nullptr) {
    rt::poll_close(desc_);
    sys::close(fd_);
  }
  release();
}

void net_fd::release() noexcept {
  // Release: with the acquire of the one who deletes.
  if (holders_.fetch_sub(1, rt::memory_order_acq_rel) == 1) delete this;
}

void net_fd::set_deadline(unsigned modes, std::int64_t when, std::error_code& ec) {
  if (mem_ != nullptr && !mem_->inside()) {
    not_here(ec);
    return;
  }
  const user in(*this);
  if (mem_ != nullptr && in.entered()) {
    mem_->set_deadline(modes, when);
    ec.clear();
    return;
  }
  if (!in.entered() || !rt::poll_set_deadline(desc_, modes, when)) {
    refused(ec);
    return;
  }
  // Relaxed: who naps by it looks at the descriptor's own then.
  if ((modes & 2) != 0) write_until_.store(rt::real_deadline(when), rt::memory_order_relaxed);
  ec.clear();
}

// -- the handles

socket_handle::~socket_handle() {
  if (s_ != nullptr) s_->drop();
}

void socket_handle::close() const {
  std::error_code ec;
  close(ec);
  if (ec) fail("close", ec);
}

void socket_handle::close(std::error_code& ec) const noexcept {
  if (s_ == nullptr) {
    ec = errc::closed;
    return;
  }
  s_->close(ec);
}

int socket_handle::fd() const noexcept { return s_ == nullptr ? -1 : s_->number(); }

int socket_handle::dup() const {
  std::error_code ec;
  const int r = dup(ec);
  if (ec) fail("file", ec);
  return r;
}

int socket_handle::dup(std::error_code& ec) const noexcept {
  if (s_ == nullptr) {
    ec = errc::closed;
    return -1;
  }
  return s_->control(ec, [](auto fd) { return sys::duplicate(fd); });
}

void socket_handle::deadline(unsigned modes, std::int64_t when,
                             std::error_code& ec) const noexcept {
  if (s_ == nullptr) {
    ec = errc::closed;
    return;
  }
  s_->set_deadline(modes, when, ec);
}

void socket_handle::fail(const char* op, std::error_code ec) const {
  if (s_ == nullptr) throw_op_error(op, "", "", op, ec);
  std::string where = s_->local.to_string();
  if (s_->remote) where += "->" + s_->remote.to_string();
  throw_op_error(op, s_->network, where, op, ec);
}

void socket_handle::fail_deadline(std::error_code ec) const {
  if (s_ == nullptr) fail("set", ec);
  throw_op_error("set", s_->network, s_->local.to_string(), "set", ec);
}

net::address rw_handle::local_addr() const { return s_ == nullptr ? net::address() : s_->local; }

}  // namespace weft::detail
