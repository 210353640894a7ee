// SPDX-License-Identifier: Apache-2.0
// Giving up a dial, datagrams, and a descriptor of somebody else's.
#include <array>
#include <cassert>
#include <cstddef>
#include <poll.h>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <weft/weft.hpp>

using namespace std::chrono_literals;
namespace net = weft::net;

int main() {
  return weft::run([] {
    const auto [ctx, cancel] = weft::with_timeout(weft::background(), 1s);
    cancel();
    std::error_code ec;
    const net::conn c = net::dial(ctx, "tcp", "localhost:80", ec);
    assert(!c && ec == weft::errc::canceled);

    const net::packet_conn a = net::listen_packet("udp", "127.0.0.1:0");
    const net::packet_conn b = net::listen_packet("udp", "127.0.0.1:0");
    a.write_to("ping", b.local_addr());
    std::array<std::byte, 16> buf;
    const auto [n, from] = b.read_from(buf);
    assert(n == 4 && from == a.local_addr());

    const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert(weft::wait_fd(fd, POLLIN, weft::clock::now() + 1ms) == weft::errc::deadline_exceeded);
    weft::go([fd] { ::eventfd_write(fd, 1); });
    assert(!weft::wait_fd(fd, POLLIN));
    eventfd_t times = 0;
    assert(::eventfd_read(fd, &times) == 0 && times == 1);
    ::close(fd);
  });
}
