// SPDX-License-Identifier: Apache-2.0
// Names to addresses, without blocking a P: getaddrinfo runs on threads of its own, and the caller
// waits on a channel. Numbers need no thread, nor do the names of a bubble's own network
// (memory.h).
//
// Rejected: a resolver of our own (nsswitch, mDNS and /etc/hosts are libc's), and one thread a
// lookup (a burst of dials would be a burst of threads). Up to max_threads are started as lookups
// queue up; one that has had nothing to do for ten seconds ends. A lookup that its caller has given
// up goes on if it has begun, and its answer is dropped with the channel; if it is still queued,
// nobody is asked: behind a name server that is silent, those who still wait would wait for all of
// those.
//
// The caller only queues, under a lock of the runtime: a goroutine may be stopped for good, because
// its run ends, anywhere but there (os/section.h). Under a std::mutex, or between counting a thread
// and starting it, it would leave the pool unusable. So the first caller starts the dispatcher, a
// thread that lives for ever and starts the others.
//
// Runs on the caller's stack; lookups on plain threads.
#include <charconv>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <stdexcept>

#include "net/memory.h"
#include "net/socket.h"
#include "os/clock.h"
#include "os/futex.h"
#include "os/mutex.h"
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
  int type = 0, flags = 0;  // SOCK_STREAM, SOCK_DGRAM: whose ports have which names
  // In no bubble: a thread of the pool answers.
  chan<answer> to =
      chan_access::adopt<chan<answer>>(chan_ref(chan_core::make(1, ops_of<answer>, 0)));
  // The caller has given up. Relaxed: an order to nothing, and too late it is in vain.
  std::shared_ptr<rt::atomic<bool>> unwanted = std::make_shared<rt::atomic<bool>>(false);
  question* next = nullptr;  // the pool's
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
      return err != 0 ? system_code(-err) : make_error_code(net::errc::lookup_failed);
    case EAI_MEMORY:
      return system_code(-ENOMEM);
    default:
      return net::errc::lookup_failed;
  }
}

[[gnu::noinline]] answer ask(const question& q) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = q.type;  // else each address comes three times
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

class pool {
 public:
  // Takes q over. 0, or an errno value: there is no thread, and never was one.
  int put(std::unique_ptr<question> q) {
    if (!dispatched_.load(rt::memory_order_acquire)) {
      const int err = rt::start_thread([](void* self) { static_cast<pool*>(self)->dispatch(); },
                                       this, "weft-dns");
      if (err != 0) return err;
    }
    lock_.lock();
    rt::begin_errand();  // until the answer is there
    *last_ = q.release();
    last_ = &(*last_)->next;
    // Whoever is idle looks at the queue again before he ends.
    auto& whom = idle_ >= ++queued_ ? work_ : more_;
    whom.fetch_add(1, rt::memory_order_relaxed);  // under the lock, as those who sleep read it
    lock_.unlock();
    rt::futex_wake(whom, 1);
    return 0;
  }

 private:
  static constexpr std::size_t max_threads = 32;
  static constexpr std::int64_t patience = 10'000'000'000;  // ns

  // Not inline either: the last handle of a channel runs what its elements are destroyed by.
  [[gnu::noinline]] static void finish(std::unique_ptr<question> q, answer a) {
    q->to.try_send(std::move(a));
    q.reset();
    rt::end_errand();
  }

  // Not inline, for errno's address (DESIGN 2.1): to the checker, whoever sends may switch.
  [[gnu::noinline]] static bool sleep(rt::atomic<std::uint32_t>& on, std::uint32_t seen,
                                      std::int64_t deadline = -1) noexcept {
    return rt::futex_wait(on, seen, deadline);
  }

  // Under the lock; the queue is not empty.
  std::unique_ptr<question> pop() noexcept {
    std::unique_ptr<question> q(first_);
    first_ = q->next;
    if (first_ == nullptr) last_ = &first_;
    --queued_;
    return q;
  }

