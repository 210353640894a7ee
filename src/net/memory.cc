// SPDX-License-Identifier: Apache-2.0
// A bubble's network (memory.h): how its sockets wait, its addresses and names, who meets whom.
//
// It is one machine with as many addresses as are asked for: 127.0.0.1, 10.0.0.1 for who dials,
// and 10.0.0.2, 10.0.0.3, … for each name in the order of first use. A listener of any address is
// reached by all of them.
//
// Runs on the caller's stack.
#include "net/memory.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <netinet/in.h>
#include <stdexcept>

#include "net/memory_socket.h"
#include "net/socket.h"
#include "sched/bubble.h"
#include "weft/time.hpp"

namespace weft::detail {

using rt::poll_mode;

// -- how a socket waits

memory_socket::memory_socket(std::shared_ptr<memory_network> n, int t, const net::address& at,
                             const net::address& to)
    : type(t), local(at), remote(to), net_(std::move(n)) {}

bool memory_socket::inside() const noexcept { return net_->inside(); }

void memory_socket::wake(poll_mode m) noexcept {
  if (inside()) ready_[static_cast<int>(m)].notify_all();  // N3
}

void memory_socket::close_locked() noexcept {
  if (std::exchange(closed_, true)) return;
  on_close();
  wake(poll_mode::read);
  wake(poll_mode::write);
}

void memory_socket::close() noexcept {
  const auto hold = net_->hold();
  close_locked();
}

void memory_socket::set_deadline(unsigned modes, std::int64_t when) {
  const auto hold = net_->hold();
  for (const poll_mode m : {poll_mode::read, poll_mode::write}) {
    if ((modes >> static_cast<unsigned>(m) & 1U) == 0) continue;
    deadline_[static_cast<int>(m)] = when;
    wake(m);
  }
}

long memory_socket::retry(poll_mode m, std::error_code& ec, call f, const void* arg) {
  std::unique_lock hold(net_->lock);
  const int side = static_cast<int>(m);
  for (;;) {
    if (closed_) {
      ec = errc::closed;
      return -1;
    }
    if (deadline_[side] <= net_->now()) {
      ec = errc::deadline_exceeded;
      return -1;
    }
    const long r = f(arg, this);
    if (r >= 0) {
      ec.clear();
      return r;
    }
    if (r != -EAGAIN) {
      ec = system_code(r);
      return -1;
    }
    static_assert(rt::never == no_deadline);
    ready_[side].wait_until_deadline(net_->lock, std::min(deadline_[side], due(m)), nullptr,
                                     condition_variable::give_way::after_the_unlock);  // N2
  }
}

long memory_socket::receive_from(void*, std::size_t, sockaddr*, socklen_t*) noexcept {
  return -EOPNOTSUPP;
}
long memory_socket::send_to(const void*, std::size_t, const net::address&) noexcept {
  return -EOPNOTSUPP;
}
int memory_socket::shutdown(int) noexcept { return -EOPNOTSUPP; }
int memory_socket::set_option(int, int) noexcept { return -EOPNOTSUPP; }
int memory_socket::set_linger(int) noexcept { return 0; }

// -- the network's own

memory_network::memory_network(rt::bubble* b, const options& o) noexcept
    : opt(o), bubble_(b->id), rng_(b->rng.next()), seen_(b->now) {}

std::shared_ptr<memory_network> memory_network::make(const options& o) {
  const auto is_chance = [](double p) { return p >= 0 && p <= 1; };  // a NaN is none
  if (o.min_delay.count() < 0 || o.max_delay < o.min_delay ||
      o.max_delay > std::chrono::hours(24 * 365) || !is_chance(o.resets) || !is_chance(o.losses) ||
      o.window == 0)
    throw std::invalid_argument("bad options of a network");
  rt::bubble* b = rt::bubble_of(rt::current_m());
  if (b == nullptr) throw std::logic_error("goroutine is not in a bubble");
  if (current() != nullptr) throw std::logic_error("the bubble has a network already");
  auto n = std::make_shared<memory_network>(b, o);
  if (b->network != nullptr) b->drop_network(b->network);  // removed outside
  n->kept_ = n;
  b->network = n.get();
  b->drop_network = [](void* p) noexcept {
    const auto last = std::move(static_cast<memory_network*>(p)->kept_);
  };
  return n;
}

memory_network* memory_network::current() noexcept {
  const rt::bubble* b = rt::bubble_of(rt::current_m());
  if (b == nullptr) return nullptr;
  auto* n = static_cast<memory_network*>(b->network);
  // Relaxed: who removes it outside orders nothing by it.
  return n != nullptr && !n->off_.load(rt::memory_order_relaxed) ? n : nullptr;
}

void memory_network::remove() noexcept {
  off_.store(true, rt::memory_order_relaxed);
  if (!inside()) return;  // the bubble's end lets it go
  rt::bubble* b = rt::bubble_of(rt::current_m());
  if (b->network != this) return;
  b->network = nullptr;
  b->drop_network(this);
}

bool memory_network::inside() const noexcept { return rt::current_bubble() == bubble_; }

std::int64_t memory_network::now() noexcept {
  if (inside()) seen_ = rt::clock_now();
  return seen_;
}

std::int64_t memory_network::delay() noexcept {
  const auto range = static_cast<std::uint64_t>((opt.max_delay - opt.min_delay).count());
  return opt.min_delay.count() + static_cast<std::int64_t>(rng_.next() % (range + 1));
}

bool memory_network::chance(double p) noexcept {
  if (p <= 0) return false;
  return static_cast<double>(rng_.next() >> 11) * 0x1p-53 < p;
}

// Half of them whole: all in small parts would hide what only a whole one does.
std::size_t memory_network::part(std::size_t n) noexcept {
  if (!opt.partial || n < 2) return n;
  const std::uint64_t r = rng_.next();
  return (r & 1) == 0 ? n : 1 + static_cast<std::size_t>((r >> 1) % n);
}

// -- addresses

namespace {

net::address with_port(const net::address& a, std::uint16_t port) noexcept {
  sockaddr_storage s{};
  std::memcpy(&s, a.data(), a.size());
  auto* sa = reinterpret_cast<sockaddr*>(&s);
  if (a.is_ipv4()) reinterpret_cast<sockaddr_in*>(sa)->sin_port = htons(port);
  if (a.is_ipv6()) reinterpret_cast<sockaddr_in6*>(sa)->sin6_port = htons(port);
  return {sa, a.size()};
}

net::address ip(int family, std::uint32_t v4, std::uint32_t v6, std::uint16_t port) noexcept {
  if (family != AF_INET6) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    a.sin_addr.s_addr = htonl(v4);
    return {reinterpret_cast<const sockaddr*>(&a), sizeof a};
  }
  sockaddr_in6 a{};
  a.sin6_family = AF_INET6;
  a.sin6_port = htons(port);
  for (unsigned i = 0; i < 4; ++i)
    a.sin6_addr.s6_addr[15 - i] = static_cast<std::uint8_t>(v6 >> (8 * i));
  return {reinterpret_cast<const sockaddr*>(&a), sizeof a};
}

net::address any(int family, std::uint16_t port) noexcept { return ip(family, 0, 0, port); }
net::address loopback(int family, std::uint16_t port) noexcept {
  return ip(family, INADDR_LOOPBACK, 1, port);
}
// 10.0.0.n, fd00::n
net::address host(int family, std::uint32_t n, std::uint16_t port) noexcept {
  net::address a = ip(family, 0x0a000000U + n, n, port);
  if (!a.is_ipv6()) return a;
  sockaddr_in6 s{};
  std::memcpy(&s, a.data(), sizeof s);
  s.sin6_addr.s6_addr[0] = 0xfd;
  return {reinterpret_cast<const sockaddr*>(&s), sizeof s};
}

bool is_any(const net::address& a) noexcept {
  return !a.is_unix() && a == any(a.family(), a.port());
}
bool is_loopback(const net::address& a) noexcept {
  if (a.is_ipv6()) return a == loopback(AF_INET6, a.port());
  sockaddr_in s{};
  std::memcpy(&s, a.data(), std::min<std::size_t>(a.size(), sizeof s));
  return ntohl(s.sin_addr.s_addr) >> 24 == 127;
}

// Does a listener at `at` hear what is sent to `to`?
bool hears(const net::address& at, bool both, const net::address& to) noexcept {
  if (at == to) return true;
  return is_any(at) && at.port() == to.port() &&
         (at.family() == to.family() || (both && to.is_ipv4()));
}

net::address unnamed() noexcept {
  sockaddr a{};
  a.sa_family = AF_UNIX;
  return {&a, sizeof a.sa_family};
}

}  // namespace

