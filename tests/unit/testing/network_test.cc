// SPDX-License-Identifier: Apache-2.0
// The network of a bubble: what a seed decides and what it may not, and that it behaves as the
// machine's does where nobody is unlucky. Long because each call of <weft/net.hpp> is here again.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/leaks.h"
#include "support/runtime.h"
#include "weft/context.hpp"
#include "weft/net.hpp"
#include "weft/sync.hpp"
#include "weft/testing.hpp"
#include "weft/time.hpp"

namespace weft::test {
namespace {

using options = testing::network::options;
using std::chrono::nanoseconds;

// Nothing is late, nothing is cut.
options plain() {
  options o;
  o.max_delay = 0ns;
  o.partial = false;
  return o;
}
options delayed(nanoseconds from, nanoseconds to) {
  options o = plain();
  o.min_delay = from;
  o.max_delay = to;
  return o;
}

template <class F>
void in_network(std::uint64_t seed, const options& o, F f) {
  testing::bubble(seed, [&] {
    const testing::network net(o);
    f();
  });
}

std::string read_to_end(const net::conn& c, std::error_code& ec) {
  std::string all;
  char b[100];
  while (const std::size_t n = c.read_some(b, ec)) all.append(b, n);
  return all;
}
std::string read_to_end(const net::conn& c) {
  std::error_code ec;
  std::string all = read_to_end(c, ec);
  EXPECT_FALSE(ec) << ec.message();
  return all;
}
std::string read_n(const net::conn& c, std::size_t n) {
  std::string s(n, '?');
  c.read_full(std::span<char>(s));
  return s;
}
std::string one_read(const net::conn& c) {
  char b[1000];
  return {b, c.read_some(b)};
}
std::pair<net::conn, net::conn> tcp_pair(const std::string& at = "127.0.0.1:0") {
  const net::listener l = net::listen("tcp", at);
  net::conn c = net::dial("tcp", l.addr());
  net::conn s = l.accept();
  return {std::move(c), std::move(s)};
}
template <class F>
std::string text_of(F f) {
  try {
    f();
  } catch (const net::op_error& e) {
    return e.what();
  }
  return "nothing thrown";
}

void serve_echo(const net::listener& l) {
  wait_group all;
  for (;;) {
    std::error_code ec;
    net::conn c = l.accept(ec);
    if (ec) break;
    all.go([c = std::move(c)] {
      char b[64];
      std::error_code e;
      while (const std::size_t n = c.read_some(b, e)) {
        c.write_all(std::string_view(b, n), e);
        if (e) break;
      }
    });
  }
  all.wait();
}

// Who read what when: three clients of an echo server.
std::string trace(std::uint64_t seed, const options& o = {}) {
  std::string log;
  in_network(seed, o, [&] {
    const auto start = clock::now();
    const net::listener l = net::listen("tcp", "echo:7");
    wait_group server, clients;
    server.go([&] { serve_echo(l); });
    for (int i = 0; i < 3; ++i) {
      clients.go([&, i] {
        const net::conn c = net::dial("tcp", "echo:7");
        const std::string text(static_cast<std::size_t>(50 + 100 * i), static_cast<char>('a' + i));
        wait_group writer;
        writer.go([&] {
          c.write_all(text);
          c.close_write();
        });
        char b[80];
        std::size_t got = 0;
        while (const std::size_t n = c.read_some(b)) {
          got += n;
          log += std::to_string((clock::now() - start).count()) + ' ' + std::to_string(goid()) +
                 ' ' + std::string(b, n) + '\n';
        }
        EXPECT_EQ(got, text.size());
        writer.wait();
      });
    }
    clients.wait();
    l.close();
    server.wait();
  });
  return log;
}

TEST(MemoryNetwork, TheSameSeedGivesTheSameBytesAtTheSameTimes) {
  std::set<std::string> traces;
  const std::uint64_t seeds = by_effort(50, 10);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const std::string first = trace(seed);
    traces.insert(first);
    run_clean([&] { EXPECT_EQ(trace(seed), first) << seed; });
  }
  EXPECT_EQ(traces.size(), seeds);
}

// The same on every machine, whatever its architecture. Whoever changes what a seed means changes
// them, and says so.
TEST(MemoryNetwork, SeedsMeanTheSameEverywhere) {
  const auto small = [](std::uint64_t seed) {
    std::string log;
    in_network(seed, {}, [&] {
      const auto start = clock::now();
      auto [c, s] = testing::pipe();
      c.write_all("0123456789");
      c.close_write();
      char b[6];
      while (const std::size_t n = s.read_some(b))
        log += std::to_string((clock::now() - start).count()) + ':' + std::string(b, n) + ' ';
    });
    return log;
  };
  EXPECT_EQ(small(1), "295539:012345 295539:678 295539:9 ");
  EXPECT_EQ(small(2), "484759:012345 484759:67 484759:8 744162:9 ");
}

TEST(MemoryNetwork, WithoutDelaysTimeStandsStill) {
  in_network(1, plain(), [] {
    const auto start = clock::now();
    auto [c, s] = tcp_pair();
    c.write_all("hello");
    EXPECT_EQ(one_read(s), "hello");
    EXPECT_EQ(clock::now(), start);
  });
}

TEST(MemoryNetwork, ADelayIsInVirtualTimeAndExact) {
  in_network(1, delayed(5ms, 5ms), [] {
    const auto start = clock::now();
    const net::listener l = net::listen("tcp", "127.0.0.1:0");
    const net::conn c = net::dial("tcp", l.addr());
    EXPECT_EQ(clock::now() - start, 5ms);
    const net::conn s = l.accept();
    EXPECT_EQ(clock::now() - start, 5ms);
    c.write_all("hello");
    EXPECT_EQ(clock::now() - start, 5ms);
    EXPECT_EQ(one_read(s), "hello");
    EXPECT_EQ(clock::now() - start, 10ms);
  });
}

TEST(MemoryNetwork, ReadsAndWritesTakeParts) {
  int parts = 0, wholes = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    in_network(seed, {}, [&] {
      auto [c, s] = testing::pipe();
      std::error_code ec;
      const std::string text = "0123456789";
      const std::size_t n = c.write_some(std::as_bytes(std::span(text)), ec);
      EXPECT_TRUE(!ec && n >= 1 && n <= 10);
      const std::string got = one_read(s);
      EXPECT_EQ(got, text.substr(0, got.size()));
      (got.size() < n || n < 10 ? parts : wholes)++;
      c.write_all(text.substr(n));
      c.close_write();
      EXPECT_EQ(got + read_to_end(s), text);  // nothing is lost
    });
  }
  EXPECT_GT(parts, 5);
  EXPECT_GT(wholes, 5);
}

