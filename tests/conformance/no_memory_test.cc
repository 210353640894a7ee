// SPDX-License-Identifier: Apache-2.0
// An allocation that fails in the middle: what had been opened by then is closed, and the caller is
// told. On plain threads: which thread allocates is known there.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <new>
#include <string>
#include <system_error>
#include <unistd.h>

#include "sched/sched.h"
#include "support/allocations.h"
#include "support/net.h"
#include "weft/file.hpp"
#include "weft/go.hpp"
#include "weft/net.hpp"
#include "weft/time.hpp"

namespace weft {
namespace {

using test::open_descriptors;

// f with the first allocation failing, with the second, and so on, until it gets by. f keeps
// nothing open. How often it failed.
template <class F>
int each_failing(F f) {
  f();  // what is opened once and for all
  const int before = open_descriptors();
  for (int n = 0; n < 1000; ++n) {
    test::fail_allocation(n);
    bool thrown = false;
    try {
      f();
    } catch (const std::bad_alloc&) {
      thrown = true;
    } catch (const std::system_error& e) {
      EXPECT_EQ(e.code(), std::errc::not_enough_memory);
      thrown = true;
    }
    const bool failed = test::allocation_failed();
    test::fail_allocation(-1);
    EXPECT_EQ(open_descriptors(), before) << "allocation " << n << " failed";
    if (!failed) {
      EXPECT_FALSE(thrown);
      return n;
    }
  }
  ADD_FAILURE() << "it never gets by";
  return -1;
}

class NoMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/weft_no_memory_XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir = name;
    // Longer than what a std::string holds without an allocation.
    path = dir + "/a_name_that_is_long_enough";
  }
  void TearDown() override {
    ::unlink(path.c_str());
    ::rmdir(dir.c_str());
  }
  std::string dir, path;
};

TEST_F(NoMemory, Files) {
  EXPECT_GT(each_failing([&] { file::create(path).close(); }), 1);
  EXPECT_GT(each_failing([&] {
              std::error_code ec;
              const file f = file::open(path, O_RDONLY, ec);
              EXPECT_EQ(static_cast<bool>(f), !ec);
              EXPECT_TRUE(!ec || ec == std::errc::not_enough_memory) << ec;
            }),
            1);
  EXPECT_GT(each_failing([] { (void)file::pipe(); }), 1);
  EXPECT_GT(each_failing([&] {  // it takes the descriptor over, whatever comes
              (void)file::adopt(::open("/dev/null", O_RDONLY | O_CLOEXEC), path);
            }),
            1);
}

TEST_F(NoMemory, Listeners) {
  EXPECT_GT(each_failing([] { (void)net::listen("tcp", "127.0.0.1:0"); }), 0);
  EXPECT_GT(each_failing([&] { (void)net::listen("unix", path); }), 1);
  EXPECT_GT(each_failing([] { (void)net::listen_packet("udp", "127.0.0.1:0"); }), 0);
  // The file of a listener is gone with it, though there was no memory for its name.
  net::listener l = net::listen("unix", path);
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  test::fail_allocation(0);
  std::error_code ec;
  l.close(ec);
  test::fail_allocation(-1);
  EXPECT_FALSE(ec);
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST_F(NoMemory, Connections) {
  const net::listener l = net::listen("tcp", "127.0.0.1:0");
  const std::string at = l.addr().to_string();
  // Of those that fail to be dialled some have been queued: all are accepted.
  EXPECT_GT(each_failing([&] {
              struct accepting {
                const net::listener& l;
                ~accepting() {
                  test::fail_allocation(test::allocation_failed() ? -1 : 1'000'000);
                  l.set_deadline(clock::now() + std::chrono::milliseconds(20));
                  std::error_code ec;
                  while (l.accept(ec)) {
                  }
                }
              } const rest{l};
              const net::conn c = net::dial("tcp", at);
              c.set_linger(0);
            }),
            0);
  const net::listener another = net::listen("tcp", "127.0.0.1:0");  // nobody else is in its queue
  const net::conn c = net::dial("tcp", another.addr().to_string());
  const int before = open_descriptors();
  test::fail_allocation(0);
  std::error_code ec;
  EXPECT_FALSE(another.accept(ec));
  test::fail_allocation(-1);
  EXPECT_EQ(ec, std::errc::not_enough_memory);
  EXPECT_EQ(open_descriptors(), before);
  char b[1];
  EXPECT_EQ(c.read_some(b), 0U);  // it was closed
}

TEST_F(NoMemory, TheChannelOfATask) {
  // Cells that have ever been in use at once, and what is not a cell (a sanitized build's).
  const auto kept = [] {
    return static_cast<std::int64_t>(rt::sched.chans.size()) + test::live_allocations.objects;
  };
  constexpr int rounds = 2000;
  const auto before = kept();
  int failed = 0;
  for (int i = 0; i < rounds; ++i) {
    for (int n = 0; n < 2; ++n) {  // the channel and the one who waits are allocations, or only he
      promise<int> p;
      const task<int> t = p.get_task();
      test::fail_allocation(n);
      try {
        (void)t.completed();
      } catch (const std::bad_alloc&) {
        ++failed;
      }
      test::fail_allocation(-1);
    }
  }
  EXPECT_GE(failed, rounds);
  EXPECT_LT(kept() - before, rounds / 2);  // cells are carved by the dozen
}

}  // namespace
}  // namespace weft
