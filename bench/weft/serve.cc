// SPDX-License-Identifier: Apache-2.0
// The servers of the network rows: a goroutine per connection. They print 'PORT n' and serve until
// they are ended; the load comes from bench/load.
//   serve_echo    sends back what comes
//   serve_http    answers every request with a greeting, by Boost.Beast's parser, if that is there
#include <weft/net.hpp>

#include <array>
#include <cstddef>
#include <utility>

#if __has_include(<boost/beast/http.hpp>)
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <weft/asio.hpp>
#define BENCH_HTTP 1
#endif

#include "bench.h"

namespace {

void echo(const weft::net::conn& c) {
  std::array<std::byte, 4096> b;
  std::error_code ec;
  for (;;) {
    const std::size_t n = c.read_some(b, ec);
    if (ec || n == 0) return;
    c.write_all(std::span(b).first(n), ec);
    if (ec) return;
  }
}

#ifdef BENCH_HTTP
namespace http = boost::beast::http;

void greet(const weft::net::conn& c) {
  boost::beast::flat_buffer buffer;
  boost::beast::error_code ec;
  for (;;) {
    http::request<http::empty_body> request;
    http::read(c, buffer, request, ec);
    if (ec) return;
    http::response<http::string_body> answer(http::status::ok, request.version());
    answer.set(http::field::content_type, "text/plain");
    answer.body() = "Hello, world!\n";
    answer.keep_alive(request.keep_alive());
    answer.prepare_payload();
    http::write(c, answer, ec);
    if (ec || !request.keep_alive()) return;
  }
}
#endif

template <void (*talk)(const weft::net::conn&)>
void serve(const char*, long) {
  const weft::net::listener l = weft::net::listen("tcp", "127.0.0.1:0");
  std::printf("PORT %u\n", static_cast<unsigned>(l.addr().port()));
  std::fflush(stdout);
  for (;;) weft::go([c = l.accept()] { talk(c); });
}

constexpr bench::workload workloads[] = {
    {"serve_echo", serve<echo>},
#ifdef BENCH_HTTP
    {"serve_http", serve<greet>},
#endif
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
