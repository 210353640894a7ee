// SPDX-License-Identifier: Apache-2.0
// PRK: park and ready. The semaphore with hand-off and the lock-free stack are stand-ins that live
// with the tests (tests/support).
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "sched/waiter.h"
#include "support/lfstack.h"
#include "support/runtime.h"
#include "support/semaphore.h"
#include "weft/detail/event.hpp"
#include "weft/go.hpp"
#include "weft/sync.hpp"

namespace weft::test {
namespace {

// -- PRK-01

// One round of the race: true if the waiter was faster than the one who released it.
bool waiter_wins() {
  semaphore sema(0);
  std::atomic<int> winner{0};
  std::atomic<bool> done{false};
  const auto claim = [&winner](int who) {
    int nobody = 0;
    winner.compare_exchange_strong(nobody, who);
  };
  scope s;
  // No P is idle, so that nobody carries the releaser off to where it could win.
  for (int i = 0; i < procs(); ++i) {
    s.go([&done] {
      while (!done.load(std::memory_order_relaxed)) yield();
    });
  }
  s.go([&] {
    sema.acquire();
    claim(1);
    done.store(true, std::memory_order_relaxed);
  });
  while (sema.waiting() == 0) yield();
  sema.release(true);
  claim(2);
  s.wait();
  return winner.load() == 1;
}

void hand_off(const config& c) {
  constexpr int rounds = full_or(10'000, 500);
  run_clean(c, [] {
    int wins = 0;
    for (int i = 0; i < rounds; ++i) wins += waiter_wins() ? 1 : 0;
    EXPECT_GE(wins, rounds * 2 / 3);
  });
}

TEST(Conformance, PRK_01_hand_off) { hand_off(config::from_env()); }
TEST(Conformance, PRK_01_hand_off_with_1_p) { hand_off(with_procs(1)); }
TEST(Conformance, PRK_01_hand_off_with_2_ps) { hand_off(with_procs(2)); }

TEST(Conformance, PRK_01_semaphore_of_1) {
  constexpr int goroutines = 10, rounds = 1000;
  run_clean([] {
    semaphore sema(1);
    int inside = 0, total = 0;
    scope s;
    for (int i = 0; i < goroutines; ++i) {
      s.go([&] {
        for (int k = 0; k < rounds; ++k) {
          sema.acquire();
          EXPECT_EQ(++inside, 1);
          ++total;
          if (k % 16 == 0) yield();
          --inside;
          sema.release(k % 2 == 0);
        }
      });
    }
    s.wait();
    EXPECT_EQ(total, goroutines * rounds);
  });
}

// Goroutines and plain threads wait on the same list.
TEST(Conformance, PRK_01_semaphore_of_1_with_plain_threads) {
  constexpr int each = 4, rounds = 500;
  run_clean([] {
    semaphore sema(1);
    int inside = 0, total = 0;
    const auto work = [&] {
      for (int k = 0; k < rounds; ++k) {
        sema.acquire();
        EXPECT_EQ(++inside, 1);
        ++total;
        --inside;
        sema.release(k % 2 == 0);
      }
    };
    scope s;
    std::vector<std::thread> threads;
    for (int i = 0; i < each; ++i) {
      s.go(work);
      threads.emplace_back(work);
    }
    s.wait();
    for (auto& t : threads) t.join();
    EXPECT_EQ(total, 2 * each * rounds);
  });
}

// -- PRK-02

double cpu_ns() {
  timespec ts{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
  return static_cast<double>(ts.tv_sec) * 1e9 + static_cast<double>(ts.tv_nsec);
}

// CPU time a waiter, from its arrival to its way out, with n of them: the least of several tries.
template <class Round>
double cost_per_waiter(int n, Round round) {
  double least = 1e18;
  for (int i = 0; i < 7; ++i) {
    const double before = cpu_ns();
    round(n);
    least = std::min(least, (cpu_ns() - before) / n);
  }
  return least;
}

constexpr const char* tsan_counts =
    "TSan's own cost of a wake-up grows with the goroutines there are";

// The measure: n goroutines each of which waits on an event of its own. They need as many stacks,
// and so cost as many cache and TLB misses, as n on one primitive.
void each_on_its_own(int n) {
  std::vector<detail::event> events(static_cast<std::size_t>(n));
  std::atomic<int> came{0};  // one may be stopped in the middle of ++
  scope s;
  for (detail::event& e : events) {
    s.go([&e, &came] {
      ++came;
      e.wait();
    });
  }
  while (came < n) yield();
  for (detail::event& e : events) e.set();
  s.wait();
}

// A walk over 8000 waiters takes at least 10 times what all the rest does.
template <class Round>
void expect_constant_cost(Round round) {
  run_clean(with_procs(1), [&round] {
    for (const int n : {1000, 8000}) {
      each_on_its_own(n);  // stacks are warm from here on
      const double own = cost_per_waiter(n, each_on_its_own);
      const double shared = cost_per_waiter(n, round);
      EXPECT_LT(shared, 4 * own) << "ns a waiter with " << n << " on one primitive";
    }
  });
}

TEST(Conformance, PRK_02_gate_costs_the_same_for_8000_waiters) {
  if (under_tsan) GTEST_SKIP() << tsan_counts;
  expect_constant_cost([](int n) {
    detail::gate gate(1);
    std::atomic<int> came{0};
    gate.enter();
    scope s;
    for (int i = 0; i < n; ++i) {
      s.go([&gate, &came] {
        ++came;
        gate.enter();
        gate.leave();
      });
    }
    while (came < n) yield();  // with one P they all wait now
    gate.leave();
    s.wait();
  });
}

TEST(Conformance, PRK_02_event_costs_the_same_for_8000_waiters) {
  if (under_tsan) GTEST_SKIP() << tsan_counts;
  expect_constant_cost([](int n) {
    detail::event event;
    std::atomic<int> came{0};
    scope s;
    for (int i = 0; i < n; ++i) {
      s.go([&event, &came] {
        ++came;
        event.wait();
      });
    }
    while (came < n) yield();
    event.set();
    s.wait();
  });
}

TEST(Conformance, PRK_02_list_of_waiters_costs_the_same_for_8000_waiters) {
  if (under_tsan) GTEST_SKIP() << tsan_counts;
  expect_constant_cost([](int n) {
    semaphore sema(0);
    scope s;
    for (int i = 0; i < n; ++i) s.go([&sema] { sema.acquire(); });
    while (sema.waiting() < static_cast<std::size_t>(n)) yield();
    for (int i = 0; i < n; ++i) sema.release();
    s.wait();
  });
}

// -- PRK-05

struct counted : lfnode {
  std::uint64_t value = 0;
};

TEST(Conformance, PRK_05_lock_free_stack) {
  lfstack stack;
  EXPECT_TRUE(stack.empty());
  EXPECT_EQ(stack.pop(), nullptr);
  counted a, b;
  stack.push(&a);
  EXPECT_FALSE(stack.empty());
  stack.push(&b);
  EXPECT_EQ(stack.pop(), &b);
  stack.push(&b);
  EXPECT_EQ(stack.pop(), &b);
  EXPECT_EQ(stack.pop(), &a);
  EXPECT_EQ(stack.pop(), nullptr);
  EXPECT_TRUE(stack.empty());
}

// The first node goes and comes back while a pop stands between its look and its CAS; the second,
// which that pop wanted to put on top, stays away.
TEST(Conformance, PRK_05_same_node_is_not_the_same_stack) {
  lfstack stack;
  counted a, b, c;
  stack.push(&c);
  stack.push(&b);
  stack.push(&a);
  bool meddled = false;
  lfnode* got = stack.pop([&] {
    if (std::exchange(meddled, true)) return;
    EXPECT_EQ(stack.pop(), &a);
    EXPECT_EQ(stack.pop(), &b);
    stack.push(&a);
  });
  EXPECT_TRUE(meddled);
  EXPECT_EQ(got, &a);
  EXPECT_EQ(stack.pop(), &c);
  EXPECT_EQ(stack.pop(), nullptr);
}

TEST(Conformance, PRK_05_nodes_between_two_stacks) {
  constexpr int nodes = 100, moves = full_or(100'000, 5'000);
  std::vector<counted> all(nodes);
  lfstack stacks[2];
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].value = i;
    sum += i;
    stacks[i % 2].push(&all[i]);
  }
  run_clean([&stacks] {
    scope s;
    for (int g = 0; g < 4 * procs(); ++g) {
      s.go([&stacks, g] {
        rt::random rng(static_cast<std::uint64_t>(g));
        for (int i = 0; i < moves; ++i) {
          const std::uint32_t from = rng.below(2);
          lfnode* n = stacks[from].pop();
          if (i % 64 == 0) yield();
          if (n != nullptr) stacks[rng.below(2)].push(n);
        }
      });
    }
    s.wait();
  });
  int count = 0;
  for (lfstack& stack : stacks) {
    while (lfnode* n = stack.pop()) {
      ++count;
      sum -= static_cast<counted*>(n)->value;
      static_cast<counted*>(n)->value = 0;
    }
  }
  EXPECT_EQ(count, nodes);
  EXPECT_EQ(sum, 0U);
}

// -- PRK-06

TEST(Conformance, PRK_06_readers_together) {
  for (const int readers : {1, 3, 4}) {
    run_clean(with_procs(4), [readers] {
      shared_mutex m;
      std::atomic<int> in{0};
      scope s;
      for (int i = 0; i < readers; ++i) {
        s.go([&] {
          std::shared_lock hold(m);
          ++in;
          EXPECT_TRUE(eventually([&] { return in == readers; }));
        });
      }
    });
  }
}

TEST(Conformance, PRK_06_readers_never_with_a_writer) {
  constexpr int rounds = full_or(1000, 50);
  for (const int ps : {1, 2, 4, 10}) {
    for (const int readers : {1, 3, 10}) {
      run_clean(with_procs(ps), [readers] {
        shared_mutex m;
        std::atomic<int> inside{0};  // 10 000 a writer
        scope s;
        for (int i = 0; i < 2; ++i) {
          s.go([&] {
            for (int k = 0; k < rounds; ++k) {
              std::lock_guard hold(m);
              EXPECT_EQ(inside += 10'000, 10'000);
              if (k % 8 == 0) yield();
              inside -= 10'000;
            }
          });
        }
        for (int i = 0; i < readers; ++i) {
          s.go([&] {
            for (int k = 0; k < rounds; ++k) {
              std::shared_lock hold(m);
              EXPECT_LT(++inside, 10'000);
              if (k % 8 == 0) yield();
              --inside;
            }
          });
        }
      });
    }
  }
}

}  // namespace
}  // namespace weft::test
