// SPDX-License-Identifier: Apache-2.0
// A server that speaks the Redis protocol, with a goroutine per connection.
//
//   kv --port 6379          redis-cli -p 6379 set greeting hello
//
// All complete requests of one read are answered by one write, so a client that pipelines pays two
// system calls a batch.
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <vector>

#include <weft/weft.hpp>
#include "common/flags.h"
#include "common/server.h"
#include "kv/commands.h"
#include "kv/resp.h"

namespace {

using namespace std::chrono_literals;
namespace net = weft::net;

constexpr std::size_t flush_at = 256 * 1024;  // a batch with large replies goes out in parts

// Waits until the client has read the last reply: closing a socket with unread bytes resets the
// connection, and the reply may be lost on the way.
void part(const net::conn& c) {
  std::error_code ec;
  c.close_write(ec);
  c.set_read_deadline(weft::clock::now() + 1s, ec);
  std::array<char, 4096> rest;
  while (c.read_some(std::span(rest), ec) != 0) {
  }
}

void talk(const net::conn& c, kv::service& s) {
  kv::request_parser in(s.max_request);
  kv::reply out(s.max_request);
  std::error_code ec;
  using result = kv::request_parser::result;
  for (bool stay = true; stay;) {
    const std::size_t n = c.read_some(in.room(), ec);
    if (ec || n == 0) return;  // gone, or told to stop
    in.received(n);
    std::uint64_t done = 0;
    result r = result::request;
    while (stay && (r = in.next()) == result::request) {
      stay = kv::execute(s, in.args(), out);
      ++done;
      if (out.size() >= flush_at) {
        c.write_all(out.text(), ec);
        if (ec) return;
        out.clear();
      }
    }
    s.commands.fetch_add(done, std::memory_order_relaxed);
    if (r == result::error) {
      out.error(in.what());
      stay = false;
    }
    if (!out.empty()) c.write_all(out.text(), ec);
    if (ec) return;
    out.clear();
  }
  part(c);
}

int serve(const std::vector<std::pair<std::string, std::string>>& places,
          const weft::recv_chan<void>& stop, std::chrono::milliseconds grace,
          std::size_t max_request) {
  std::vector<net::listener> listeners;
  for (const auto& [network, address] : places) {
    listeners.push_back(net::listen(network, address));
    std::printf("kv: listening on %s\n", listeners.back().addr().to_string().c_str());
  }
  std::fflush(stdout);

  kv::service service;
  service.max_request = max_request;
  examples::server server(grace);
  service.clients = [&server] { return server.connections(); };
  const auto [ctx, cancel] = weft::with_cancel(weft::background());
  weft::wait_group sweeper;
  sweeper.go([&service, ctx = ctx] {
    while (!weft::sleep_for(ctx, 1s)) service.keys.sweep();
  });
  server.serve(listeners, stop, [&service](const net::conn& c) { talk(c, service); });
  cancel();
  sweeper.wait();
  std::printf("kv: stopped\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int port = 6379, grace = 5000, max_request = 512;
  std::string host = "127.0.0.1", path;
  examples::flags("kv", "A key-value server that speaks the Redis protocol.")
      .text("--host", "HOST", host, "address to listen on (127.0.0.1)")
      .number("--port", "N", 0, 65535, port, "TCP port (6379); 0 takes a free one")
      .text("--unix", "PATH", path, "listen on this Unix socket too")
      .number("--grace", "MS", 0, 3'600'000, grace,
              "how long a stop waits for replies under way (5000)")
      .number("--max-request", "MB", 1, 1024, max_request, "the largest request, or reply (512)")
      .parse(argc, argv);
  std::vector<std::pair<std::string, std::string>> places;
  const bool v6 = host.find(':') != std::string::npos;
  places.emplace_back("tcp", (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port));
  if (!path.empty()) places.emplace_back("unix", path);

  const weft::recv_chan<void> stop = examples::stop_signals();
  try {
    return weft::run([&] {
      return serve(places, stop, std::chrono::milliseconds(grace),
                   static_cast<std::size_t>(max_request) << 20);
    });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kv: %s\n", e.what());
    return 1;
  }
}
