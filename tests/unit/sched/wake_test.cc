// SPDX-License-Identifier: Apache-2.0
// One wake-up for many: each who comes to work wakes the next, also if its thread has to be made
// first.
#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <weft/chan.hpp>
#include <weft/thread.hpp>

#include "sched/sched.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace sched_test;

class Wake : public GoTest {};

// A close makes all who wait ready with one wake-up. They compute and never give way, and main does
// neither: each of them must find a P of its own. Idle threads are few, for all there were sit in
// system calls, and nobody is preempted who could do without the wake-up.
TEST_F(Wake, ReachesAllIfThreadsHaveToBeMade) {
  constexpr int procs = 12, computing = procs - 1, calls = 12;
  for (std::size_t i = 0; i < scaled(20); ++i) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    config c = test::with_procs(procs);
    c.preempt = false;
    test::run_clean(c, [&] {
      std::atomic<int> there{0};
      std::atomic<bool> over{false};
      const chan<void> gate;
      scope s;
      for (int k = 0; k < computing; ++k)
        s.go([&] {
          gate.recv();
          ++there;
          while (!over) rt::cpu_relax();
        });
      for (int k = 0; k < calls; ++k)
        s.go([&] {
          char byte = 0;
          blocking([&] { return ::read(ends[0], &byte, 1); });
        });
      EXPECT_TRUE(eventually([&] {
        const debug::stats st = debug::runtime_stats();
        return st.waiting == computing && st.syscall == calls;
      }));
      std::thread([&] { gate.close(); }).join();  // to the global queue
      EXPECT_TRUE(test::spin_until([&] { return there == computing; })) << there;
      over = true;
      const std::string bytes(calls, 'x');
      EXPECT_EQ(::write(ends[1], bytes.data(), bytes.size()), calls);
    });
    ::close(ends[0]);
    ::close(ends[1]);
    if (HasFailure()) break;
  }
}

// On a loaded machine a thread takes its time to come. Each stop of the world takes the P back that
// waits for it; each start has one to give again, and must remember the thread.
TEST_F(Wake, AsksForNoMoreThreadsThanItHasPs) {
  std::atomic<bool> over{false};
  std::vector<std::thread> load;
  for (int i = 0; i < 4; ++i) {
    load.emplace_back([&] {
      while (!over) rt::cpu_relax();
    });
  }
  run_on(2, [] {
    const std::size_t before = debug::runtime_stats().threads;
    std::size_t most = before;
    for (std::size_t i = 0; i < scaled(5000); ++i) {
      set_procs(1 + static_cast<int>(i % 2));
      most = std::max<std::size_t>(most, debug::runtime_stats().threads);
    }
    EXPECT_LE(most, before + 4);
  });
  over = true;
  for (std::thread& t : load) t.join();
}

std::uint32_t idle_ms() {
  rt::sched.lock.lock();
  const std::uint32_t n = rt::sched.nmidle;
  rt::sched.lock.unlock();
  return n;
}

// A thread takes long to come once every CPU computes: one is made with those that are to compute,
// before anybody has to be stopped.
TEST_F(Wake, OneIsInReserve) {
  run_on(2, [] {
    std::atomic<bool> there{false}, over{false};
    scope s;
    s.go([&] {
      there = true;
      while (!over) {
      }
    });
    while (!there) {
    }
    EXPECT_TRUE(test::spin_until([] { return idle_ms() != 0; }));
    EXPECT_EQ(rt::sched.idle.load().idle_ps, 0U);
    over = true;
  });
}

// Spares come as many as are asked for; no more are asked for before those have come, and none past
// the limit, which would be fatal.
TEST_F(Wake, SparesComeInNumber) {
  run_on(1, [] {
    yield();  // off the first thread, to one that is made for it
    const auto threads = [] { return rt::sched.mcount.load(rt::memory_order_relaxed); };
    ASSERT_TRUE(eventually([] { return idle_ms() != 0; }));  // the one in reserve
    const std::uint32_t before = threads(), idle_before = idle_ms();
    rt::request_spares(5);
    EXPECT_EQ(threads(), before + 5);
    EXPECT_TRUE(eventually([&] { return idle_ms() == idle_before + 5; }));
    // The last ones before the limit, as many as there are Ps, are not for reserves.
    const std::size_t limit = set_max_threads(threads() + 2);
    rt::request_spares(5);
    EXPECT_EQ(threads(), before + 6);
    EXPECT_TRUE(eventually([&] { return idle_ms() == idle_before + 6; }));
    rt::request_spares(5);  // but for the first of them
    EXPECT_EQ(threads(), before + 7);
    EXPECT_TRUE(eventually([&] { return idle_ms() == idle_before + 7; }));
    rt::request_spares(5);
    EXPECT_EQ(threads(), before + 7);
    set_max_threads(limit);
  });
}

}  // namespace
}  // namespace weft
