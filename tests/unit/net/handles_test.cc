// SPDX-License-Identifier: Apache-2.0
// What holds for all handles that can be moved: to itself too. And what a buffer is made of: an
// empty pair of braces, characters of all kinds.
#include <array>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/net.h"
#include "unit/sched/support.h"
#include "weft/weft.hpp"

namespace weft {
namespace {

using namespace std::chrono_literals;
using test::connect_pair;
using test::connected;

// As std::sort or a loop over indices may; written so that the compiler does not warn of it.
template <class T>
void move_to_itself(T& x) {
  T& same = x;
  x = std::move(same);
}

TEST(Handles, DescriptorsMovedToThemselves) {
  connected p = connect_pair();
  net::listener l = net::listen("tcp", "127.0.0.1:0");
  net::packet_conn u = net::listen_packet("udp", "127.0.0.1:0");
  auto [r, w] = file::pipe();
  const int numbers[] = {p.client.fd(), l.fd(), u.fd(), r.fd()};
  const int before = test::open_descriptors();
  move_to_itself(p.client);
  move_to_itself(l);
  move_to_itself(u);
  move_to_itself(r);
  EXPECT_EQ(test::open_descriptors(), before);
  EXPECT_EQ(p.client.fd(), numbers[0]);
  EXPECT_EQ(l.fd(), numbers[1]);
  EXPECT_EQ(u.fd(), numbers[2]);
  EXPECT_EQ(r.fd(), numbers[3]);

  p.server.write_all("hello");
  char b[5] = {};
  EXPECT_EQ(p.client.read_full(b), 5U);
  EXPECT_EQ(std::string_view(b, 5), "hello");
  w.write_all("x");
  EXPECT_EQ(r.read_some(b), 1U);
  const net::conn c = net::dial("tcp", l.addr());
  EXPECT_TRUE(l.accept());
  EXPECT_EQ(u.write_to("y", u.local_addr()), 1U);
}

TEST(Handles, AssignmentClosesWhatWasThere) {
  connect_pair();  // opens the poller
  const int before = test::open_descriptors();
  {
    connected p = connect_pair(), q = connect_pair();
    const int kept = q.client.fd();
    p.client = std::move(q.client);
    EXPECT_FALSE(q.client);
    EXPECT_EQ(p.client.fd(), kept);
    char b[1];
    EXPECT_EQ(p.server.read_some(b), 0U);  // its peer is gone
    file f = file::open("/dev/null"), g = file::open("/dev/null");
    const int old = f.fd();
    f = std::move(g);
    EXPECT_EQ(::fcntl(old, F_GETFD), -1);
    p.client = net::conn();
    EXPECT_EQ(q.server.read_some(b), 0U);
  }
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST(Handles, SharedOnesMovedToThemselves) {
  sched_test::run_on_each([] {
    chan<int> c(1);
    send_chan<int> s = c;
    recv_chan<int> r = c;
    move_to_itself(c);
    move_to_itself(s);
    move_to_itself(r);
    ASSERT_TRUE(c && c == s && c == r);
    s.send(1);
    EXPECT_EQ(r.recv(), 1);

    timer t(1h);
    move_to_itself(t);
    ASSERT_TRUE(t.c);
    EXPECT_TRUE(t.reset(1ms));
    EXPECT_TRUE(t.c.recv());
    ticker k(1ms);
    move_to_itself(k);
    ASSERT_TRUE(k.c);
    EXPECT_TRUE(k.c.recv());
    k.stop();

    auto [ctx, cancel] = with_cancel(background());
    int ran = 0;
    stop_fn f = after_cancel(ctx, [&ran] { ++ran; });
    move_to_itself(ctx);
    move_to_itself(cancel);
    move_to_itself(f);
    ASSERT_TRUE(ctx);
    cancel();
    f.wait();
    EXPECT_EQ(ran, 1);
    EXPECT_EQ(ctx.err(), errc::canceled);

    auto task = async([] { return 3; });
    move_to_itself(task);
    ASSERT_TRUE(task.valid());
    EXPECT_EQ(task.get(), 3);
    promise<int> p;
    auto from = p.get_task();
    move_to_itself(p);
    EXPECT_FALSE(from.done());
    p.set_value(4);
    EXPECT_EQ(from.get(), 4);

    selector sel;
    sel.recv(r).otherwise();
    move_to_itself(sel);
    EXPECT_EQ(sel.size(), 2U);
    EXPECT_EQ(sel.wait(), 1);
    selector other;
    other = std::move(sel);
    s.send(2);
    EXPECT_EQ(other.wait(), 0);
  });
}

TEST(Handles, SignalsMovedToThemselves) {
  signals s({SIGUSR2}), of_nothing({SIGWINCH});
  move_to_itself(s);
  ASSERT_TRUE(s.c);
  ::kill(::getpid(), SIGUSR2);
  EXPECT_EQ(s.c.recv(), SIGUSR2);
  of_nothing = std::move(s);
  ::kill(::getpid(), SIGUSR2);
  EXPECT_EQ(of_nothing.c.recv(), SIGUSR2);
}

TEST(Handles, EmptyBracesAreAnEmptyBuffer) {
  std::error_code ec;
  const connected p = connect_pair();
  EXPECT_EQ(p.client.read_some({}), 0U);
  EXPECT_EQ(p.client.read_some({}, ec), 0U);
  EXPECT_EQ(p.client.read_full({}), 0U);
  EXPECT_EQ(p.client.read_full({}, ec), 0U);
  EXPECT_EQ(p.client.write_some({}), 0U);
  EXPECT_EQ(p.client.write_some({}, ec), 0U);
  EXPECT_EQ(p.client.write_all({}), 0U);
  EXPECT_EQ(p.client.write_all({}, ec), 0U);
  EXPECT_FALSE(ec);
  const auto [r, w] = file::pipe();
  EXPECT_EQ(r.read_some({}), 0U);
  EXPECT_EQ(w.write_all({}), 0U);
  EXPECT_EQ(w.write_all({}, ec), 0U);
  const file f = file::open("/dev/null", O_RDWR);
  EXPECT_EQ(f.read_at({}, 0), 0U);
  EXPECT_EQ(f.write_at({}, 0), 0U);
  const net::packet_conn u = net::listen_packet("udp", "127.0.0.1:0");
  EXPECT_EQ(u.write_to({}, u.local_addr()), 0U);
  EXPECT_EQ(u.read_from({}).first, 0U);

  // What else a buffer is made of.
  char c[4] = {'a', 'b', 'c', 'd'};
  std::byte b[4];
  const std::string text = "efgh";
  EXPECT_EQ(p.client.write_all({c, 2}), 2U);
  EXPECT_EQ(p.server.read_full({b, 2}), 2U);
  EXPECT_EQ(p.client.write_all({text.data(), 4}), 4U);
  EXPECT_EQ(p.server.read_full({c, 4}), 4U);
  EXPECT_EQ(std::string_view(c, 4), text);
  const net::const_buffer two[] = {{b, 1}, {b, 3}};
  EXPECT_EQ(p.client.write_all(two), 4U);
  EXPECT_EQ(p.client.write_all({two, 1}), 1U);
  EXPECT_EQ(p.server.read_full({c, 4}), 4U);
  EXPECT_EQ(p.server.read_full({c, 1}), 1U);
}

// write(chars) for each kind of characters, three each time.
template <class Write>
std::size_t write_every_kind(Write write) {
  std::vector<char> v = {'a', 'b', 'c'};
  std::array<char, 3> a = {'a', 'b', 'c'};
  std::string s = "abc";
  char literal[] = "abc";
  const std::vector<char>& cv = v;
  const std::array<char, 3>& ca = a;
  const std::string& cs = s;
  const char* cp = literal;
  std::size_t kinds = 0;
  const auto each = [&](auto&& chars) {
    ++kinds;
    EXPECT_EQ(write(chars), 3U);
  };
  each(v);
  each(cv);
  each(std::vector<char>(v));
  each(a);
  each(ca);
  each(std::span<char>(v));
  each(std::span<const char>(v));
  each(std::span<const char, 3>(a));
  each(s);
  each(cs);
  each(std::string_view(s));
  each(literal);
  each(cp);
  each("abc");
  return kinds;
}

std::string repeated(std::size_t n) {
  std::string s;
  while (n-- > 0) s += "abc";
  return s;
}

TEST(Handles, CharactersOfAllKindsAreWritten) {
  std::error_code ec;
  const connected p = connect_pair();
  std::size_t n = write_every_kind([&](auto& c) { return p.client.write_all(c); });
  n += write_every_kind([&](auto& c) { return p.client.write_all(c, ec); });
  std::string got(3 * n, '\0');
  EXPECT_EQ(p.server.read_full(got), got.size());
  EXPECT_EQ(got, repeated(n));

  const auto [r, w] = file::pipe();
  n = write_every_kind([&w = w](auto& c) { return w.write_all(c); });
  n += write_every_kind([&w = w, &ec](auto& c) { return w.write_all(c, ec); });
  EXPECT_EQ(r.read_some(got), got.size());
  EXPECT_EQ(got, repeated(n));

  char name[] = "/tmp/weft_handles_XXXXXX";
  const file f = file::adopt(::mkostemp(name, O_CLOEXEC), name);
  ::unlink(name);
  std::int64_t at = 0;
  n = write_every_kind([&](auto& c) { return f.write_at(c, 3 * at++); });
  n += write_every_kind([&](auto& c) { return f.write_at(c, 3 * at++, ec); });
  EXPECT_EQ(f.read_at(got, 0), got.size());
  EXPECT_EQ(got, repeated(n));

  const net::packet_conn u = net::listen_packet("udp", "127.0.0.1:0");
  const net::address me = u.local_addr();
  n = write_every_kind([&](auto& c) { return u.write_to(c, me); });
  n += write_every_kind([&](auto& c) { return u.write_to(c, me, ec); });
  for (; n > 0; --n) EXPECT_EQ(u.read_from(got).first, 3U);
  EXPECT_FALSE(ec);
}

TEST(Handles, DatagramsIntoCharactersOfAllKinds) {
  const net::packet_conn u = net::listen_packet("udp", "127.0.0.1:0");
  const auto read = [&](auto&& into) {
    std::error_code ec;
    u.write_to("abc", u.local_addr());
    EXPECT_EQ(u.read_from(into).first, 3U);
    u.write_to("abc", u.local_addr());
    EXPECT_EQ(u.read_from(into, ec).second, u.local_addr());
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(std::data(into)), 3), "abc");
  };
  char c[8];
  std::byte b[8];
  read(c);
  read(b);
  read(std::array<char, 8>());
  read(std::vector<char>(8));
  read(std::vector<std::byte>(8));
  read(std::string(8, '\0'));
  read(std::span<char>(c));
  u.write_to({c, 3}, u.local_addr());
  EXPECT_EQ(u.read_from({c, 8}).first, 3U);
}

}  // namespace
}  // namespace weft
