// SPDX-License-Identifier: Apache-2.0
// The network's interface: texts, halves, buffers, names, limits; for goroutines and plain threads.
// Long because each kind of socket is taken through the same calls.
#include "weft/net.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <memory>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "sched/waiter.h"
#include "support/leaks.h"
#include "support/net.h"
#include "unit/sched/support.h"
#include "weft/debug.hpp"
#include "weft/sync.hpp"
#include "weft/time.hpp"

namespace weft::net_test {
namespace {

using namespace std::chrono_literals;
using net::address;
using net::conn;
using net::listener;
using sched_test::run_on_each;
using std::byte;
using test::connect_pair;
using test::connected;
using test::text_of;

// Runs f beside the caller: a goroutine in a run, a thread without one.
class beside {
 public:
  template <class F>
  explicit beside(F f) {
    if (goid() == 0) {
      t_ = std::thread(f);
    } else {
      wg_.go(f);
    }
  }
  beside(const beside&) = delete;
  beside& operator=(const beside&) = delete;
  ~beside() {
    if (t_.joinable()) t_.join();
    wg_.wait();
  }

 private:
  std::thread t_;
  wait_group wg_;
};

// As a goroutine at each number of Ps, and as a plain thread without a run.
template <class F>
void everywhere(F f) {
  run_on_each(f);
  std::thread(f).join();
}

std::string read_string(const conn& c, std::size_t n) {
  std::string s(n, '\0');
  c.read_full(std::span(s));
  return s;
}

std::vector<char> pattern(std::size_t n) {
  std::vector<char> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<char>(i * 131 + i / 251);
  return v;
}

TEST(Address, TextAndBack) {
  for (const char* text : {"127.0.0.1:80", "0.0.0.0:0", "[::1]:65535", "[fe80::1%lo]:5"})
    EXPECT_EQ(address::parse(text).to_string(), text);
  const address a = address::parse("192.0.2.1:8080");
  EXPECT_TRUE(a.is_ipv4() && !a.is_ipv6() && !a.is_unix());
  EXPECT_EQ(a.host(), "192.0.2.1");
  EXPECT_EQ(a.port(), 8080);
  EXPECT_EQ(a, address::parse("192.0.2.1:8080"));
  EXPECT_FALSE(a == address::parse("192.0.2.1:8081"));
  std::ostringstream out;
  out << a;
  EXPECT_EQ(out.str(), std::string(a));
  EXPECT_FALSE(address());
  std::error_code ec;
  EXPECT_EQ(address::unix_path("/tmp/x", ec).to_string(), "/tmp/x");
  EXPECT_EQ(address::unix_path("@x", ec).to_string(), "@x");
  EXPECT_TRUE(address::unix_path("", ec).is_unix());
  EXPECT_FALSE(ec);
  address::unix_path(std::string(200, 'x'), ec);
  EXPECT_EQ(ec, std::errc::invalid_argument);
}

TEST(Address, WhatIsNone) {
  const auto code = [](const char* text) {
    std::error_code ec;
    address::parse(text, ec);
    return ec;
  };
  EXPECT_EQ(code("127.0.0.1"), net::errc::missing_port);
  EXPECT_EQ(code("[::1]"), net::errc::missing_port);
  EXPECT_EQ(code("::1:80"), net::errc::too_many_colons);
  EXPECT_EQ(code("[::1:80"), net::errc::invalid_address);
  EXPECT_EQ(code("example.com:80"), net::errc::invalid_address);
  EXPECT_EQ(code("1.2.3.4:65536"), net::errc::unknown_port);
  EXPECT_EQ(code("1.2.3.4:http"), net::errc::unknown_port);
  EXPECT_EQ(code(""), std::errc::invalid_argument);
  EXPECT_EQ(text_of([] { address::parse("x"); }), "address x: missing port in address");
}

TEST(Net, EchoOverEveryNetwork) {
  everywhere([] {
    const std::string path = "/tmp/weft-net-test-" + std::to_string(::getpid());
    const std::pair<const char*, std::string> all[] = {
        {"tcp", "127.0.0.1:0"}, {"tcp4", "127.0.0.1:0"},
        {"tcp", "[::1]:0"},     {"tcp6", "[::1]:0"},
        {"tcp", ":0"},          {"tcp", "localhost:0"},
        {"unix", path},         {"unix", test::own_address("echo")}};
    for (const auto& [network, at] : all) {
      const listener l = net::listen(network, at);
      const beside server([&] {
        const conn c = l.accept();
        std::array<byte, 100> b;
        while (const std::size_t n = c.read_some(b)) c.write_all(std::span(b).first(n));
      });
      const std::string to =
          at == ":0" ? "127.0.0.1:" + std::to_string(l.addr().port()) : l.addr().to_string();
      const conn c = net::dial(network, to);
      c.write_all("hello, ");
      c.write_all(std::string("world"));
      EXPECT_EQ(read_string(c, 12), "hello, world");
      EXPECT_EQ(c.remote_addr().to_string(), to);
      c.close_write();
      std::array<char, 1> b;
      EXPECT_EQ(c.read_some(b), 0U);
    }
    EXPECT_NE(::access(path.c_str(), F_OK), 0);  // gone with its listener
  });
}

// Go's TestUnixAutobind.
TEST(Net, AUnixSocketWithoutANameGetsOne) {
  everywhere([] {
    const auto named = [](const net::address& a) {
      const std::string s = a.to_string();
      return s.size() == 6 && s[0] == '@' &&
             s.find_first_not_of("0123456789abcdef", 1) == std::string::npos;
    };
    for (const char* network : {"unix", "unixpacket"}) {
      const listener a = net::listen(network, ""), b = net::listen(network, "");
      EXPECT_TRUE(named(a.addr())) << a.addr();
      EXPECT_NE(a.addr(), b.addr());
      const beside server([&] { a.accept().write_all("hello"); });
      const conn c = net::dial(network, a.addr());
      EXPECT_EQ(c.remote_addr(), a.addr());
      EXPECT_EQ(read_string(c, 5), "hello");
    }
    const net::packet_conn to = net::listen_packet("unixgram", "");
    const net::packet_conn from = net::listen_packet("unixgram", "");
    EXPECT_TRUE(named(to.local_addr())) << to.local_addr();
    from.write_to("x", to.local_addr());
    std::array<char, 2> buf;
    EXPECT_EQ(to.read_from(buf).second, from.local_addr());
    EXPECT_EQ(text_of([] { net::dial("unix", ""); }), "dial unix: missing address");
    EXPECT_EQ(text_of([] { net::dial("unixgram", ""); }), "dial unixgram: missing address");
  });
}

TEST(Net, LargeWritesInPieces) {
  everywhere([] {
    const std::vector<char> data = pattern(4 << 20);
    connected c = connect_pair();
    const beside writer([&] {
      EXPECT_EQ(c.client.write_all(std::as_bytes(std::span(data))), data.size());
      c.client.close_write();
    });
    std::vector<char> got(data.size() + 1);
    std::error_code ec;
    EXPECT_EQ(c.server.read_full(std::span(got), ec), data.size());
    EXPECT_EQ(ec, errc::unexpected_eof);
    got.pop_back();
    EXPECT_TRUE(got == data);
  });
}

TEST(Net, ScatterAndGather) {
  everywhere([] {
    connected c = connect_pair();
    const std::vector<char> data = pattern(300'000);
    const auto bytes = std::as_bytes(std::span(data));
    std::vector<net::const_buffer> parts;  // more than one system call takes, some empty
    std::size_t at = 0;
    for (std::size_t i = 0; at < bytes.size(); ++i) {
      const std::size_t n = std::min(i * 7 % 5001, bytes.size() - at);
      parts.push_back(bytes.subspan(at, n));
      at += n;
    }
    const beside writer([&] { EXPECT_EQ(c.client.write_all(parts), data.size()); });
    std::vector<char> got(data.size());
    const auto out = std::as_writable_bytes(std::span(got));
    for (std::size_t done = 0; done < got.size();) {
      const auto left = out.subspan(done);
      const std::size_t half = std::min<std::size_t>(left.size(), 1000);
      const net::buffer bs[] = {left.first(half), left.subspan(half)};
      const std::size_t n = c.server.read_some(bs);
      ASSERT_NE(n, 0U);
      done += n;
    }
    EXPECT_TRUE(got == data);
  });
}

TEST(Net, SendFile) {
  everywhere([] {
    char path[] = "/tmp/weft-sendfile-XXXXXX";
    const int file = ::mkostemp(path, O_CLOEXEC);
    ASSERT_GE(file, 0);
    ::unlink(path);
    const std::vector<char> data = pattern(3 << 20);
    ASSERT_EQ(::write(file, data.data(), data.size()), static_cast<ssize_t>(data.size()));
    connected c = connect_pair();
    const beside writer([&] {
      EXPECT_EQ(c.client.send_file(file, 1000, data.size() * 2), data.size() - 1000);  // to its end
      EXPECT_EQ(c.client.send_file(file, 0, 1000), 1000U);
    });
    std::vector<char> got(data.size());
    c.server.read_full(std::span(got));
    EXPECT_TRUE(std::equal(got.begin(), got.end() - 1000, data.begin() + 1000));
    EXPECT_TRUE(std::equal(got.end() - 1000, got.end(), data.begin()));
    ::close(file);
  });
}

TEST(Net, HalfClose) {
  everywhere([] {
    connected c = connect_pair();
    c.client.close_write();
    std::array<char, 4> b;
    EXPECT_EQ(c.server.read_some(b), 0U);
    c.server.write_all("back");
    EXPECT_EQ(read_string(c.client, 4), "back");
    std::error_code ec;
    c.client.write_all("x", ec);
    EXPECT_EQ(ec, std::errc::broken_pipe);
  });
}

TEST(Net, NobodyDiesOfSigpipe) {
  everywhere([] {
    connected c = connect_pair();
    c.client.close();
    const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    std::error_code ec;
    for (int i = 0; i < 10'000 && !ec; ++i) c.server.write_all("x", ec);
    EXPECT_TRUE(ec == std::errc::broken_pipe || ec == std::errc::connection_reset) << ec.message();
    c.server.send_file(file, 0, 100, ec);
    EXPECT_EQ(ec, std::errc::broken_pipe);
    const std::array<byte, 1> b{};
    const net::const_buffer bs[] = {b};
    c.server.write_all(bs, ec);
    EXPECT_EQ(ec, std::errc::broken_pipe);
    ::close(file);
  });
}

TEST(Net, Datagrams) {
  everywhere([] {
    const net::packet_conn a = net::listen_packet("udp", "127.0.0.1:0");
    const net::packet_conn b = net::listen_packet("udp", "127.0.0.1:0");
    std::array<byte, 3> buf;
    EXPECT_EQ(a.write_to("hello", b.local_addr()), 5U);
    const auto [n, from] = b.read_from(buf);
    EXPECT_EQ(n, 3U);  // cut to the buffer
    EXPECT_EQ(from, a.local_addr());
    EXPECT_EQ(a.write_to("", b.local_addr()), 0U);
    EXPECT_EQ(b.read_from(buf).first, 0U);  // an empty one is one
    const conn c = net::dial("udp", b.local_addr());
    c.write_all("xyz");
    EXPECT_EQ(b.read_from(buf).second, c.local_addr());
    b.write_to("abc", c.local_addr());
    EXPECT_EQ(c.read_some(buf), 3U);
    EXPECT_EQ(net::dial(background(), "udp", b.local_addr()).remote_addr(), b.local_addr());
  });
}

// More than 64 buffers were two.
TEST(Net, ADatagramOfManyBuffersIsOne) {
  everywhere([] {
    const std::string path = test::own_address("many-buffers");
    const std::pair<const char*, std::string> all[] = {{"udp", "127.0.0.1:0"}, {"unixgram", path}};
    for (const auto& [network, at] : all) {
      const net::packet_conn to = net::listen_packet(network, at);
      const conn c = net::dial(network, to.local_addr());
      const std::vector<char> data = pattern(1024);
      const auto bytes = std::as_bytes(std::span(data));
      std::vector<char> got(data.size() + 1);
      for (const std::size_t n : {65U, 1024U}) {
        std::vector<net::const_buffer> parts;
        for (std::size_t i = 0; i < n; ++i) parts.push_back(bytes.subspan(i, 1));
        EXPECT_EQ(c.write_all(parts), n);
        EXPECT_EQ(to.read_from(std::span(got)).first, n);
        EXPECT_TRUE(std::equal(data.begin(), data.begin() + static_cast<int>(n), got.begin()));
        EXPECT_EQ(c.write_some(parts), n);
        EXPECT_EQ(to.read_from(std::span(got)).first, n);
        parts.insert(parts.begin() + 1, 1000, net::const_buffer());  // those do not count
        EXPECT_EQ(c.write_all(parts), n);
        EXPECT_EQ(to.read_from(std::span(got)).first, n);
      }
      std::vector<net::const_buffer> too_many(1025, bytes.first(1));
      std::error_code ec;
      EXPECT_EQ(c.write_all(too_many, ec), 0U);
      EXPECT_EQ(ec, std::errc::message_size);
      EXPECT_EQ(c.write_some(too_many, ec), 0U);
      EXPECT_EQ(ec, std::errc::message_size);
      EXPECT_EQ(c.write_all(std::span(too_many).first(0)), 0U);  // an empty one is one
      EXPECT_EQ(to.read_from(std::span(got)).first, 0U);
    }
    // And it is received as one.
    const net::packet_conn from = net::listen_packet("udp", "127.0.0.1:0");
    const conn c = net::dial("udp", from.local_addr());
    from.write_to(std::string(100, 'x'), c.local_addr());
    std::vector<byte> got(200);
    std::vector<net::buffer> parts;
    for (byte& b : got) parts.push_back({&b, 1});
    EXPECT_EQ(c.read_some(parts), 100U);
    EXPECT_EQ(got[99], byte{'x'});
    EXPECT_EQ(got[100], byte{});
  });
}

std::chrono::nanoseconds cpu_time() {
  timespec t;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

// The kernel calls the sender writable all the while, and it tried again and again.
TEST(Net, AFullUnixSocketIsWaitedForWithoutSpinning) {
  everywhere([] {
    const net::packet_conn to = net::listen_packet("unixgram", test::own_address("full"));
    const net::packet_conn filler = net::listen_packet("unixgram", test::own_address("filler"));
    const net::packet_conn c = net::listen_packet("unixgram", test::own_address("sender"));
    std::error_code ec;
    const auto fill = [&] {
      const address at = to.local_addr();
      while (::sendto(filler.fd(), "x", 1, MSG_DONTWAIT, at.data(), at.size()) == 1) {
      }
      EXPECT_EQ(errno, EAGAIN);
    };
    fill();

    const auto begin = clock::now();
    const auto cpu = cpu_time();
    c.set_write_deadline(begin + 200ms);
    EXPECT_EQ(c.write_to("late", to.local_addr(), ec), 0U);
    EXPECT_EQ(ec, errc::deadline_exceeded);
    EXPECT_GE(clock::now() - begin, 200ms);
    EXPECT_LT(cpu_time() - cpu, 100ms);

    c.set_write_deadline(test::in(10s));
    std::array<char, 8> b;
    {
      const beside writer([&] {
        std::error_code err;
        EXPECT_EQ(c.write_to("again", to.local_addr(), err), 5U);
        EXPECT_FALSE(err) << err.message();
      });
      sleep_for(5ms);
      EXPECT_EQ(to.read_from(b).first, 1U);
    }
    std::size_t last = 0;
    for (to.set_read_deadline(test::in(10s)); last != 5;) last = to.read_from(b).first;

    fill();
    const beside writer([&] {
      std::error_code err;
      c.write_to("never", to.local_addr(), err);
      EXPECT_EQ(err, errc::closed);
    });
    sleep_for(5ms);
    c.close();
  });
}

TEST(Net, Texts) {
  everywhere([] {
    connected c = connect_pair();
    const std::string at =
        c.client.local_addr().to_string() + "->" + c.client.remote_addr().to_string();
    const std::string closed = ": use of closed network connection";
    std::array<byte, 1> b;
    c.server.set_linger(0);
    c.server.close();
    EXPECT_EQ(text_of([&] { c.client.read_some(b); }),
              "read tcp " + at + ": read: connection reset by peer");
    c.client.close();
    EXPECT_EQ(text_of([&] { c.client.read_some(b); }), "read tcp " + at + closed);
    EXPECT_EQ(text_of([&] { c.client.write_all("x"); }), "write tcp " + at + closed);
    EXPECT_EQ(text_of([&] { c.client.close(); }), "close tcp " + at + closed);
    const std::string local = c.client.local_addr().to_string();
    EXPECT_EQ(text_of([&] { c.client.set_deadline(clock::now()); }), "set tcp " + local + closed);
    EXPECT_EQ(text_of([&] { c.client.set_read_deadline(clock::now()); }),
              "set tcp " + local + closed);
    EXPECT_EQ(text_of([&] { c.client.set_no_delay(true); }), "set tcp " + at + closed);
    const listener l = net::listen("tcp", "127.0.0.1:0");
    const std::string la = l.addr().to_string();
    EXPECT_EQ(text_of([&] { net::listen("tcp", la); }),
              "listen tcp " + la + ": bind: address already in use");
    l.close();
    EXPECT_EQ(text_of([&] { l.accept(); }), "accept tcp " + la + closed);
    EXPECT_EQ(text_of([&] { net::dial("tcp", la); }),
              "dial tcp " + la + ": connect: connection refused");
    EXPECT_EQ(text_of([] { net::dial("unix", "/nonexistent/x"); }),
              "dial unix /nonexistent/x: connect: no such file or directory");
    EXPECT_EQ(text_of([] { net::dial("foo", "x:1"); }), "dial foo: unknown network foo");
    EXPECT_EQ(text_of([] { net::listen("udp", "127.0.0.1:0"); }),
              "listen udp: unknown network udp");
    EXPECT_EQ(text_of([] { net::dial("tcp", "127.0.0.1"); }),
              "dial tcp: address 127.0.0.1: missing port in address");
    EXPECT_EQ(text_of([] { conn().read_some(net::buffer()); }), "read" + closed);
  });
}

TEST(Net, TheHandleIsAMoveOnlyOwner) {
  const int before = test::open_descriptors();
  {
    connected c = connect_pair();
    conn moved = std::move(c.client);
    EXPECT_FALSE(c.client);
    EXPECT_EQ(c.client.fd(), -1);
    EXPECT_TRUE(moved);
    EXPECT_GE(moved.fd(), 0);
    moved.close();
    EXPECT_EQ(moved.fd(), -1);
    moved = std::move(c.server);
    EXPECT_GE(moved.fd(), 0);
  }
  EXPECT_LE(test::open_descriptors(), before + 2);  // the poller's own
  static_assert(!std::is_copy_constructible_v<conn> && std::is_nothrow_move_constructible_v<conn>);
  static_assert(!std::is_copy_constructible_v<listener>);
}

TEST(Net, EverythingIsCloseOnExec) {
  connected c = connect_pair();
  const listener l = net::listen("tcp", "127.0.0.1:0");
  const int copy = l.dup();
  for (const int fd : {c.client.fd(), c.server.fd(), l.fd(), copy})
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  ::close(copy);
}

TEST(Net, WritesDoNotMix) {
  everywhere([] {
    connected c = connect_pair();
    constexpr int writers = 4, each = 20;
    const std::size_t size = 20'000;
    std::vector<std::unique_ptr<beside>> all;
    for (int w = 0; w < writers; ++w) {
      all.push_back(std::make_unique<beside>([&, w] {
        const std::string block(size, static_cast<char>('a' + w));
        for (int i = 0; i < each; ++i) c.client.write_all(block);
      }));
    }
    for (int i = 0; i < writers * each; ++i) {
      const std::string block = read_string(c.server, size);
      ASSERT_EQ(block, std::string(size, block[0]));
    }
  });
}

TEST(Net, CloseWakesAllReaders) {
  everywhere([] {
    connected c = connect_pair();
    std::atomic<int> ended{0};
    std::vector<std::unique_ptr<beside>> all;
    for (int r = 0; r < 4; ++r) {
      all.push_back(std::make_unique<beside>([&] {
        std::array<byte, 1> b;
        std::error_code ec;
        c.server.read_some(b, ec);
        EXPECT_EQ(ec, errc::closed);
        ++ended;
      }));
    }
    sleep_for(2ms);
    c.server.close();
    all.clear();
    EXPECT_EQ(ended, 4);
  });
}

class no_more_descriptors {
 public:
  no_more_descriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &old_), 0);
    rlimit none = old_;
    none.rlim_cur = 3;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  no_more_descriptors(const no_more_descriptors&) = delete;
  no_more_descriptors& operator=(const no_more_descriptors&) = delete;
  ~no_more_descriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &old_), 0); }