TEST(MemoryNetwork, OneConnectionMayBeReadyBeforeTheOther) {
  int first = 0;
  constexpr int seeds = 100;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    in_network(seed, {}, [&] {
      auto [a, a2] = testing::pipe();
      auto [b, b2] = testing::pipe();
      a.write_all("x");
      b.write_all("x");
      std::string order;
      wait_group both;
      both.go([&, c = std::move(a2)] { one_read(c), order += 'a'; });
      both.go([&, c = std::move(b2)] { one_read(c), order += 'b'; });
      both.wait();
      first += order == "ab" ? 1 : 0;
    });
  }
  EXPECT_GT(first, 10);
  EXPECT_LT(first, seeds - 10);
}

TEST(MemoryNetwork, SeveralBuffers) {
  in_network(3, {}, [] {
    auto [c, s] = testing::pipe();
    const std::string a = "one", b, d = "two", e = "three";
    const std::array<net::const_buffer, 4> out = {
        std::as_bytes(std::span(a)), std::as_bytes(std::span(b)), std::as_bytes(std::span(d)),
        std::as_bytes(std::span(e))};
    EXPECT_EQ(c.write_all(out), 11U);
    c.close_write();
    std::string all;
    for (;;) {
      std::string x(2, '?'), y(5, '?');
      const std::array<net::buffer, 2> in = {std::as_writable_bytes(std::span(x)),
                                             std::as_writable_bytes(std::span(y))};
      const std::size_t n = s.read_some(in);
      if (n == 0) break;
      all += (x + y).substr(0, n);
    }
    EXPECT_EQ(all, "onetwothree");
  });
}

TEST(MemoryNetwork, ADatagramOfManyBuffersIsOne) {
  in_network(1, plain(), [] {
    const net::packet_conn to = net::listen_packet("udp", "log:514");
    const net::conn c = net::dial("udp", "log:514");
    const std::string text(100, 'x');
    std::vector<net::const_buffer> parts;
    for (const char& b : text) parts.push_back(std::as_bytes(std::span(&b, 1)));
    EXPECT_EQ(c.write_all(parts), 100U);
    std::array<std::byte, 200> b;
    EXPECT_EQ(to.read_from(b).first, 100U);
    std::error_code ec;
    parts.insert(parts.end(), 1000, parts[0]);
    EXPECT_EQ(c.write_all(parts, ec), 0U);
    EXPECT_EQ(ec, std::errc::message_size);
  });
}

TEST(MemoryNetwork, FromAFile) {
  std::FILE* f = std::tmpfile();
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::to_string(i);
  ASSERT_EQ(std::fwrite(text.data(), 1, text.size(), f), text.size());
  std::fflush(f);
  in_network(1, {}, [&] {
    auto [c, s] = testing::pipe();
    wait_group wg;
    wg.go([&c = c, f, &text] {
      EXPECT_EQ(c.send_file(::fileno(f), 10, text.size()), text.size() - 10);
      c.close_write();
    });
    EXPECT_EQ(read_to_end(s), text.substr(10));
    wg.wait();
  });
  std::fclose(f);
}

TEST(MemoryNetwork, DeadlinesAreExact) {
  in_network(1, delayed(7ms, 7ms), [] {
    auto [c, s] = tcp_pair();
    const auto start = clock::now();
    std::error_code ec;
    char b[10];
    s.set_read_deadline(start + 3ms);
    s.read_some(b, ec);
    EXPECT_EQ(ec, errc::deadline_exceeded);
    EXPECT_EQ(clock::now() - start, 3ms);
    s.set_read_deadline(clock::time_point::max());
    c.write_all("late");
    EXPECT_EQ(one_read(s), "late");
    EXPECT_EQ(clock::now() - start, 10ms);
    // What is there does not count after it.
    c.write_all("more");
    sleep_for(8ms);
    s.set_read_deadline(clock::now() - 1ns);
    EXPECT_EQ(text_of([&s = s] { one_read(s); }), "read tcp " + s.local_addr().to_string() + "->" +
                                                      s.remote_addr().to_string() +
                                                      ": i/o timeout");
    // Set by another one it ends a wait, and one moved away does not.
    s.set_read_deadline(clock::now() + 1h);
    one_read(s);
    const auto again = clock::now();
    wait_group wg;
    wg.go([&s = s] {
      sleep_for(1s);
      s.set_read_deadline(clock::now() + 2h);
      sleep_for(1s);
      s.set_read_deadline(clock::now());
    });
    s.read_some(b, ec);
    EXPECT_EQ(ec, errc::deadline_exceeded);
    EXPECT_EQ(clock::now() - again, 2s);
    wg.wait();
  });
}

TEST(MemoryNetwork, AcceptHasADeadline) {
  in_network(1, plain(), [] {
    const net::listener l = net::listen("tcp", ":80");
    EXPECT_EQ(l.addr().to_string(), "[::]:80");
    const auto start = clock::now();
    l.set_deadline(start + 1min);
    EXPECT_EQ(text_of([&] { (void)l.accept(); }), "accept tcp [::]:80: i/o timeout");
    EXPECT_EQ(clock::now() - start, 1min);
  });
}