  void dispatch() {
    if (dispatched_.exchange(true, rt::memory_order_acq_rel)) return;  // another was faster
    for (;;) {
      lock_.lock();
      const std::uint32_t seen = more_.load(rt::memory_order_relaxed);
      const bool wanted = queued_ > idle_ && threads_ < max_threads;
      if (wanted) {
        ++threads_;
        ++idle_;  // from its birth on
      }
      lock_.unlock();
      if (!wanted) {
        sleep(more_, seen);
      } else if (const int err = rt::start_thread(
                     [](void* self) { static_cast<pool*>(self)->serve(); }, this, "weft-dns");
                 err != 0) {
        give_up(err, seen);
      }
    }
  }

  // Those who wait, wait for the threads there are; if there is none, in vain.
  void give_up(int err, std::uint32_t seen) {
    for (;;) {
      lock_.lock();
      const bool hopeless = threads_ == 1 && first_ != nullptr;
      if (!hopeless) {
        --threads_;
        --idle_;
        lock_.unlock();
        break;
      }
      std::unique_ptr<question> q = pop();
      lock_.unlock();
      finish(std::move(q), answer{{}, system_code(-err)});
    }
    sleep(more_, seen);
  }

  // A thread that looks names up; counted as idle.
  void serve() {
    for (;;) {
      const std::int64_t deadline = rt::nanotime() + patience;
      bool woken = true;
      lock_.lock();
      while (first_ == nullptr && woken) {
        const std::uint32_t seen = work_.load(rt::memory_order_relaxed);
        lock_.unlock();
        woken = sleep(work_, seen, deadline);
        lock_.lock();
      }
      --idle_;
      if (first_ == nullptr) break;
      std::unique_ptr<question> q = pop();
      lock_.unlock();
      answer a;
      if (!q->unwanted->load(rt::memory_order_relaxed)) a = ask(*q);
      finish(std::move(q), std::move(a));
      lock_.lock();
      ++idle_;
      lock_.unlock();
    }
    --threads_;
    lock_.unlock();
  }

  rt::atomic<bool> dispatched_{false};
  // Futexes, each changes when there is something to do: for those who are idle, for the
  // dispatcher.
  rt::atomic<std::uint32_t> work_{0}, more_{0};
  rt::mutex lock_{rt::lock_rank::leaf};
  // -- under the lock
  question* first_ = nullptr;
  question** last_ = &first_;
  std::size_t queued_ = 0, idle_ = 0, threads_ = 0;
};

constinit pool lookups;  // trivially destructible: its threads outlive main

enum class port_kind : std::uint8_t { number, name, invalid };

// As Go reads one: a sign is allowed, none at all is 0.
port_kind read_port(std::string_view s, std::uint16_t& out) noexcept {
  const bool sign = !s.empty() && (s[0] == '+' || s[0] == '-');
  const std::string_view digits = s.substr(sign ? 1 : 0);
  if (digits.find_first_not_of("0123456789") != std::string_view::npos || (sign && digits.empty()))
    return port_kind::name;
  out = 0;
  const char* end = digits.data() + digits.size();
  if (!digits.empty() && std::from_chars(digits.data(), end, out).ec != std::errc())
    return port_kind::invalid;
  return sign && s[0] == '-' && out != 0 ? port_kind::invalid : port_kind::number;
}

bool has_zero(std::string_view s) noexcept { return s.find('\0') != std::string_view::npos; }

