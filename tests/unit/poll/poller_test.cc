// SPDX-License-Identifier: Apache-2.0
// The contract of poll/poller.h, held by every implementation.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <optional>
#include <set>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "poll/epoll.h"
#include "poll/fake.h"

namespace weft::rt {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr std::int64_t ms = 1'000'000;

// Something that can be watched: a socket, or a number.
template <class P>
class source;

template <>
class source<epoll_poller> {
 public:
  explicit source(epoll_poller&) {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds_), 0);
  }
  source(const source&) = delete;
  source& operator=(const source&) = delete;
  ~source() {
    ::close(fds_[0]);
    hang_up();
  }
  int fd() const { return fds_[0]; }
  void added() {}  // a socket is writable from the start, and the kernel says so
  void make_readable() { EXPECT_EQ(::write(fds_[1], "x", 1), 1); }
  void hang_up() {
    if (fds_[1] >= 0) ::close(fds_[1]);
    fds_[1] = -1;
  }

 private:
  int fds_[2] = {-1, -1};
};

template <>
class source<fake_poller> {
 public:
  explicit source(fake_poller& p) : p_(p) {}
  int fd() const { return fd_; }
  void added() { p_.make_ready(fd_, false, true); }
  void make_readable() { p_.make_ready(fd_, true, false); }
  void hang_up() { p_.make_ready(fd_, true, true); }

 private:
  static inline int next_ = 100;
  fake_poller& p_;
  int fd_ = next_++;
};

template <class P>
class Poller : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(p.open(), 0); }
  void TearDown() override {
    if constexpr (std::is_same_v<P, epoll_poller>) p.shut();
  }
  void add(source<P>& s, std::uint64_t token) {
    ASSERT_EQ(p.add(s.fd(), token), 0);
    s.added();
  }
  // The next report within ten seconds.
  std::optional<poll_event> next() {
    const auto until = steady::now() + 10s;
    poll_event e;
    while (steady::now() < until) {
      if (p.wait(&e, 1, 1000 * ms) == 1) return e;
    }
    return std::nullopt;
  }
  std::size_t at_once() {
    poll_event e[8];
    return p.wait(e, 8, 0);
  }
  P p;
};
using pollers = ::testing::Types<epoll_poller, fake_poller>;
struct names {
  template <class P>
  static std::string GetName(int) {
    return std::is_same_v<P, epoll_poller> ? "epoll" : "fake";
  }
};
TYPED_TEST_SUITE(Poller, pollers, names);

TYPED_TEST(Poller, SaysWhatIsReadyWhenAdded) {
  source<TypeParam> s(this->p);
  this->add(s, 7);
  const auto e = this->next();
  ASSERT_TRUE(e);
  EXPECT_EQ(e->token, 7U);
  EXPECT_TRUE(e->write);
  EXPECT_FALSE(e->read);
}

TYPED_TEST(Poller, EachChangeIsReportedOnce) {
  source<TypeParam> s(this->p);
  this->add(s, 1);
  ASSERT_TRUE(this->next());
  EXPECT_EQ(this->at_once(), 0U);  // edge-triggered
  for (int i = 0; i < 3; ++i) {
    s.make_readable();
    const auto e = this->next();
    ASSERT_TRUE(e);
    EXPECT_TRUE(e->read);
    EXPECT_EQ(this->at_once(), 0U);
  }
}

TYPED_TEST(Poller, ChangesThatNobodyWaitedForAreKept) {
  source<TypeParam> s(this->p);
  this->add(s, 1);
  s.make_readable();
  s.make_readable();
  const auto e = this->next();
  ASSERT_TRUE(e);
  EXPECT_TRUE(e->read && e->write);
}

TYPED_TEST(Poller, HangUpIsReadyForBoth) {
  source<TypeParam> s(this->p);
  this->add(s, 1);
  ASSERT_TRUE(this->next());
  s.hang_up();
  const auto e = this->next();
  ASSERT_TRUE(e);
  EXPECT_TRUE(e->read && e->write);
}

TYPED_TEST(Poller, ManyInSmallBatches) {
  std::vector<std::unique_ptr<source<TypeParam>>> all;
  for (std::uint64_t i = 0; i < 20; ++i) {
    all.push_back(std::make_unique<source<TypeParam>>(this->p));
    this->add(*all.back(), i);
  }
  std::set<std::uint64_t> seen;
  poll_event e[3];
  for (int round = 0; round < 1000 && seen.size() < all.size(); ++round) {
    const std::size_t n = this->p.wait(e, 3, 100 * ms);
    ASSERT_LE(n, 3U);
    for (std::size_t i = 0; i < n; ++i) seen.insert(e[i].token);
  }
  EXPECT_EQ(seen.size(), all.size());
}