TEST(MemoryNetwork, CloseWakesWhoWaits) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    in_network(seed, {}, [] {
      auto [c, s] = tcp_pair();
      const net::listener l = net::listen("tcp", "127.0.0.1:0");
      wait_group wg;
      for (int i = 0; i < 2; ++i) {  // the second one waits for the first
        wg.go([&c = c] {
          std::error_code ec;
          char b[1];
          c.read_some(b, ec);
          EXPECT_EQ(ec, errc::closed);
        });
      }
      wg.go([&] {
        std::error_code ec;
        (void)l.accept(ec);
        EXPECT_EQ(ec, errc::closed);
      });
      testing::wait();
      c.close();
      l.close();
      wg.wait();
      EXPECT_EQ(read_to_end(s), "");
      std::error_code ec;
      c.write_all("x", ec);
      EXPECT_EQ(ec, errc::closed);
      c.close(ec);
      EXPECT_EQ(ec, errc::closed);
      c.set_no_delay(true, ec);
      EXPECT_EQ(ec, errc::closed);
    });
  }
}

TEST(MemoryNetwork, AHalfIsClosed) {
  in_network(5, {}, [] {
    auto [c, s] = tcp_pair();
    c.write_all("question");
    c.close_write();
    std::error_code ec;
    c.write_all("more", ec);
    EXPECT_EQ(ec, std::errc::broken_pipe);
    EXPECT_EQ(read_to_end(s), "question");
    EXPECT_EQ(read_to_end(s), "");  // again
    s.write_all("answer");
    s.close();
    EXPECT_EQ(read_to_end(c), "answer");
  });
  in_network(5, plain(), [] {
    auto [c, s] = tcp_pair();
    wait_group wg;
    wg.go([&s = s] { EXPECT_EQ(read_to_end(s), ""); });
    testing::wait();
    s.close_read();
    wg.wait();
    c.write_all("late");  // nobody has told it
    EXPECT_EQ(read_n(s, 4), "late");
    EXPECT_EQ(read_to_end(s), "");
    s.write_all("still");
    EXPECT_EQ(read_n(c, 5), "still");
  });
}

TEST(MemoryNetwork, AFullWindowBlocksTheWriterDurably) {
  options o = plain();
  o.window = 10;
  in_network(1, o, [] {
    auto [c, s] = testing::pipe();
    const auto start = clock::now();
    std::size_t written = 0;
    wait_group wg;
    wg.go([&c = c, &written] { written = c.write_all("0123456789abcdef"); });
    testing::wait();
    EXPECT_EQ(written, 0U);
    sleep_for(1h);  // time goes on
    EXPECT_EQ(read_n(s, 6), "012345");
    testing::wait();
    EXPECT_EQ(written, 16U);
    EXPECT_EQ(read_n(s, 10), "6789abcdef");
    wg.wait();
    c.write_all("0123456789");
    c.set_write_deadline(clock::now() + 1s);
    std::error_code ec;
    EXPECT_EQ(c.write_all("x", ec), 0U);
    EXPECT_EQ(ec, errc::deadline_exceeded);
    EXPECT_EQ(clock::now() - start, 1h + 1s);
  });
}

