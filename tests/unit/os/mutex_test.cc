// SPDX-License-Identifier: Apache-2.0
// os/mutex.h: mutual exclusion, and the lock order that dev builds check.
#include "os/mutex.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "os/note.h"
#include "unit/support.h"

namespace weft::rt {
namespace {

using unit_test::in_child;

TEST(RtMutex, MutualExclusion) {
  mutex m(lock_rank::leaf);
  std::uint64_t count = 0;  // not atomic: the lock orders it
  int inside = 0;
  bool alone = true;
  constexpr int threads = 4, each = unit_test::scaled(100'000);
  std::vector<std::thread> ts;
  for (int t = 0; t < threads; ++t) {
    ts.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) {
        if (t == 0 && i % 4 == 0) {
          while (!m.try_lock()) std::this_thread::yield();
        } else {
          m.lock();
        }
        alone = alone && ++inside == 1;
        ++count;
        if (i % 64 == 0)
          std::this_thread::yield();  // holds it while others come, so that they sleep
        --inside;
        m.unlock();
      }
    });
  }
  for (auto& t : ts) t.join();
  EXPECT_TRUE(alone);
  EXPECT_EQ(count, static_cast<std::uint64_t>(threads) * each);
  EXPECT_FALSE(m.is_locked());
}

TEST(RtMutex, TryLockAndIsLocked) {
  mutex m(lock_rank::leaf);
  EXPECT_FALSE(m.is_locked());
  ASSERT_TRUE(m.try_lock());
  EXPECT_TRUE(m.is_locked());
  std::thread([&] { EXPECT_FALSE(m.try_lock()); }).join();
  m.unlock();
  EXPECT_FALSE(m.is_locked());
  EXPECT_EQ(ranks_held(), 0);
}

TEST(RtMutex, ASleeperIsWoken) {
  mutex m(lock_rank::leaf);
  for (int i = 0; i < unit_test::scaled(1'000); ++i) {
    note here;
    m.lock();
    std::thread t([&] {
      here.wake();
      m.lock();  // sleeps, or comes just in time
      m.unlock();
    });
    here.sleep();
    std::this_thread::yield();
    m.unlock();
    t.join();
  }
}

TEST(RtMutex, RanksAreCounted) {
  if (!unit_test::dev) GTEST_SKIP() << "checked in dev builds";
  mutex a(lock_rank::world), b(lock_rank::sched), c(lock_rank::leaf);
  EXPECT_EQ(ranks_held(), 0);
  a.lock();
  b.lock();
  c.lock();
  EXPECT_EQ(ranks_held(), 3);
  std::thread([] { EXPECT_EQ(ranks_held(), 0); }).join();  // per thread
  a.unlock();                                              // in any order
  EXPECT_EQ(ranks_held(), 2);
  c.unlock();
  b.unlock();
  EXPECT_EQ(ranks_held(), 0);
}

TEST(RtMutex, WrongOrderIsFatal) {
  if (!unit_test::dev) GTEST_SKIP() << "checked in dev builds";
  const auto wrong = [](lock_rank first, lock_rank second, bool by_try) {
    return in_child([=] {
      mutex a(first), b(second);
      a.lock();
      if (by_try) {
        if (b.try_lock()) ::_exit(7);
      } else {
        b.lock();
      }
    });
  };
  struct row {
    lock_rank first, second;
    bool fatal;
  };
  for (const row& r : {row{lock_rank::sched, lock_rank::world, true},    // downwards
                       row{lock_rank::leaf, lock_rank::leaf, true},      // the same rank
                       row{lock_rank::stack, lock_rank::run, true},      // last, first
                       row{lock_rank::world, lock_rank::sched, false}})  // as it should be
  {
    const auto end = wrong(r.first, r.second, false);
    EXPECT_EQ(end.exit_status, r.fatal ? 2 : 0);
    EXPECT_EQ(end.err.rfind("fatal error: lock order: rank ", 0) == 0, r.fatal) << end.err;
    EXPECT_EQ(wrong(r.first, r.second, true).exit_status, r.fatal ? 2 : 7);
  }
}

TEST(RtMutex, UnlockingWhatOneDoesNotHoldIsFatal) {
  if (!unit_test::dev) GTEST_SKIP() << "checked in dev builds";
  const auto end = in_child([] {
    mutex a(lock_rank::sched);
    a.unlock();
  });
  EXPECT_EQ(end.exit_status, 2);
  EXPECT_NE(end.err.find("lock order: unlock of a lock this thread does not hold"),
            std::string::npos)
      << end.err;
}

constinit mutex before_main(lock_rank::leaf);  // usable before main, and constant-initialised
const bool used_before_main = [] {
  before_main.lock();
  before_main.unlock();
  return true;
}();

TEST(RtMutex, WorksBeforeMain) { EXPECT_TRUE(used_before_main); }

}  // namespace
}  // namespace weft::rt
