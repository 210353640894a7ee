// SPDX-License-Identifier: Apache-2.0
// dial. A connect that is under way waits like a write; a context ends it by setting its deadline
// to the past, from the canceller's thread.
//
// Several addresses are tried one after the other, each with its share of the time that is left
// (but two seconds at least, if there are that many). If a name has addresses of both families,
// those of the other family get a goroutine of their own when 300 ms have passed or the first
// family has failed (RFC 6555); the first connection wins, the other is closed. If both fail, the
// first family's error is told, as in Go, whichever came first. For a plain thread, which may have
// no run to start goroutines in, they are threads.
//
// Runs on the caller's stack; the watch's function on the canceller's.
#include <algorithm>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "context_tree/watch.h"
#include "net/memory.h"
#include "net/socket.h"
#include "os/thread.h"
#include "sched/bubble.h"
#include "weft/chan.hpp"
#include "weft/go.hpp"
#include "weft/select.hpp"

namespace weft::detail {
namespace {

using namespace std::chrono_literals;

constexpr auto fallback_delay = 300ms;
constexpr std::int64_t least_share = 2'000'000'000;

// A connection, or why there is none: where, and in which system call.
struct attempt {
  net::conn c;
  net_fd* s = nullptr;
  std::error_code ec;
  net::address where;
  const char* call = "connect";
  bool primary = false;  // of the first family, in a race
};

// Ends the wait of a connect when the context is done.
class connect_watch : private cancel_watch {
 public:
  connect_watch(const context* ctx, rt::fd_desc* d) noexcept : d_(d) {
    if (ctx == nullptr) return;
    on_ = begin(*ctx, [](cancel_watch* w) noexcept { static_cast<connect_watch*>(w)->expire(); });
    if (!on_) expire();
  }
  connect_watch(const connect_watch&) = delete;
  connect_watch& operator=(const connect_watch&) = delete;
  ~connect_watch() {
    if (on_) end();
  }

 private:
  void expire() noexcept { rt::poll_set_deadline(d_, 2, 1); }
  rt::fd_desc* d_;
  bool on_ = false;
};

std::int64_t deadline_of(const context* ctx) noexcept {
  static_assert(no_context_deadline == rt::never);
  const context_node* n = ctx != nullptr ? context_access::node(*ctx) : nullptr;
  return n != nullptr ? deadline_here(n) : rt::never;
}

std::error_code wait_connected(net_fd* s, const context* ctx, std::int64_t until) {
  if (until != rt::never) rt::poll_set_deadline(s->desc(), 2, until);
  std::error_code ec;
  {
    const connect_watch watch(ctx, s->desc());
    s->call(rt::poll_mode::write, ec, [](int fd) noexcept -> long {
      const int err = sys::connect_error(fd);
      return err == EINPROGRESS || err == EALREADY ? -EAGAIN : -err;
    });
  }
  // Cancelled at the last moment is cancelled.
  if (ctx != nullptr && ctx->err()) return ctx->err();
  if (!ec) rt::poll_set_deadline(s->desc(), 2, rt::never);
  return ec;
}

attempt connect_once(const network_kind& k, const net::address& to, const context* ctx,
                     std::int64_t until) {
  attempt a;
  a.where = to;
  if (ctx != nullptr && (a.ec = ctx->err())) return a;
  if (memory_network* mem = memory_network::current()) [[unlikely]] {
    auto end = mem->connect(k, to, ctx, until, a.ec);
    if (!a.ec) a.s = net_fd::make(std::move(end), k.name, a.ec);
    a.c = net::conn(a.s);
    return a;
  }
  const int fd = sys::socket(to.family(), k.type);
  if (fd < 0) {
    a.ec = system_code(fd);
    a.call = "socket";
    return a;
  }
  if (k.type == SOCK_DGRAM && !to.is_unix()) sys::set_option(fd, SOL_SOCKET, SO_BROADCAST, 1);
  const int r = sys::connect(fd, to.data(), to.size());
  if (r < 0 && r != -EINPROGRESS && r != -EINTR) {
    sys::close(fd);
    a.ec = system_code(r);
    return a;
  }
  net_fd* s = net_fd::make(fd, k.name, a.ec);
  if (s == nullptr) return a;
  net::conn c(s);
  if (r < 0 && (a.ec = wait_connected(s, ctx, until))) return a;
  s->local = name_of(fd, false);
  s->remote = name_of(fd, true);   // not `to`, which may be a wildcard
  if (!s->remote) s->remote = to;  // reset already
  if (k.type == SOCK_STREAM && k.family != AF_UNIX) set_tcp_defaults(fd);
  a.c = std::move(c);
  a.s = s;
  return a;
}

// A port that the kernel chose for us, on a port nobody listens on, may be the same: a connection
// to itself. That is nobody's wish.
attempt connect_to(const network_kind& k, const net::address& to, const context* ctx,
                   std::int64_t until) {
  for (int tries = 0;; ++tries) {
    attempt a = connect_once(k, to, ctx, until);
    const bool self =
        a.s != nullptr && k.type == SOCK_STREAM && !to.is_unix() && a.s->local == a.s->remote;
    const bool none_left = a.ec == std::errc::address_not_available && to.port() != 0;
    if ((!self && !none_left) || tries == 2) return a;
  }
}

attempt connect_in_order(const network_kind& k, std::span<const net::address> list,
                         const context* ctx) {
  attempt first;
  for (std::size_t i = 0; i < list.size(); ++i) {
    std::int64_t until = deadline_of(ctx);
    if (until != rt::never) {
      const std::int64_t left = until - rt::clock_now();
      const auto share = left / static_cast<std::int64_t>(list.size() - i);
      until -= left - std::min(left, std::max(share, least_share));
    }
    attempt a = connect_to(k, list[i], ctx, until);
    if (!a.ec) return a;
    const bool over = ctx != nullptr && ctx->err();
    if (i == 0) first = std::move(a);
    if (over) {
      first.ec = ctx->err();
      break;
    }
  }
  return first;
}

// One family's attempts, beside the caller; gives their result to a channel with room for it.
struct lane {
  network_kind k;
  context ctx;
  chan<attempt> results;
  std::vector<net::address> list;
  bool primary;