TEST(MemoryNetwork, WhoClosesWithBytesUnreadResets) {
  in_network(1, delayed(1ms, 1ms), [] {
    auto [c, s] = tcp_pair();
    c.write_all("unread");
    sleep_for(2ms);
    s.write_all("lost with it");
    s.close();
    std::error_code ec;
    char b[10];
    c.read_some(b, ec);
    EXPECT_EQ(ec, std::errc::connection_reset);
    EXPECT_EQ(c.read_some(b, ec), 0U);  // told once
    EXPECT_EQ(text_of([&c = c] { c.write_all("x"); }), "write tcp " + c.local_addr().to_string() +
                                                           "->" + c.remote_addr().to_string() +
                                                           ": write: broken pipe");
  });
  in_network(1, delayed(1ms, 1ms), [] {  // and wakes a writer that waits for room
    auto [c, s] = tcp_pair();
    wait_group wg;
    wg.go([&c = c] {
      std::error_code ec;
      EXPECT_EQ(c.write_all(std::string(100'000, 'x'), ec), 65536U);
      EXPECT_EQ(ec, std::errc::connection_reset);
    });
    sleep_for(5ms);
    s.close();
    wg.wait();
  });
  in_network(1, delayed(1ms, 1ms), [] {
    auto [c, s] = tcp_pair();
    s.write_all("arrives");
    sleep_for(2ms);
    s.set_linger(0);
    s.close();
    sleep_for(2ms);
    EXPECT_EQ(one_read(c), "arrives");
    std::error_code ec;
    char b[10];
    c.read_some(b, ec);
    EXPECT_EQ(ec, std::errc::connection_reset);
  });
}

TEST(MemoryNetwork, AWriteToOneThatHasClosedIsABrokenPipe) {
  in_network(1, delayed(1ms, 1ms), [] {
    auto [c, s] = tcp_pair();
    s.close();
    std::error_code ec;
    EXPECT_EQ(read_to_end(c), "");
    c.write_all("it may still read", ec);  // for all that is known here
    EXPECT_FALSE(ec);
    sleep_for(1ms);
    c.write_all("under way", ec);
    EXPECT_FALSE(ec);
    sleep_for(1ms);
    c.write_all("x", ec);
    EXPECT_EQ(ec, std::errc::broken_pipe);
  });
}

TEST(MemoryNetwork, WritesResetByChance) {
  options o;
  o.resets = 1;
  in_network(1, o, [] {
    auto [c, s] = tcp_pair();
    std::error_code ec;
    c.write_all("x", ec);
    EXPECT_EQ(ec, std::errc::connection_reset);
    char b[1];
    s.read_some(b, ec);
    EXPECT_EQ(ec, std::errc::connection_reset);
    s.write_all("x", ec);
    EXPECT_EQ(ec, std::errc::broken_pipe);
    EXPECT_EQ(c.read_some(b, ec), 0U);  // one who only reads takes the stream to be whole
  });
}

TEST(MemoryNetwork, AUnixSocketWithoutANameGetsOne) {
  in_network(1, plain(), [] {
    const net::listener a = net::listen("unix", ""), b = net::listen("unix", "");
    EXPECT_EQ(a.addr().to_string(), "@00000");
    EXPECT_EQ(b.addr().to_string(), "@00001");
    EXPECT_EQ(net::dial("unix", b.addr()).remote_addr(), b.addr());
    const net::packet_conn to = net::listen_packet("unixgram", "@00002");
    const net::packet_conn from = net::listen_packet("unixgram", "");
    EXPECT_EQ(from.local_addr().to_string(), "@00003");  // the other is taken
    from.write_to("x", to.local_addr());
    std::array<char, 2> buf;
    EXPECT_EQ(to.read_from(buf).second, from.local_addr());
  });
}

TEST(MemoryNetwork, NobodyListens) {
  in_network(1, delayed(1ms, 1ms), [] {
    const auto start = clock::now();
    EXPECT_EQ(text_of([] { (void)net::dial("tcp", "127.0.0.1:1"); }),
              "dial tcp 127.0.0.1:1: connect: connection refused");
    EXPECT_EQ(clock::now() - start, 1ms);
    EXPECT_EQ(text_of([] { (void)net::dial("tcp", "db:1"); }),
              "dial tcp 10.0.0.2:1: connect: connection refused");
    EXPECT_EQ(text_of([] { (void)net::dial("unix", "/nowhere"); }),
              "dial unix /nowhere: connect: no such file or directory");
    EXPECT_EQ(text_of([] { (void)net::dial("unix", "@nowhere"); }),
              "dial unix @nowhere: connect: connection refused");
    EXPECT_EQ(text_of([] { (void)net::dial("unixpacket", "@nowhere"); }),
              "dial unixpacket @nowhere: connect: protocol not supported");
  });
}

// A deadline from outside is of another clock; it ends a dial by cancelling its context.
TEST(MemoryNetwork, DialUnderADeadlineOfTheRealClock) {
  const auto [ctx, cancel] = with_timeout(background(), 1h);
  in_network(1, plain(), [ctx = ctx] {
    const net::listener l = net::listen("tcp", "127.0.0.1:0");
    std::error_code ec;
    (void)net::dial(ctx, "tcp", l.addr(), ec);
    EXPECT_FALSE(ec) << ec.message();
  });
}

TEST(MemoryNetwork, TheBacklogIsResetWithItsListener) {
  in_network(1, plain(), [] {
    net::listener l = net::listen("tcp", "127.0.0.1:0");
    const net::conn c = net::dial("tcp", l.addr());
    l.close();
    std::error_code ec;
    char b[1];
    c.read_some(b, ec);
    EXPECT_EQ(ec, std::errc::connection_reset);
  });
}

TEST(MemoryNetwork, AnAddressIsTakenOnce) {
  in_network(1, plain(), [] {
    std::error_code ec;
    net::listener l = net::listen("tcp", "127.0.0.1:80");
    EXPECT_EQ(text_of([] { (void)net::listen("tcp", "127.0.0.1:80"); }),
              "listen tcp 127.0.0.1:80: bind: address already in use");
    (void)net::listen("tcp", ":80", ec);
    EXPECT_EQ(ec, std::errc::address_in_use);
    (void)net::listen("tcp4", ":80", ec);
    EXPECT_EQ(ec, std::errc::address_in_use);
    const net::listener six = net::listen("tcp6", ":80", ec);
    EXPECT_FALSE(ec);
    const net::listener six_alone = net::listen("tcp6", ":81");
    (void)net::listen("tcp", ":81", ec);  // both families, or none
    EXPECT_EQ(ec, std::errc::address_in_use);
    const net::listener other = net::listen("tcp", "db:80", ec);
    EXPECT_FALSE(ec);
    const net::packet_conn udp = net::listen_packet("udp", "127.0.0.1:80", ec);
    EXPECT_FALSE(ec);
    l.close();
    l = net::listen("tcp", "127.0.0.1:80", ec);
    EXPECT_FALSE(ec);
    const net::listener any = net::listen("tcp", ":0");
    EXPECT_NE(any.addr().port(), 0);
    const net::conn c = net::dial("tcp", any.addr());  // as Linux: the machine itself
    EXPECT_EQ(c.remote_addr().host(), "::1");
    const net::conn d = net::dial("tcp", "10.0.0.9:" + std::to_string(any.addr().port()));
    EXPECT_EQ(d.local_addr().host(), "10.0.0.1");
    const net::conn peer = any.accept(), peer2 = any.accept();
    EXPECT_EQ(peer.remote_addr(), c.local_addr());
    EXPECT_EQ(peer2.local_addr(), d.remote_addr());
  });
}

TEST(MemoryNetwork, Names) {
  in_network(1, plain(), [] {
    EXPECT_EQ(net::resolve("localhost", "80").at(0).to_string(), "127.0.0.1:80");
    EXPECT_EQ(net::resolve("db", "http").at(0).to_string(), "10.0.0.2:80");
    EXPECT_EQ(net::resolve("web.example", 443).at(0).to_string(), "10.0.0.3:443");
    EXPECT_EQ(net::resolve("db", 1).at(0).to_string(), "10.0.0.2:1");
    EXPECT_EQ(net::resolve("192.0.2.1", "https").at(0).to_string(), "192.0.2.1:443");
    std::error_code ec;
    EXPECT_TRUE(net::resolve("db", "nonsense", ec).empty());
    EXPECT_EQ(ec, net::errc::unknown_port);
    const net::listener db = net::listen("tcp", "db:5432");
    EXPECT_EQ(db.addr().to_string(), "10.0.0.2:5432");
    const net::conn c = net::dial("tcp", "db:5432");
    EXPECT_EQ(c.remote_addr().to_string(), "10.0.0.2:5432");
    EXPECT_EQ(c.local_addr().host(), "10.0.0.1");
    const net::conn s = db.accept();
    EXPECT_EQ(s.local_addr().to_string(), "10.0.0.2:5432");
    const net::listener six = net::listen("tcp6", "db:5432");
    EXPECT_EQ(six.addr().to_string(), "[fd00::2]:5432");
    EXPECT_EQ(net::dial("tcp6", "db:5432").local_addr().host(), "fd00::1");
    EXPECT_EQ(text_of([] { (void)net::dial("tcp", "127.0.0.1"); }),
              "dial tcp: address 127.0.0.1: missing port in address");
  });
}

TEST(MemoryNetwork, UnixSockets) {
  in_network(2, {}, [] {
    const net::listener l = net::listen("unix", "/run/db.sock");
    EXPECT_NE(::access("/run/db.sock", F_OK), 0);  // not in the file system
    const net::conn c = net::dial("unix", "/run/db.sock");
    const net::conn s = l.accept();
    EXPECT_EQ(c.remote_addr().to_string(), "/run/db.sock");
    EXPECT_EQ(c.local_addr().to_string(), "@");
    EXPECT_EQ(s.local_addr().to_string(), "/run/db.sock");
    c.write_all("hello");
    EXPECT_EQ(read_n(s, 5), "hello");
    std::error_code ec;
    c.set_no_delay(true, ec);
    EXPECT_EQ(ec, std::errc::operation_not_supported);
    s.close_read();
    c.write_all("x", ec);
    EXPECT_EQ(ec, std::errc::broken_pipe);
  });
}

TEST(MemoryNetwork, UnixDatagramsWaitForRoomAndKeepTheirOrder) {
  options o;
  o.window = 100;
  o.losses = 1;  // not theirs
  in_network(2, o, [] {
    const net::packet_conn to = net::listen_packet("unixgram", "/run/log");
    wait_group wg;
    for (int who = 0; who < 3; ++who) {
      wg.go([] {
        const net::conn c = net::dial("unixgram", "/run/log");
        for (int i = 0; i < 20; ++i)
          c.write_all(std::to_string(goid()) + std::string(19, 'x') + static_cast<char>('a' + i));
      });
    }
    std::map<char, std::string> got;
    char b[100];
    for (int i = 0; i < 60; ++i) {
      const auto [n, from] = to.read_from(b);
      got[b[0]] += b[n - 1];
    }
    wg.wait();
    for (const auto& [who, text] : got) EXPECT_EQ(text, "abcdefghijklmnopqrst") << who;
    std::error_code ec;
    to.write_to("x", net::address::unix_path("/run/none", ec), ec);
    EXPECT_EQ(ec, std::errc::no_such_file_or_directory);
    to.write_to(std::string(101, 'x'), to.local_addr(), ec);
    EXPECT_EQ(ec, std::errc::message_size);
  });
}

TEST(MemoryNetwork, DatagramsAreLostAndOvertake) {
  int lost = 0, overtaken = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    options o;
    o.losses = 0.2;
    in_network(seed, o, [&] {
      const net::packet_conn server = net::listen_packet("udp", ":53");
      const net::conn c = net::dial("udp", "dns:53");
      for (char i = 'a'; i <= 'j'; ++i) c.write_all(std::string(3, i));
      server.set_read_deadline(clock::now() + 1s);
      char b[2];
      char last = 0;
      for (int got = 0;; ++got) {
        std::error_code ec;
        const auto [n, from] = server.read_from(b, ec);
        if (ec) {
          EXPECT_EQ(ec, errc::deadline_exceeded);
          lost += 10 - got;
          break;
        }
        EXPECT_TRUE(n == 2 && b[0] == b[1]);  // cut, and the rest is gone
        EXPECT_EQ(from, c.local_addr());
        overtaken += b[0] < last ? 1 : 0;
        last = b[0];
      }
    });
  }
  EXPECT_GT(lost, 10);
  EXPECT_LT(lost, 100);
  EXPECT_GT(overtaken, 10);
}

TEST(MemoryNetwork, DatagramsAreAnswered) {
  in_network(1, {}, [] {
    const net::packet_conn server = net::listen_packet("udp", ":53");  // of any address
    const net::conn c = net::dial("udp", "dns:53");
    const net::packet_conn stranger = net::listen_packet("udp", "127.0.0.1:0");
    stranger.write_to("not for you", c.local_addr());
    c.write_all("question");
    char b[100];
    const auto [n, from] = server.read_from(b);
    EXPECT_EQ(std::string(b, n), "question");
    server.write_to("answer", from);
    EXPECT_EQ(one_read(c), "answer");
    c.write_all("");
    EXPECT_EQ(server.read_from(b).first, 0U);
    const net::packet_conn any = net::listen_packet("udp", ":0");
    any.write_to("to any", server.local_addr());
    EXPECT_EQ(server.read_from(b).second.host(), "::1");
    std::error_code ec;
    stranger.write_to("IPv6 from an IPv4 one", server.local_addr(), ec);
    EXPECT_EQ(ec, std::errc::address_family_not_supported);
    stranger.write_to(std::string(70'000, 'x'), c.local_addr(), ec);
    EXPECT_EQ(ec, std::errc::message_size);
    stranger.write_to("into the void", net::address::parse("10.1.1.1:1"), ec);
    EXPECT_FALSE(ec);
  });
}

TEST(MemoryNetwork, AReaderWithoutAWriterIsADeadlock) {
  goroutines_are_left_behind = true;
  EXPECT_THROW(in_network(1, {},
                          [] {
                            auto [c, s] = testing::pipe();
                            one_read(c);
                          }),
               testing::deadlock);
  EXPECT_THROW(in_network(1, {}, [] { (void)net::listen("tcp", ":1").accept(); }),
               testing::deadlock);
  // A handle from outside, whose reader never comes back.
  net::conn out;
  EXPECT_THROW(in_network(1, {},
                          [&] {
                            auto [c, s] = testing::pipe();
                            out = std::move(c);
                            one_read(out);
                          }),
               testing::deadlock);
}

TEST(MemoryNetwork, OutsideItsBubbleAConnCanOnlyBeClosed) {
  net::conn c, s;
  net::listener l;
  net::packet_conn p;
  const auto outside = [&] {
    std::error_code ec;
    char b[1];
    c.read_some(b, ec);
    EXPECT_EQ(ec, std::errc::operation_not_permitted);
    c.write_all("x", ec);
    EXPECT_EQ(ec, std::errc::operation_not_permitted);
    c.set_deadline(clock::now(), ec);
    EXPECT_EQ(ec, std::errc::operation_not_permitted);
    c.set_no_delay(true, ec);
    EXPECT_EQ(ec, std::errc::operation_not_permitted);
    (void)l.accept(ec);
    EXPECT_EQ(ec, std::errc::operation_not_permitted);
    p.write_to("x", p.local_addr(), ec);
    EXPECT_EQ(ec, std::errc::operation_not_permitted);
    EXPECT_EQ(c.fd(), -1);
  };
  in_network(1, {}, [&] {
    std::tie(c, s) = tcp_pair();
    l = net::listen("tcp", "127.0.0.1:99");
    p = net::listen_packet("udp", "127.0.0.1:99");
    std::thread(outside).join();  // while it is on
    c.write_all("unread");
    std::error_code ec;
    EXPECT_LT(c.dup(ec), 0);
    EXPECT_EQ(ec, std::errc::not_supported);
    EXPECT_EQ(c.fd(), -1);
  });
  outside();
  testing::bubble(1, outside);  // another one
  std::error_code ec;
  s.close(ec);
  EXPECT_FALSE(ec);
  s.close(ec);
  EXPECT_EQ(ec, errc::closed);
}

TEST(MemoryNetwork, ClosedByAThreadMeanwhile) {
  in_network(1, {}, [] {
    auto [c, s] = tcp_pair();
    std::thread([&c = c] { c.close(); }).join();
    std::error_code ec;
    s.write_all("x", ec);
    sleep_for(1s);
    EXPECT_EQ(read_to_end(s), "");
  });
}

// Nobody gives way with the network's lock: the thread that closes wants it, and the member that
// joins the thread keeps all others from running.
TEST(MemoryNetwork, ClosedByAThreadWhileOthersRead) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    in_network(seed, plain(), [seed] {
      auto [c, to_c] = testing::pipe();
      std::array<std::pair<net::conn, net::conn>, 3> others;
      wait_group wg;
      for (auto& ends : others) {
        ends = testing::pipe();
        wg.go([&] {
          std::error_code ec;
          char b[1];
          ends.first.read_some(b, ec);
        });
      }
      for (std::uint64_t i = 0; i < seed % 8; ++i) yield();  // some are on their way
      std::thread([&c = c] { c.close(); }).join();
      for (auto& ends : others) ends.second.close();
      wg.wait();
    });
  }
}

// Nor does anybody in close and its kin: those of real sockets do not park, and a caller may hold a
// lock of the thread's.
TEST(MemoryNetwork, CallsThatDoNotWaitDoNotGiveWay) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    in_network(seed, plain(), [] {
      auto [c, s] = tcp_pair();
      std::mutex of_the_thread;
      wait_group wg;
      for (int k = 0; k < 2; ++k) {
        wg.go([&, &c = c] {
          for (int i = 0; i < 100; ++i) {
            const std::lock_guard hold(of_the_thread);
            c.set_deadline(clock::time_point::max());
            c.set_no_delay(true);
          }
        });
      }
      wg.wait();
    });
  }
}

