// SPDX-License-Identifier: Apache-2.0
// What dial, listen and resolve make of an address: Go's texts for what is wrong with it, and which
// address a socket then has; for goroutines and plain threads.
#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/net.h"
#include "unit/sched/support.h"
#include "weft/context.hpp"
#include "weft/net.hpp"

namespace weft::net_test {
namespace {

using namespace std::chrono_literals;
using net::address;
using net::conn;
using net::listener;
using test::text_of;

// As a goroutine at each number of Ps, and as a plain thread without a run.
template <class F>
void everywhere(F f) {
  sched_test::run_on_each(f);
  std::thread(f).join();
}

std::string dial_text(std::string_view network, std::string_view at) {
  return text_of([&] { net::dial(network, at); });
}
std::string listen_text(std::string_view network, std::string_view at) {
  return text_of([&] { net::listen(network, at); });
}
std::error_code dial_code(std::string_view network, std::string_view at) {
  std::error_code ec;
  EXPECT_FALSE(net::dial(network, at, ec));
  return ec;
}

TEST(DialTexts, OfWhatIsNoAddress) {
  everywhere([] {
    EXPECT_EQ(dial_text("tcp", ""), "dial tcp: missing address");
    EXPECT_EQ(dial_text("unix", ""), "dial unix: missing address");
    EXPECT_NE(net::listen("tcp", "").addr().port(), 0);  // any address, a free port
    EXPECT_NE(net::listen_packet("udp4", "").local_addr().port(), 0);
    EXPECT_EQ(dial_text("tcp", "[::1:80"), "dial tcp: address [::1:80: missing ']' in address");
    EXPECT_EQ(dial_text("tcp", "a[b]:80"), "dial tcp: address a[b]:80: unexpected '[' in address");
    EXPECT_EQ(dial_text("tcp", "ab]:80"), "dial tcp: address ab]:80: unexpected ']' in address");
    EXPECT_EQ(dial_text("tcp", "[::1]:80:90"),
              "dial tcp: address [::1]:80:90: too many colons in address");
    EXPECT_EQ(dial_text("tcp", "[::1]]:80"),
              "dial tcp: address [::1]]:80: missing port in address");
    EXPECT_EQ(listen_text("tcp", "127.0.0.1"),
              "listen tcp: address 127.0.0.1: missing port in address");
    EXPECT_EQ(text_of([] { address::parse("[::1:80"); }),
              "address [::1:80: missing ']' in address");
    for (const char* at : {"", "[::1:80", "a[b]:80", "127.0.0.1"})
      EXPECT_EQ(dial_code("tcp", at), std::errc::invalid_argument) << at;
    EXPECT_EQ(dial_code("unix", ""), std::errc::invalid_argument);
  });
}

TEST(DialTexts, OfNetworksAndFamilies) {
  everywhere([] {
    EXPECT_EQ(dial_text("", "127.0.0.1:1"), "dial: unknown network ");
    EXPECT_EQ(listen_text("", "127.0.0.1:1"), "listen: unknown network ");
    EXPECT_EQ(dial_text("tcp4", "[::1]:1"), "dial tcp4: address ::1: no suitable address found");
    EXPECT_EQ(dial_text("tcp6", "127.0.0.1:1"),
              "dial tcp6: address 127.0.0.1: no suitable address found");
    EXPECT_EQ(listen_text("tcp4", "[::1]:0"),
              "listen tcp4: address ::1: no suitable address found");
    EXPECT_EQ(dial_code("tcp4", "[::1]:1"), net::errc::no_suitable_address);
  });
}

// They were cut modulo 65536.
TEST(DialTexts, OfPorts) {
  everywhere([] {
    EXPECT_EQ(dial_text("tcp", "127.0.0.1:99999"), "dial tcp: address 99999: invalid port");
    EXPECT_EQ(dial_text("udp", "localhost:65536"), "dial udp: address 65536: invalid port");
    EXPECT_EQ(dial_text("tcp", "127.0.0.1:-1"), "dial tcp: address -1: invalid port");
    EXPECT_EQ(dial_text("tcp", "127.0.0.1:99999999999999999999"),
              "dial tcp: address 99999999999999999999: invalid port");
    EXPECT_EQ(dial_text("tcp", "127.0.0.1:nosuchport"),
              "dial tcp: lookup tcp/nosuchport: unknown port");
    EXPECT_EQ(dial_text("udp4", "127.0.0.1:nosuchport"),
              "dial udp4: lookup udp4/nosuchport: unknown port");
    EXPECT_EQ(listen_text("tcp", "127.0.0.1:65536"), "listen tcp: address 65536: invalid port");
    EXPECT_EQ(text_of([] { net::listen_packet("udp", "127.0.0.1:70000"); }),
              "listen udp: address 70000: invalid port");
    EXPECT_EQ(text_of([] { net::resolve("127.0.0.1", "65616"); }), "address 65616: invalid port");
    std::error_code ec;
    EXPECT_TRUE(net::resolve("localhost", "65616", ec).empty());
    EXPECT_EQ(ec, net::errc::unknown_port);
    EXPECT_EQ(net::resolve("127.0.0.1", "65535").at(0).port(), 65535);
    EXPECT_EQ(net::resolve("127.0.0.1", "+00080").at(0).port(), 80);
  });
}

TEST(DialTexts, OfNames) {
  std::error_code ec;
  (void)net::resolve("nonsense.invalid", "80", ec);
  if (ec != net::errc::no_such_host) GTEST_SKIP() << "no answer about a name: " << ec.message();
  everywhere([] {
    EXPECT_EQ(dial_text("tcp", "nonsense.invalid:80"),
              "dial tcp: lookup nonsense.invalid: no such host");
    EXPECT_EQ(listen_text("tcp", "nonsense.invalid:0"),
              "listen tcp: lookup nonsense.invalid: no such host");
  });
}

TEST(DialTexts, OfPathsThatAreTooLong) {
  everywhere([] {
    const std::string path = "/tmp/" + std::string(200, 'x');
    EXPECT_EQ(dial_text("unix", path), "dial unix " + path + ": connect: invalid argument");
    EXPECT_EQ(listen_text("unix", path), "listen unix " + path + ": bind: invalid argument");
    EXPECT_EQ(dial_code("unix", path), std::errc::invalid_argument);
  });
}

// libc reads up to a zero: "localhost\0.example.com" was localhost.
TEST(Dial, AZeroDoesNotCutOff) {
  everywhere([] {
    using namespace std::string_view_literals;
    const listener l = net::listen("tcp", "127.0.0.1:0");
    const std::string port = ":" + std::to_string(l.addr().port());
    for (const std::string_view host : {"localhost\0.example.com"sv, "127.0.0.1\0x"sv, "\0"sv}) {
      EXPECT_EQ(dial_code("tcp", std::string(host) + port), net::errc::no_such_host);
      std::error_code ec;
      EXPECT_TRUE(net::resolve(host, "80", ec).empty());
      EXPECT_EQ(ec, net::errc::no_such_host);
      address::parse(std::string(host) + port, ec);
      EXPECT_EQ(ec, net::errc::invalid_address);
    }
    EXPECT_EQ(dial_code("tcp", std::string("127.0.0.1") + port + std::string(1, '\0')),
              net::errc::unknown_port);
    EXPECT_EQ(dial_code("unix", "/tmp\0/x"sv), std::errc::invalid_argument);
    std::error_code ec;
    EXPECT_FALSE(net::listen("unix", "/tmp/weft-zero\0x"sv, ec));
    EXPECT_EQ(ec, std::errc::invalid_argument);
    // In an abstract name every byte counts.
    const std::string half = test::own_address("zero");
    const listener a = net::listen("unix", half + std::string("\0x", 2));
    EXPECT_EQ(a.addr().to_string(), half + std::string("\0x", 2));
    EXPECT_TRUE(net::dial("unix", a.addr()));
    EXPECT_EQ(dial_code("unix", half), std::errc::connection_refused);
  });
}

TEST(Dial, ANilContextThrows) {
  everywhere([] {
    const listener l = net::listen("tcp", "127.0.0.1:0");
    const std::string at = l.addr();
    std::error_code ec;
    EXPECT_THROW(net::dial(context(), "tcp", at), std::invalid_argument);
    EXPECT_THROW(net::dial(context(), "tcp", at, ec), std::invalid_argument);
    EXPECT_THROW(net::dial(context(), "tcp", l.addr()), std::invalid_argument);
    EXPECT_THROW(net::dial(context(), "tcp", l.addr(), ec), std::invalid_argument);
    EXPECT_THROW((void)net::resolve(context(), "localhost", "1", ec), std::invalid_argument);
  });
}

TEST(Address, OneFormForAnIPv4Peer) {
  const address a = address::parse("[::ffff:192.0.2.1]:80");
  EXPECT_TRUE(a.is_ipv4());
  EXPECT_EQ(a.to_string(), "192.0.2.1:80");
  EXPECT_EQ(a, address::parse("192.0.2.1:80"));
  everywhere([] {
    const listener l = net::listen("tcp", ":0");  // both families
    const std::string port = std::to_string(l.addr().port());
    const conn c = net::dial("tcp", "127.0.0.1:" + port);
    const conn s = l.accept();
    EXPECT_TRUE(s.remote_addr().is_ipv4());
    EXPECT_EQ(s.remote_addr(), c.local_addr());
    EXPECT_EQ(s.local_addr().to_string(), "127.0.0.1:" + port);
    s.set_deadline(test::in(-1s));
    std::array<char, 1> b;
    EXPECT_EQ(text_of([&] { s.read_some(b); }),
              "read tcp 127.0.0.1:" + port + "->" + c.local_addr().to_string() + ": i/o timeout");
  });
}

TEST(Address, DatagramsOfBothFamilies) {
  everywhere([] {
    const net::packet_conn any = net::listen_packet("udp", ":0");
    const net::packet_conn v4 = net::listen_packet("udp4", "127.0.0.1:0");
    v4.write_to("ping", address::parse("127.0.0.1:" + std::to_string(any.local_addr().port())));
    std::array<char, 8> b;
    const auto [n, from] = any.read_from(b);
    EXPECT_EQ(n, 4U);
    EXPECT_TRUE(from.is_ipv4());
    EXPECT_EQ(from, v4.local_addr());
    EXPECT_EQ(any.write_to("answer", from), 6U);
    EXPECT_EQ(v4.read_from(b).first, 6U);
    // An address that names IPv4 within IPv6 suits a socket of IPv4.
    const std::string port = std::to_string(v4.local_addr().port());
    EXPECT_EQ(v4.write_to("x", address::parse("[::ffff:127.0.0.1]:" + port)), 1U);
    EXPECT_EQ(v4.read_from(b).second, v4.local_addr());
  });
}

TEST(Dial, AWildcardHasAPeerWithAnAddress) {
  everywhere([] {
    const listener l = net::listen("tcp4", ":0");
    EXPECT_EQ(l.addr().host(), "0.0.0.0");
    const conn c = net::dial("tcp", l.addr());
    EXPECT_EQ(c.remote_addr().host(), "127.0.0.1");
    EXPECT_EQ(c.remote_addr(), l.accept().local_addr());
    const net::packet_conn u = net::listen_packet("udp4", ":0");
    EXPECT_EQ(net::dial("udp", u.local_addr()).remote_addr().host(), "127.0.0.1");
  });
}

TEST(Listen, AtAnAddress) {
  everywhere([] {
    const address any_port = address::parse("127.0.0.1:0");
    std::error_code ec;
    const listener l = net::listen("tcp", any_port);
    EXPECT_EQ(l.addr().host(), "127.0.0.1");
    EXPECT_FALSE(net::listen("tcp", l.addr(), ec));
    EXPECT_EQ(ec, std::errc::address_in_use);
    const net::packet_conn u = net::listen_packet("udp", any_port);
    EXPECT_EQ(u.local_addr().host(), "127.0.0.1");
    EXPECT_FALSE(net::listen_packet("udp", u.local_addr(), ec));
    EXPECT_EQ(ec, std::errc::address_in_use);
  });
}

// It went on to the next address, and listened where nobody had asked for.
TEST(Listen, OneAddressAndNoOther) {
  everywhere([] {
    std::error_code ec;
    const listener v6 = net::listen("tcp6", "[::]:0", ec);
    if (!ec) {  // IPv6 alone; both families want it too
      const std::string any = ":" + std::to_string(v6.addr().port());
      EXPECT_EQ(listen_text("tcp", any), "listen tcp " + any + ": bind: address already in use");
      const std::string empty = "[]" + any;
      EXPECT_EQ(listen_text("tcp", empty),
                "listen tcp " + empty + ": bind: address already in use");
    }
    const net::packet_conn u6 = net::listen_packet("udp6", "[::]:0", ec);
    if (!ec) {
      net::listen_packet("udp", ":" + std::to_string(u6.local_addr().port()), ec);
      EXPECT_EQ(ec, std::errc::address_in_use);
    }
    // Of a name with both families it is IPv4's.
    const listener l = net::listen("tcp", "localhost:0");
    const auto names = net::resolve("localhost", "0");
    EXPECT_EQ(l.addr().is_ipv4(), std::any_of(names.begin(), names.end(),
                                              [](const address& a) { return a.is_ipv4(); }));
    EXPECT_EQ(listen_text("tcp", "localhost:" + std::to_string(l.addr().port())),
              "listen tcp " + l.addr().to_string() + ": bind: address already in use");
  });
}

TEST(Dial, ServicesOfDatagrams) {
  const servent* s = ::getservbyname("tftp", "udp");
  if (s == nullptr || ::getservbyname("tftp", "tcp") != nullptr) GTEST_SKIP() << "not known here";
  EXPECT_EQ(net::dial("udp", "127.0.0.1:tftp").remote_addr().port(), 69);
}

// A port of [::1] where nobody answers: the queue of those who wait to be accepted is full.
class silent_port {
 public:
  silent_port() {
    sockaddr_in6 a{};
    a.sin6_family = AF_INET6;
    a.sin6_addr = in6addr_loopback;
    socklen_t size = sizeof a;
    auto* sa = reinterpret_cast<sockaddr*>(&a);
    if (::bind(fd_, sa, size) != 0 || ::listen(fd_, 0) != 0) return;
    ::getsockname(fd_, sa, &size);
    for (int& f : waiting_) {
      f = ::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      (void)::connect(f, sa, size);
    }
    port = std::to_string(ntohs(a.sin6_port));
  }
  silent_port(const silent_port&) = delete;
  silent_port& operator=(const silent_port&) = delete;
  ~silent_port() {
    for (const int f : waiting_) ::close(f);
    ::close(fd_);
  }
  std::string port;  // none: no IPv6 here