 private:
  rlimit old_;
};

// UBSan's look at a vptr needs a descriptor itself.
#define WEFT_NEEDS_NO_UBSAN() \
  if (unit_test::asan) GTEST_SKIP() << "UBSan needs a descriptor"

TEST(Net, NoDescriptorLeft) {
  WEFT_NEEDS_NO_UBSAN();
  run_on_each([] {
    const listener l = net::listen("tcp", "127.0.0.1:0");
    const conn c = net::dial("tcp", l.addr());
    std::error_code accepted, dialled;
    std::string text;
    {
      const no_more_descriptors hold;
      text = text_of([&] { l.accept(); });
      l.accept(accepted);
      net::dial("tcp", l.addr(), dialled);
    }
    EXPECT_EQ(accepted, std::errc::too_many_files_open);
    EXPECT_EQ(dialled, std::errc::too_many_files_open);
    EXPECT_EQ(text, "accept tcp " + l.addr().to_string() + ": accept4: too many open files");
    EXPECT_TRUE(l.accept());  // and goes on when there is one
  });
}

TEST(Net, APlainThreadWaitsWithoutADescriptorToSpare) {
  WEFT_NEEDS_NO_UBSAN();
  connected c = connect_pair();
  const no_more_descriptors hold;
  std::atomic<bool> got{false};
  std::thread t([&] {
    std::array<byte, 1> b;
    std::error_code ec;
    EXPECT_EQ(c.client.read_some(b, ec), 1U);
    got = true;
    c.client.read_some(b, ec);
    EXPECT_EQ(ec, errc::closed);
  });
  c.server.write_all("x");
  EXPECT_TRUE(test::eventually([&] { return got.load(); }));
  c.client.close();
  t.join();
}

