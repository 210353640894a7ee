// SPDX-License-Identifier: Apache-2.0
// listen, accept, listen_packet. Runs on the caller's stack.
#include <algorithm>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "net/socket.h"

namespace weft::detail {
namespace {

// What went wrong, and in which system call.
struct failure {
  std::error_code ec;
  const char* call = "";
};

int bound_fd(const network_kind& k, const net::address& a, failure& f) {
  int fd = sys::socket(a.family(), k.type);
  if (fd < 0) {
    f = {system_code(fd), "socket"};
    return -1;
  }
  if (a.is_ipv6()) sys::set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, k.family == AF_INET6 ? 1 : 0);
  if (k.type == SOCK_STREAM && k.family != AF_UNIX)
    sys::set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  f.call = "bind";
  int r = sys::bind(fd, a.data(), a.size());
  if (r >= 0 && k.type != SOCK_DGRAM) {
    f.call = "listen";
    r = sys::listen(fd);
  }
  if (r < 0) {
    sys::close(fd);
    f.ec = system_code(r);
    return -1;
  }
  return fd;
}

struct bound_socket {
  int fd = -1;
  const char* network = "";  // a literal
  bool has_file = false;
  net::address at;
};

bound_socket open_socket(std::string_view network, std::string_view text, bool packets,
                         failure& f) {
  const network_kind k = kind_of(network);
  if (k.name == nullptr || (k.type == SOCK_DGRAM) != packets) {
    f = {net::errc::unknown_network, ""};
    return {};
  }
  std::vector<net::address> list = addresses_for(k, text, true, nullptr, f.ec);
  if (f.ec) return {};
  // Any address: the socket of IPv6 takes both families, where there is one.
  if (text.substr(0, text.rfind(':')).empty() && k.family == AF_UNSPEC)
    std::stable_partition(list.begin(), list.end(),
                          [](const net::address& a) { return a.is_ipv6(); });
  for (const net::address& a : list) {
    const bool has_file = a.is_unix() && a.to_string()[0] != '@';
    if (const int fd = bound_fd(k, a, f); fd >= 0) return {fd, k.name, has_file, a};
  }
  return {};
}

net_fd* open_listener(std::string_view network, std::string_view text, bool packets, failure& f) {
  const bound_socket b = open_socket(network, text, packets, f);
  if (b.fd < 0) return nullptr;
  f.call = "epoll_ctl";
  net_fd* s = net_fd::make(b.fd, b.network, f.ec);
  if (s == nullptr) {
    if (b.has_file) unlink_file_of(b.at);
    return nullptr;
  }
  s->local = name_of(b.fd, false);
  s->unlink_on_close = b.has_file;
  return s;
}

[[noreturn]] void throw_listen(std::string_view network, std::string_view text, const failure& f) {
  if (f.ec == net::errc::unknown_network)
    throw net::op_error(
        f.ec, "listen " + std::string(network) + ": unknown network " + std::string(network));
  throw_op_error("listen", network, text, f.call, f.ec);
}

}  // namespace

int listen_unpolled(std::string_view network, std::string_view text) {
  failure f;
  const bound_socket b = open_socket(network, text, false, f);
  if (b.fd < 0) throw_listen(network, text, f);
  return b.fd;
}

}  // namespace weft::detail

namespace weft::net {

using namespace detail;

listener listen(std::string_view network, std::string_view text, std::error_code& ec) {
  failure f;
  listener l(open_listener(network, text, false, f));
  ec = l ? std::error_code() : f.ec;
  return l;
}
listener listen(std::string_view network, std::string_view text) {
  failure f;
  listener l(open_listener(network, text, false, f));
  if (!l) throw_listen(network, text, f);
  return l;
}
packet_conn listen_packet(std::string_view network, std::string_view text, std::error_code& ec) {
  failure f;
  packet_conn c(open_listener(network, text, true, f));
  ec = c ? std::error_code() : f.ec;
  return c;
}
packet_conn listen_packet(std::string_view network, std::string_view text) {
  failure f;
  packet_conn c(open_listener(network, text, true, f));
  if (!c) throw_listen(network, text, f);
  return c;
}

address listener::addr() const { return s_ == nullptr ? address() : s_->local; }

conn listener::accept(std::error_code& ec) const {
  if (s_ == nullptr) {
    ec = weft::errc::closed;
    return {};
  }
  sockaddr_storage from{};
  socklen_t size = 0;
  const long fd = s_->call(rt::poll_mode::read, ec, [&](int l) noexcept -> long {
    for (;;) {
      size = sizeof from;
      const int r = sys::accept(l, reinterpret_cast<sockaddr*>(&from), &size);
      // A peer that went away in the queue is its own affair; the next, please. (accept(2) passes
      // on errors of the new socket.)
      if (r != -ECONNABORTED && r != -EPROTO) return r;
    }
  });
  if (fd < 0) return {};
  net_fd* s = net_fd::make(static_cast<int>(fd), s_->network, ec);
  if (s == nullptr) return {};
  conn c(s);
  s->local = name_of(static_cast<int>(fd), false);
  s->remote = address(reinterpret_cast<const sockaddr*>(&from), size);
  if (!s_->local.is_unix()) set_tcp_defaults(static_cast<int>(fd));
  return c;
}

conn listener::accept() const {
  std::error_code ec;
  conn c = accept(ec);
  if (ec) {
    throw_op_error("accept", s_ == nullptr ? "" : s_->network,
                   s_ == nullptr ? "" : s_->local.to_string(), "accept4", ec);
  }
  return c;
}

}  // namespace weft::net
