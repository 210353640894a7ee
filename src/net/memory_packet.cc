// SPDX-License-Identifier: Apache-2.0
// Datagrams of a bubble's network. See memory.h. Those of UDP may be lost, by the options' chance,
// or because the receiver's window is full, or because nobody is there; and overtake one another.
// Those of Unix sockets are neither lost nor out of order: the sender waits for room.
//
// Runs on the caller's stack, under the network's lock.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "net/memory_socket.h"

namespace weft::detail {
namespace {

constexpr std::size_t largest = 65507;  // what IPv4 and UDP leave of 64 KiB

}  // namespace

long memory_packets::take(const iovec* v, std::size_t n, net::address* from) noexcept {
  const auto first = in_.begin();
  if (first == in_.end() || first->first > net().now()) return -EAGAIN;
  const packet& p = first->second;
  const std::size_t got = scatter(p.bytes, v, n, 0);
  if (from != nullptr) *from = p.from;
  unread_ -= p.bytes.size();
  in_.erase(first);
  if (local.is_unix()) net().wake_senders();
  return static_cast<long>(got);
}

long memory_packets::receive(const iovec* v, std::size_t n) noexcept { return take(v, n, nullptr); }

long memory_packets::receive_from(void* b, std::size_t n, sockaddr* from,
                                  socklen_t* size) noexcept {
  const iovec v{b, n};
  net::address a;
  const long r = take(&v, 1, &a);
  if (r < 0) return r;
  *size = is_unnamed(a) ? 0 : std::min(a.size(), *size);  // who has no name sends no address
  std::memcpy(from, a.data(), *size);
  return r;
}

long memory_packets::put(std::string bytes, const net::address& to) {
  const bool is_unix = local.is_unix();
  const auto size = static_cast<long>(bytes.size());
  auto* p = static_cast<memory_packets*>(net().find(type, to));
  const net::address from = memory_network::sender_of(*this, p, to);
  const bool deaf = p != nullptr && p->remote && !(p->remote == from);
  if (is_unix) {
    if (p == nullptr) return nobody_at(to);
    if (deaf) return -EPERM;
    if (bytes.size() > net().opt.window) return -EMSGSIZE;
    if (p->unread_ + bytes.size() > net().opt.window) return -EAGAIN;
  } else {
    if (bytes.size() > largest) return -EMSGSIZE;
    if (net().chance(net().opt.losses) || p == nullptr || deaf ||
        (p->unread_ != 0 && p->unread_ + bytes.size() > net().opt.window))
      return size;
  }
  std::int64_t at = net().arrival();
  if (is_unix) at = p->last_at_ = std::max(p->last_at_, at);
  p->in_.emplace(at, packet{std::move(bytes), from});
  p->unread_ += static_cast<std::size_t>(size);
  p->wake(rt::poll_mode::read);
  return size;
}

long memory_packets::send_to(const void* b, std::size_t n, const net::address& to) noexcept {
  if (!to) return local.is_unix() ? -ENOTCONN : -EINVAL;
  if (is_unnamed(to)) return -EINVAL;
  if (to.is_unix() != local.is_unix() || (to.is_ipv6() && local.is_ipv4())) return -EAFNOSUPPORT;
  try {
    return put(std::string(static_cast<const char*>(b), n), concrete(to));
  } catch (const std::bad_alloc&) {
    return -ENOBUFS;
  }
}

long memory_packets::send(const iovec* v, std::size_t n) noexcept {
  if (!remote) return -EDESTADDRREQ;
  try {
    return put(bytes_of(v, n, size_of(v, n)), remote);
  } catch (const std::bad_alloc&) {
    return -ENOBUFS;
  }
}

std::int64_t memory_packets::due(rt::poll_mode m) const noexcept {
  return m == rt::poll_mode::write || in_.empty() ? rt::never : in_.begin()->first;
}

void memory_packets::on_close() noexcept {
  net().remove(this);
  in_.clear();
  if (local.is_unix()) net().wake_senders();
}

}  // namespace weft::detail