bool is_unnamed(const net::address& a) noexcept {
  return a.is_unix() && a.size() <= sizeof(sa_family_t);
}

net::address concrete(const net::address& to) noexcept {
  return is_any(to) ? loopback(to.family(), to.port()) : to;
}

int nobody_at(const net::address& a) {
  return a.is_unix() && a.host()[0] != '@' ? -ENOENT : -ECONNREFUSED;
}

memory_socket* memory_network::find(int type, const net::address& to) const noexcept {
  if (is_unnamed(to)) return nullptr;
  memory_socket* found = nullptr;
  for (memory_socket* s : sockets_) {
    if (s->type != type) continue;
    if (s->local == to) return s;  // before one of any address
    if (hears(s->local, s->both_families, to)) found = s;
  }
  return found;
}

bool memory_network::taken(int type, const net::address& at, bool both) const noexcept {
  return std::any_of(sockets_.begin(), sockets_.end(), [&](const memory_socket* s) {
    return s->type == type && (hears(s->local, s->both_families, at) || hears(at, both, s->local));
  });
}

// As Linux chooses them, from 32768 up.
std::uint16_t memory_network::free_port(int type) {
  for (unsigned tries = 0; tries < 28232; ++tries) {
    if (last_port_ < 32768 || last_port_ >= 60999) last_port_ = 32767;
    ++last_port_;
    const auto used = [&](const memory_socket* s) {
      return s->type == type && s->local.port() == last_port_;
    };
    if (std::none_of(sockets_.begin(), sockets_.end(), used)) return last_port_;
  }
  return 0;
}