 private:
  int fd_ = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::array<int, 4> waiting_{-1, -1, -1, -1};
};

// It was tried in order by plain threads, for seconds.
TEST(Dial, TheOtherFamilyIsNotKeptWaiting) {
  const silent_port silent;
  if (silent.port.empty() || !net::resolve("", silent.port).at(0).is_ipv6())
    GTEST_SKIP() << "IPv6 does not come first here";
  std::error_code ec;
  const listener l = net::listen("tcp4", "127.0.0.1:" + silent.port, ec);
  if (ec) GTEST_SKIP() << "the port is taken";
  everywhere([&] {
    const auto [ctx, cancel] = with_timeout(background(), 20s);
    const auto begin = clock::now();
    EXPECT_EQ(net::dial(ctx, "tcp", ":" + silent.port).remote_addr(), l.addr());
    EXPECT_GE(clock::now() - begin, 250ms);
    EXPECT_LT(clock::now() - begin, 5s);
    // And both are given up when their time is.
    const auto [soon, cancel_soon] = with_timeout(background(), 20ms);
    // (The address in full: nothing is looked up, so the time cannot be over before the dialling.)
    EXPECT_EQ(text_of([&, &soon = soon] { net::dial(soon, "tcp6", "[::1]:" + silent.port); }),
              "dial tcp6 [::1]:" + silent.port + ": i/o timeout");
    std::error_code gave_up;
    EXPECT_FALSE(net::dial(soon, "tcp", ":" + silent.port, gave_up));
    EXPECT_EQ(gave_up, errc::deadline_exceeded);
    cancel();
    cancel_soon();
  });
}

// The second family refuses while the first is still silent; what is told is the first one's.
TEST(Dial, TheFirstFamilysErrorIsTold) {
  const silent_port silent;
  if (silent.port.empty() || !net::resolve("", silent.port).at(0).is_ipv6())
    GTEST_SKIP() << "IPv6 does not come first here";
  if (dial_code("tcp4", "127.0.0.1:" + silent.port) != std::errc::connection_refused)
    GTEST_SKIP() << "the port is taken";
  const auto dial = [&] {
    const auto [ctx, cancel] = with_timeout(background(), 1s);
    EXPECT_EQ(text_of([&, &ctx = ctx] { net::dial(ctx, "tcp", ":" + silent.port); }),
              "dial tcp [::1]:" + silent.port + ": i/o timeout");
    cancel();
  };
  sched_test::run_on(2, dial);
  std::thread(dial).join();
}

}  // namespace
}  // namespace weft::net_test
