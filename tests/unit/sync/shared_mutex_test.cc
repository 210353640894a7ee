// SPDX-License-Identifier: Apache-2.0
// weft::shared_mutex.
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include <weft/sync.hpp>

#include "core/current.h"
#include "unit/sched/support.h"
#include "unit/sync/support.h"

namespace weft {
namespace {

using namespace sched_test;
using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

class SharedMutex : public GoTest {};

constinit shared_mutex at_start;

bool waits(const rt::G* g) { return g != nullptr && g->state() == rt::g_status::waiting; }

TEST_F(SharedMutex, TryMatrix) {
  shared_mutex& m = at_start;
  {
    std::unique_lock w(m, std::try_to_lock);
    ASSERT_TRUE(w.owns_lock());
    EXPECT_FALSE(m.try_lock());
    EXPECT_FALSE(m.try_lock_shared());
    EXPECT_FALSE(m.try_lock_for(1ms));
    EXPECT_FALSE(m.try_lock_shared_for(1ms));
    EXPECT_FALSE(m.try_lock_shared_until(std::chrono::system_clock::now() + 1ms));
  }
  std::shared_lock r(m, std::try_to_lock);
  ASSERT_TRUE(r.owns_lock());
  EXPECT_FALSE(m.try_lock());
  EXPECT_FALSE(m.try_lock_until(steady::now() + 1ms));
  EXPECT_TRUE(m.try_lock_shared());
  m.unlock_shared();
  EXPECT_TRUE(m.try_lock_shared_for(1ms));
  m.unlock_shared();
}

void hammer(int goroutines, int threads, int rounds) {
  shared_mutex m;
  std::atomic<int> readers{0}, writers{0};
  int value = 0;
  std::atomic<int> writes{0};
  const auto work = [&](bool g, int who) {
    for (int i = 0; i < rounds; ++i) {
      const int way = (i + who) % 8;
      if (way == 0 || way == 1) {
        if (way == 0) {
          m.lock();
        } else if (!m.try_lock_for(30us)) {
          continue;
        }
        EXPECT_EQ(++writers, 1);
        EXPECT_EQ(readers, 0);
        ++value;
        ++writes;
        if (g && i % 4 == 0) yield();
        --writers;
        m.unlock();
      } else {
        if (way == 2) {
          if (!m.try_lock_shared_for(30us)) continue;
        } else {
          m.lock_shared();
        }
        ++readers;
        EXPECT_EQ(writers, 0);
        if (g && i % 4 == 0) yield();
        --readers;
        m.unlock_shared();
      }
    }
  };
  std::vector<std::thread> ts;
  for (int i = 0; i < threads; ++i) ts.emplace_back([&, i] { work(false, i); });
  {
    scope s;
    for (int i = 0; i < goroutines; ++i) s.go([&, i] { work(true, i); });
    s.wait();
  }
  for (auto& t : ts) t.join();
  EXPECT_EQ(value, writes);
  EXPECT_TRUE(m.try_lock());
}

TEST_F(SharedMutex, Goroutines) {
  run_on_each([] { hammer(10, 0, scaled(1000)); });
}
TEST_F(SharedMutex, Threads) { hammer(0, 4, scaled(2000)); }
TEST_F(SharedMutex, GoroutinesAndThreads) {
  run_on_each([] { hammer(6, 3, scaled(500)); });
}

TEST_F(SharedMutex, AWriterThatGivesUpLetsReadersIn) {
  run_on_each([] {
    shared_mutex m;
    m.lock_shared();
    scope s;
    std::atomic<rt::G*> w{nullptr};
    std::atomic<bool> gave_up{false};
    s.go([&] {
      w = rt::current_g();
      EXPECT_FALSE(m.try_lock_for(20ms));
      gave_up = true;
    });
    EXPECT_TRUE(eventually([&] { return waits(w) || gave_up; }));
    std::thread t([&] {
      m.lock_shared();  // behind the writer
      m.unlock_shared();
    });
    s.go([&] {
      m.lock_shared();
      m.unlock_shared();
    });
    s.wait();
    t.join();
    EXPECT_TRUE(gave_up);
    m.unlock_shared();
    EXPECT_TRUE(m.try_lock());
    m.unlock();
  });
}

TEST_F(SharedMutex, MayGoWithItsLastUse) {
  struct shared {
    shared_mutex m;
    int users;
  };
  run_on_each([] {
    for (int round = 0; round < scaled(500); ++round) {
      auto* s = new shared{{}, 3};
      const auto leave = [s](bool reads_first) {
        if (reads_first) {
          s->m.lock_shared();
          s->m.unlock_shared();
        }
        s->m.lock();
        const bool last = --s->users == 0;
        s->m.unlock();
        if (last) delete s;
      };
      scope sc;
      for (int i = 0; i < 2; ++i) sc.go([&leave, i] { leave(i == 0); });
      leave(true);
    }
  });
}

// A writer that was left waiting by a run that is over must not bar readers.
TEST_F(SharedMutex, OutlivesItsRun) {
  static shared_mutex m;
  for (const int dead : {1, 3}) {
    m.lock_shared();
    const auto leave_some = [dead] {
      run(test::with_procs(2), [dead] {
        std::atomic<int> queued{0};
        std::atomic<rt::G*> last{nullptr};
        for (int i = 0; i < dead; ++i) {
          go([&] {
            last = rt::current_g();
            ++queued;
            m.lock();
          });
          EXPECT_TRUE(eventually([&] { return queued == i + 1 && waits(last); }));
        }
        go([&] {  // behind them
          last = rt::current_g();
          ++queued;
          m.lock_shared();
        });
        EXPECT_TRUE(eventually([&] { return queued == dead + 1 && waits(last); }));
      });
    };
    leave_some();
    EXPECT_TRUE(m.try_lock_shared());
    m.unlock_shared();
    leave_some();
    EXPECT_TRUE(m.try_lock_shared_for(10s));
    m.unlock_shared();
    leave_some();
    run_on(2, [] {
      m.lock_shared();
      m.unlock_shared();
    });
    leave_some();
    EXPECT_FALSE(m.try_lock_for(1ms));
    m.unlock_shared();
    EXPECT_TRUE(m.try_lock());
    m.unlock();
  }
}

// And a plain thread that stands behind it when the run ends, without anybody coming by.
TEST_F(SharedMutex, AThreadBehindOneThatIsLeftBehind) {
  shared_mutex m;
  std::thread behind;
  m.lock_shared();
  run(test::with_procs(2), [&] {
    std::atomic<rt::G*> g{nullptr};
    go([&] {
      g = rt::current_g();
      m.lock();
    });
    EXPECT_TRUE(eventually([&] { return waits(g); }));
    const std::uint32_t still = threads_still();
    behind = std::thread([&m] {
      const std::shared_lock hold(m, test::patience);
      EXPECT_TRUE(hold.owns_lock());
    });
    EXPECT_TRUE(eventually([&] { return threads_still() == still + 1; }));
  });
  behind.join();
  m.unlock_shared();
  EXPECT_TRUE(m.try_lock());
  m.unlock();
}

}  // namespace
}  // namespace weft
