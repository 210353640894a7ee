// SPDX-License-Identifier: Apache-2.0
// The network, from the benchmarks that Go ships with package net: 512 bytes there and back.
#include <weft/net.hpp>

#include <array>
#include <cstddef>
#include <utility>

#include "list.h"

namespace {

using bench::parallel;
using bytes = std::array<std::byte, 512>;

void echo(const weft::net::conn& c) {
  bytes b;
  std::error_code ec;
  while (c.read_full(b, ec) == b.size() && !ec) c.write_all(b, ec);
}

// A server in this process, and its end.
class server {
 public:
  server() {
    all_.go([this] {
      std::error_code ec;
      for (;;) {
        weft::net::conn c = l_.accept(ec);
        if (ec) return;
        all_.go([c = std::move(c)] { echo(c); });
      }
    });
  }
  ~server() { l_.close(); }
  weft::net::conn dial() const { return weft::net::dial("tcp", l_.addr()); }

 private:
  weft::net::listener l_ = weft::net::listen("tcp", "127.0.0.1:0");
  weft::scope all_;
};

void round_trip(const weft::net::conn& c, bool timeout) {
  bytes b{};
  if (timeout) c.set_deadline(weft::clock::now() + std::chrono::hours(1));
  c.write_all(b);
  c.read_full(b);
}

// A connection a turn.
template <bool timeout>
void oneshot(long n) {
  const server s;
  parallel(
      n,
      [&](long turns) {
        for (long i = 0; i < turns; ++i) round_trip(s.dial(), timeout);
      },
      2);
}

template <bool timeout>
void persistent(long n) {
  const server s;
  parallel(
      n,
      [&](long turns) {
        const weft::net::conn c = s.dial();
        for (long i = 0; i < turns; ++i) round_trip(c, timeout);
      },
      2);
}

void set_read_deadline(long n) {
  const server s;
  const weft::net::conn c = s.dial();
  auto tp = weft::clock::now() + std::chrono::hours(1);
  for (long i = 0; i < n; ++i) {
    c.set_read_deadline(tp);
    tp += std::chrono::nanoseconds(1);
  }
}

// At both ends a reader and a writer, a byte a time, and some work before each byte.
void concurrent_read_write(long n) {
  parallel(n, [](long turns) {
    const weft::net::listener l = weft::net::listen("tcp", "127.0.0.1:0");
    const weft::net::conn client = weft::net::dial("tcp", l.addr()), peer = l.accept();
    const weft::chan<std::byte> between(128);
    weft::scope s;
    const auto write = [turns](const weft::net::conn& c) {
      for (long i = 0; i < turns; ++i) {
        const std::array<std::byte, 1> b{};
        bench::work(1000);
        c.write_all(b);
      }
    };
    s.go([&] { write(client); });
    s.go([&] {
      std::array<std::byte, 1> b;
      for (long i = 0; i < turns; ++i) {
        peer.read_full(b);
        between.send(b[0]);
      }
    });
    s.go([&] {
      for (long i = 0; i < turns; ++i) {
        const std::array<std::byte, 1> b{*between.recv()};
        bench::work(1000);
        peer.write_all(b);
      }
    });
    std::array<std::byte, 1> b;
    for (long i = 0; i < turns; ++i) client.read_full(b);
    s.wait();
  });
}

constexpr bench::workload workloads[] = {
    {"list_tcp_oneshot", bench::ns_per_op<oneshot<false>>},
    {"list_tcp_oneshot_timeout", bench::ns_per_op<oneshot<true>>},
    {"list_tcp_persistent", bench::ns_per_op<persistent<false>>},
    {"list_tcp_persistent_timeout", bench::ns_per_op<persistent<true>>},
    {"list_tcp_concurrent", bench::ns_per_op<concurrent_read_write>},
    {"list_set_read_deadline", bench::ns_per_op<set_read_deadline>},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
