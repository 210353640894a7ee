// SPDX-License-Identifier: Apache-2.0
// Addresses: from text and to text. Runs on the caller's stack.
#include <arpa/inet.h>
#include <charconv>
#include <cstring>
#include <net/if.h>
#include <netinet/in.h>
#include <ostream>
#include <sys/un.h>

#include "net/socket.h"

namespace weft::net {
namespace {

constexpr std::size_t path_at = offsetof(sockaddr_un, sun_path);

template <class T>
T as(const address& a) noexcept {
  T t{};
  std::memcpy(&t, a.data(), a.size() < sizeof t ? a.size() : sizeof t);
  return t;
}

bool number(std::string_view text, std::uint32_t most, std::uint32_t& out) noexcept {
  const char* end = text.data() + text.size();
  const auto [at, err] = std::from_chars(text.data(), end, out);
  return err == std::errc() && at == end && out <= most;
}

}  // namespace

address::address(const sockaddr* sa, socklen_t size) noexcept {
  if (size < sizeof(sa_family_t)) return;
  size_ = size < sizeof raw_ ? size : static_cast<socklen_t>(sizeof raw_);
  std::memcpy(raw_, sa, size_);
  if (!is_ipv6()) return;
  // The kernel calls a peer ::ffff:a.b.c.d that speaks IPv4 to a socket of both families. It is
  // that peer all the same: one address has one form.
  const auto v6 = as<sockaddr_in6>(*this);
  if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
  std::memset(raw_, 0, sizeof raw_);
  std::memcpy(raw_, &v4, sizeof v4);
  size_ = sizeof v4;
}

std::uint16_t address::port() const noexcept {
  if (is_ipv4()) return ntohs(as<sockaddr_in>(*this).sin_port);
  if (is_ipv6()) return ntohs(as<sockaddr_in6>(*this).sin6_port);
  return 0;
}

std::string address::host() const {
  char text[INET6_ADDRSTRLEN + 1 + IF_NAMESIZE] = {};
  if (is_ipv4()) {
    const auto a = as<sockaddr_in>(*this);
    ::inet_ntop(AF_INET, &a.sin_addr, text, sizeof text);
    return text;
  }
  if (is_ipv6()) {
    const auto a = as<sockaddr_in6>(*this);
    ::inet_ntop(AF_INET6, &a.sin6_addr, text, sizeof text);
    std::string s = text;
    if (a.sin6_scope_id != 0) {
      char zone[IF_NAMESIZE];
      s += '%';
      s += ::if_indextoname(a.sin6_scope_id, zone) != nullptr ? std::string(zone)
                                                              : std::to_string(a.sin6_scope_id);
    }
    return s;
  }
  if (!is_unix()) return {};
  if (size_ <= path_at) return "@";  // a socket without a name
  std::string path(reinterpret_cast<const char*>(raw_) + path_at, size_ - path_at);
  if (path[0] == '\0') {  // abstract: every byte counts
    path[0] = '@';
  } else {
    path.resize(std::strlen(path.c_str()));
  }
  return path;
}

std::string address::to_string() const {
  if (is_ipv4()) return host() + ":" + std::to_string(port());
  if (is_ipv6()) return "[" + host() + "]:" + std::to_string(port());
  return host();
}

bool operator==(const address& a, const address& b) noexcept {
  return a.size_ == b.size_ && std::memcmp(a.raw_, b.raw_, a.size_) == 0;
}

std::ostream& operator<<(std::ostream& out, const address& a) { return out << a.to_string(); }

address address::unix_path(std::string_view path, std::error_code& ec) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  // A path ends with a zero; an abstract name begins with one, and may have more.
  const bool abstract = !path.empty() && (path[0] == '@' || path[0] == '\0');
  if (path.size() >= sizeof a.sun_path ||
      (!abstract && path.find('\0') != std::string_view::npos)) {
    ec = std::make_error_code(std::errc::invalid_argument);
    return {};
  }
  ec.clear();
  if (path.empty()) return {reinterpret_cast<const sockaddr*>(&a), path_at};
  std::memcpy(a.sun_path, path.data(), path.size());
  std::size_t size = path_at + path.size();
  if (abstract) {
    a.sun_path[0] = '\0';
  } else {
    ++size;
  }
  return {reinterpret_cast<const sockaddr*>(&a), static_cast<socklen_t>(size)};
}

