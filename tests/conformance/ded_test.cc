// SPDX-License-Identifier: Apache-2.0
// DED-11: a null pointer as an exception. Built with -fnon-call-exceptions where the compiler has
// it; the function that faults is called through a pointer, which will do without. The rest of DED
// is in tests/crash. FRN-07 is here for its faults.
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "support/runtime.h"
#include "weft/chan.hpp"
#include "weft/fault.hpp"
#include "weft/sync.hpp"
#include "weft/thread.hpp"
#include "weft/time.hpp"

namespace weft::test {
namespace {

struct pair {
  int first, second;
};

__attribute__((noinline, no_sanitize("undefined", "address", "thread"))) int read_second(
    const pair* p) {
  return p->second;
}
int (*volatile second_of)(const pair*) = read_second;
void (*volatile null_function)() = nullptr;

// True: the access threw, and said where.
bool recovers() {
  try {
    (void)second_of(nullptr);
  } catch (const memory_fault& f) {
    return f.address() == offsetof(pair, second) && f.code() == SEGV_MAPERR &&
           f.what() ==
               std::string("runtime error: invalid memory address or nil pointer dereference");
  }
  return false;
}

class Faults : public ::testing::Test {
 protected:
  void SetUp() override {
    EXPECT_FALSE(throw_on_fault(true));
    if (!throw_on_fault(true)) GTEST_SKIP() << "not on this architecture";
    if (under_tsan) GTEST_SKIP() << "TSan's handlers stand before ours";
  }
  void TearDown() override { throw_on_fault(false); }
};

TEST_F(Faults, DED_11_recoverable_on_main_and_on_locked_threads) {
  run_clean([] {
    EXPECT_TRUE(recovers());
    for (int i = 0; i < 2; ++i) {
      wait_group wg;
      wg.go([] {
        const os_thread_guard locked;
        EXPECT_TRUE(recovers());
        yield();
        EXPECT_TRUE(recovers());
      });
      wg.wait();
    }
    EXPECT_TRUE(recovers());
  });
}

// Destructors on the way run, values are there afterwards, and the signal is not blocked.
TEST_F(Faults, DED_11_again_and_again) {
  run_clean([] {
    int destroyed = 0, caught = 0;
    for (int i = 0; i < 1000; ++i) {
      try {
        const struct counts {
          int& n;
          ~counts() { ++n; }
        } c{destroyed};
        (void)second_of(reinterpret_cast<const pair*>(std::uintptr_t{8}));
      } catch (const memory_fault& f) {
        caught += f.address() == 8 + offsetof(pair, second) ? 1 : 0;
      }
    }
    EXPECT_EQ(destroyed, 1000);
    EXPECT_EQ(caught, 1000);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    EXPECT_EQ(sigismember(&mask, SIGSEGV), 0);
    EXPECT_EQ(sigismember(&mask, SIGURG), 0);
  });
}

TEST_F(Faults, DED_11_a_call_of_null) {
  run_clean([] { EXPECT_THROW(null_function(), memory_fault); });
}

// The thread that calls run has a signal stack for the time of it, and its own again afterwards.
TEST_F(Faults, FRN_07_a_threads_own_signal_stack_is_put_back) {
  for (const bool own : {false, true, false, true}) {
    std::thread([own] {
      std::vector<char> room(64 * 1024);
      stack_t mine{};
      mine.ss_sp = room.data();
      mine.ss_size = room.size();
      if (own) {
        ASSERT_EQ(::sigaltstack(&mine, nullptr), 0);
      }
      stack_t before{}, after{};
      ::sigaltstack(nullptr, &before);
      run_clean([] {
        EXPECT_TRUE(recovers());
        stack_t now{};
        ::sigaltstack(nullptr, &now);
        EXPECT_EQ(now.ss_flags & SS_DISABLE, 0);
      });
      ::sigaltstack(nullptr, &after);
      EXPECT_EQ(after.ss_sp, before.ss_sp);
      EXPECT_EQ(after.ss_flags, before.ss_flags);
      EXPECT_TRUE(!own || after.ss_sp == room.data());
      mine.ss_flags = SS_DISABLE;
      if (own) ::sigaltstack(&mine, nullptr);
    }).join();
  }
}

// A callback leaves a thread's signal stack alone, whether it has one or not.
TEST_F(Faults, FRN_07_a_callback_does_not_touch_it) {
  run_clean([] {
    for (const bool own : {false, true, false, true}) {
      std::thread t([own] {
        std::vector<char> room(64 * 1024);
        stack_t mine{};
        mine.ss_sp = room.data();
        mine.ss_size = room.size();
        if (own) {
          ASSERT_EQ(::sigaltstack(&mine, nullptr), 0);
        }
        stack_t before{}, after{};
        ::sigaltstack(nullptr, &before);
        EXPECT_TRUE(async(recovers).get());
        ::sigaltstack(nullptr, &after);
        EXPECT_EQ(after.ss_sp, before.ss_sp);
        EXPECT_EQ(after.ss_flags, before.ss_flags);
        mine.ss_flags = SS_DISABLE;
        if (own) ::sigaltstack(&mine, nullptr);
      });
      blocking([&] { t.join(); });
    }
  });
}

// 100 Ps, 2 x 64 sleepers on threads of their own, one that faults in a loop, and pings.
TEST_F(Faults, DED_11_others_go_on_meanwhile) {
  run_clean(with_procs(100), [] {
    std::atomic<bool> over{false};
    wait_group wg;
    for (int i = 0; i < 128; ++i) {
      wg.go([&] {
        const os_thread_guard locked;
        while (!over) sleep_for(1ms);
      });
    }
    const chan<int> ping, pong;
    wg.go([&] {
      while (!over) {
        EXPECT_TRUE(recovers());
        int n = 0;
        if (ping.try_recv(n) == recv_status::ok) pong.send(n);
      }
    });
    const int pings = full_or(64, 8);
    for (int i = 0; i < pings; ++i) {
      int back = -1;
      ASSERT_EQ(ping.send_for(i, patience), send_status::ok);
      ASSERT_EQ(pong.recv_for(back, patience), recv_status::ok);
      ASSERT_EQ(back, i);
    }
    over = true;
    wg.wait();
  });
}

}  // namespace
}  // namespace weft::test
