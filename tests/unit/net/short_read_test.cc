// SPDX-License-Identifier: Apache-2.0
// A TCP socket that gave less than was asked for is not asked again before the poller has reported
// something (net/socket.h). Here is everything that comes without a report of its own, or whose
// report somebody else has used up: each read must end by itself, long before its deadline.
#include <algorithm>
#include <array>
#include <cstddef>
#include <gtest/gtest.h>
#include <random>
#include <span>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "support/effort.h"
#include "support/net.h"
#include "support/runtime.h"
#include "unit/sched/support.h"
#include "weft/go.hpp"
#include "weft/net.hpp"
#include "weft/sync.hpp"
#include "weft/time.hpp"

namespace weft::net_test {
namespace {

using namespace std::chrono_literals;
using net::conn;
using sched_test::run_on_each;
using test::connect_pair;
using test::connected;
using test::full_or;

constexpr auto long_before = 20s;

// One read into a buffer that is never filled: what came, or the error's text in <>.
std::string read(const conn& c) {
  std::array<char, 4096> b;
  std::error_code ec;
  const std::size_t n = c.read_some(std::as_writable_bytes(std::span(b)), ec);
  if (ec) return "<" + ec.message() + ">";
  return {b.data(), n};
}
void write(const conn& c, std::string_view s) { c.write_all(std::as_bytes(std::span(s))); }

// As goroutines at each number of Ps, and as a plain thread without a run.
template <class F>
void everywhere(F f) {
  run_on_each(f);
  std::thread(f).join();
}

connected pair() {
  connected p = connect_pair();
  p.server.set_deadline(test::in(long_before));
  return p;
}

// Until the kernel has n bytes for the reader: what is sent afterwards comes in a report of its
// own.
void await_bytes(const conn& c, int n) {
  ASSERT_TRUE(test::eventually([&] {
    int have = 0;
    return ::ioctl(c.fd(), FIONREAD, &have) == 0 && have >= n;
  }));
}

TEST(ShortRead, IsFollowedByWhatComesLater) {
  everywhere([] {
    connected p = pair();
    for (int i = 0; i < 100; ++i) {
      const std::string s = "message " + std::to_string(i);
      write(p.client, s);
      EXPECT_EQ(read(p.server), s);
    }
  });
}

TEST(ShortRead, EndThatCameWithTheBytes) {
  everywhere([] {
    for (int i = 0; i < full_or(200, 20); ++i) {
      connected p = pair();
      if (i % 2 != 0) {
        write(p.client, "first");
        EXPECT_EQ(read(p.server), "first");
      }
      write(p.client, "last");
      if (i % 3 == 0) await_bytes(p.server, 4);
      if (i % 5 != 0) {
        p.client.close_write();
      } else {
        p.client.close();
      }
      if (i % 7 == 0) sleep_for(1ms);
      EXPECT_EQ(read(p.server), "last");
      EXPECT_EQ(read(p.server), "");
      EXPECT_EQ(read(p.server), "");
    }
  });
}

TEST(ShortRead, EndWhileItWaits) {
  everywhere([] {
    connected p = pair();
    write(p.client, "x");
    EXPECT_EQ(read(p.server), "x");
    std::thread t([&] {
      ::usleep(2000);
      p.client.close();
    });
    EXPECT_EQ(read(p.server), "");
    t.join();
  });
}

TEST(ShortRead, Reset) {
  everywhere([] {
    for (int i = 0; i < 20; ++i) {
      connected p = pair();
      write(p.client, "x");
      EXPECT_EQ(read(p.server), "x");
      p.client.set_linger(0);
      p.client.close();
      if (i % 2 != 0) sleep_for(1ms);
      EXPECT_EQ(read(p.server), "<Connection reset by peer>");
      EXPECT_EQ(read(p.server), "");
    }
  });
}

TEST(ShortRead, OwnHalfClosed) {
  everywhere([] {
    connected p = pair();
    write(p.client, "x");
    EXPECT_EQ(read(p.server), "x");
    p.server.close_read();
    EXPECT_EQ(read(p.server), "");
  });
}

// The kernel stops a read at the mark, with bytes behind it.
TEST(ShortRead, UrgentData) {
  everywhere([] {
    for (int i = 0; i < 20; ++i) {
      connected p = pair();
      if (i % 2 != 0) {
        write(p.client, "0");
        EXPECT_EQ(read(p.server), "0");
      }
      write(p.client, "before");
      ASSERT_EQ(::send(p.client.fd(), "!", 1, MSG_OOB), 1);
      write(p.client, "behind");
      if (i % 3 == 0) sleep_for(1ms);
      std::string all;
      while (all.size() < 12) {
        const std::string s = read(p.server);
        ASSERT_FALSE(s.empty() || s[0] == '<') << all << s;
        all += s;
      }
      EXPECT_EQ(all, "beforebehind");
    }
  });
}

// A read whose time was up has used up the report of what came just then.
TEST(ShortRead, DeadlineAtTheSameTime) {
  everywhere([] {
    connected p = pair();
    int expired = 0;
    for (int i = 0; i < full_or(300, 50); ++i) {
      write(p.client, "x");
      EXPECT_EQ(read(p.server), "x");
      p.server.set_read_deadline(test::in(200us));
      std::thread t([&] {
        ::usleep(static_cast<unsigned>(100 + i % 50));
        write(p.client, "y");
      });
      std::string s = read(p.server);
      if (s != "y") {
        ++expired;
        p.server.set_read_deadline(test::in(long_before));
        s = read(p.server);
      }
      EXPECT_EQ(s, "y");
      t.join();
      p.server.set_read_deadline(test::in(long_before));
    }
    RecordProperty("expired", expired);
  });
}

TEST(ShortRead, OfNothingComesBackAtOnce) {
  everywhere([] {
    connected p = pair();
    write(p.client, "x");
    EXPECT_EQ(read(p.server), "x");
    std::error_code ec;
    EXPECT_EQ(p.server.read_some(std::span<std::byte>(), ec), 0U);
    EXPECT_FALSE(ec);
    write(p.client, "y");
    await_bytes(p.server, 1);
    EXPECT_EQ(p.server.read_some(std::span<std::byte>(), ec), 0U);  // takes no report away
    EXPECT_EQ(read(p.server), "y");
  });
}

TEST(ShortRead, ByOneWhoReadsAll) {
  everywhere([] {
    connected p = pair();
    write(p.client, "abc");
    std::thread t([&] {
      ::usleep(1000);
      write(p.client, "defgh");
    });
    std::string s(6, '\0');
    EXPECT_EQ(p.server.read_full(std::as_writable_bytes(std::span(s))), 6U);
    EXPECT_EQ(s, "abcdef");
    EXPECT_EQ(read(p.server), "gh");
    t.join();
    write(p.client, "i");
    p.client.close();
    std::string rest(5, '\0');
    std::error_code ec;
    EXPECT_EQ(p.server.read_full(std::as_writable_bytes(std::span(rest)), ec), 1U);
    EXPECT_EQ(ec, make_error_code(errc::unexpected_eof));
  });
}

// A reader that takes turns: goroutines, and plain threads, each from where the last one stopped.
TEST(ShortRead, ByGoroutinesAndThreadsInTurn) {
  run_on_each([] {
    connected p = pair();
    for (int i = 0; i < 50; ++i) {
      const std::string s = std::to_string(i);
      write(p.client, s);
      if (i % 2 == 0) {
        EXPECT_EQ(read(p.server), s);
      } else {
        std::thread([&] { EXPECT_EQ(read(p.server), s); }).join();
      }
    }
  });
}

constexpr std::size_t all = full_or(3'000'000, 300'000);
// Byte i of what the test below sends.
char nth(std::size_t i) { return static_cast<char>('a' + i % 23); }

// All of it, or what a slow machine comes to well before the deadline. How much.
std::size_t send_pieces(const conn& to, unsigned seed) {
  const auto end = test::steady::now() + long_before / 4;
  std::mt19937 r(seed);
  std::string s;
  std::size_t done = 0;
  for (; done < all && test::steady::now() < end; done += s.size()) {
    s.resize(std::min<std::size_t>(all - done, 1 + r() % 9000));
    for (std::size_t i = 0; i < s.size(); ++i) s[i] = nth(done + i);
    write(to, s);
    if (r() % 4 == 0) yield();
  }
  to.close_write();
  return done;
}

std::size_t receive_all(const conn& from) {
  std::size_t got = 0;
  for (;;) {
    const std::string s = read(from);
    if (s.empty()) return got;
    for (const char c : s) {
      if (c == nth(got++)) continue;
      ADD_FAILURE() << "byte " << got - 1 << " of " << s;
      return got;
    }
  }
}

// Pieces of any size at any moment, to the end, in both directions of several connections.
TEST(ShortRead, RandomPieces) {
  run_on_each([] {
    wait_group wg;
    for (unsigned i = 0; i < 4; ++i) {
      wg.go([i] {
        connected p = pair();
        p.client.set_deadline(test::in(long_before));
        std::size_t there = 0, back = 0, got_there = 0;
        wait_group others;
        others.go([&] { there = send_pieces(p.client, i); });
        others.go([&] { back = send_pieces(p.server, i + 100); });
        others.go([&] { got_there = receive_all(p.server); });
        const std::size_t got_back = receive_all(p.client);
        others.wait();
        EXPECT_EQ(got_there, there);
        EXPECT_EQ(got_back, back);
        EXPECT_GT(std::min(there, back), 0U);
      });
    }
    wg.wait();
  });
}

}  // namespace
}  // namespace weft::net_test
