// SPDX-License-Identifier: Apache-2.0
// The two ways to make the calls on a regular file give the same results; the ring's does not hold
// a thread for each who waits.
#include "file/uring.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "unit/sched/support.h"
#include "weft/file.hpp"

namespace weft::file_test {
namespace {

using detail::file_call;
using detail::perform_blocking;
using detail::perform_fn;
using detail::perform_uring;
using op = file_call::op;
using sched_test::run_on_each;

// A file on a disk, not in memory: the tests are about waiting.
class Uring : public ::testing::Test {
 protected:
  void SetUp() override {
    fd = ::open(".", O_TMPFILE | O_RDWR, 0600);
    if (fd < 0) {
      char name[] = "weft_uring_XXXXXX";
      fd = ::mkstemp(name);
      ASSERT_GE(fd, 0);
      ::unlink(name);
    }
  }
  void TearDown() override { ::close(fd); }

  void fill(std::size_t n) {
    std::vector<std::uint32_t> words(n / 4);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = word_at(i);
    ASSERT_EQ(::pwrite(fd, words.data(), n, 0), static_cast<ssize_t>(n));
  }
  // Out of memory, so that a read must wait.
  void evict() {
    ASSERT_EQ(::fsync(fd), 0);
    ASSERT_EQ(::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  }
  static std::uint32_t word_at(std::size_t i) {
    return static_cast<std::uint32_t>(i * 2654435761U);
  }

  int fd = -1;
};

template <class F>
void each_way(F f) {
  for (const perform_fn perform : {&perform_blocking, &perform_uring}) {
    SCOPED_TRACE(perform == &perform_uring ? "io_uring" : "blocking");
    run_on_each([&] { f(perform); });
    std::thread([&] { f(perform); }).join();
  }
}

TEST_F(Uring, SameResults) {
  fill(8192);
  const int through = ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_WRONLY | O_DSYNC);
  ASSERT_GE(through, 0);
  const int dir = ::open(".", O_RDONLY | O_DIRECTORY);
  ASSERT_GE(dir, 0);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  each_way([&](perform_fn perform) {
    std::array<char, 4096> b{};
    EXPECT_EQ(perform({op::read, fd, b.data(), b.size(), 0}), 4096);
    EXPECT_EQ(perform({op::read, fd, b.data(), b.size(), 6000}), 2192);
    EXPECT_EQ(perform({op::read, fd, b.data(), b.size(), 8192}), 0);
    EXPECT_EQ(perform({op::read, fd, b.data(), b.size(), 1'000'000}), 0);
    EXPECT_EQ(perform({op::read, -1, b.data(), b.size(), 0}), -EBADF);
    EXPECT_EQ(perform({op::read, dir, b.data(), b.size(), 0}), -EISDIR);
    EXPECT_EQ(perform({op::read, through, b.data(), b.size(), 0}), -EBADF);
    EXPECT_EQ(perform({op::read, fd, nullptr, 16, 0}), -EFAULT);
    EXPECT_EQ(perform({op::write, through, b.data(), 100, 8092, false, true}), 100);
    EXPECT_EQ(perform({op::write, -1, b.data(), 100, 0, false, true}), -EBADF);
    EXPECT_EQ(perform({op::sync, fd}), 0);
    EXPECT_EQ(perform({op::sync, -1}), -EBADF);
    EXPECT_EQ(perform({op::sync, ends[0]}), -EINVAL);
  });
  for (const int d : {through, dir, ends[0], ends[1]}) ::close(d);
}

TEST_F(Uring, ThePositionMoves) {
  each_way([&](perform_fn perform) {
    ASSERT_EQ(::lseek(fd, 0, SEEK_SET), 0);
    std::array<char, 100> b{};
    b.fill('x');
    EXPECT_EQ(perform({op::write, fd, b.data(), b.size(), -1, false, true}), 100);
    EXPECT_EQ(perform({op::write, fd, b.data(), b.size(), -1, false, true}), 100);
    EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), 200);
    ASSERT_EQ(::lseek(fd, 50, SEEK_SET), 50);
    EXPECT_EQ(perform({op::read, fd, b.data(), b.size()}), 100);
    EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), 150);
    EXPECT_EQ(perform({op::read, fd, b.data(), b.size()}), 50);
    EXPECT_EQ(perform({op::read, fd, b.data(), b.size()}), 0);
  });
}

// One read gives all there is, of which some was in memory and some was not.
TEST_F(Uring, WhatIsNotInMemory) {
  constexpr std::size_t size = 1 << 20;
  fill(size);
  each_way([&](perform_fn perform) {
    evict();
    std::array<char, 4096> warm{};
    ASSERT_EQ(::pread(fd, warm.data(), warm.size(), size / 2), 4096);
    std::vector<std::uint32_t> words(size / 4 + 10);
    ASSERT_EQ(perform({op::read, fd, words.data(), words.size() * 4, 0}), static_cast<long>(size));
    for (std::size_t i = 0; i < size / 4; ++i) ASSERT_EQ(words[i], word_at(i)) << "word " << i;
  });
}

std::size_t threads_now() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                    std::filesystem::directory_iterator()));
}

// 300 wait for the disk at once; the number of threads does not follow. What was read is looked at
// afterwards: one that computes for longer than its slice keeps its thread.
TEST_F(Uring, ManyWaitWithoutAThreadEach) {
  if (!detail::uring_works()) GTEST_SKIP() << "no io_uring here";
  constexpr std::size_t pieces = 300, size = 16 * 1024;
  fill(pieces * size);
  std::atomic<std::size_t> most{0};
  std::vector<std::uint32_t> words(pieces * size / 4);
  sched_test::run_on(2, [&] {
    evict();
    scope s;
    for (std::size_t i = 0; i < pieces; ++i) {
      s.go([&, i] {
        const auto at = static_cast<std::int64_t>(i * size);
        EXPECT_EQ(perform_uring({op::read, fd, &words[i * size / 4], size, at}),
                  static_cast<long>(size));
        EXPECT_EQ(perform_uring({op::sync, fd}), 0);
        if (i % 20 == 0) most.store(std::max(most.load(), threads_now()));
      });
    }
    s.wait();
  });
  EXPECT_LT(most.load(), 60U);
  for (std::size_t k = 0; k < words.size(); ++k) ASSERT_EQ(words[k], word_at(k));
}

}  // namespace
}  // namespace weft::file_test