TEST(Net, PlainThreadsAndGoroutinesOnOneConnection) {
  connected c = connect_pair();
  std::thread echo([&] {
    std::array<byte, 64> b;
    while (const std::size_t n = c.server.read_some(b)) c.server.write_all(std::span(b).first(n));
  });
  for (const int procs : {1, 2, 3, 16}) {
    sched_test::run_on(procs, [&] {
      for (int i = 0; i < 100; ++i) {
        c.client.write_all("0123456789");
        EXPECT_EQ(read_string(c.client, 10), "0123456789");
      }
    });
    c.client.write_all("between");  // and without a run
    EXPECT_EQ(read_string(c.client, 7), "between");
  }
  c.client.close();
  echo.join();
}

TEST(Resolve, NumbersAndNames) {
  everywhere([] {
    const auto v4 = net::resolve("192.0.2.7", "80");
    ASSERT_EQ(v4.size(), 1U);
    EXPECT_EQ(v4[0].to_string(), "192.0.2.7:80");
    EXPECT_EQ(net::resolve("::1", 443).at(0).to_string(), "[::1]:443");
    const auto local = net::resolve("localhost", "7");
    ASSERT_FALSE(local.empty());
    for (const address& a : local) EXPECT_TRUE(a.host() == "127.0.0.1" || a.host() == "::1") << a;
    std::error_code ec;
    EXPECT_TRUE(net::resolve("127.0.0.1", "no-such-service-x", ec).empty());
    EXPECT_TRUE(ec);
  });
}

