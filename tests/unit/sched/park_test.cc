// SPDX-License-Identifier: Apache-2.0
// park, ready, waiter and parking_lock: what everything that blocks is made of.
#include <array>
#include <atomic>
#include <cstdint>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "sched/park.h"
#include "sched/procs.h"
#include "sched/waiter.h"
#include "support/chaos.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace sched_test;

class Park : public GoTest {};

bool waits(const rt::G* g) { return g != nullptr && g->state() == rt::g_status::waiting; }

// A place where one goroutine waits and shows itself to its waker.
struct bench {
  std::atomic<rt::G*> sitting{nullptr};

  void sit() {
    rt::park(
        [](void* g, void* self) {
          static_cast<bench*>(self)->sitting.store(static_cast<rt::G*>(g),
                                                   std::memory_order_release);
        },
        this, rt::wait_reason::internal);
  }
  // Waits for the sitter, without a runtime call if `spin`.
  void call(bool spin = false) {
    rt::G* g = nullptr;
    while ((g = sitting.exchange(nullptr, std::memory_order_acquire)) == nullptr) {
      if (spin) {
        std::this_thread::yield();
      } else {
        weft::yield();
      }
    }
    rt::ready(g);
  }
};

TEST_F(Park, ReadyFromAGoroutine) {
  run_on_each([] {
    bench b;
    int rounds = 0;
    auto sitter = weft::async([&] {
      for (int i = 0; i < scaled(1000); ++i) {
        b.sit();
        ++rounds;
      }
    });
    for (int i = 0; i < scaled(1000); ++i) b.call();
    sitter.get();
    EXPECT_EQ(rounds, scaled(1000));
  });
}

TEST_F(Park, ReadyFromAPlainThread) {
  run_on_each([] {
    bench b;
    std::thread caller([&] {
      for (int i = 0; i < scaled(1000); ++i) b.call(true);
    });
    for (int i = 0; i < scaled(1000); ++i) b.sit();  // main itself parks: nothing else is there
    caller.join();
  });
}

TEST_F(Park, ARefusedCommitGoesOn) {
  run_on_each([] {
    int commits = 0;
    for (int i = 0; i < 100; ++i) {
      rt::park(
          [](void* g, void* n) {
            ++*static_cast<int*>(n);
            rt::refuse(g);
          },
          &commits, rt::wait_reason::internal);
    }
    EXPECT_EQ(commits, 100);
  });
}

TEST_F(Park, TheCommitRunsWhenTheGoroutineIsSaved) {
  run_on_each([] {
    struct look {
      rt::G* g;
      rt::g_status status = rt::g_status::idle;
      bool elsewhere = false;
      bool no_m = false;
    } l{rt::current_g()};
    rt::park(
        [](void* g, void* arg) {
          auto* seen = static_cast<look*>(arg);
          auto* self = static_cast<rt::G*>(g);
          seen->status = self->state();
          const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
          seen->elsewhere = here < self->stk.lo || here >= self->stk.hi;
          seen->no_m = self->m.load() == nullptr;
          rt::refuse(g);
        },
        &l, rt::wait_reason::internal);
    EXPECT_EQ(l.status, rt::g_status::waiting);
    EXPECT_TRUE(l.elsewhere);
    EXPECT_TRUE(l.no_m);
  });
}

TEST_F(Park, AParkedGoroutineTellsWhy) {
  run_on(2, [] {
    bench b;
    std::atomic<rt::G*> g{nullptr};
    auto sitter = weft::async([&] {
      g = rt::current_g();
      b.sit();
    });
    EXPECT_TRUE(eventually([&] { return b.sitting.load() != nullptr; }));
    EXPECT_EQ(g.load()->state(), rt::g_status::waiting);
    EXPECT_EQ(g.load()->reason, rt::wait_reason::internal);
    b.call();
    sitter.get();
  });
}

TEST_F(Park, TheReadiedOneRunsNext) {
  const test::order_matters here("who runs next");
  run_unpreempted(1, [] {
    bench b;
    std::vector<int> order;
    auto sitter = weft::async([&] {
      b.sit();
      order.push_back(1);
    });
    while (b.sitting.load() == nullptr) weft::yield();
    scope s;
    s.go([&] { order.push_back(2); });
    s.go([&] { order.push_back(3); });
    b.call();  // into runnext, before those who wait already
    sitter.wait();
    EXPECT_EQ(order.empty() ? 0 : order.front(), 1);
    s.wait();
  });
}