// Those in line for a socket that is closed outside stay there: nobody outside wakes one inside.
TEST(MemoryNetwork, ClosedByAThreadWithReadersInLine) {
  goroutines_are_left_behind = true;
  const auto read_in_line = [] {
    const auto ends = std::make_shared<decltype(tcp_pair())>(tcp_pair());
    for (int i = 0; i < 2; ++i) {
      go([ends] {
        std::error_code ec;
        char b[1];
        ends->first.read_some(b, ec);
      });
    }
    testing::wait();
    std::thread([ends] { ends->first.close(); }).join();
  };
  EXPECT_THROW(in_network(1, plain(), read_in_line), testing::deadlock);
}

TEST(MemoryNetwork, WhereThereMayBeOne) {
  EXPECT_THROW(testing::network(), std::logic_error);
  EXPECT_THROW((void)testing::pipe(), std::logic_error);
  testing::bubble(1, [] {
    EXPECT_THROW((void)testing::pipe(), std::logic_error);
    auto net = std::make_unique<testing::network>();
    EXPECT_THROW(testing::network(), std::logic_error);
    auto [c, s] = testing::pipe();
    net.reset();
    EXPECT_THROW((void)testing::pipe(), std::logic_error);
    c.write_all("goes on");
    EXPECT_EQ(read_n(s, 7), "goes on");
    const testing::network another;
    for (const auto& bad : {options{-1ns, 1ns}, options{2ns, 1ns}, options{0ns, 1ns, true, 1.1},
                            options{0ns, 1ns, true, 0, -0.1}, options{0ns, 1ns, true, 0, 0, 0}})
      EXPECT_THROW(testing::network{bad}, std::invalid_argument);
  });
}