// As Linux chooses them: five digits.
net::address memory_network::free_name(int type) {
  for (unsigned tries = 0; tries < 1U << 20; ++tries) {
    char name[8];
    std::snprintf(name, sizeof name, "@%05x", last_name_++ & 0xfffffU);
    std::error_code ec;
    const net::address a = net::address::unix_path(name, ec);
    if (!taken(type, a, false)) return a;
  }
  return {};
}

net::address memory_network::source_of(const net::address& to, std::uint16_t port) noexcept {
  return is_loopback(to) ? loopback(to.family(), port) : host(to.family(), 1, port);
}

net::address memory_network::sender_of(const memory_socket& s, const memory_socket* receiver,
                                       const net::address& to) noexcept {
  if (receiver != nullptr && receiver->remote && hears(s.local, s.both_families, receiver->remote))
    return receiver->remote;  // by the name under which it was called
  return is_any(s.local) ? source_of(to, s.local.port()) : s.local;
}

std::vector<net::address> memory_network::lookup(int family, std::string_view name,
                                                 std::uint16_t port, bool listening) {
  const std::unique_lock hold(lock);
  if (name.empty() && listening) return {any(AF_INET, port), any(AF_INET6, port)};
  if (name.empty() || name == "localhost") return {loopback(family, port)};
  auto at = hosts_.find(name);
  if (at == hosts_.end())
    at = hosts_.emplace(std::string(name), static_cast<std::uint32_t>(hosts_.size() + 2)).first;
  return {host(family, at->second, port)};
}

std::uint16_t memory_network::service(std::string_view network, std::string_view name) noexcept {
  static constexpr std::pair<std::string_view, std::uint16_t> tcp[] = {
      {"domain", 53}, {"ftp", 21},    {"ftps", 990},  {"gopher", 70},       {"http", 80},
      {"https", 443}, {"imap2", 143}, {"imap3", 220}, {"imaps", 993},       {"pop3", 110},
      {"pop3s", 995}, {"smtp", 25},   {"ssh", 22},    {"submissions", 465}, {"telnet", 23}};
  if (network.substr(0, 3) == "udp") return name == "domain" ? 53 : 0;
  for (const auto& [known, port] : tcp) {
    if (name == known) return port;
  }
  return 0;
}

void memory_network::wake_senders() noexcept {
  for (memory_socket* s : sockets_) {
    if (s->type == SOCK_DGRAM && s->local.is_unix()) s->wake(poll_mode::write);
  }
}

// -- who meets whom

std::unique_ptr<memory_socket> memory_network::listen(const network_kind& k, const net::address& at,
                                                      int& err, const char*& call) {
  err = 0;
  call = "socket";
  if (k.type != SOCK_STREAM && k.type != SOCK_DGRAM) {
    err = -EPROTONOSUPPORT;
    return nullptr;
  }
  call = "bind";
  const std::unique_lock hold(lock);
  net::address here = at;
  if (!at.is_unix() && at.port() == 0) {
    const std::uint16_t port = free_port(k.type);
    if (port == 0) {
      err = -EADDRINUSE;
      return nullptr;
    }
    here = with_port(at, port);
  } else if (is_unnamed(at)) {
    here = free_name(k.type);
    if (!here) {
      err = -ENOSPC;
      return nullptr;
    }
  }
  const bool both = k.family == AF_UNSPEC && is_any(here) && here.is_ipv6();
  if (taken(k.type, here, both)) {
    err = -EADDRINUSE;
    return nullptr;
  }
  std::unique_ptr<memory_socket> s;
  if (k.type == SOCK_STREAM) {
    s = std::make_unique<memory_listener>(shared_from_this(), k.type, here, net::address());
  } else {
    s = std::make_unique<memory_packets>(shared_from_this(), k.type, here, net::address());
  }
  s->both_families = both;
  sockets_.push_back(s.get());
  return s;
}

