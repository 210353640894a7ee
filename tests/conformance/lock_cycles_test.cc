// SPDX-License-Identifier: Apache-2.0
// Goroutines that wait for one another's locks are named, with the locks, while the rest of the
// program runs on; and nobody else is. Reports of a dead process: tests/crash/ded_test.cc.
//
// Locks know the goroutines of the first run only (debug/lock_cycles.cc); each test is a process of
// its own.
#include <array>
#include <gtest/gtest.h>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

#include "debug/lock_cycles.h"
#include "sched/procs.h"
#include "sched/sched.h"
#include "support/dumped.h"
#include "support/effort.h"
#include "support/leaking.h"
#include "support/leaks.h"
#include "support/runtime.h"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

std::string address(const void* p) {
  std::ostringstream out;
  out << p;
  return out.str();
}

std::string waits(std::uint64_t who, const char* kind, const void* lock, std::uint64_t owner) {
  return "\tgoroutine " + std::to_string(who) + " waits for the " + kind + " at " + address(lock) +
         ", locked by " + (who == owner ? "itself, " : "") + "goroutine " + std::to_string(owner) +
         "\n";
}

std::size_t cycles_in(const std::string& text) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find("cycle of locks:\n", at)) != std::string::npos; ++at)
    ++n;
  return n;
}

void in_first_run(void (*f)()) {
  if (rt::sched.run_id.load() != 0) GTEST_SKIP() << "not the first run of this process";
  goroutines_are_left_behind = true;
  weft::run(with_procs(2), f);
}

bool wait_for(std::uint64_t n) {
  return eventually([n] { return debug::runtime_stats().waiting == n; });
}

TEST(LockCycles, TwoAndTwo) {
  in_first_run([] {
    static mutex a;
    static shared_mutex b;
    static std::array<std::uint64_t, 2> ids;
    static latch both(2);
    go([] {
      ids[0] = goid();
      a.lock();
      both.arrive_and_wait();
      b.lock_shared();
    });
    go([] {
      ids[1] = goid();
      b.lock();
      both.arrive_and_wait();
      a.lock();
    });
    go([] {  // waits for the cycle, but is no part of it
      both.wait();
      a.lock();
    });
    ASSERT_TRUE(wait_for(3));
    const std::string text = dumped();
    EXPECT_EQ(cycles_in(text), 1U) << text;
    EXPECT_NE(text.find(waits(ids[0], "shared_mutex", &b, ids[1])), std::string::npos) << text;
    EXPECT_NE(text.find(waits(ids[1], "mutex", &a, ids[0])), std::string::npos) << text;
    EXPECT_TRUE(text.ends_with("\n")) << text;
  });
}

TEST(LockCycles, ThreeInARing) {
  in_first_run([] {
    static std::array<mutex, 3> locks;
    static std::array<std::uint64_t, 3> ids;
    static latch all(3);
    for (std::size_t i = 0; i < 3; ++i) {
      go([i] {
        ids[i] = goid();
        locks[i].lock();
        all.arrive_and_wait();
        if (i == 0) {
          (void)locks[1].try_lock_for(1h);  // it may give up, but waits now
        } else {
          locks[(i + 1) % 3].lock();
        }
      });
    }
    ASSERT_TRUE(wait_for(3));
    const std::string text = dumped();
    EXPECT_EQ(cycles_in(text), 1U) << text;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NE(text.find(waits(ids[i], "mutex", &locks[(i + 1) % 3], ids[(i + 1) % 3])),
                std::string::npos)
          << text;
    }
  });
}

// The owner by each way to lock: at once, by try_lock, after a wait, handed over.
TEST(LockCycles, OneAloneByEachWay) {
  in_first_run([] {
    static mutex at_once, tried, waited;
    static shared_mutex as_writer, tried_writer;
    static std::array<std::uint64_t, 5> ids;
    go([] {
      ids[0] = goid();
      at_once.lock();
      at_once.lock();
    });
    go([] {
      ids[1] = goid();
      EXPECT_TRUE(tried.try_lock());
      tried.lock();
    });
    waited.lock();
    go([] {
      ids[2] = goid();
      waited.lock();
      waited.lock();
    });
    go([] {
      ids[3] = goid();
      as_writer.lock();
      as_writer.lock();
    });
    go([] {
      ids[4] = goid();
      EXPECT_TRUE(tried_writer.try_lock());
      tried_writer.lock_shared();
    });
    ASSERT_TRUE(wait_for(5));
    sleep_for(5ms);  // it starves by now, and is handed the mutex
    waited.unlock();
    EXPECT_TRUE(eventually([] { return cycles_in(dumped()) == 5; }));
    const std::string text = dumped();
    const void* locks[] = {&at_once, &tried, &waited, &as_writer, &tried_writer};
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_NE(text.find(waits(ids[i], i < 3 ? "mutex" : "shared_mutex", locks[i], ids[i])),
                std::string::npos)
          << text;
    }
  });
}

TEST(LockCycles, LeaksNameTheirCycle) {
  if (cannot_find_leaks) GTEST_SKIP();
  in_first_run([] {
    apart([] {
      go([] {
        mutex m;
        m.lock();
        m.lock();
      });
    });
    const auto found = all_leaks(1);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_NE(found[0].trace.find("\ncycle of locks:\n\tgoroutine " +
                                  std::to_string(found[0].goid) + " waits for the mutex at 0x"),
              std::string::npos)
        << found[0].trace;
  });
}

// -- who must not be named

// Its goroutine is over, and the next one has its cell and stack.
TEST(LockCycles, NotTheOneWhoHasTheCellOfTheOwner) {
  in_first_run([] {
    static mutex m;
    for (int i = 0; i < 4; ++i) {
      scope s;
      s.go([] { (void)m.try_lock(); });
    }
    for (int i = 0; i < 4; ++i) go([] { m.lock(); });
    ASSERT_TRUE(wait_for(4));
    EXPECT_EQ(cycles_in(dumped()), 0U) << dumped();
  });
}

TEST(LockCycles, NotAPlainThreadNorReaders) {
  in_first_run([] {
    static mutex a, b;
    static shared_mutex c;
    blocking([] { std::thread([] { a.lock(); }).join(); });
    c.lock_shared();
    go([] {
      b.lock();
      a.lock();
    });
    ASSERT_TRUE(wait_for(1));
    go([] { b.lock(); });
    go([] { c.lock(); });
    ASSERT_TRUE(wait_for(3));
    EXPECT_EQ(cycles_in(dumped()), 0U) << dumped();
  });
}

// Many lock in an order that cannot fail, and a look at any moment finds no cycle.
TEST(LockCycles, NoneAmongThoseWhoGoOn) {
  in_first_run([] {
    static std::array<mutex, 4> locks;
    static rt::atomic<bool> over{false};
    scope s;
    for (unsigned k = 0; k < 8; ++k) {
      s.go([k] {
        for (unsigned i = k; !over; i = i * 5 + 1) {
          const std::size_t low = i % 3, high = low + 1 + i / 3 % (3 - low);
          const std::lock_guard first(locks[low]);
          const std::lock_guard second(locks[high]);
          if (i % 4 == 0) yield();
        }
      });
    }
    const int looks = scaled(static_cast<int>(8000 * effort()));
    for (int i = 0; i < looks; ++i) {
      rt::arena memory;
      rt::arena_list<rt::lock_wait> cycles;
      {
        const rt::stopped_world w;
        rt::find_lock_cycles(memory, cycles);
      }
      ASSERT_EQ(cycles.size(), 0U) << dumped();
    }
    over = true;
  });
}

}  // namespace
}  // namespace weft::test