TYPED_TEST(Poller, RemovedIsNotReported) {
  source<TypeParam> s(this->p);
  this->add(s, 1);
  ASSERT_TRUE(this->next());
  s.make_readable();
  EXPECT_EQ(this->p.remove(s.fd()), 0);
  EXPECT_EQ(this->at_once(), 0U);
  EXPECT_EQ(this->p.remove(s.fd()), ENOENT);
  this->add(s, 2);  // again, under another token
  const auto e = this->next();
  ASSERT_TRUE(e);
  EXPECT_EQ(e->token, 2U);
}

TYPED_TEST(Poller, RefusesTwiceAndNonsense) {
  source<TypeParam> s(this->p);
  this->add(s, 1);
  EXPECT_EQ(this->p.add(s.fd(), 2), EEXIST);
  EXPECT_EQ(this->p.add(-1, 2), EBADF);
}

TYPED_TEST(Poller, TimesOutNotBeforeItsTime) {
  for (const std::int64_t ns : {200'000L, 1'500'000L, 20'000'000L}) {
    const auto begin = steady::now();
    poll_event e;
    EXPECT_EQ(this->p.wait(&e, 1, ns), 0U);
    EXPECT_GE(steady::now() - begin, std::chrono::nanoseconds(ns));
  }
}

TYPED_TEST(Poller, InterruptEndsAWait) {
  std::atomic<bool> out{false};
  std::thread t([&] {
    poll_event e;
    EXPECT_EQ(this->p.wait(&e, 1, 10'000 * ms), 0U);
    out = true;
  });
  const auto begin = steady::now();
  this->p.interrupt();
  t.join();
  EXPECT_TRUE(out);
  EXPECT_LT(steady::now() - begin, 5s);
}

TYPED_TEST(Poller, InterruptBeforeTheWaitIsKeptByLooksAndCountsOnce) {
  this->p.interrupt();
  this->p.interrupt();
  EXPECT_EQ(this->at_once(), 0U);  // does not take it away
  const auto begin = steady::now();
  poll_event e;
  EXPECT_EQ(this->p.wait(&e, 1, 10'000 * ms), 0U);
  EXPECT_LT(steady::now() - begin, 5s);
  const auto again = steady::now();
  EXPECT_EQ(this->p.wait(&e, 1, 5 * ms), 0U);
  EXPECT_GE(steady::now() - again, 5ms);  // the two were one
  this->p.interrupt();                    // and it works again
  EXPECT_EQ(this->p.wait(&e, 1, 10'000 * ms), 0U);
  EXPECT_LT(steady::now() - again, 5s);
}

TYPED_TEST(Poller, EachReportGoesToOneOfSeveralThreads) {
  constexpr int threads = 3, changes = 200;
  source<TypeParam> s(this->p);
  this->add(s, 1);
  ASSERT_TRUE(this->next());
  std::atomic<int> reports{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      poll_event e;
      while (!stop) reports += static_cast<int>(this->p.wait(&e, 1, 5 * ms));
    });
  }
  for (int i = 0; i < changes; ++i) {
    s.make_readable();
    const auto until = steady::now() + 10s;
    while (reports <= i && steady::now() < until) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& t : all) t.join();
  EXPECT_EQ(reports, changes);
}

TEST(Epoll, DescriptorsAreCloseOnExec) {
  const auto open_fds = [] {
    std::set<int> fds;
    for (int fd = 0; fd < 256; ++fd) {
      if (::fcntl(fd, F_GETFD) >= 0) fds.insert(fd);
    }
    return fds;
  };
  const std::set<int> before = open_fds();
  epoll_poller p;
  ASSERT_EQ(p.open(), 0);
  int mine = 0;
  for (const int fd : open_fds()) {
    if (before.count(fd) != 0) continue;
    ++mine;
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_EQ(mine, 2);
  p.shut();
  EXPECT_EQ(open_fds(), before);
}

TEST(Epoll, ARegularFileCannotBeWatched) {
  epoll_poller p;
  ASSERT_EQ(p.open(), 0);
  const int fd = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(p.add(fd, 1), EPERM);
  ::close(fd);
  p.shut();
}

}  // namespace
}  // namespace weft::rt