std::vector<net::address> lookup(const network_kind& k, std::string_view host,
                                 std::string_view port, bool passive, const context* ctx,
                                 failure& f) {
  const auto unknown_port = [&](std::string what, std::string cause) {
    f = {net::errc::unknown_port, std::move(what), true, "", std::move(cause)};
    return std::vector<net::address>();
  };
  f = {};
  f.unresolved = true;
  const auto of_service = [&] { return "lookup " + std::string(k.name) + "/" + std::string(port); };
  std::uint16_t n = 0;
  port_kind kind = read_port(port, n);
  memory_network* const mem = memory_network::current();
  if (mem != nullptr && kind == port_kind::name) [[unlikely]] {
    n = memory_network::service(k.name, port);
    if (n == 0) return unknown_port(of_service(), "");
    kind = port_kind::number;
  }
  if (kind == port_kind::invalid)
    return unknown_port("address " + std::string(port), "invalid port");
  if (has_zero(port)) return unknown_port(of_service(), "");  // libc would read up to it
  const std::string service = kind == port_kind::number ? std::to_string(n) : std::string(port);
  if (kind == port_kind::number && !host.empty()) {  // as it stands
    net::address a = net::address::parse("[" + std::string(host) + "]:" + service, f.ec);
    if (!f.ec) return {a};
    f.ec.clear();
  }
  if (!host.empty()) f.where = "lookup " + std::string(host);
  f.call = "getaddrinfo";
  if (has_zero(host)) {
    f.ec = net::errc::no_such_host;
    return {};
  }
  if (mem != nullptr) [[unlikely]]
    return mem->lookup(k.family, host, n, passive);
  auto q = std::make_unique<question>();
  q->host = host;
  q->port = service;
  q->type = k.type;
  q->flags = (passive ? AI_PASSIVE : 0) | (kind == port_kind::number ? AI_NUMERICSERV : 0);
  const recv_chan<answer> from = q->to;
  const auto unwanted = q->unwanted;
  if (const int err = lookups.put(std::move(q)); err != 0) {
    f.ec = system_code(-err);
    return {};
  }
  answer got;
  if (ctx == nullptr) {
    got = std::move(*from.recv());
  } else {
    select(recv(from, [&](std::optional<answer> a) { got = std::move(*a); }),
           recv(ctx->done(), [&] {
             unwanted->store(true, rt::memory_order_relaxed);
             got.ec = ctx->err();
           }));
  }
  f.ec = got.ec;
  if (f.ec == net::errc::unknown_port) f.where = of_service();
  return std::move(got.list);
}

std::vector<net::address> resolve_as_tcp(const context* ctx, std::string_view host,
                                         std::string_view port, failure& f) {
  return lookup(kind_of("tcp"), host, port, false, ctx, f);
}

}  // namespace

std::vector<net::address> addresses_for(const network_kind& k, std::string_view text,
                                        bool listening, const context* ctx, failure& f) {
  f = {};
  f.unresolved = true;
  if (text.empty() && listening && k.family != AF_UNIX) text = ":0";  // any address, a free port
  if (text.empty() && !listening) {
    f.ec = net::errc::invalid_address;
    f.cause = "missing address";
    return {};
  }
  if (k.family == AF_UNIX) {
    net::address a = net::address::unix_path(text, f.ec);
    if (!f.ec) return {a};
    f = {system_code(-EINVAL), std::string(text), false, listening ? "bind" : "connect"};
    return {};
  }
  const host_port hp = split_host_port(text, f.ec);
  if (f.ec) {
    f.where = "address " + std::string(text);
    f.cause = hp.cause;
    return {};
  }
  std::vector<net::address> list = lookup(k, hp.host, hp.port, listening, ctx, f);
  if (f.ec) return {};
  std::erase_if(
      list, [&](const net::address& a) { return k.family != AF_UNSPEC && a.family() != k.family; });
  if (list.empty()) f = {net::errc::no_suitable_address, "address " + std::string(hp.host), true};
  return list;
}

void require(const context& ctx) {
  if (!ctx) throw std::invalid_argument("nil context");
}

}  // namespace weft::detail

namespace weft::net {

using detail::failure;

std::vector<address> resolve(const context& ctx, std::string_view host, std::string_view port,
                             std::error_code& ec) {
  detail::require(ctx);
  ec = ctx.err();
  if (ec) return {};
  failure f;
  std::vector<address> list = detail::resolve_as_tcp(&ctx, host, port, f);
  ec = f.ec;
  return list;
}
std::vector<address> resolve(std::string_view host, std::string_view port, std::error_code& ec) {
  failure f;
  std::vector<address> list = detail::resolve_as_tcp(nullptr, host, port, f);
  ec = f.ec;
  return list;
}
std::vector<address> resolve(std::string_view host, std::string_view port) {
  failure f;
  std::vector<address> list = detail::resolve_as_tcp(nullptr, host, port, f);
  if (f.ec) detail::throw_failure("", "", f);
  return list;
}
std::vector<address> resolve(std::string_view host, std::uint16_t port, std::error_code& ec) {
  return resolve(host, std::to_string(port), ec);
}
std::vector<address> resolve(std::string_view host, std::uint16_t port) {
  return resolve(host, std::to_string(port));
}

}  // namespace weft::net