address address::parse(std::string_view text, std::error_code& ec) {
  const detail::host_port hp = detail::split_host_port(text, ec);
  if (ec) return {};
  std::uint32_t port = 0;
  if (!number(hp.port, 65535, port)) {
    ec = errc::unknown_port;
    return {};
  }
  if (hp.host.find('\0') != std::string_view::npos) {  // libc would read up to it
    ec = errc::invalid_address;
    return {};
  }
  const std::string host(hp.host.substr(0, hp.host.find('%')));
  sockaddr_in v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1 && host.size() == hp.host.size()) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(port));
    return {reinterpret_cast<const sockaddr*>(&v4), sizeof v4};
  }
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<std::uint16_t>(port));
    if (host.size() != hp.host.size()) {
      const std::string zone(hp.host.substr(host.size() + 1));
      v6.sin6_scope_id = ::if_nametoindex(zone.c_str());
      if (v6.sin6_scope_id == 0 && !number(zone, UINT32_MAX, v6.sin6_scope_id)) {
        ec = errc::invalid_address;
        return {};
      }
    }
    return {reinterpret_cast<const sockaddr*>(&v6), sizeof v6};
  }
  ec = errc::invalid_address;
  return {};
}

address address::parse(std::string_view text) {
  std::error_code ec;
  address a = parse(text, ec);
  if (ec) {
    std::error_code again;
    detail::failure f{ec, "address " + std::string(text)};
    f.cause = detail::split_host_port(text, again).cause;
    detail::throw_failure("", "", f);
  }
  return a;
}

}  // namespace weft::net

namespace weft::detail {

host_port split_host_port(std::string_view text, std::error_code& ec) noexcept {
  constexpr std::size_t none = std::string_view::npos;
  const auto bad = [&ec](net::errc e, const char* cause = "") {
    ec = e;
    return host_port{{}, {}, cause};
  };
  ec.clear();
  const std::size_t colon = text.rfind(':');
  if (colon == none) return bad(net::errc::missing_port);
  std::string_view host = text.substr(0, colon);
  std::size_t opens = 0, closes = 0;  // no bracket from there on
  if (text[0] == '[') {
    const std::size_t end = text.find(']');
    if (end == none) return bad(net::errc::invalid_address, "missing ']' in address");
    if (end + 1 != colon) {
      const bool more = end + 1 < text.size() && text[end + 1] == ':';
      return bad(more ? net::errc::too_many_colons : net::errc::missing_port);
    }
    host = text.substr(1, end - 1);
    opens = 1;
    closes = end + 1;
  } else if (host.find(':') != none) {
    return bad(net::errc::too_many_colons);
  }
  if (text.find('[', opens) != none)
    return bad(net::errc::invalid_address, "unexpected '[' in address");
  if (text.find(']', closes) != none)
    return bad(net::errc::invalid_address, "unexpected ']' in address");
  return {host, text.substr(colon + 1)};
}

network_kind kind_of(std::string_view network) noexcept {
  static constexpr network_kind all[] = {
      {"tcp", SOCK_STREAM, AF_UNSPEC},        {"tcp4", SOCK_STREAM, AF_INET},
      {"tcp6", SOCK_STREAM, AF_INET6},        {"udp", SOCK_DGRAM, AF_UNSPEC},
      {"udp4", SOCK_DGRAM, AF_INET},          {"udp6", SOCK_DGRAM, AF_INET6},
      {"unix", SOCK_STREAM, AF_UNIX},         {"unixgram", SOCK_DGRAM, AF_UNIX},
      {"unixpacket", SOCK_SEQPACKET, AF_UNIX}};
  for (const network_kind& k : all) {
    if (network == k.name) return k;
  }
  return {};
}

net::address name_of(int fd, bool peer) noexcept {
  sockaddr_storage a{};
  socklen_t size = sizeof a;
  auto* sa = reinterpret_cast<sockaddr*>(&a);
  if ((peer ? ::getpeername(fd, sa, &size) : ::getsockname(fd, sa, &size)) != 0) return {};
  return {sa, size};
}

}  // namespace weft::detail