TEST_F(Park, GenerationRisesWithEachLife) {
  run_on(1, [] {
    rt::G* g = nullptr;
    std::uint32_t before = 0;
    weft::async([&] {
      g = rt::current_g();
      before = g->generation;
    }).get();
    EXPECT_TRUE(alone());
    EXPECT_EQ(g->generation, before + 1);  // type-stable: a late waker may look
    EXPECT_EQ(g->state(), rt::g_status::dead);
  });
}

// -- waiter and parking_lock, by goroutines and plain threads alike

TEST_F(Park, ParkingLockExcludes) {
  run_on_each([] {
    rt::parking_lock lock;
    int inside = 0, count = 0;  // not atomic: the lock orders them
    bool alone_inside = true;
    const auto work = [&](bool thread) {
      for (int i = 0; i < scaled(200); ++i) {
        lock.lock(rt::wait_reason::internal);
        alone_inside = alone_inside && ++inside == 1;
        ++count;
        if (!thread && i % 8 == 0) weft::yield();
        --inside;
        lock.unlock();
      }
    };
    std::vector<std::thread> ts;
    for (int i = 0; i < 2; ++i) ts.emplace_back([&] { work(true); });
    {
      scope s;
      for (int i = 0; i < 8; ++i) s.go([&] { work(false); });
    }
    for (auto& t : ts) t.join();
    EXPECT_TRUE(alone_inside);
    EXPECT_EQ(count, 10 * scaled(200));
  });
}

TEST_F(Park, ParkingLockIsHandedOverInOrder) {
  run_on(1, [] {
    rt::parking_lock lock;
    std::vector<int> order;
    lock.lock(rt::wait_reason::internal);
    scope s;
    for (int i = 0; i < 5; ++i) {
      std::atomic<rt::G*> g{nullptr};
      s.go([&, i] {
        g = rt::current_g();
        lock.lock(rt::wait_reason::internal);
        order.push_back(i);
        lock.unlock();
      });
      EXPECT_TRUE(eventually([&] { return waits(g); }));
    }
    EXPECT_TRUE(order.empty());
    lock.unlock();
    s.wait();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  });
}

TEST_F(Park, WaiterListIsFirstInFirstOut) {
  rt::waiter_list l;
  EXPECT_TRUE(l.empty());
  EXPECT_EQ(l.pop(), nullptr);
  rt::waiter a, b, c;
  l.push(&a);
  l.push(&b);
  EXPECT_EQ(l.pop(), &a);
  l.push(&c);
  EXPECT_EQ(l.pop(), &b);
  EXPECT_EQ(l.pop(), &c);
  EXPECT_TRUE(l.empty());
  l.push(&a);
  EXPECT_EQ(l.pop(), &a);
  EXPECT_EQ(l.pop(), nullptr);
}

// -- the stopped world

TEST_F(Park, TheStoppedWorldStandsStill) {
  run_on_each([] {
    // One each, stored and not added to: TSan has a lock for the others, and a goroutine that slept
    // for it would have lost its P, so that the stop need not wait for it.
    std::array<std::atomic<std::uint64_t>, 10> moves{};
    const auto sum = [&] {
      std::uint64_t n = 0;
      for (const auto& m : moves) n += m.load(std::memory_order_relaxed);
      return n;
    };
    std::atomic<bool> stop{false};
    scope s;
    for (auto& mine : moves) {
      s.go([&] {
        for (std::uint64_t n = 1; !stop; ++n) {
          mine.store(n, std::memory_order_relaxed);
          weft::yield();
        }
      });
    }
    for (int i = 0; i < scaled(100); ++i) {
      weft::yield();
      rt::stopped_world w;
      const std::uint64_t before = sum();
      for (int k = 0; k < 2000; ++k) rt::cpu_relax();
      EXPECT_EQ(sum(), before);
    }
    stop = true;
  });
}

TEST_F(Park, StopsFromSeveralSidesTakeTurns) {
  run_on_each([] {
    std::atomic<int> holders{0}, stops{0};
    const auto stop_a_few_times = [&] {
      for (int i = 0; i < 20; ++i) {
        rt::stopped_world w;
        EXPECT_EQ(++holders, 1);
        ++stops;
        --holders;
      }
    };
    event thread_done;  // a join would keep the P that the thread wants to stop
    std::thread t([&] {
      stop_a_few_times();
      thread_done.set();
    });
    {
      scope s;
      for (int i = 0; i < 4; ++i) s.go(stop_a_few_times);
    }
    thread_done.wait();
    t.join();
    EXPECT_EQ(stops, 100);
  });
}

}  // namespace
}  // namespace weft
