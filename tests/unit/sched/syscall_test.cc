// SPDX-License-Identifier: Apache-2.0
// blocking(): who hands the P on, and when.
#include <atomic>
#include <ctime>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <thread>
#include <vector>

#include <weft/thread.hpp>
#include <weft/time.hpp>

#include "sched/sched.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace sched_test;
using namespace std::chrono_literals;

class Syscall : public GoTest {};

bool calls_last() { return rt::current_g()->slow_calls; }

// f on a goroutine, at one P that main wants all the time.
template <class F>
void beside_one_who_waits(F f) {
  run_on(1, [&f] {
    std::atomic<bool> over{false};
    auto t = weft::async([&] {
      f();
      over = true;
    });
    while (!over) weft::yield();
    t.get();
  });
}

TEST_F(Syscall, OneWhoseCallsLastHandsItsPOn) {
  beside_one_who_waits([] {
    EXPECT_TRUE(eventually([] {
      weft::blocking([] { std::this_thread::sleep_for(1ms); });
      return calls_last();
    }));
    rt::hold_state inside = rt::hold_state::owned;
    weft::blocking([&inside] {
      inside = rt::current_m()->hold.load(rt::memory_order_acquire);
      std::this_thread::sleep_for(1ms);
    });
    EXPECT_EQ(inside, rt::hold_state::detached);
    EXPECT_TRUE(calls_last());
  });
}

TEST_F(Syscall, AShortCallMakesItForget) {
  beside_one_who_waits([] {
    EXPECT_TRUE(eventually([] {
      weft::blocking([] { std::this_thread::sleep_for(1ms); });
      return calls_last();
    }));
    EXPECT_TRUE(eventually([] {  // a loaded machine makes any call long
      weft::blocking([] {});
      return !calls_last();
    }));
  });
}

TEST_F(Syscall, NobodyWaitsAndThePStays) {
  run_on(1, [] {
    EXPECT_TRUE(eventually([] {  // on a loaded machine sysmon may think the call long
      rt::current_g()->slow_calls = true;
      rt::hold_state inside = rt::hold_state::owned;
      weft::blocking([&inside] { inside = rt::current_m()->hold.load(rt::memory_order_acquire); });
      return inside == rt::hold_state::syscall;
    }));
  });
}

// It was sent while the goroutine computed, and comes when the P is somebody else's.
TEST_F(Syscall, ASignalThatComesLateDoesNotEndTheCall) {
  beside_one_who_waits([] {
    rt::hold_state after = rt::hold_state::owned;
    rt::g_status status = rt::g_status::running;
    weft::blocking([&] {
      rt::M* m = rt::current_m();
      const auto hold = [m] { return m->hold.load(rt::memory_order_acquire); };
      while (hold() != rt::hold_state::detached) std::this_thread::sleep_for(1ms);
      EXPECT_TRUE(rt::ask_to_stop(m));
      std::this_thread::sleep_for(1ms);
      after = hold();
      status = rt::current_g()->state();
    });
    EXPECT_EQ(after, rt::hold_state::detached);
    EXPECT_EQ(status, rt::g_status::syscall);
  });
}

#if defined(__x86_64__)
// sysmon and those who stop the world ask at one time, and a signal that comes when another has
// been answered is still one of ours: the call that it meets is issued again.
TEST_F(Syscall, OfManyWhoAskNobodyEndsACall) {
  run_on(2, [] {
    const os_thread_guard stay;
    rt::M* const m = rt::current_m();
    const int slack = ::prctl(PR_GET_TIMERSLACK);
    ::prctl(PR_SET_TIMERSLACK, 1UL);
    std::atomic<bool> over{false};
    std::vector<std::thread> askers;
    for (int i = 0; i < 3; ++i) {
      askers.emplace_back([&over, m] {
        while (!over.load(std::memory_order_relaxed)) {
          rt::ask_to_stop(m);
          const auto until = clock::now() + 50us;
          while (clock::now() < until) {
          }
        }
      });
    }
    int interrupted = 0;
    for (int i = 0; i < scaled(10'000); ++i) {
      const timespec t{0, 20'000};
      if (::nanosleep(&t, nullptr) != 0) ++interrupted;
    }
    over = true;
    for (std::thread& t : askers) t.join();
    ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack));
    EXPECT_EQ(interrupted, 0);
  });
}
#endif

}  // namespace
}  // namespace weft
