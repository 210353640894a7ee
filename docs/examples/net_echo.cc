// SPDX-License-Identifier: Apache-2.0
// A server with a goroutine per connection, and a client.
#include <array>
#include <cassert>
#include <cstddef>
#include <string>
#include <system_error>
#include <utility>
#include <weft/weft.hpp>

using namespace std::chrono_literals;
namespace net = weft::net;

void echo(const net::conn& c) {
  std::array<std::byte, 4096> b;
  c.set_read_deadline(weft::clock::now() + 30s);
  while (const std::size_t n = c.read_some(b)) {  // 0: the peer has closed
    c.write_all(std::span(b).first(n));
  }
}

int main() {
  return weft::run([] {
    const net::listener l = net::listen("tcp", "127.0.0.1:0");
    weft::wait_group server;
    server.go([&] {
      std::error_code ec;
      for (;;) {
        net::conn c = l.accept(ec);
        if (ec) break;  // closed
        server.go([c = std::move(c)] { echo(c); });
      }
      assert(ec == weft::errc::closed);
    });

    {
      const net::conn c = net::dial("tcp", l.addr());
      c.write_all("hello");
      std::string answer(5, '\0');
      c.read_full(std::span(answer));
      assert(answer == "hello");

      c.set_read_deadline(weft::clock::now() + 1ms);
      try {
        c.read_full(std::span(answer));
        assert(false);
      } catch (const net::op_error& e) {  // read tcp 127.0.0.1:…->127.0.0.1:…: i/o timeout
        assert(e.timeout() && e.code() == weft::errc::deadline_exceeded);
      }
    }           // c is closed: the server's read ends
    l.close();  // wakes accept
    server.wait();
  });
}
