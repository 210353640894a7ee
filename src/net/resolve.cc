// SPDX-License-Identifier: Apache-2.0
// Names to addresses, without blocking a P: getaddrinfo runs on threads of its own, and the caller
// waits on a channel. Numbers need no thread.
//
// Rejected: a resolver of our own (nsswitch, mDNS and /etc/hosts are libc's), and one thread a
// lookup (a burst of dials would be a burst of threads). Up to max_threads are started as lookups
// queue up; one that has had nothing to do for ten seconds ends. A lookup that its caller has given
// up goes on, and its answer is dropped with the channel.
//
// Runs on the caller's stack; lookups on plain threads.
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <netdb.h>
#include <netinet/in.h>

#include "net/socket.h"
#include "os/thread.h"
#include "sched/waiter.h"
#include "weft/chan.hpp"
#include "weft/select.hpp"

namespace weft::detail {
namespace {

struct answer {
  std::vector<net::address> list;
  std::error_code ec;
};
struct question {
  std::string host, port;
  int flags = 0;
  chan<answer> to{1};
};

std::error_code code_of(int gai, int err) noexcept {
  switch (gai) {
    case 0:
      return {};
    case EAI_NONAME:
    case EAI_NODATA:
      return net::errc::no_such_host;
    case EAI_SERVICE:
      return net::errc::unknown_port;
    case EAI_SYSTEM:
      return system_code(-err);
    case EAI_MEMORY:
      return std::make_error_code(std::errc::not_enough_memory);
    default:
      return net::errc::lookup_failed;
  }
}

answer ask(const question& q) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;  // else each address comes three times
  hints.ai_flags = q.flags;
  addrinfo* list = nullptr;
  const int gai =
      ::getaddrinfo(q.host.empty() ? nullptr : q.host.c_str(), q.port.c_str(), &hints, &list);
  answer a;
  a.ec = code_of(gai, errno);
  if (gai != 0) return a;
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next)
    a.list.emplace_back(i->ai_addr, i->ai_addrlen);
  ::freeaddrinfo(list);
  return a;
}

// Never destroyed: its threads outlive main.
class pool {
 public:
  void put(question q) {
    const std::lock_guard hold(lock_);
    rt::errands.fetch_add(1, rt::memory_order_seq_cst);  // until the answer is there
    queue_.push_back(std::move(q));
    if (idle_ >= queue_.size() || threads_ >= max_threads) {
      work_.notify_one();
      return;
    }
    // Without a thread the lookup waits for one of those there are.
    ++threads_;
    const int err =
        rt::start_thread([](void* self) { static_cast<pool*>(self)->serve(); }, this, "weft-dns");
    if (err == 0) return;
    --threads_;
    if (threads_ != 0) return;
    queue_.back().to.try_send(answer{{}, system_code(-err)});
    queue_.pop_back();
    rt::errands.fetch_sub(1, rt::memory_order_seq_cst);
  }

 private:
  static constexpr std::size_t max_threads = 32;

  void serve() {
    std::unique_lock hold(lock_);
    for (;;) {
      ++idle_;
      const bool some =
          work_.wait_for(hold, std::chrono::seconds(10), [this] { return !queue_.empty(); });
      --idle_;
      if (!some) break;
      const question q = std::move(queue_.front());
      queue_.pop_front();
      hold.unlock();
      q.to.try_send(ask(q));
      rt::errands.fetch_sub(1, rt::memory_order_seq_cst);
      hold.lock();
    }
    --threads_;
  }

  std::mutex lock_;
  std::condition_variable work_;
  std::deque<question> queue_;
  std::size_t idle_ = 0, threads_ = 0;
};

pool& lookups() {
  static pool* const p = new pool;
  return *p;
}

bool is_number(std::string_view s) noexcept {
  std::uint16_t n = 0;
  const auto [end, err] = std::from_chars(s.data(), s.data() + s.size(), n);
  return err == std::errc() && end == s.data() + s.size();
}

std::vector<net::address> lookup(std::string_view host, std::string_view port, bool passive,
                                 const context* ctx, std::error_code& ec) {
  if (is_number(port) && !host.empty()) {  // as it stands
    const std::string text = "[" + std::string(host) + "]:" + std::string(port);
    net::address a = net::address::parse(text, ec);
    if (!ec) return {a};
  }
  ec.clear();
  question q;
  q.host = host;
  q.port = port;
  q.flags = (passive ? AI_PASSIVE : 0) | (is_number(port) ? AI_NUMERICSERV : 0);
  const recv_chan<answer> from = q.to;
  lookups().put(std::move(q));
  answer got;
  if (ctx == nullptr) {
    got = std::move(*from.recv());
  } else {
    select(recv(from, [&](std::optional<answer> a) { got = std::move(*a); }),
           recv(ctx->done(), [&] { got.ec = ctx->err(); }));
  }
  ec = got.ec;
  return std::move(got.list);
}

}  // namespace

std::vector<net::address> addresses_for(const network_kind& k, std::string_view text,
                                        bool listening, const context* ctx, std::error_code& ec) {
  if (k.family == AF_UNIX) {
    net::address a = net::address::unix_path(text, ec);
    if (ec) return {};
    return {a};
  }
  const host_port hp = split_host_port(text, ec);
  if (ec) return {};
  std::vector<net::address> list =
      lookup(hp.host, hp.port.empty() ? "0" : hp.port, listening, ctx, ec);
  if (ec) return {};
  std::erase_if(
      list, [&](const net::address& a) { return k.family != AF_UNSPEC && a.family() != k.family; });
  if (list.empty()) ec = net::errc::no_suitable_address;
  return list;
}

}  // namespace weft::detail

namespace weft::net {

std::vector<address> resolve(const context& ctx, std::string_view host, std::string_view port,
                             std::error_code& ec) {
  ec = ctx.err();
  if (ec) return {};
  return detail::lookup(host, port, false, &ctx, ec);
}
std::vector<address> resolve(std::string_view host, std::string_view port, std::error_code& ec) {
  return detail::lookup(host, port, false, nullptr, ec);
}
std::vector<address> resolve(std::string_view host, std::string_view port) {
  std::error_code ec;
  std::vector<address> list = resolve(host, port, ec);
  if (ec) detail::throw_op_error("lookup", "", host, "getaddrinfo", ec);
  return list;
}
std::vector<address> resolve(std::string_view host, std::uint16_t port, std::error_code& ec) {
  return resolve(host, std::to_string(port), ec);
}
std::vector<address> resolve(std::string_view host, std::uint16_t port) {
  return resolve(host, std::to_string(port));
}

}  // namespace weft::net