// The lookups hold no P: with one, another goroutine runs meanwhile.
TEST(Resolve, DoesNotBlockAP) {
  sched_test::run_on(1, [] {
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> turns{0};
    wait_group wg, all;
    wg.go([&] {
      while (!stop) {
        ++turns;
        yield();
      }
    });
    for (int i = 0; i < 64; ++i) {
      all.go([] {
        std::error_code ec;
        EXPECT_FALSE(net::resolve("localhost", "1", ec).empty());
      });
    }
    all.wait();
    stop = true;
    wg.wait();
    EXPECT_GT(turns, 0U);
  });
}

TEST(Resolve, ACancelledLookupReturns) {
  run_on_each([] {
    const auto [ctx, cancel] = with_cancel(background());
    cancel();
    std::error_code ec;
    EXPECT_TRUE(net::resolve(ctx, "localhost", "1", ec).empty());
    EXPECT_EQ(ec, errc::canceled);
  });
}

// Runs end beside goroutines that are asking: whatever they were stopped in, the next one is
// answered. All the errands are done in the end.
TEST(Resolve, TheEndOfARunLeavesThePoolInOrder) {
  test::goroutines_are_left_behind = true;
  for (int i = 0; i < 40; ++i) {
    weft::run(test::with_procs(2), [i] {
      for (int k = 0; k < 4; ++k) {
        go([] {
          for (;;) (void)net::resolve("localhost", "1");
        });
      }
      sleep_for(std::chrono::microseconds(100 * (i % 10)));
    });
    EXPECT_FALSE(net::resolve("localhost", "1").empty());
  }
  EXPECT_TRUE(test::eventually([] { return rt::errands.load() == 0; }));
}

