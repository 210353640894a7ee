// SPDX-License-Identifier: Apache-2.0
// Reading and writing: conn and packet_conn over net_fd (socket.h). Runs on the caller's stack.
#include <algorithm>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "net/socket.h"

namespace weft::net {

using detail::sys::receive;
using rt::poll_mode;

namespace {

constexpr std::size_t most = 1U << 30;  // what one system call is asked for
constexpr std::size_t batch = 64;       // buffers a system call

bool closed(const detail::net_fd* s, std::error_code& ec) noexcept {
  if (s != nullptr) return false;
  ec = weft::errc::closed;
  return true;
}
std::size_t count(long r) noexcept { return r > 0 ? static_cast<std::size_t>(r) : 0; }

// The buffers behind the first `skip` bytes, as the kernel wants them.
template <class Buffers>
std::size_t gather(Buffers bs, std::size_t skip, iovec (&v)[batch]) noexcept {
  std::size_t n = 0;
  for (const auto& b : bs) {
    if (skip >= b.size()) {
      skip -= b.size();
      continue;
    }
    if (n == batch) break;
    v[n++] = {const_cast<std::byte*>(b.data()) + skip, b.size() - skip};
    skip = 0;
  }
  return n;
}

template <class Buffers>
std::size_t total(Buffers bs) noexcept {
  std::size_t n = 0;
  for (const auto& b : bs) n += b.size();
  return n;
}

}  // namespace

// Each throwing call is its other half and a look.
#define WEFT_OR_THROW(op, call) \
  std::error_code ec;           \
  const auto r = call;          \
  if (ec) fail(op, ec);         \
  return r

std::size_t conn::read_some(buffer b) const { WEFT_OR_THROW("read", read_some(b, ec)); }
std::size_t conn::read_some(buffers bs) const { WEFT_OR_THROW("read", read_some(bs, ec)); }
std::size_t conn::read_full(buffer b) const { WEFT_OR_THROW("read", read_full(b, ec)); }
std::size_t conn::write_all(const_buffer b) const { WEFT_OR_THROW("write", write_all(b, ec)); }
std::size_t conn::write_all(const_buffers bs) const { WEFT_OR_THROW("write", write_all(bs, ec)); }
std::size_t conn::write_some(const_buffer b) const { WEFT_OR_THROW("write", write_some(b, ec)); }
std::size_t conn::write_some(const_buffers bs) const { WEFT_OR_THROW("write", write_some(bs, ec)); }
std::size_t conn::send_file(int file, off_t offset, std::size_t n) const {
  WEFT_OR_THROW("sendfile", send_file(file, offset, n, ec));
}
std::pair<std::size_t, address> packet_conn::read_from(buffer b) const {
  WEFT_OR_THROW("read", read_from(b, ec));
}

std::size_t conn::read_some(buffer b, std::error_code& ec) const {
  if (closed(s_, ec)) return 0;
  const bool nothing = b.empty() && s_->is_stream();  // an empty datagram is one
  return count(s_->call(poll_mode::read, ec, [b, nothing](auto fd) noexcept {
    return nothing ? 0 : receive(fd, b.data(), std::min(b.size(), most));
  }));
}

std::size_t conn::read_some(buffers bs, std::error_code& ec) const {
  if (closed(s_, ec)) return 0;
  iovec v[batch];
  const std::size_t n = gather(bs, 0, v);
  return count(s_->call(poll_mode::read, ec,
                        [&](auto fd) noexcept { return n == 0 ? 0 : receive(fd, v, n); }));
}

std::size_t conn::read_full(buffer b, std::error_code& ec) const {
  if (closed(s_, ec)) return 0;
  const std::size_t n =
      s_->call_all(poll_mode::read, b.size(), ec, [b](auto fd, std::size_t done) noexcept {
        return b.empty() ? 0 : receive(fd, b.data() + done, std::min(b.size() - done, most));
      });
  if (!ec && n < b.size()) ec = weft::errc::unexpected_eof;
  return n;
}

std::size_t conn::write_all(const_buffer b, std::error_code& ec) const {
  if (closed(s_, ec)) return 0;
  const bool nothing = b.empty() && s_->is_stream();
  return s_->call_all(
      poll_mode::write, b.size(), ec, [b, nothing](auto fd, std::size_t done) noexcept {
        return nothing ? 0
                       : detail::sys::send(fd, b.data() + done, std::min(b.size() - done, most));
      });
}

std::size_t conn::write_all(const_buffers bs, std::error_code& ec) const {
  if (closed(s_, ec)) return 0;
  return s_->call_all(poll_mode::write, total(bs), ec, [&](auto fd, std::size_t done) noexcept {
    iovec v[batch];
    const std::size_t n = gather(bs, done, v);
    return n == 0 ? 0 : detail::sys::send(fd, v, n);
  });
}

std::size_t conn::write_some(const_buffer b, std::error_code& ec) const {
  if (closed(s_, ec)) return 0;
  const bool nothing = b.empty() && s_->is_stream();
  return count(s_->call(poll_mode::write, ec, [b, nothing](auto fd) noexcept {
    return nothing ? 0 : detail::sys::send(fd, b.data(), std::min(b.size(), most));
  }));
}

std::size_t conn::write_some(const_buffers bs, std::error_code& ec) const {
  if (closed(s_, ec)) return 0;
  iovec v[batch];
  const std::size_t n = gather(bs, 0, v);
  return count(s_->call(poll_mode::write, ec, [&](auto fd) noexcept {
    return n == 0 ? 0 : detail::sys::send(fd, v, n);
  }));
}

std::size_t conn::send_file(int file, off_t offset, std::size_t n, std::error_code& ec) const {
  if (closed(s_, ec)) return 0;
  return s_->call_all(poll_mode::write, n, ec, [=](auto fd, std::size_t done) noexcept {
    const std::size_t part = std::min<std::size_t>(n - done, 4U << 20);
    return n == 0 ? 0 : detail::sys::send_file(fd, file, offset + static_cast<off_t>(done), part);
  });
}

std::pair<std::size_t, address> packet_conn::read_from(buffer b, std::error_code& ec) const {
  if (closed(s_, ec)) return {};
  sockaddr_storage from;
  socklen_t size = 0;
  const long r = s_->call(poll_mode::read, ec, [&](auto fd) noexcept {
    size = sizeof from;
    return detail::sys::receive_from(fd, b.data(), std::min(b.size(), most),
                                     reinterpret_cast<sockaddr*>(&from), &size);
  });
  if (r < 0) return {};
  return {count(r), address(reinterpret_cast<const sockaddr*>(&from), size)};
}

std::size_t packet_conn::write_to(const_buffer b, const address& to, std::error_code& ec) const {
  if (closed(s_, ec)) return 0;
  return count(s_->call(poll_mode::write, ec, [&](auto fd) noexcept {
    return detail::sys::send_to(fd, b.data(), b.size(), to.data(), to.size());
  }));
}

std::size_t packet_conn::write_to(const_buffer b, const address& to) const {
  std::error_code ec;
  const std::size_t n = write_to(b, to, ec);
  if (ec) {
    if (s_ == nullptr) fail("write", ec);
    detail::throw_op_error("write", s_->network, s_->local.to_string() + "->" + to.to_string(),
                           "sendto", ec);
  }
  return n;
}

address conn::remote_addr() const { return s_ == nullptr ? address() : s_->remote; }

// -- what is set, not read or written

void conn::close_write(std::error_code& ec) const noexcept {
  if (!closed(s_, ec)) s_->control(ec, [](auto fd) { return detail::sys::shutdown(fd, SHUT_WR); });
}
void conn::close_read(std::error_code& ec) const noexcept {
  if (!closed(s_, ec)) s_->control(ec, [](auto fd) { return detail::sys::shutdown(fd, SHUT_RD); });
}
void conn::set_no_delay(bool on, std::error_code& ec) const noexcept {
  if (closed(s_, ec)) return;
  s_->control(ec, [on](auto fd) {
    return detail::sys::set_option(fd, IPPROTO_TCP, TCP_NODELAY, on ? 1 : 0);
  });
}
void conn::set_linger(int seconds, std::error_code& ec) const noexcept {
  if (closed(s_, ec)) return;
  s_->control(ec, [seconds](auto fd) { return detail::sys::set_linger(fd, seconds); });
}
void conn::close_write() const {
  std::error_code ec;
  close_write(ec);
  if (ec) fail("close", ec);
}
void conn::close_read() const {
  std::error_code ec;
  close_read(ec);
  if (ec) fail("close", ec);
}
void conn::set_no_delay(bool on) const {
  std::error_code ec;
  set_no_delay(on, ec);
  if (ec) fail("set", ec);
}
void conn::set_linger(int seconds) const {
  std::error_code ec;
  set_linger(seconds, ec);
  if (ec) fail("set", ec);
}

}  // namespace weft::net
