// SPDX-License-Identifier: Apache-2.0
// os/signal_stack.h: handlers run on it, it is large enough and guarded, and the thread's own comes
// back. FRN-07 for the threads of the runtime and for the one that calls run().
#include "os/signal_stack.h"

#include <csignal>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "core/current.h"
#include "os/memory.h"
#include "os/note.h"
#include "os/thread.h"
#include "weft/weft.hpp"

namespace weft::rt {
namespace {

stack_t current() {
  stack_t s{};
  ::sigaltstack(nullptr, &s);
  return s;
}

void* volatile handled_at = nullptr;
void note_where(int) { handled_at = __builtin_frame_address(0); }

// Runs a handler with SA_ONSTACK on this thread and says where.
std::uintptr_t where_handlers_run() {
  struct sigaction sa {
  }, old{};
  sa.sa_handler = note_where;
  sa.sa_flags = SA_ONSTACK;
  ::sigaction(SIGUSR1, &sa, &old);
  handled_at = nullptr;
  ::raise(SIGUSR1);
  ::sigaction(SIGUSR1, &old, nullptr);
  return reinterpret_cast<std::uintptr_t>(handled_at);
}

class SignalStack : public ::testing::Test {
 protected:
  // Each test on a thread of its own: a sigaltstack belongs to a thread.
  template <class F>
  static void on_thread(F f) {
    std::thread(f).join();
  }
};

TEST_F(SignalStack, HandlersRunOnItAndItIsGuarded) {
  on_thread([] {
    signal_stack s;
    s.install();
    const stack_t now = current();
    const auto lo = reinterpret_cast<std::uintptr_t>(now.ss_sp);
    EXPECT_GE(now.ss_size, signal_stack::usable);
    EXPECT_TRUE(s.contains(where_handlers_run()));
    EXPECT_TRUE(is_readable(lo));
    EXPECT_TRUE(is_readable(lo + now.ss_size - 1));
    EXPECT_FALSE(is_readable(lo - 1));
    EXPECT_TRUE(s.in_guard(lo - 1));
    EXPECT_FALSE(s.in_guard(lo));
    EXPECT_FALSE(is_readable(lo - signal_stack::guard));
    s.restore();
    s.release();
    EXPECT_FALSE(s.contains(lo));
  });
}

TEST_F(SignalStack, TheThreadsOwnComesBack) {
  on_thread([] {
    auto memory = std::make_unique<char[]>(1 << 16);
    stack_t own{}, before = current();
    own.ss_sp = memory.get();
    own.ss_size = 1 << 16;
    ASSERT_EQ(::sigaltstack(&own, nullptr), 0);
    signal_stack s;
    for (int i = 0; i < 2; ++i) {
      s.install();
      EXPECT_NE(current().ss_sp, own.ss_sp);
      s.restore();
      EXPECT_EQ(current().ss_sp, own.ss_sp);
      EXPECT_EQ(current().ss_size, own.ss_size);
    }
    s.release();
    ::sigaltstack(&before, nullptr);
  });
}

TEST_F(SignalStack, NoneBeforeNoneAfter) {
  on_thread([] {
    stack_t none{}, before = current();
    none.ss_flags = SS_DISABLE;
    ::sigaltstack(&none, nullptr);
    signal_stack s;
    s.install();
    EXPECT_EQ(current().ss_flags & SS_DISABLE, 0);
    s.restore();
    EXPECT_NE(current().ss_flags & SS_DISABLE, 0);
    s.release();
    ::sigaltstack(&before, nullptr);
  });
}

// A user who sets one in between has the last word.
TEST_F(SignalStack, OneThatWasSetSinceStays) {
  on_thread([] {
    auto memory = std::make_unique<char[]>(1 << 16);
    const stack_t before = current();
    signal_stack s;
    s.install();
    stack_t own{};
    own.ss_sp = memory.get();
    own.ss_size = 1 << 16;
    ASSERT_EQ(::sigaltstack(&own, nullptr), 0);
    s.restore();
    EXPECT_EQ(current().ss_sp, own.ss_sp);
    s.release();
    ::sigaltstack(&before, nullptr);
  });
}

TEST_F(SignalStack, EveryMHasOne) {
  config c;
  c.procs = 4;
  std::atomic<int> on_own{0}, elsewhere{0};
  weft::run(c, [&] {
    const auto look = [&] {
      M* m = current_m();  // does not park before it is used
      const auto at = reinterpret_cast<std::uintptr_t>(current().ss_sp);
      (m->signals.installed() && m->signals.contains(at) ? on_own : elsewhere).fetch_add(1);
    };
    look();  // m0
    weft::wait_group wg;
    for (int i = 0; i < 100; ++i) {
      wg.go([&] {
        weft::yield();
        look();
      });
    }
    wg.wait();
    look();
  });
  EXPECT_EQ(on_own.load(), 102);
  EXPECT_EQ(elsewhere.load(), 0);
}

TEST_F(SignalStack, RunLeavesTheCallersAlone) {
  on_thread([] {
    const stack_t before = current();
    void* inside = nullptr;
    weft::run([&] { inside = current().ss_sp; });
    EXPECT_NE(inside, before.ss_sp);
    EXPECT_EQ(current().ss_sp, before.ss_sp);
    EXPECT_EQ(current().ss_flags, before.ss_flags);
  });
}

TEST_F(SignalStack, ServiceThreadsHaveOne) {
  struct seen {
    note done;
    std::size_t size = 0;
  } s;
  const auto look = [](void* arg) {
    auto* r = static_cast<seen*>(arg);
    const stack_t now = current();
    r->size = (now.ss_flags & SS_DISABLE) != 0 ? 0 : now.ss_size;
    r->done.wake();
  };
  ASSERT_EQ(start_service_thread(look, &s, "weft-test"), 0);
  s.done.sleep();
  EXPECT_GE(s.size, signal_stack::usable);
}

}  // namespace
}  // namespace weft::rt
