// SPDX-License-Identifier: Apache-2.0
// NET: the poller, deadlines, closing, dialling; one section an id. Long because each id asks for
// several networks and directions.
#include <array>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "net/fd_mutex.h"
#include "sched/netpoll.h"
#include "support/net.h"
#include "support/runtime.h"
#include "weft/chan.hpp"
#include "weft/net.hpp"
#include "weft/sync.hpp"
#include "weft/time.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
using std::byte;

TEST(Conformance, NET_01_break_ends_a_long_poll) {
  // Outside a run nobody else polls, but a break may be taken by an M of an earlier run.
  const net::listener opens_the_poller = net::listen("tcp", "127.0.0.1:0");
  std::atomic<bool> out{false};
  const auto begin = clock::now();
  std::thread t([&] {
    (void)rt::poll_block(rt::nanotime() + 10'000'000'000);
    out = true;
  });
  while (!out && clock::now() - begin < 20s) {
    rt::poll_interrupt();
    std::this_thread::sleep_for(1ms);
  }
  t.join();
  EXPECT_LT(clock::now() - begin, 5s);
}

TEST(Conformance, NET_02_no_waiters_left_after_an_exchange) {
  run_clean([] {
    connected c = connect_pair();
    wait_group wg;
    wg.go([&] {
      std::array<byte, 5> b;
      for (int i = 0; i < 10; ++i) {
        c.server.read_full(b);
        c.server.write_all(b);
      }
    });
    std::array<byte, 5> b;
    for (int i = 0; i < 10; ++i) {
      c.client.write_all("hello");
      c.client.read_full(b);
    }
    wg.wait();
    EXPECT_EQ(rt::netpoll.waiters.load(), 0);
  });
}

TEST(Conformance, NET_02_a_thread_blocked_before_main_is_no_deadlock) {
  connected c = connect_pair();
  std::atomic<bool> done{false};
  std::thread before([&] {
    std::array<byte, 1> b;
    std::error_code ec;
    EXPECT_EQ(c.client.read_some(b, ec), 0U);
    EXPECT_EQ(ec, errc::closed);
    done = true;
  });
  run_clean([&] {
    chan<void> never_sent;
    EXPECT_EQ(never_sent.recv_for(20ms), recv_status::timeout);
    EXPECT_FALSE(done);
    c.client.close();
    EXPECT_TRUE(eventually([&] { return done.load(); }));
  });
  before.join();
}

TEST(Conformance, NET_03_a_past_deadline_fails_at_once_and_goes_on_failing) {
  run_clean([] {
    connected c = connect_pair();
    const net::listener l = net::listen("tcp", "127.0.0.1:0");
    const net::packet_conn u = net::listen_packet("udp", "127.0.0.1:0");
    const net::conn waiting = net::dial("tcp", l.addr());  // a connection is ready
    c.server.write_all("data");                            // data is ready
    u.write_to("data", u.local_addr());
    sleep_for(5ms);
    const auto past = in(-5s);
    c.client.set_deadline(past);
    l.set_deadline(past);
    u.set_deadline(past);
    for (int i = 0; i < 3; ++i) {
      std::array<byte, 8> b;
      std::error_code ec;
      EXPECT_EQ(c.client.read_some(b, ec), 0U);
      EXPECT_EQ(ec, errc::deadline_exceeded);
      EXPECT_EQ(c.client.write_all("x", ec), 0U);
      EXPECT_EQ(ec, errc::deadline_exceeded);
      EXPECT_FALSE(l.accept(ec));
      EXPECT_EQ(ec, errc::deadline_exceeded);
      EXPECT_EQ(u.read_from(b, ec).first, 0U);
      EXPECT_EQ(ec, errc::deadline_exceeded);
      EXPECT_EQ(u.write_to("x", u.local_addr(), ec), 0U);
      EXPECT_EQ(ec, errc::deadline_exceeded);
    }
    const std::string where =
        c.client.local_addr().to_string() + "->" + c.client.remote_addr().to_string();
    std::array<byte, 8> b;
    EXPECT_EQ(text_of([&] { c.client.read_some(b); }), "read tcp " + where + ": i/o timeout");
    EXPECT_EQ(text_of([&] { c.client.write_all("x"); }), "write tcp " + where + ": i/o timeout");
    EXPECT_EQ(text_of([&] { l.accept(); }), "accept tcp " + l.addr().to_string() + ": i/o timeout");
  });
}

TEST(Conformance, NET_03_a_future_deadline_lets_ready_data_through_first) {
  run_clean([] {
    for (const auto d : {50ms, 10ms}) {
      connected c = connect_pair();
      c.server.write_all("data");
      sleep_for(2ms);
      const auto until = in(d);
      c.client.set_read_deadline(until);
      std::array<byte, 4> b;
      std::error_code ec;
      while (c.client.read_some(b, ec) != 0) EXPECT_FALSE(ec);
      EXPECT_EQ(ec, errc::deadline_exceeded);
      EXPECT_EQ(ec, std::errc::timed_out);
      EXPECT_GE(clock::now(), until);
      c.client.set_read_deadline(clock::time_point::max());
      c.server.write_all("more");
      EXPECT_EQ(c.client.read_full(b), 4U);
    }
  });
}

// Not before its time, and for some d not more than a tenth of it late.
template <class F>
void fluctuation(F timed_out_call) {
  for (auto d = 1ms; d <= 4s; d *= 2) {
    const auto begin = clock::now();
    timed_out_call(begin + d);
    const auto took = clock::now() - begin;
    EXPECT_GE(took, d);
    if (took <= d + d / 10) return;
  }
  ADD_FAILURE() << "no deadline was met";
}

TEST(Conformance, NET_05_time_outs_come_neither_early_nor_late) {
  run_clean([] {
    connected c = connect_pair();
    std::array<byte, 1> b;
    std::error_code ec;
    fluctuation([&](auto until) {
      c.client.set_read_deadline(until);
      c.client.read_some(b, ec);
      EXPECT_EQ(ec, errc::deadline_exceeded);
    });
    const std::vector<byte> much(1 << 20);
    fluctuation([&](auto until) {
      c.client.set_write_deadline(until);
      do {
        c.client.write_all(much, ec);
      } while (!ec);
      EXPECT_EQ(ec, errc::deadline_exceeded);
    });
    const net::packet_conn u = net::listen_packet("udp", "127.0.0.1:0");
    fluctuation([&](auto until) {
      u.set_read_deadline(until);
      u.read_from(b, ec);
      EXPECT_EQ(ec, errc::deadline_exceeded);
    });
  });
}

void various_deadlines(int procs) {
  run_clean(procs == 0 ? config::from_env() : with_procs(procs), [] {
    connected c = connect_pair();
    // A peer that never stops sending; only deadlines end the reading.
    wait_group wg;
    wg.go([&] {
      const std::vector<byte> b(4096);
      std::error_code ec;
      while (!ec) c.server.write_all(b, ec);
    });
    constexpr std::chrono::nanoseconds all[] = {1ns,   2ns,   5ns,   50ns,  100ns, 200ns, 500ns,
                                                750ns, 1us,   5us,   25us,  250us, 500us, 1ms,
                                                5ms,   100ms, 250ms, 500ms, 1s};
    for (const auto d : all) {
      for (int i = 0; i < 3; ++i) {
        if (d >= 250ms && i > 0) break;  // the long ones once: they only cost time
        std::vector<byte> b(8192);
        std::error_code ec;
        const auto until = in(d);
        c.client.set_read_deadline(until);
        while (!ec) c.client.read_some(b, ec);
        EXPECT_EQ(ec, errc::deadline_exceeded) << d.count();
        EXPECT_GE(clock::now(), until);
      }
    }
    c.client.close();
    wg.wait();
  });
}
TEST(Conformance, NET_06_various_deadlines) { various_deadlines(0); }
TEST(Conformance, NET_06_various_deadlines_1_proc) { various_deadlines(1); }
TEST(Conformance, NET_06_various_deadlines_4_procs) { various_deadlines(4); }

TEST(Conformance, NET_06_extreme_deadlines) {
  run_clean([] {
    connected c = connect_pair();
    std::array<byte, 1> b;
    std::error_code ec;
    // As far away as can be is not past, in any clock's units.
    const clock::time_point far{clock::duration(INT64_MAX - 1)};
    c.client.set_read_deadline(far);
    c.server.write_all("x");
    EXPECT_EQ(c.client.read_some(b, ec), 1U);
    using hours = std::chrono::time_point<std::chrono::steady_clock, std::chrono::hours>;
    c.client.set_read_deadline(hours(std::chrono::hours(INT64_MAX / 2)));
    c.server.write_all("x");
    EXPECT_EQ(c.client.read_some(b, ec), 1U);
    // The most negative one is past.
    c.client.set_read_deadline(clock::time_point::min());
    EXPECT_EQ(c.client.read_some(b, ec), 0U);
    EXPECT_EQ(ec, errc::deadline_exceeded);
    // A context's, as far: the dial goes through.
    const net::listener l = net::listen("tcp", "127.0.0.1:0");
    const auto [ctx, cancel] = with_timeout(background(), std::chrono::nanoseconds(INT64_MAX));
    EXPECT_TRUE(net::dial(ctx, "tcp", l.addr().to_string()));
    cancel();
  });
}

TEST(Conformance, NET_09_the_peers_close_ends_a_blocked_read) {
  run_clean([] {
    connected c = connect_pair();
    wait_group wg;
    wg.go([&] {
      std::array<byte, 1> b;
      EXPECT_EQ(c.client.read_some(b), 0U);  // the end, no error
    });
    EXPECT_TRUE(eventually([] { return rt::netpoll.waiters.load() == 1; }));
    c.server.close();
    wg.wait();
  });
}

TEST(Conformance, NET_09_closing_ones_own_socket_unblocks) {
  run_clean([] {
    const net::packet_conn u = net::listen_packet("udp", "127.0.0.1:0");
    wait_group wg;
    wg.go([&] {
      std::array<byte, 1> b;
      std::error_code ec;
      EXPECT_EQ(u.read_from(b, ec).first, 0U);
      EXPECT_EQ(ec, errc::closed);
    });
    sleep_for(250ms);
    u.close();
    wg.wait();
    connected c = connect_pair();
    wg.go([&] {
      const std::vector<byte> much(1 << 20);
      std::error_code ec;
      while (!ec) c.client.write_all(much, ec);
      EXPECT_EQ(ec, errc::closed);
      EXPECT_EQ(ec.message(), "use of closed network connection");
    });
    sleep_for(20ms);
    c.client.close();
    wg.wait();
  });
}

TEST(Conformance, NET_09_the_end_comes_after_all_lines) {
  run_clean([] {
    connected c = connect_pair("unix", "@weft-net-09");
    wait_group wg;
    constexpr int lines = 1000;
    wg.go([&] {
      for (int i = 0; i < lines; ++i) c.client.write_all("a line of text\n");
      c.client.close();
    });
    std::size_t got = 0;
    std::array<byte, 333> b;
    while (const std::size_t n = c.server.read_some(b)) got += n;
    EXPECT_EQ(got, lines * std::string_view("a line of text\n").size());
    wg.wait();
  });
}

using detail::fd_mutex;
using rt::poll_mode;

TEST(Conformance, NET_10_operations_after_close_fail) {
  fd_mutex mu;
  EXPECT_TRUE(mu.close());
  EXPECT_TRUE(mu.leave());  // the last user
  EXPECT_FALSE(mu.enter());
  EXPECT_FALSE(mu.close());
  EXPECT_FALSE(mu.lock(poll_mode::read));
  EXPECT_FALSE(mu.lock(poll_mode::write));
}

TEST(Conformance, NET_10_the_last_user_does_the_real_close) {
  fd_mutex mu;
  EXPECT_TRUE(mu.lock(poll_mode::read));
  EXPECT_TRUE(mu.lock(poll_mode::write));
  EXPECT_TRUE(mu.enter());
  EXPECT_TRUE(mu.close());
  EXPECT_FALSE(mu.leave());
  EXPECT_FALSE(mu.unlock(poll_mode::read));
  EXPECT_FALSE(mu.unlock(poll_mode::write));
  EXPECT_TRUE(mu.leave());
}

TEST(Conformance, NET_10_close_wakes_four_queued_readers) {
  run_clean([] {
    fd_mutex mu;
    ASSERT_TRUE(mu.lock(poll_mode::read));
    wait_group wg;
    std::atomic<int> started{0};
    for (int i = 0; i < 4; ++i) {
      wg.go([&] {
        ++started;
        EXPECT_FALSE(mu.lock(poll_mode::read));
      });
    }
    EXPECT_TRUE(eventually([&] { return started == 4; }));
    sleep_for(5ms);
    EXPECT_TRUE(mu.close());
    EXPECT_FALSE(mu.leave());
    wg.wait();
    EXPECT_TRUE(mu.unlock(poll_mode::read));
  });
}

TEST(Conformance, NET_10_unbalanced_use_throws) {
  const auto thrown = [](auto f) { return text_of(f) != "nothing thrown"; };
  EXPECT_TRUE(thrown([] { fd_mutex().leave(); }));
  EXPECT_TRUE(thrown([] { fd_mutex().unlock(poll_mode::read); }));
  EXPECT_TRUE(thrown([] { fd_mutex().unlock(poll_mode::write); }));
  EXPECT_TRUE(thrown([] {
    fd_mutex mu;
    mu.lock(poll_mode::read);
    mu.unlock(poll_mode::write);
  }));
  EXPECT_TRUE(thrown([] {
    fd_mutex mu;
    mu.enter();
    mu.leave();
    mu.leave();
  }));
}

TEST(Conformance, NET_10_too_many_users_throw) {
  fd_mutex mu;
  for (int i = 0; i < 1'048'575; ++i) ASSERT_TRUE(mu.enter());
  const std::string text =
      "too many concurrent operations on a single file or socket (max 1048575)";
  EXPECT_EQ(text_of([&] { mu.enter(); }), text);
  EXPECT_EQ(text_of([&] { mu.lock(poll_mode::read); }), text);
  // But it can be closed: the destructor does, and must not throw.
  EXPECT_TRUE(mu.close());
  EXPECT_FALSE(mu.close());
  EXPECT_FALSE(mu.enter());
  EXPECT_FALSE(mu.lock(poll_mode::write));
  for (int i = 0; i < 1'048'575; ++i) ASSERT_FALSE(mu.leave());
  EXPECT_TRUE(mu.leave());
}

TEST(Conformance, NET_10_readers_and_writers_exclude_their_own_kind_only) {
  run_clean(at_least_procs(2), [] {
    const int ops = full_or(1'000'000, 20'000) / (num_cpu() < 4 ? 10 : 1);
    fd_mutex mu;
    std::uint64_t guarded[2] = {0, 0}, read_as[2] = {0, 0};
    std::atomic<bool> bad{false};
    std::atomic<int> beside{0}, in_other[2] = {0, 0};
    wait_group wg;
    for (std::uint32_t p = 0; p < 8; ++p) {
      wg.go([&, p] {
        rt::random r(p + 1);
        for (int i = 0; i < ops; ++i) {
          const auto what = r.next() % 3;
          if (what == 2) {
            if (!mu.enter() || mu.leave()) bad = true;
            continue;
          }
          if (!mu.lock(static_cast<poll_mode>(what))) bad = true;
          in_other[what].store(1);
          if (in_other[1 - what].load() != 0) ++beside;
          if (guarded[what] != read_as[what]) bad = true;
          ++guarded[what];
          if (i % 64 == 0) yield();
          ++read_as[what];
          in_other[what].store(0);
          if (mu.unlock(static_cast<poll_mode>(what))) bad = true;
        }
      });
    }
    wg.wait();
    EXPECT_FALSE(bad);
    EXPECT_GT(beside, 0);  // a reader and a writer were in at once
    EXPECT_TRUE(mu.close());
    EXPECT_TRUE(mu.leave());
  });
}

TEST(Conformance, NET_12_ten_acceptors_serve_a_hundred_dials) {
  run_clean([] {
    const net::listener l = net::listen("tcp", "127.0.0.1:0");
    wait_group acceptors;
    for (int i = 0; i < 10; ++i) {
      acceptors.go([&] {
        std::error_code ec;
        while (const net::conn c = l.accept(ec)) {
        }
        EXPECT_EQ(ec, errc::closed);
      });
    }
    std::atomic<int> failed{0};
    wait_group dialers;
    for (int i = 0; i < 100; ++i) {
      dialers.go([&] {
        std::error_code ec;
        if (!net::dial("tcp", l.addr(), ec)) ++failed;
      });
    }
    dialers.wait();
    l.close();
    acceptors.wait();
    EXPECT_LE(failed, 100 / 9);
  });
}

TEST(Conformance, NET_12_two_connections_echo_ten_thousand_messages) {
  run_clean([] {
    const int messages = full_or(10'000, 1'000);
    const net::listener l = net::listen("tcp", "127.0.0.1:0");
    wait_group wg;
    for (int k = 0; k < 2; ++k) {
      wg.go([&] {
        const net::conn c = l.accept();
        std::array<byte, 512> b;
        for (int i = 0; i < messages; ++i) {
          c.read_full(b);
          c.write_all(b);
        }
      });
      wg.go([&] {
        const net::conn c = net::dial("tcp", l.addr());
        std::array<byte, 512> b{};
        for (int i = 0; i < messages; ++i) {
          b[0] = static_cast<byte>(i);
          c.write_all(b);
          c.read_full(b);
          ASSERT_EQ(b[0], static_cast<byte>(i));
        }
      });
    }
    wg.wait();
  });
}

TEST(Conformance, NET_12_dup_against_close) {
  const int before = open_descriptors();
  run_clean([] {
    for (int i = 0; i < 100; ++i) {
      connected c = connect_pair();
      wait_group wg;
      wg.go([&] {
        std::error_code ec;
        const int copy = c.server.dup(ec);
        if (!ec) {
          ::close(copy);
        } else {
          EXPECT_EQ(ec, errc::closed);
        }
      });
      wg.go([&] { c.server.close(); });
      wg.wait();
    }
  });
  EXPECT_TRUE(eventually([&] { return open_descriptors() <= before + 2; }));  // the poller's own
}

TEST(Conformance, NET_13_dial_time_outs) {
  run_clean([] {
    const net::listener l = net::listen("tcp", "127.0.0.1:0");
    for (const auto d : {-5s, -1s}) {
      const auto [ctx, cancel] = with_timeout(background(), std::chrono::nanoseconds(d));
      std::error_code ec;
      EXPECT_FALSE(net::dial(ctx, "tcp", l.addr().to_string(), ec));
      EXPECT_EQ(ec, errc::deadline_exceeded);
      EXPECT_EQ(text_of([&, &c = ctx] { net::dial(c, "tcp", l.addr().to_string()); }),
                "dial tcp " + l.addr().to_string() + ": i/o timeout");
    }
  });
}

// A listener whose queue is full takes no further connection: the dial waits. The shortest queue
// has room for one.
class full_listener {
 public:
  full_listener() : l_(net::listen("tcp", "127.0.0.1:0")) {
    EXPECT_EQ(::listen(l_.fd(), 0), 0);
    queued_ = net::dial("tcp", addr());
    pollfd p{l_.fd(), POLLIN, 0};
    EXPECT_TRUE(eventually([&p] { return ::poll(&p, 1, 0) == 1; }));  // it is in the queue
  }
  std::string addr() const { return l_.addr().to_string(); }

 private:
  net::listener l_;
  net::conn queued_;
};

TEST(Conformance, NET_13_a_dial_that_hangs_ends_in_time_and_not_before) {
  run_clean([] {
    const full_listener l;
    for (const auto d : {1ms, 30ms}) {
      const auto begin = clock::now();
      const auto [ctx, cancel] = with_timeout(background(), d);
      std::error_code ec;
      EXPECT_FALSE(net::dial(ctx, "tcp", l.addr(), ec));
      EXPECT_EQ(ec, errc::deadline_exceeded);
      EXPECT_GE(clock::now() - begin, d);
      EXPECT_LT(clock::now() - begin, 5s);
      cancel();
    }
    const auto [ctx, cancel] = with_cancel(background());
    wait_group wg;
    wg.go([cancel = cancel] {
      sleep_for(10ms);
      cancel();
    });
    EXPECT_EQ(text_of([&, &c = ctx] { net::dial(c, "tcp", l.addr()); }),
              "dial tcp " + l.addr() + ": operation was canceled");
    wg.wait();
  });
}

TEST(Conformance, NET_13_cancelled_as_it_connects) {
  const int before = open_descriptors();
  run_clean([] {
    const net::listener l = net::listen("tcp", "127.0.0.1:0");
    for (int i = 0; i < full_or(500, 100); ++i) {
      const auto [ctx, cancel] = with_cancel(background());
      wait_group wg;
      wg.go([cancel = cancel, i] {
        for (int k = 0; k < i % 40; ++k) rt::cpu_relax();
        cancel();
      });
      std::error_code ec;
      const net::conn c = net::dial(ctx, "tcp", l.addr().to_string(), ec);
      EXPECT_EQ(static_cast<bool>(c), !ec);
      if (ec) {
        EXPECT_EQ(ec, errc::canceled);
      }
      wg.wait();
    }
  });
  EXPECT_TRUE(eventually([&] { return open_descriptors() <= before + 2; }));
}

TEST(Conformance, NET_13_cancelling_after_success_changes_nothing) {
  run_clean([] {
    for (int i = 0; i < 10; ++i) {
      const net::listener l = net::listen("tcp", "127.0.0.1:0");
      const auto [ctx, cancel] = with_cancel(background());
      const net::conn c = net::dial(ctx, "tcp", l.addr().to_string());
      cancel();
      const net::conn s = l.accept();
      s.write_all("still here");
      std::array<byte, 10> b;
      EXPECT_EQ(c.read_full(b), 10U);
      c.write_all("and here");
    }
  });
}

}  // namespace
}  // namespace weft::test
