// SPDX-License-Identifier: Apache-2.0
// context/thread_state.h: the exception globals and errno change owner and come back whole.
#include "context/thread_state.h"

#include <cerrno>
#include <exception>
#include <functional>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <thread>

namespace weft::rt {
namespace {

// One who shares a thread with others: what it owns while it does not run.
struct owner {
  eh_state eh;
  int err = 0;
};

TEST(ThreadState, BindsTheThreadsOwnAddresses) {
  thread_state here;
  here.bind();
  thread_state there;
  std::thread([&] { there.bind(); }).join();
  EXPECT_NE(here.eh, there.eh);
  EXPECT_EQ(here.err, &errno);
  EXPECT_NE(here.err, there.err);
}

TEST(ThreadState, ErrnoTravels) {
  thread_state ts;
  ts.bind();
  owner a, b;
  b.err = 5;
  errno = 3;
  ts.exchange(a.eh, a.err, b.eh, b.err);  // a leaves, b comes
  EXPECT_EQ(errno, 5);
  errno = 6;
  ts.exchange(b.eh, b.err, a.eh, a.err);
  EXPECT_EQ(errno, 3);
  EXPECT_EQ(b.err, 6);
}

TEST(ThreadState, ACaughtExceptionStaysWithItsOwner) {
  thread_state ts;
  ts.bind();
  owner a, b;
  try {
    throw std::runtime_error("a's");
  } catch (const std::runtime_error&) {
    ts.exchange(a.eh, a.err, b.eh, b.err);
    EXPECT_EQ(std::current_exception(), nullptr);  // b has caught nothing
    try {
      throw std::logic_error("b's");
    } catch (const std::logic_error&) {
      ts.exchange(b.eh, b.err, a.eh, a.err);
      try {
        throw;  // a goes on in its handler
      } catch (const std::exception& e) {
        EXPECT_STREQ(e.what(), "a's");
      }
      ts.exchange(a.eh, a.err, b.eh, b.err);
    }
    EXPECT_EQ(std::current_exception(), nullptr);
    ts.exchange(b.eh, b.err, a.eh, a.err);
  }
  EXPECT_EQ(std::current_exception(), nullptr);
  EXPECT_EQ(std::uncaught_exceptions(), 0);
}

TEST(ThreadState, TheCountOfUncaughtOnesStaysWithItsOwner) {
  thread_state ts;
  ts.bind();
  owner a, b;
  int during_a = -1, during_b = -1, back_in_a = -1;
  struct on_unwind {
    std::function<void()> f;
    ~on_unwind() { f(); }
  };
  try {
    on_unwind u{[&] {
      during_a = std::uncaught_exceptions();
      ts.exchange(a.eh, a.err, b.eh, b.err);
      during_b = std::uncaught_exceptions();
      ts.exchange(b.eh, b.err, a.eh, a.err);
      back_in_a = std::uncaught_exceptions();
    }};
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(during_a, 1);
  EXPECT_EQ(during_b, 0);
  EXPECT_EQ(back_in_a, 1);
  EXPECT_EQ(std::uncaught_exceptions(), 0);
}

TEST(ThreadState, AnExceptionMovesToAnotherThread) {
  // What happens to a goroutine that parks in its handler and wakes on another M.
  owner moving, idle;
  thread_state ts;
  ts.bind();
  try {
    throw std::runtime_error("moved");
  } catch (...) {
    ts.exchange(moving.eh, moving.err, idle.eh, idle.err);
    std::string seen;
    std::thread([&] {
      thread_state there;
      there.bind();
      owner own;
      there.exchange(own.eh, own.err, moving.eh, moving.err);
      try {
        throw;
      } catch (const std::exception& e) {
        seen = e.what();
      }
      there.exchange(moving.eh, moving.err, own.eh, own.err);
      EXPECT_EQ(std::current_exception(), nullptr);
    }).join();
    EXPECT_EQ(seen, "moved");
    ts.exchange(idle.eh, idle.err, moving.eh, moving.err);
  }
  EXPECT_EQ(std::current_exception(), nullptr);
}

}  // namespace
}  // namespace weft::rt