// Both families: the one that answers wins, though the other refuses.
TEST(Dial, TheOtherFamilyIsTried) {
  everywhere([] {
    for (const bool v6 : {false, true}) {
      const listener l = v6 ? net::listen("tcp6", "[::1]:0") : net::listen("tcp4", "127.0.0.1:0");
      const std::string port = std::to_string(l.addr().port());
      const auto names = net::resolve("localhost", port);
      if (std::find(names.begin(), names.end(), l.addr()) == names.end()) continue;
      for (int i = 0; i < 20; ++i)
        EXPECT_EQ(net::dial("tcp", "localhost:" + port).remote_addr(), l.addr());
    }
  });
}

// close(2) of a socket that lingers takes as long as that: it costs nobody else his P, nor the
// world its stop.
TEST(Net, ACloseThatLingersHoldsUpNobody) {
  run_on_each([] {
    test::connected p = test::connect_pair();
    p.client.set_linger(10);
    const std::vector<char> much = pattern(1 << 20);
    // Until all is full: the kernel takes nothing after it had time to.
    do {
      p.client.set_write_deadline(test::in(50ms));
      for (std::error_code ec; !ec;) p.client.write_some(std::as_bytes(std::span(much)), ec);
    } while (::send(p.client.fd(), much.data(), much.size(), MSG_DONTWAIT) > 0);
    wait_group wg;
    std::atomic<bool> closed{false};
    const auto begin = clock::now();
    wg.go([&] {
      p.client.close();
      closed = true;
    });
    while (!closed && clock::now() - begin < 200ms) {
      sleep_for(1ms);
      EXPECT_EQ(debug::audit(), 0);
    }
    EXPECT_FALSE(closed);  // and we were there
    p.server.close();
    wg.wait();
  });
}

}  // namespace
}  // namespace weft::net_test
