// SPDX-License-Identifier: Apache-2.0
// NET-09, the cases of pipes: closing one's own end, the writer's end, and close beside a reader
// that is stuck in the kernel.
#include <array>
#include <atomic>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "support/runtime.h"
#include "weft/file.hpp"
#include "weft/sync.hpp"
#include "weft/time.hpp"

namespace weft::test {
namespace {

TEST(Conformance, NET_09_closing_ones_own_pipe_end_ends_a_read) {
  run_clean([] {
    const auto [r, w] = file::pipe();
    const auto begin = clock::now();
    wait_group wg;
    wg.go([&r = r] {
      sleep_for(20ms);
      r.close();
    });
    std::array<char, 1> b;
    std::error_code ec;
    EXPECT_EQ(r.read_some(b, ec), 0U);
    EXPECT_EQ(ec, errc::closed);
    EXPECT_GE(clock::now() - begin, 20ms);
    wg.wait();
  });
}

TEST(Conformance, NET_09_closing_ones_own_pipe_end_ends_a_write) {
  run_clean([] {
    const auto [r, w] = file::pipe();
    const auto begin = clock::now();
    wait_group wg;
    wg.go([&w = w] {
      sleep_for(20ms);
      w.close();
    });
    const std::string more_than_it_holds(1 << 20, 'x');
    std::error_code ec;
    EXPECT_LT(w.write_all(more_than_it_holds, ec), more_than_it_holds.size());
    EXPECT_EQ(ec, errc::closed);
    EXPECT_GE(clock::now() - begin, 20ms);
    wg.wait();
  });
}

TEST(Conformance, NET_09_the_writers_close_is_the_end_after_all_lines) {
  run_clean([] {
    const auto [r, w] = file::pipe();
    wait_group wg;
    wg.go([&w = w] {
      for (int i = 0; i < 3; ++i) {
        sleep_for(5ms);
        w.write_all("line " + std::to_string(i) + "\n");
      }
      w.close();
    });
    std::string got;
    std::array<char, 4> b;
    while (const std::size_t n = r.read_some(b)) got.append(b.data(), n);
    EXPECT_EQ(got, "line 0\nline 1\nline 2\n");
    wg.wait();
  });
}

// The reader sleeps in read(2), where no close reaches it: it gets what comes, and the descriptor
// goes with it.
TEST(Conformance, NET_09_close_does_not_wait_for_a_reader_in_blocking_mode) {
  for (const int procs : {1, 2}) {
    run_clean(with_procs(procs), [] {
      int fd[2];
      ASSERT_EQ(::pipe2(fd, O_CLOEXEC), 0);
      const file r = file::adopt(fd[0], "r");
      std::atomic<bool> in{false}, out{false};
      wait_group wg;
      wg.go([&] {
        std::array<char, 1> b;
        in = true;
        EXPECT_EQ(r.read_some(b), 1U);
        out = true;
      });
      // It has the descriptor by the time it is in the call.
      ASSERT_TRUE(eventually([&] { return in && debug::runtime_stats().syscall == 1; }));
      r.close();
      EXPECT_FALSE(out.load());
      EXPECT_EQ(r.fd(), -1);
      EXPECT_GE(::fcntl(fd[0], F_GETFD), 0);  // not given back while somebody reads from it
      ASSERT_EQ(::write(fd[1], "x", 1), 1);
      wg.wait();
      EXPECT_EQ(::fcntl(fd[0], F_GETFD), -1);
      ::close(fd[1]);
    });
  }
}

}  // namespace
}  // namespace weft::test
