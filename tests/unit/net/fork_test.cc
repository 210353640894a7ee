// SPDX-License-Identifier: Apache-2.0
// The child of a fork closes what it has inherited. The parent does not notice, and the child waits
// for nobody: whoever held a lock at the fork is not there.
#include <array>
#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "os/thread.h"
#include "sched/netpoll.h"
#include "support/net.h"
#include "unit/sched/support.h"
#include "unit/support.h"
#include "weft/file.hpp"
#include "weft/sync.hpp"
#include "weft/time.hpp"

namespace weft::net_test {
namespace {

using namespace std::chrono_literals;
using net::conn;
using net::listener;
using sched_test::run_on_each;
using std::byte;
using test::connect_pair;
using test::connected;
using test::in;

// Runs f in a child, which has ten seconds; f() is its exit status.
template <class F>
int status_of_child(F f) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::signal(SIGALRM, SIG_DFL);
    ::alarm(10);
    ::_exit(f());
  }
  int st = 0;
  while (::waitpid(pid, &st, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(st) ? WEXITSTATUS(st) : -WTERMSIG(st);
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

// Is the reader still woken by what comes? By the poller: it waits before it is there.
void expect_awake(const connected& c) {
  wait_group reading;
  reading.go([&] {
    std::array<byte, 1> b;
    std::error_code ec;
    c.server.set_read_deadline(in(10s));
    EXPECT_EQ(c.server.read_some(b, ec), 1U);
    EXPECT_FALSE(ec) << ec.message();
  });
  sleep_for(2ms);
  c.client.write_all("x");
  reading.wait();
}

TEST(Fork, AChildThatClosesLeavesTheParentsRegistration) {
  run_on_each([] {
    connected c = connect_pair();
    EXPECT_EQ(status_of_child([&] {
                const int fd = c.server.fd();
                std::error_code ec;
                c.server.close(ec);
                return ec || is_open(fd) ? 1 : 0;
              }),
              0);
    expect_awake(c);
  });
}

TEST(Fork, SoDoesOneThatDestroys) {
  if (unit_test::asan)
    GTEST_SKIP() << "GCC 12's ASan does not lock its allocator around a fork: the child may hang";
  run_on_each([] {
    connected c = connect_pair();
    EXPECT_EQ(status_of_child([&] {
                const int fd = c.server.fd();
                { const conn gone = std::move(c.server); }
                return is_open(fd) ? 1 : 0;
              }),
              0);
    expect_awake(c);
  });
}

TEST(Fork, AUnixListenerKeepsItsPath) {
  run_on_each([] {
    const std::string path = "/tmp/weft-fork-test-" + std::to_string(::getpid());
    const listener l = net::listen("unix", path);
    EXPECT_EQ(status_of_child([&] {
                std::error_code ec;
                l.close(ec);
                return ec ? 1 : 0;
              }),
              0);
    EXPECT_EQ(::access(path.c_str(), F_OK), 0);
    const conn c = net::dial("unix", path);
    EXPECT_TRUE(l.accept());
    l.close();
    EXPECT_NE(::access(path.c_str(), F_OK), 0);
  });
}

// One reads, others stand in line: they are not in the child, so nobody is waited for or woken.
TEST(Fork, WhoIsInsideAtTheForkIsNotWaitedFor) {
  run_on_each([] {
    connected c = connect_pair();
    wait_group readers;
    for (int i = 0; i < 3; ++i) {
      readers.go([&] {
        std::array<byte, 1> b;
        EXPECT_EQ(c.server.read_some(b), 1U);
      });
    }
    sleep_for(5ms);
    EXPECT_EQ(status_of_child([&] {
                const int fd = c.server.fd();
                std::error_code ec;
                c.server.close(ec);
                return ec || is_open(fd) ? 1 : 0;
              }),
              0);
    c.client.write_all("xyz");
    readers.wait();
  });
}

// As if another thread held the descriptor's lock and was to fire its timer.
TEST(Fork, NoLockIsTakenInTheChild) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  rt::fd_desc* d = nullptr;
  ASSERT_EQ(rt::poll_open(fds[0], &d), 0);
  d->lock.lock();
  EXPECT_EQ(status_of_child([&] {
              const bool set = rt::poll_set_deadline(d, 3, 1);
              rt::poll_evict(d);
              rt::poll_interrupt();
              rt::poll_close(d);
              rt::fd_desc* other = nullptr;
              return set || rt::poll_open(fds[1], &other) != ENOTSUP ? 1 : 0;
            }),
            0);
  d->lock.unlock();
  rt::poll_evict(d);
  rt::poll_close(d);
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST(Fork, TheChildHasNoPollerAndSaysSo) {
  if (unit_test::asan)
    GTEST_SKIP() << "GCC 12's ASan does not lock its allocator around a fork: the child may hang";
  run([] {});  // so that there are threads of ours that it has not
  const connected c = connect_pair();
  const int before = test::open_descriptors();
  EXPECT_EQ(status_of_child([&] {
              if (test::open_descriptors() > before - 2) return 1;  // epoll's, and what wakes it
              std::error_code ec;
              if (net::listen("tcp", "127.0.0.1:0", ec)) return 2;
              if (ec != std::errc::not_supported) return 3;
              c.server.set_deadline(in(1s), ec);
              return ec ? 0 : 4;
            }),
            0);
}

// A daemon: sockets first, then a fork, then the first run. What was opened before is the child's
// too.
TEST(Fork, BeforeTheFirstRunTheChildHasAPollerOfItsOwn) {
  if (unit_test::asan) GTEST_SKIP() << "as above";
  if (rt::started_threads() != 0) GTEST_SKIP() << "there has been a run in this process";
  const listener l = net::listen("tcp", "127.0.0.1:0");
  listener closed = net::listen("tcp", "127.0.0.1:0");
  closed.close();
  EXPECT_EQ(status_of_child([&] {
              bool answered = false;
              run(test::with_procs(2), [&] {
                wait_group wg;
                wg.go([&] {
                  const conn c = l.accept();
                  std::array<byte, 1> b;
                  c.read_full(b);
                  c.write_all(b);
                });
                sleep_for(2ms);  // it waits in the poller
                const conn c = net::dial("tcp", l.addr().to_string());
                sleep_for(2ms);
                c.write_all("x");
                std::array<byte, 1> b;
                answered = c.read_full(b) == 1;
                wg.wait();
              });
              return answered ? 0 : 1;
            }),
            0);
  // The parent's is as it was.
  run(test::with_procs(2), [&] {
    wait_group wg;
    wg.go([&] { EXPECT_TRUE(l.accept()); });
    sleep_for(2ms);
    const conn c = net::dial("tcp", l.addr().to_string());
    wg.wait();
  });
}

// A goroutine's files, too: no P is given away there.
TEST(Fork, AChildClosesAFile) {
  run_on_each([] {
    const auto [r, w] = file::pipe();
    EXPECT_EQ(status_of_child([&r = r] {
                const int fd = r.fd();
                r.close();
                return is_open(fd) ? 1 : 0;
              }),
              0);
    w.write_all("x");
    std::array<byte, 1> b;
    EXPECT_EQ(r.read_some(b), 1U);
  });
}

}  // namespace
}  // namespace weft::net_test
