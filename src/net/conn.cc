// SPDX-License-Identifier: Apache-2.0
// Reading and writing: conn and packet_conn over net_fd (socket.h). Runs on the caller's stack.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <new>
#include <span>
#include <type_traits>

#include "net/socket.h"
#include "os/clock.h"
#include "sched/bubble.h"

namespace weft::net {

using detail::sys::receive;
using rt::poll_mode;

namespace {

constexpr std::size_t most = detail::net_fd::most;
constexpr std::size_t batch = 64;        // buffers a system call
constexpr std::size_t max_batch = 1024;  // of a message: what the kernel takes (IOV_MAX)

bool closed(const detail::net_fd* s, std::error_code& ec) noexcept {
  if (s != nullptr) return false;
  ec = weft::errc::closed;
  return true;
}
std::size_t count(long r) noexcept { return r > 0 ? static_cast<std::size_t>(r) : 0; }

// The buffers behind the first `skip` bytes, as the kernel wants them.
template <class Buffers>
std::size_t gather(Buffers bs, std::size_t skip, std::span<iovec> v) noexcept {
  std::size_t n = 0;
  for (const auto& b : bs) {
    if (skip >= b.size()) {
      skip -= b.size();
      continue;
    }
    if (n == v.size()) break;
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

// f(fd, v, n) with all the buffers of a message: in parts it would be several messages. Those of a
// stream go the ways below, and so do messages of up to `batch` buffers with something in them.
template <class Buffers, class F>
[[gnu::noinline]] std::size_t pass_message(detail::net_fd* s, poll_mode m, Buffers bs,
                                           std::error_code& ec, F f) {
  const auto used = std::count_if(bs.begin(), bs.end(), [](const auto& b) { return !b.empty(); });
  const auto size = static_cast<std::size_t>(used);
  const std::unique_ptr<iovec[]> v(size <= max_batch ? new (std::nothrow) iovec[size] : nullptr);
  if (v == nullptr) {
    ec = detail::system_code(size > max_batch ? -EMSGSIZE : -ENOBUFS);
    return 0;
  }
  gather(bs, 0, {v.get(), size});
  return count(s->call(m, ec, [&](auto fd) noexcept { return f(fd, v.get(), size); }));
}

std::size_t send_message(detail::net_fd* s, std::span<const const_buffer> bs, std::error_code& ec) {
  return pass_message(
      s, poll_mode::write, bs, ec,
      [](auto fd, const iovec* v, std::size_t n) noexcept { return detail::sys::send(fd, v, n); });
}
std::size_t receive_message(detail::net_fd* s, std::span<const buffer> bs, std::error_code& ec) {
  return pass_message(
      s, poll_mode::read, bs, ec,
      [](auto fd, const iovec* v, std::size_t n) noexcept { return receive(fd, v, n); });
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
  return count(s_->call(
      poll_mode::read, ec,
      [b, nothing](auto fd) noexcept {
        return nothing ? 0 : receive(fd, b.data(), std::min(b.size(), most));
      },
      b.size()));
}

std::size_t conn::read_some(buffers bs, std::error_code& ec) const {
  if (closed(s_, ec)) return 0;
  if (bs.size() > batch && !s_->is_stream()) return receive_message(s_, bs, ec);
  iovec v[batch];
  const std::size_t n = gather(bs, 0, v);
  std::size_t asked = 0;
  for (const iovec& i : std::span(v, n)) asked += i.iov_len;
  return count(s_->call(
      poll_mode::read, ec, [&](auto fd) noexcept { return n == 0 ? 0 : receive(fd, v, n); },
      asked));
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
  const std::size_t all = total(bs);
  if ((all == 0 || bs.size() > batch) && !s_->is_stream()) return send_message(s_, bs, ec);
  return s_->call_all(poll_mode::write, all, ec, [&](auto fd, std::size_t done) noexcept {
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
  if ((n == 0 || bs.size() > batch) && !s_->is_stream()) return send_message(s_, bs, ec);
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

namespace {

// For who sends to a Unix socket whose queue is full. Nobody tells a sender that is not connected
// when there is room: to poll(2) and epoll it can be written to as long as its own buffer has room,
// and each attempt in vain fills and frees that, which is an edge. So it naps and tries again, for
// 20 µs at first and 5 ms at last, up to its deadline. A close is seen after the nap.
class naps {
 public:
  explicit naps(detail::net_fd* s) noexcept : s_(s) {}
  // What the call is to say: that it wants to be called again, or to wait because that ends at once
  // (closed, expired). In a bubble time would jump over the nap: it waits by the poller there.
  long next() {
    if (s_->desc()->check(poll_mode::write) != rt::poll_result::ready || rt::current_bubble() != 0)
      return -EAGAIN;
    const std::int64_t now = rt::nanotime();
    // The deadline is past when its timer has said so, which may be a little later.
    const std::int64_t over = std::max(s_->write_deadline(), now + shortest);
    rt::sleep_until(std::min(now + length_, over), rt::wait_reason::io_wait);
    length_ = std::min<std::int64_t>(length_ * 2, 5'000'000);
    return -EINTR;
  }

 private:
  static constexpr std::int64_t shortest = 20'000;  // ns
  detail::net_fd* s_;
  std::int64_t length_ = shortest;
};

}  // namespace

std::size_t packet_conn::write_to(const_buffer b, const address& to, std::error_code& ec) const {
  if (closed(s_, ec)) return 0;
  naps full(s_);
  return count(s_->call(poll_mode::write, ec, [&](auto fd) -> long {
    const long r = detail::sys::send_to(fd, b.data(), b.size(), to.data(), to.size());
    if constexpr (std::is_same_v<decltype(fd), int>) {
      if (r == -EAGAIN && to.is_unix()) return full.next();
    }
    return r;
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
