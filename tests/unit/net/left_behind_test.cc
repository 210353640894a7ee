// SPDX-License-Identifier: Apache-2.0
// A goroutine that stands in a call when its run ends holds the descriptor no longer: whoever
// closes it closes it, and the next run, or a plain thread, reads where the last one left off.
#include <array>
#include <gtest/gtest.h>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

#include "support/leaks.h"
#include "support/net.h"
#include "support/runtime.h"
#include "weft/debug.hpp"
#include "weft/file.hpp"
#include "weft/net.hpp"
#include "weft/time.hpp"

namespace weft::net_test {
namespace {

using namespace std::chrono_literals;
using std::byte;
using test::with_procs;

class LeftBehindInACall : public ::testing::TestWithParam<int> {
 protected:
  LeftBehindInACall() { test::goroutines_are_left_behind = true; }

  // A run that ends while f, in a goroutine of its own, waits; and_then by main, at the very end.
  template <class F, class A>
  void leave_behind(F f, A and_then) {
    run(with_procs(GetParam()), [&] {
      chan<void> begun;
      go([&] {
        begun.send();
        f();
      });
      begun.recv();
      sleep_for(2ms);
      and_then();
    });
  }
};

const auto nothing = [] {};

TEST_P(LeftBehindInACall, AClosedConnectionIsClosed) {
  for (int i = 0; i < 20; ++i) {
    test::connected p = test::connect_pair();
    // Woken by the close, and the run is over before it has had its turn.
    leave_behind(
        [&p] {
          byte b[1];
          std::error_code ec;
          p.server.read_some(b, ec);
        },
        [&p] { p.server.close(); });
    byte b[1];
    std::error_code ec;
    p.client.set_read_deadline(test::in(5s));
    EXPECT_EQ(p.client.read_some(b, ec), 0U);
    EXPECT_FALSE(ec) << ec.message();
  }
}

// Stopped in the middle of a write to a pipe that main closes: its thread is the last user, and
// closes it where it stops for good.
TEST_P(LeftBehindInACall, AClosedPipeIsClosedByTheThreadThatStops) {
  for (int i = 0; i < 20; ++i) {
    auto [r, w] = file::pipe();
    std::thread drain([fd = r.fd()] {
      std::array<char, 65536> b;
      pollfd p{fd, POLLIN, 0};
      for (ssize_t n = 1; n != 0;) {
        ::poll(&p, 1, -1);
        n = ::read(fd, b.data(), b.size());
      }
    });
    leave_behind(
        [&w = w] {
          const std::string much(65536, 'x');
          for (std::error_code ec; !ec;) w.write_all(much, ec);
        },
        [&w = w] {
          sleep_for(15ms);  // longer than a slice
          w.close();
        });
    drain.join();  // it has seen the end
    run(with_procs(GetParam()), [] { EXPECT_EQ(debug::audit(), 0); });
  }
}

TEST_P(LeftBehindInACall, AClosedListenerGivesItsPortBack) {
  for (int i = 0; i < 20; ++i) {
    net::listener l = net::listen("tcp", "127.0.0.1:0");
    const std::string at = l.addr().to_string();
    leave_behind(
        [&l] {
          std::error_code ec;
          l.accept(ec);
        },
        nothing);
    l.close();
    EXPECT_NO_THROW(net::listen("tcp", at)) << i;
  }
}

TEST_P(LeftBehindInACall, TheNextReaderReads) {
  test::connected p = test::connect_pair();
  const auto wait = [&p] {
    byte b[1];
    std::error_code ec;
    p.server.read_some(b, ec);
  };
  const auto read = [&p] {
    char b[1] = {};
    std::error_code ec;
    p.server.set_read_deadline(test::in(5s));
    EXPECT_EQ(p.server.read_some(b, ec), 1U);
    EXPECT_FALSE(ec) << ec.message();
    EXPECT_EQ(b[0], 'x');
  };
  leave_behind(wait, nothing);
  p.client.write_all("xx");
  run(with_procs(GetParam()), read);
  read();  // a plain thread
  leave_behind(wait, nothing);
  run(with_procs(GetParam()), [&p] {
    byte b[1];
    std::error_code ec;
    p.server.set_read_deadline(test::in(5ms));
    p.server.read_some(b, ec);
    EXPECT_EQ(ec, errc::deadline_exceeded);
  });
}

// Those in line behind it are left behind too, and nobody waits for them.
TEST_P(LeftBehindInACall, ALineOfReaders) {
  test::connected p = test::connect_pair();
  leave_behind(
      [&p] {
        for (int i = 0; i < 5; ++i) {
          go([&p] {
            byte b[1];
            std::error_code ec;
            p.server.read_some(b, ec);
          });
        }
        for (;;) yield();
      },
      nothing);
  p.client.write_all("x");
  run(with_procs(GetParam()), [&p] {
    byte b[1];
    EXPECT_EQ(p.server.read_some(b), 1U);
  });
}

TEST_P(LeftBehindInACall, APipeGetsItsEnd) {
  auto [in, out] = file::pipe();
  leave_behind(
      [&f = out] {
        const std::string much(1 << 20, 'x');
        std::error_code ec;
        f.write_all(much, ec);
      },
      nothing);
  out.close();
  std::array<byte, 1 << 16> b;
  while (in.read_some(b) != 0) {
  }
}

TEST_P(LeftBehindInACall, WaitFdLeavesNothing) {
  const int fd = ::eventfd(0, EFD_CLOEXEC);
  const auto wait = [fd] { (void)wait_fd(fd, POLLIN); };
  const net::listener opens_the_poller = net::listen("tcp", "127.0.0.1:0");
  const int before = test::open_descriptors();
  for (int i = 0; i < 10; ++i) leave_behind(wait, nothing);
  // sysmon has a file open now and then.
  EXPECT_TRUE(test::eventually([&] { return test::open_descriptors() <= before; }));
  ::close(fd);
}

INSTANTIATE_TEST_SUITE_P(Procs, LeftBehindInACall, ::testing::Values(1, 2, 3, 16),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace weft::net_test