TEST(MemoryNetwork, RemovedOutside) {
  std::unique_ptr<testing::network> net;
  testing::bubble(1, [&] {
    net = std::make_unique<testing::network>();
    std::thread([&] { net.reset(); }).join();
    EXPECT_THROW((void)testing::pipe(), std::logic_error);
    net = std::make_unique<testing::network>();
    (void)testing::pipe();
  });
  testing::bubble(1, [&] {
    EXPECT_THROW((void)testing::pipe(), std::logic_error);
    const testing::network mine;
    net.reset();  // the other's
    (void)testing::pipe();
  });
}

TEST(MemoryNetwork, AContextEndsADial) {
  in_network(1, delayed(1s, 1s), [] {
    const net::listener l = net::listen("tcp", "127.0.0.1:80");
    const auto start = clock::now();
    std::error_code ec;
    {
      auto [ctx, cancel] = with_timeout(background(), 300ms);
      (void)net::dial(ctx, "tcp", "127.0.0.1:80", ec);
      EXPECT_EQ(ec, errc::deadline_exceeded);
      EXPECT_EQ(clock::now() - start, 300ms);
      EXPECT_EQ(text_of([&ctx = ctx] { (void)net::dial(ctx, "tcp", "127.0.0.1:80"); }),
                "dial tcp 127.0.0.1:80: i/o timeout");
    }
    auto [ctx, cancel] = with_cancel(background());
    go([&cancel = cancel] {
      sleep_for(200ms);
      cancel();
    });
    (void)net::dial(ctx, "tcp", "127.0.0.1:80", ec);
    EXPECT_EQ(ec, errc::canceled);
    EXPECT_EQ(clock::now() - start, 500ms);
    auto [longer, cancel2] = with_timeout(background(), 2s);
    (void)net::dial(longer, "tcp", "127.0.0.1:80", ec);
    EXPECT_FALSE(ec);
    EXPECT_EQ(clock::now() - start, 1500ms);
  });
}