std::unique_ptr<memory_socket> memory_network::connect_stream(const network_kind& k,
                                                              const net::address& to, int& err) {
  auto* l = static_cast<memory_listener*>(find(k.type, to));
  if (l == nullptr) {
    err = nobody_at(to);
    return nullptr;
  }
  const std::uint16_t port = to.is_unix() ? 0 : free_port(k.type);
  const net::address from = to.is_unix() ? unnamed() : source_of(to, port);
  auto mine = std::make_unique<memory_stream>(shared_from_this(), k.type, from, to);
  auto theirs = std::make_unique<memory_stream>(shared_from_this(), k.type, to, from);
  memory_stream::join(*mine, *theirs);
  l->push(std::move(theirs));
  return mine;
}

std::unique_ptr<memory_socket> memory_network::connect_packets(const network_kind& k,
                                                               const net::address& to, int& err) {
  if (to.is_unix() && find(k.type, to) == nullptr) {
    err = nobody_at(to);
    return nullptr;
  }
  const std::uint16_t port = to.is_unix() ? 0 : free_port(k.type);
  if (port == 0 && !to.is_unix()) {
    err = -EAGAIN;
    return nullptr;
  }
  const net::address from = to.is_unix() ? unnamed() : source_of(to, port);
  auto s = std::make_unique<memory_packets>(shared_from_this(), k.type, from, to);
  sockets_.push_back(s.get());
  return s;
}

std::unique_ptr<memory_socket> memory_network::connect(const network_kind& k,
                                                       const net::address& to, const context* ctx,
                                                       std::int64_t until, std::error_code& ec) {
  const auto self = shared_from_this();  // it may be removed meanwhile
  const net::address there = concrete(to);
  if (k.type == SOCK_STREAM) {
    const std::int64_t begin = rt::clock_now();
    std::int64_t done = 0;
    {
      const std::unique_lock hold(lock);
      done = arrival();
    }
    const std::chrono::nanoseconds pause(std::min(done, until) - begin);
    if (ctx != nullptr) {
      ec = sleep_for(*ctx, pause);
    } else {
      sleep_for(pause);
    }
    if (!ec && until <= done) ec = errc::deadline_exceeded;
    if (ec) return nullptr;
  }
  int err = 0;
  const std::unique_lock hold(lock);
  auto s = k.type == SOCK_STREAM  ? connect_stream(k, there, err)
           : k.type == SOCK_DGRAM ? connect_packets(k, there, err)
                                  : nullptr;
  if (s == nullptr) ec = system_code(err != 0 ? err : -EPROTONOSUPPORT);
  return s;
}

std::pair<std::unique_ptr<memory_socket>, std::unique_ptr<memory_socket>> memory_network::pipe() {
  auto a = std::make_unique<memory_stream>(shared_from_this(), SOCK_STREAM, unnamed(), unnamed());
  auto b = std::make_unique<memory_stream>(shared_from_this(), SOCK_STREAM, unnamed(), unnamed());
  memory_stream::join(*a, *b);
  return {std::move(a), std::move(b)};
}

}  // namespace weft::detail

namespace weft::detail::sys {

long receive(memory_socket* s, void* b, std::size_t n) noexcept {
  const iovec v{b, n};
  return s->receive(&v, 1);
}
long receive(memory_socket* s, const iovec* v, std::size_t n) noexcept { return s->receive(v, n); }
long receive_from(memory_socket* s, void* b, std::size_t n, sockaddr* from,
                  socklen_t* size) noexcept {
  return s->receive_from(b, n, from, size);
}
long send(memory_socket* s, const void* b, std::size_t n) noexcept {
  const iovec v{const_cast<void*>(b), n};  // only read from
  return s->send(&v, 1);
}
long send(memory_socket* s, const iovec* v, std::size_t n) noexcept { return s->send(v, n); }
long send_to(memory_socket* s, const void* b, std::size_t n, const sockaddr* to,
             socklen_t size) noexcept {
  return s->send_to(b, n, net::address(to, size));
}
long send_file(memory_socket* s, int file, off_t offset, std::size_t n) noexcept {
  char b[4096];  // goroutines' stacks are small
  const long r = read_at(file, b, std::min(n, sizeof b), offset);
  return r <= 0 ? r : send(s, b, static_cast<std::size_t>(r));
}
int set_option(memory_socket* s, int level, int name, int) noexcept {
  return s->set_option(level, name);
}
int set_linger(memory_socket* s, int seconds) noexcept { return s->set_linger(seconds); }
int shutdown(memory_socket* s, int how) noexcept { return s->shutdown(how); }
int duplicate(memory_socket*) noexcept { return -ENOTSUP; }

}  // namespace weft::detail::sys
