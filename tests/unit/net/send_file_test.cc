// SPDX-License-Identifier: Apache-2.0
// A file that is sent in parts: interrupted, cut short, and with the socket full in between.
// sendfile is ours here.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/net.h"
#include "unit/sched/support.h"
#include "weft/sync.hpp"

namespace {

std::atomic<bool> disturbed{false};
std::atomic<int> calls{0}, interrupted{0}, cut{0}, full{0};

}  // namespace

// Every third call is interrupted before it has done anything, every third in the middle. What
// there is no room for is the kernel's to say.
extern "C" ssize_t sendfile(int to, int from, off_t* offset, size_t n) noexcept {
  const int turn = disturbed ? calls++ % 3 : 2;
  if (turn == 0) {
    ++interrupted;
    errno = EINTR;
    return -1;
  }
  if (turn == 1) {
    ++cut;
    n = std::min<size_t>(n, 1000);
  }
  const ssize_t r = ::syscall(SYS_sendfile, to, from, offset, n);
  if (r < 0 && errno == EAGAIN) ++full;
  return r;
}

namespace weft::net_test {
namespace {

TEST(SendFile, NothingIsLostOrSentTwice) {
  char path[] = "/tmp/weft-send-file-XXXXXX";
  const int file = ::mkostemp(path, O_CLOEXEC);
  ASSERT_GE(file, 0);
  ::unlink(path);
  std::vector<char> data(2 << 20);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 131 + i / 251);
  ASSERT_EQ(::write(file, data.data(), data.size()), static_cast<ssize_t>(data.size()));
  const off_t at = ::lseek(file, 12'345, SEEK_SET);
  disturbed = true;
  const auto body = [&] {
    interrupted = cut = full = 0;
    // Not TCP: with a window this small it waits for delayed acknowledgements.
    const test::connected c = test::connect_pair("unix", test::own_address("send-file"));
    const int small = 16 * 1024;
    ASSERT_EQ(::setsockopt(c.client.fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    std::vector<char> got;
    const auto receive = [&] {
      std::array<char, 10'000> b;
      while (const std::size_t n = c.server.read_some(std::span(b)))
        got.insert(got.end(), b.begin(), b.begin() + static_cast<std::ptrdiff_t>(n));
    };
    const auto send = [&] {
      std::error_code ec;
      EXPECT_EQ(c.client.send_file(file, 1000, data.size() - 2000, ec), data.size() - 2000);
      EXPECT_FALSE(ec) << ec.message();
      EXPECT_EQ(c.client.send_file(file, 0, data.size() + 1, ec), data.size());  // to its end
      EXPECT_FALSE(ec) << ec.message();
      c.client.close_write();
    };
    if (goid() != 0) {
      wait_group reader;
      reader.go(receive);
      send();
      reader.wait();
    } else {
      std::thread reader(receive);
      send();
      reader.join();
    }
    ASSERT_EQ(got.size(), data.size() * 2 - 2000);
    EXPECT_TRUE(std::equal(data.begin() + 1000, data.end() - 1000, got.begin()));
    EXPECT_TRUE(std::equal(data.begin(), data.end(), got.end() - (2 << 20)));
    EXPECT_GT(interrupted, 0);
    EXPECT_GT(cut, 0);
    EXPECT_GT(full, 0);
  };
  sched_test::run_on_each(body);
  std::thread(body).join();
  disturbed = false;
  EXPECT_EQ(::lseek(file, 0, SEEK_CUR), at);  // its own position is not used
  ::close(file);
}

}  // namespace
}  // namespace weft::net_test