// Each request is tried until it is answered; the server counts an id once. Whatever is reset,
// every answer is right and nobody waits for ever.
TEST(MemoryNetwork, ASystemThatTriesAgainLosesNothing) {
  std::size_t resets = 0;
  const std::uint64_t seeds = by_effort(200, 20);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    options o;
    o.resets = 0.05;
    in_network(seed, o, [&] {
      const net::listener l = net::listen("tcp", "sum:1");
      std::set<std::string> seen;
      wait_group server, clients;
      server.go([&] {
        wait_group all;
        for (;;) {
          std::error_code ec;
          net::conn c = l.accept(ec);
          if (ec) break;
          all.go([&, c = std::move(c)] {
            std::error_code e;
            std::string id(3, '?');
            while (c.read_full(std::span<char>(id), e) == 3) {
              seen.insert(id);
              if (c.write_all("+" + id, e) != 4) break;
            }
            EXPECT_TRUE(!e || e == errc::unexpected_eof || e == std::errc::connection_reset ||
                        e == std::errc::broken_pipe)
                << e.message();
          });
        }
        all.wait();
      });
      for (char who = 'a'; who < 'd'; ++who) {
        clients.go([&, who] {
          net::conn c;
          for (int i = 10; i < 20;) {
            std::error_code ec;
            if (!c) c = net::dial("tcp", "sum:1");
            const std::string id = who + std::to_string(i);
            c.write_all(id, ec);
            std::string answer(4, '?');
            if (!ec) c.read_full(std::span<char>(answer), ec);
            if (ec) {
              ++resets;
              c = {};
              continue;
            }
            EXPECT_EQ(answer, "+" + id);
            ++i;
          }
        });
      }
      clients.wait();
      l.close();
      server.wait();
      EXPECT_EQ(seen.size(), 30U);
    });
  }
  EXPECT_GT(resets, seeds);
}

TEST(MemoryNetwork, WithoutOneTheNetworkIsTheMachines) {
  testing::bubble(1, [] {
    { const testing::network gone; }
    const net::listener l = net::listen("tcp", "127.0.0.1:0");
    EXPECT_GE(l.fd(), 0);
    wait_group wg;
    wg.go([&] {
      const net::conn s = l.accept();
      s.write_all("real");
    });
    const net::conn c = net::dial("tcp", l.addr());
    EXPECT_GE(c.fd(), 0);
    EXPECT_EQ(read_to_end(c), "real");
    wg.wait();
  });
}

