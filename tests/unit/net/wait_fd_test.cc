// SPDX-License-Identifier: Apache-2.0
// wait_fd: descriptors of others.
#include "weft/file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "support/net.h"
#include "unit/sched/support.h"
#include "weft/sync.hpp"
#include "weft/time.hpp"

namespace weft::net_test {
namespace {

using namespace std::chrono_literals;
using sched_test::run_on_each;
using test::in;

template <class F>
void everywhere(F f) {
  run_on_each(f);
  std::thread(f).join();
}

class event_fd {
 public:
  event_fd() : fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  event_fd(const event_fd&) = delete;
  event_fd& operator=(const event_fd&) = delete;
  ~event_fd() { ::close(fd); }
  void set() const {
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(fd, &one, sizeof one), 8);
  }
  int fd;
};

TEST(WaitFd, ReadyAtOnceAndLater) {
  everywhere([] {
    const event_fd e;
    EXPECT_FALSE(wait_fd(e.fd, POLLOUT));
    std::thread setter([&] {
      std::this_thread::sleep_for(5ms);
      e.set();
    });
    EXPECT_FALSE(wait_fd(e.fd, POLLIN));
    EXPECT_FALSE(wait_fd(e.fd, POLLIN));  // still
    setter.join();
  });
}

TEST(WaitFd, Deadlines) {
  everywhere([] {
    const event_fd e;
    const auto begin = clock::now();
    EXPECT_EQ(wait_fd(e.fd, POLLIN, begin + 10ms), errc::deadline_exceeded);
    EXPECT_GE(clock::now(), begin + 10ms);
    EXPECT_EQ(wait_fd(e.fd, POLLIN, in(-1s)), errc::deadline_exceeded);
    e.set();
    EXPECT_FALSE(wait_fd(e.fd, POLLIN, in(-1s)));  // ready comes first, as with poll(2)
  });
}

TEST(WaitFd, SeveralWaitForOne) {
  run_on_each([] {
    const event_fd e;
    wait_group wg;
    for (int i = 0; i < 5; ++i) wg.go([&] { EXPECT_FALSE(wait_fd(e.fd, POLLIN)); });
    sleep_for(2ms);
    e.set();
    wg.wait();
  });
}

TEST(WaitFd, EitherDirection) {
  run_on_each([] {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    char block[4096] = {};
    while (::write(fds[0], block, sizeof block) > 0) {
    }
    EXPECT_EQ(wait_fd(fds[0], POLLIN | POLLOUT, in(5ms)), errc::deadline_exceeded);
    wait_group wg;
    wg.go([&] { EXPECT_FALSE(wait_fd(fds[0], POLLIN | POLLOUT)); });
    sleep_for(1ms);
    while (::read(fds[1], block, sizeof block) > 0) {
    }
    wg.wait();
    while (::write(fds[0], block, sizeof block) > 0) {
    }
    wg.go([&] { EXPECT_FALSE(wait_fd(fds[0], POLLWRNORM, in(5s))); });
    sleep_for(1ms);
    while (::read(fds[1], block, sizeof block) > 0) {
    }
    wg.wait();
    while (::write(fds[0], block, sizeof block) > 0) {
    }
    wg.go([&] { EXPECT_FALSE(wait_fd(fds[0], POLLIN | POLLOUT)); });
    sleep_for(1ms);
    EXPECT_EQ(::write(fds[1], "x", 1), 1);
    wg.wait();
    ::close(fds[0]);
    ::close(fds[1]);
  });
}

TEST(WaitFd, AProcess) {
  everywhere([] {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::usleep(10'000);
      ::_exit(7);
    }
    const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    ASSERT_GE(fd, 0);
    EXPECT_FALSE(wait_fd(fd, POLLIN));
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, WNOHANG), pid);
    EXPECT_EQ(WEXITSTATUS(status), 7);
    ::close(fd);
  });
}

TEST(WaitFd, AHangUpIsReady) {
  everywhere([] {
    int fds[2];
    ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    std::thread closer([&] {
      std::this_thread::sleep_for(3ms);
      ::close(fds[1]);
    });
    EXPECT_FALSE(wait_fd(fds[0], POLLIN));
    closer.join();
    ::close(fds[0]);
  });
}

TEST(WaitFd, WhatCannotBeWaitedFor) {
  everywhere([] {
    EXPECT_EQ(wait_fd(1 << 20, POLLIN, in(1s)), std::errc::bad_file_descriptor);
    EXPECT_EQ(wait_fd(-1, POLLIN, in(1s)), std::errc::bad_file_descriptor);
    EXPECT_EQ(wait_fd(-1, 0, in(1s)), std::errc::bad_file_descriptor);
    const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    EXPECT_FALSE(wait_fd(file, POLLIN, in(1s)));  // always ready
    EXPECT_FALSE(wait_fd(file, POLLOUT, in(-1s)));
    EXPECT_EQ(wait_fd(file, POLLPRI, in(1s)), errc::not_pollable);  // never
    EXPECT_EQ(wait_fd(file, 0, in(1s)), errc::not_pollable);
    ::close(file);
  });
}

TEST(WaitFd, LeavesNothingBehind) {
  run_on_each([] {
    const event_fd e;
    // Opens the poller, unless its time is up before it comes to that.
    EXPECT_EQ(wait_fd(e.fd, POLLIN, in(100ms)), errc::deadline_exceeded);
    const int before = test::open_descriptors();
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(wait_fd(e.fd, POLLIN, in(100us)), errc::deadline_exceeded);
    // The monitor opens files of /proc and of the cgroup for a moment.
    EXPECT_TRUE(test::eventually([&] { return test::open_descriptors() <= before; }));
  });
}

}  // namespace
}  // namespace weft::net_test
