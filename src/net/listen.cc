// SPDX-License-Identifier: Apache-2.0
// listen, accept, listen_packet. Runs on the caller's stack.
#include <algorithm>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "net/memory.h"
#include "net/socket.h"

namespace weft::detail {
namespace {

int bound_fd(const network_kind& k, const net::address& a, failure& f) {
  int fd = sys::socket(a.family(), k.type);
  if (fd < 0) {
    f.ec = system_code(fd);
    f.call = "socket";
    return -1;
  }
  if (a.is_ipv6()) sys::set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, k.family == AF_INET6 ? 1 : 0);
  if (k.type == SOCK_STREAM && k.family != AF_UNIX)
    sys::set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (k.type == SOCK_DGRAM && k.family != AF_UNIX) sys::set_option(fd, SOL_SOCKET, SO_BROADCAST, 1);
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
  std::unique_ptr<memory_socket> mem = nullptr;  // in a bubble's network; then there is no fd
};

bool is_any_host(std::string_view text) noexcept {
  std::error_code ec;
  return text.empty() || split_host_port(text, ec).host.empty();
}

bool is_no_such_family(std::error_code ec) noexcept {
  return ec == std::errc::address_family_not_supported || ec == std::errc::address_not_available ||
         ec == std::errc::protocol_not_supported;
}

bound_socket open_socket(std::string_view network, std::string_view text, bool packets,
                         memory_network* mem, failure& f) {
  const network_kind k = kind_of(network);
  if (k.name == nullptr || (k.type == SOCK_DGRAM) != packets) {
    f = unknown_network(network);
    return {};
  }
  std::vector<net::address> list = addresses_for(k, text, true, nullptr, f);
  if (f.ec) return {};
  const bool any = k.family != AF_UNIX && is_any_host(text);
  // Any address: the socket of IPv6 takes both families, where there is one. A name: one address of
  // it, as Go does, of IPv4 if it has one.
  std::stable_partition(list.begin(), list.end(),
                        [any](const net::address& a) { return any ? a.is_ipv6() : a.is_ipv4(); });
  if (!any) list.resize(1);
  for (const net::address& a : list) {
    if (f.ec && !is_no_such_family(f.ec)) break;  // the next one would hide it
    f = {{}, any ? std::string(text) : a.to_string()};
    if (mem != nullptr) [[unlikely]] {
      int err = 0;
      auto s = mem->listen(k, a, err, f.call);
      if (s != nullptr) return {-1, k.name, false, a, std::move(s)};
      f.ec = system_code(err);
      continue;
    }
    const bool has_file = a.is_unix() && a.to_string()[0] != '@';
    if (const int fd = bound_fd(k, a, f); fd >= 0) return {fd, k.name, has_file, a};
  }
  return {};
}

net_fd* open_listener(std::string_view network, std::string_view text, bool packets, failure& f) {
  bound_socket b = open_socket(network, text, packets, memory_network::current(), f);
  if (b.mem != nullptr) [[unlikely]]
    return net_fd::make(std::move(b.mem), b.network, f.ec);
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

}  // namespace

int listen_unpolled(std::string_view network, std::string_view text) {
  failure f;
  const bound_socket b = open_socket(network, text, false, nullptr, f);
  if (b.fd < 0) throw_failure("listen", network, f);
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
  if (!l) throw_failure("listen", network, f);
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
  if (!c) throw_failure("listen", network, f);
  return c;
}

listener listen(std::string_view network, const address& at) {
  return listen(network, at.to_string());
}
listener listen(std::string_view network, const address& at, std::error_code& ec) {
  return listen(network, at.to_string(), ec);
}
packet_conn listen_packet(std::string_view network, const address& at) {
  return listen_packet(network, at.to_string());
}
packet_conn listen_packet(std::string_view network, const address& at, std::error_code& ec) {
  return listen_packet(network, at.to_string(), ec);
}

namespace {

conn accept_in_memory(net_fd* l, std::error_code& ec) {
  std::unique_ptr<memory_socket> end;
  const auto take = [&end](memory_socket* s) noexcept { return accept_memory(s, end); };
  l->call_in_memory(rt::poll_mode::read, ec, take);
  return conn(ec ? nullptr : net_fd::make(std::move(end), l->network, ec));
}

}  // namespace

address listener::addr() const { return s_ == nullptr ? address() : s_->local; }

conn listener::accept(std::error_code& ec) const {
  if (s_ == nullptr) {
    ec = weft::errc::closed;
    return {};
  }
  if (s_->in_memory()) [[unlikely]]
    return accept_in_memory(s_, ec);
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