  void run() const {
    attempt a = connect_in_order(k, list, &ctx);
    a.primary = primary;
    results.send(std::move(a));
  }
};

void start(lane l) {
  if (rt::current_g() != nullptr) {
    go([l = std::move(l)] { l.run(); });
    return;
  }
  auto own = std::make_unique<lane>(std::move(l));
  const auto body = [](void* arg) { std::unique_ptr<lane>(static_cast<lane*>(arg))->run(); };
  if (rt::start_thread(body, own.get(), "weft-dial") == 0) {
    (void)own.release();
  } else {
    own->run();  // in order, then
  }
}

attempt race(const network_kind& k, std::vector<net::address> list, const context* ctx) {
  const int family = list.front().family();
  const auto second = std::stable_partition(
      list.begin(), list.end(), [family](const net::address& a) { return a.family() == family; });
  const std::vector<net::address> others(second, list.end());
  list.erase(second, list.end());
  const auto made = with_cancel(ctx != nullptr ? *ctx : background());
  const context& inner = made.first;
  const cancel_fn& cancel = made.second;
  const chan<attempt> results(2);
  start({k, inner, results, std::move(list), true});
  attempt failed;
  bool second_runs = false;
  for (int running = 1; running > 0;) {
    attempt got;
    const auto take = [&](std::optional<attempt> a) {
      got = std::move(*a);
      --running;
    };
    const int which = second_runs ? select(recv(results, take))
                                  : select(recv(results, take), timeout(fallback_delay));
    if (which == 0 && !got.ec) {
      cancel();
      return got;
    }
    if (which == 0 && got.primary) failed = std::move(got);
    if (!second_runs) {
      second_runs = true;
      start({k, inner, results, others, false});
      ++running;
    }
  }
  cancel();
  return failed;
}

net::conn dial_any(const context* ctx, std::string_view network, std::string_view text,
                   failure& f) {
  if (ctx != nullptr) require(*ctx);
  const network_kind k = kind_of(network);
  if (k.name == nullptr) {
    f = unknown_network(network);
    return {};
  }
  if (ctx != nullptr && ctx->err()) {
    f = {ctx->err(), std::string(text)};
    return {};
  }
  std::vector<net::address> list = addresses_for(k, text, false, ctx, f);
  if (f.ec) return {};
  const bool both = std::any_of(list.begin(), list.end(), [&](const net::address& a) {
    return a.family() != list.front().family();
  });
  attempt a = both ? race(k, std::move(list), ctx) : connect_in_order(k, list, ctx);
  f = {a.ec, a.where.to_string(), false, a.call};
  return std::move(a.c);
}

net::conn dial_or_throw(const context* ctx, std::string_view network, std::string_view text) {
  failure f;
  net::conn c = dial_any(ctx, network, text, f);
  if (f.ec) throw_failure("dial", network, f);
  return c;
}

}  // namespace

void set_tcp_defaults(int fd) noexcept {
  sys::set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  sys::set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  sys::set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  sys::set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 15);
}

}  // namespace weft::detail

namespace weft::net {

using namespace detail;

conn dial(std::string_view network, std::string_view text, std::error_code& ec) {
  failure f;
  conn c = dial_any(nullptr, network, text, f);
  ec = f.ec;
  return c;
}
conn dial(const context& ctx, std::string_view network, std::string_view text,
          std::error_code& ec) {
  failure f;
  conn c = dial_any(&ctx, network, text, f);
  ec = f.ec;
  return c;
}
conn dial(std::string_view network, std::string_view text) {
  return dial_or_throw(nullptr, network, text);
}
conn dial(const context& ctx, std::string_view network, std::string_view text) {
  return dial_or_throw(&ctx, network, text);
}
conn dial(std::string_view network, const address& to) { return dial(network, to.to_string()); }
conn dial(std::string_view network, const address& to, std::error_code& ec) {
  return dial(network, to.to_string(), ec);
}
conn dial(const context& ctx, std::string_view network, const address& to) {
  return dial(ctx, network, to.to_string());
}
conn dial(const context& ctx, std::string_view network, const address& to, std::error_code& ec) {
  return dial(ctx, network, to.to_string(), ec);
}

}  // namespace weft::net
