// SPDX-License-Identifier: Apache-2.0
// The network under load: resets at every byte, storms of connections, closing against everything
// else, deadlines that change all the time. Goroutines and plain threads.
#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sched/netpoll.h"
#include "stress/support.h"
#include "support/net.h"
#include "weft/net.hpp"
#include "weft/sync.hpp"
#include "weft/time.hpp"

namespace weft::stress {
namespace {

// The poller's two, and for a moment one of sysmon's.
void expect_descriptors(int before) {
  EXPECT_TRUE(test::eventually([&] { return test::open_descriptors() <= before + 2; }))
      << test::open_descriptors() - before << " more";
}

using namespace std::chrono_literals;
using std::byte;
using test::connect_pair;
using test::connected;

class Net : public Procs {};

char at(std::size_t i) { return static_cast<char>('a' + i * 7 % 23); }

// The peer resets after k bytes, for each k: what was read before is right, and then comes the
// reset or the end, never a hang and never garbage.
TEST_P(Net, ResetAtEveryByte) {
  const int before = test::open_descriptors();
  test::run_clean(test::with_procs(procs()), [] {
    checker ok;
    constexpr std::size_t size = 200;
    const net::listener l = net::listen("tcp", "127.0.0.1:0");
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = at(i);
    for (std::size_t k = 0; k <= size; ++k) {
      wait_group wg;
      wg.go([&] {
        const net::conn c = l.accept();
        c.write_all(std::string_view(text).substr(0, k));
        c.set_linger(0);  // close resets
      });
      std::error_code ec;
      const net::conn c = net::dial("tcp", l.addr(), ec);  // may see the reset already
      std::array<char, 64> b;
      std::size_t got = 0;
      while (const std::size_t n = c ? c.read_some(b, ec) : 0) {
        for (std::size_t i = 0; i < n; ++i) ok(b[i] == at(got + i), "wrong byte");
        got += n;
      }
      ok(got <= k, "more than was sent");
      ok(!ec || ec == std::errc::connection_reset, "another error");
      wg.wait();
    }
    ok.report();
  });
  expect_descriptors(before);
}

TEST_P(Net, StormOfConnections) {
  const int before = test::open_descriptors();
  std::atomic<std::uint64_t> steps{0};
  watchdog dog(steps, "storm");
  test::run_clean(test::with_procs(procs()), [&] {
    checker ok;
    const std::int64_t end = nanotime() + duration_ns(0.4);
    const std::string at = test::own_address("storm");
    const net::listener l = net::listen("unix", at);
    wait_group servers, clients;
    for (int i = 0; i < 4; ++i) {
      servers.go([&] {
        std::error_code ec;
        for (;;) {
          net::conn c = l.accept(ec);
          if (ec) break;
          servers.go([&, c = std::move(c)] {
            std::array<char, 16> b;
            std::error_code e;
            if (c.read_full(std::span(b).first(5), e) == 5) c.write_all({b.data(), 5}, e);
          });
        }
        ok(ec == errc::closed, "accept ended otherwise");
      });
    }
    for (int i = 0; i < 16; ++i) {
      clients.go([&] {
        while (nanotime() < end || steps <= 100) {  // the watchdog ends it if they stall
          std::error_code ec;
          const net::conn c = net::dial("unix", at, ec);
          if (ec) {
            // A full queue says EAGAIN on Unix sockets.
            ok(ec == std::errc::resource_unavailable_try_again, "dial failed");
            yield();
            continue;
          }
          c.write_all("hello");
          std::array<char, 5> b;
          ok(c.read_full(std::span(b)) == 5 && b[4] == 'o', "wrong echo");
          ++steps;
        }
      });
    }
    clients.wait();
    l.close();
    servers.wait();
    ok.report();
  });
  expect_descriptors(before);
}

// Readers, writers, deadline setters and option setters on one connection that is closed under
// them.
TEST_P(Net, CloseAgainstEverything) {
  const int before = test::open_descriptors();
  std::atomic<std::uint64_t> steps{0};
  watchdog dog(steps, "close");
  test::run_clean(test::with_procs(procs()), [&] {
    checker ok;
    const std::int64_t end = nanotime() + duration_ns(0.4);
    for (std::uint32_t round = 1; nanotime() < end; ++round) {
      connected c = connect_pair();
      rt::random r(round);
      wait_group wg;
      const auto ended = [&](std::error_code ec) {
        return ec == errc::closed || ec == std::errc::broken_pipe ||
               ec == std::errc::connection_reset || ec == errc::deadline_exceeded;
      };
      const auto reader = [&, &c = c.client] {
        std::array<byte, 100> b;
        std::error_code ec;
        while (!ec && c.read_some(b, ec) != 0) {
        }
        ok(!ec || ended(ec), "read");
      };
      const auto writer = [&, &c = c.client] {
        std::array<byte, 300> b{};
        std::error_code ec;
        while (!ec) c.write_all(b, ec);
        ok(ended(ec), "write");
      };
      for (int i = 0; i < 2; ++i) {
        wg.go(reader);
        wg.go(writer);
      }
      event thread_done;
      std::thread t([&] {
        reader();
        thread_done.set();
      });
      wg.go([&, &c = c.client] {
        std::error_code ec;
        for (int i = 0; !ec; ++i) {
          c.set_deadline(clock::now() + 1s + std::chrono::microseconds(i), ec);
          c.set_no_delay(i % 2 == 0, ec);
          yield();
        }
        ok(ec == errc::closed, "set");
      });
      wg.go([&, &c = c.server] {  // the peer
        std::array<byte, 1000> b;
        std::error_code ec;
        while (!ec && c.read_some(b, ec) != 0) c.write_all(std::span(b).first(7), ec);
      });
      for (std::uint64_t i = r.next() % 20; i > 0; --i) yield();
      c.client.close();
      std::error_code second;
      c.client.close(second);
      ok(second == errc::closed, "second close");
      wg.wait();
      thread_done.wait();
      t.join();
      ++steps;
    }
    ok.report();
    EXPECT_EQ(rt::netpoll.waiters.load(), 0);
  });
  EXPECT_GT(steps, 0U);
  expect_descriptors(before);
}

// Messages go round a ring of connections; every wait must be woken.
TEST_P(Net, RingOfConnections) {
  std::atomic<std::uint64_t> steps{0};
  watchdog dog(steps, "ring");
  test::run_clean(test::with_procs(procs()), [&] {
    constexpr std::size_t links = 20;
    const std::int64_t end = nanotime() + duration_ns(0.4);
    std::vector<connected> all;
    for (std::size_t i = 0; i < links; ++i) all.push_back(connect_pair());
    wait_group wg;
    for (std::size_t i = 0; i < links; ++i) {
      wg.go([&, i] {
        std::array<byte, 8> b;
        std::error_code ec;
        const net::conn& from = all[i].server;
        const net::conn& to = all[(i + 1) % links].client;
        while (from.read_full(b, ec) == b.size()) {
          ++steps;
          to.write_all(b, ec);
        }
        to.close_write(ec);
      });
    }
    for (std::size_t i = 0; i < links; i += 4) all[i].client.write_all("message!");
    do {
      sleep_for(std::chrono::nanoseconds(std::max(end - nanotime(), ms)));
    } while (steps <= 1000);  // the watchdog ends it if they stall
    all[0].client.close_write();
    wg.wait();
  });
}

WEFT_STRESS_PROCS(Net);

}  // namespace
}  // namespace weft::stress