// The machine's network answers when it comes to it. Until then, in both worlds: what was written
// to the other end has been taken there or refused; the other end's reset has come.
tcp_info told_by_kernel(const net::conn& c) {
  tcp_info info{};
  socklen_t size = sizeof info;
  EXPECT_EQ(::getsockopt(c.fd(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
  return info;
}
void await_reset(const net::conn& c) {
  if (c.fd() < 0) return sleep_for(20ms);
  EXPECT_TRUE(eventually([&] { return told_by_kernel(c).tcpi_state == TCP_CLOSE; }));
}
void await_answer(const net::conn& c) {
  if (c.fd() < 0) return sleep_for(20ms);
  if (c.remote_addr().is_unix()) return;  // has come with the call
  EXPECT_TRUE(eventually([&] {
    int unacknowledged = 0;
    return told_by_kernel(c).tcpi_state == TCP_CLOSE ||
           (::ioctl(c.fd(), TIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0);
  }));
}

// What both worlds must agree on, in words; ports are the machine's choice.
std::string behaviour() {
  std::string log;
  const auto note = [&](const std::string& line) {
    bool in_port = false;
    for (const char c : line) {
      const bool digit = c >= '0' && c <= '9';
      if (!in_port || !digit) log += c;
      in_port = c == ':' || (in_port && digit);
    }
    log += '\n';
  };
  const auto code = [&](const char* what, std::error_code ec, std::size_t n = 0) {
    note(std::string(what) + ' ' + std::to_string(n) + ' ' + ec.message());
  };
  std::error_code ec;
  char b[10];
  auto l = net::listen("tcp", "127.0.0.1:0");
  note("listener " + l.addr().to_string());
  note(text_of([&] { (void)net::listen("tcp", l.addr()); }));
  auto c = net::dial("tcp", l.addr());
  auto s = l.accept();
  note(c.remote_addr().to_string() + ' ' + c.local_addr().to_string());
  note(std::string(c.remote_addr() == s.local_addr() ? "same " : "other ") +
       (s.remote_addr() == c.local_addr() ? "same" : "other"));
  c.write_all("abc");
  std::size_t n = s.read_full(std::span(b, 3), ec);
  code("read_full", ec, n);
  n = s.read_some(std::span(b, 0), ec);
  code("nothing", ec, n);
  s.set_read_deadline(clock::now() - 1s);
  note(text_of([&] { (void)s.read_some(b); }));
  s.set_deadline(clock::time_point::max());
  c.write_all("xy");
  c.close_write();
  n = s.read_full(b, ec);
  code("cut short", ec, n);
  n = s.read_some(b, ec);
  code("the end", ec, n);
  n = c.write_all("z", ec);
  code("after close_write", ec, n);
  s.set_linger(0);
  s.close();
  n = c.read_full(b, ec);
  code("reset", ec, n);
  s.close(ec);
  code("twice", ec);
  note(text_of([&] { s.write_all("x"); }));
  const auto again = [&](const char* network, const net::address& to) {
    c = net::dial(network, to);
  };
  const auto read = [&](const char* what) {
    n = c.read_some(b, ec);
    code(what, ec, n);
  };
  const auto write = [&](const char* what) {
    n = c.write_all("x", ec);
    code(what, ec, n);
    await_answer(c);
  };
  again("tcp", l.addr());
  s = l.accept();
  s.close();
  read("closed, read");
  write("closed, first write");
  write("closed, write");
  read("closed, read again");
  again("tcp", l.addr());
  s = l.accept();
  s.set_linger(0);
  s.close();
  await_reset(c);
  read("reset, read");
  read("reset, read again");
  write("reset, write");
  again("tcp", l.addr());
  s = l.accept();
  s.set_linger(0);
  s.close();
  await_reset(c);
  write("reset, write first");
  read("reset, then read");
  write("reset, write again");
  again("tcp", l.addr());
  s = l.accept();
  s.close_write();
  read("the end before a reset");
  write("never read");
  s.close();
  await_reset(c);
  read("the end stays");
  write("and writes are");
  again("tcp", l.addr());
  s = l.accept();
  s.write_all("queued");
  await_answer(s);
  c.close_read();
  read("closed for reading");
  read("closed for reading, nothing");
  s.write_all("late");
  await_answer(s);
  read("closed for reading, late");
  l.close();
  note(text_of([&] { (void)l.accept(); }));
  note(text_of([&] { (void)net::dial("tcp", l.addr()); }));
  auto any = net::listen("tcp4", ":0");
  c = net::dial("tcp4", any.addr());
  note(any.addr().to_string() + ' ' + c.remote_addr().to_string());
  const auto p = net::listen_packet("udp", "127.0.0.1:0");
  const auto q = net::dial("udp", p.local_addr());
  q.write_all("0123456789abc");
  const auto [got, from] = p.read_from(b);
  note(std::string(b, got) + ' ' + from.to_string() +
       (from == q.local_addr() ? " same" : " other"));
  p.write_to("", from);
  n = q.read_some(b, ec);
  code("empty", ec, n);
  note(text_of([&] { (void)p.write_to("x", net::address()); }));
  const std::string name = "@weft-network-test-" + std::to_string(::getpid());
  const auto pu = net::listen_packet("unixgram", name + "-packets");
  const auto qu = net::dial("unixgram", pu.local_addr());
  qu.write_all("from nobody");
  const auto [got_u, from_u] = pu.read_from(b);
  note(std::string(b, got_u) + ' ' + from_u.to_string() + ' ' + std::to_string(from_u.size()));
  note(text_of([&] { (void)pu.write_to("x", net::address()); }));
  const auto u = net::listen("unix", name);
  note(text_of([&] { (void)net::listen("unix", name); }));
  c = net::dial("unix", name);
  s = u.accept();
  note(c.local_addr().to_string() + ' ' + c.remote_addr().to_string() + ' ' +
       s.local_addr().to_string() + ' ' + s.remote_addr().to_string());
  s.close();
  n = c.read_some(b, ec);
  code("unix end", ec, n);
  n = c.write_all("x", ec);
  code("unix pipe", ec, n);
  note(text_of([&] { c.set_no_delay(true); }));
  again("unix", u.addr());
  s = u.accept();
  write("unix, never read");
  s.close();
  c.close_write(ec);
  code("unix reset, close_write", ec);
  write("unix reset, write");
  read("unix reset, read");
  read("unix reset, read again");
  again("unix", u.addr());
  s = u.accept();
  s.set_linger(0);
  s.close();
  read("unix, linger");
  again("unix", u.addr());
  s = u.accept();
  s.write_all("queued");
  c.close_read();
  read("unix, closed for reading");
  read("unix, closed for reading, nothing");
  n = s.write_all("x", ec);
  code("unix, to one closed for reading", ec, n);
  note(text_of([] { (void)net::dial("tcp", "nonsense"); }));
  note(text_of([] { (void)net::listen("tcq", ":0"); }));
  note(text_of([] { (void)net::dial("tcp", "127.0.0.1:no-such-service"); }));
  return log;
}

TEST(MemoryNetwork, BehavesAsTheMachines) {
  std::string here, there;
  run_clean([&] { there = behaviour(); });
  in_network(1, plain(), [&] { here = behaviour(); });
  EXPECT_EQ(here, there);
}

TEST(MemoryNetwork, AThousandConnections) {
  const auto n = static_cast<int>(by_effort(1000, 100));
  in_network(1, {}, [n] {
    const net::listener l = net::listen("tcp", ":1");
    wait_group wg;
    wg.go([&] { serve_echo(l); });
    wait_group clients;
    for (int i = 0; i < n; ++i) {
      clients.go([i] {
        const net::conn c = net::dial("tcp", "any.host:1");
        const std::string text = std::to_string(i);
        c.write_all(text);
        EXPECT_EQ(read_n(c, text.size()), text);
      });
    }
    clients.wait();
    l.close();
    wg.wait();
  });
}

}  // namespace
}  // namespace weft::test
