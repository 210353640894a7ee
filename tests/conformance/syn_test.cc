// SPDX-License-Identifier: Apache-2.0
// SYN: sync. What is fatal (SYN-02, SYN-08) or counts allocations is in tests/crash/syn_test.cc.
// once follows std::call_once where Go's differs (SYN-09): a run that throws has not run.
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/current.h"
#include "support/runtime.h"
#include "weft/go.hpp"
#include "weft/sync.hpp"

namespace weft::test {
namespace {

bool waits(const rt::G* g, rt::wait_reason why) {
  return g != nullptr && g->state() == rt::g_status::waiting && g->reason == why;
}

// -- SYN-01

TEST(Conformance, SYN_01_mutex) {
  constexpr int goroutines = 10, rounds = 1000;
  run_clean([] {
    mutex mu;
    mu.lock();
    EXPECT_FALSE(mu.try_lock());
    mu.unlock();
    EXPECT_TRUE(mu.try_lock());
    mu.unlock();
    int inside = 0;
    wait_group wg;
    for (int i = 0; i < goroutines; ++i) {
      wg.go([&] {
        for (int k = 0; k < rounds; ++k) {
          if (k % 3 == 0) {
            if (mu.try_lock()) mu.unlock();
            continue;
          }
          mu.lock();
          EXPECT_EQ(++inside, 1);
          --inside;
          mu.unlock();
        }
      });
    }
    wg.wait();
  });
}

TEST(Conformance, SYN_01_reasons_to_wait) {
  run_clean([] {
    using rt::wait_reason;
    const auto blocks = [](auto&& block, auto&& release, wait_reason why) {
      std::atomic<rt::G*> g{nullptr};
      wait_group wg;
      wg.go([&] {
        g = rt::current_g();
        block();
      });
      EXPECT_TRUE(eventually([&] { return waits(g, why); })) << to_string(why);
      release();
      wg.wait();
    };
    mutex mu;
    mu.lock();
    blocks([&] { std::lock_guard hold(mu); }, [&] { mu.unlock(); }, wait_reason::sync_mutex_lock);
    shared_mutex rw;
    rw.lock();
    blocks([&] { std::shared_lock hold(rw); }, [&] { rw.unlock(); },
           wait_reason::sync_rwmutex_rlock);
    rw.lock_shared();
    blocks([&] { std::lock_guard hold(rw); }, [&] { rw.unlock_shared(); },
           wait_reason::sync_rwmutex_lock);
    condition_variable cv;
    bool go_on = false;
    blocks(
        [&] {
          std::unique_lock lock(mu);
          cv.wait(lock, [&] { return go_on; });
        },
        [&] {
          std::lock_guard hold(mu);
          go_on = true;
          cv.notify_one();
        },
        wait_reason::sync_cond_wait);
    wait_group wg;
    wg.add(1);
    blocks([&] { wg.wait(); }, [&] { wg.done(); }, wait_reason::sync_wait_group_wait);
    semaphore s(0);
    blocks([&] { s.acquire(); }, [&] { s.release(); }, wait_reason::semacquire);
  });
}

// -- SYN-04

TEST(Conformance, SYN_04_readers_run_together) {
  for (const auto& [readers, ps] : {std::pair(1, 4), {3, 4}, {4, 2}}) {
    run_clean(with_procs(ps), [n = readers] {
      shared_mutex m;
      std::atomic<int> in{0};
      wait_group wg;
      for (int i = 0; i < n; ++i) {
        wg.go([&] {
          std::shared_lock hold(m);
          ++in;
          EXPECT_TRUE(eventually([&] { return in == n; }));
        });
      }
      wg.wait();
    });
  }
}

void never_mixed(int ps, int readers) {
  constexpr int rounds = full_or(1000, 100);
  run_clean(with_procs(ps), [readers] {
    shared_mutex m;
    std::atomic<int> activity{0};  // 10 000 a writer, 1 a reader
    wait_group wg;
    const auto read = [&] {
      for (int i = 0; i < rounds; ++i) {
        std::shared_lock hold(m);
        const int n = ++activity;
        EXPECT_TRUE(n >= 1 && n < 10'000);
        for (int k = 0; k < 100; ++k) rt::cpu_relax();
        --activity;
      }
    };
    const auto write = [&] {
      for (int i = 0; i < rounds; ++i) {
        std::lock_guard hold(m);
        EXPECT_EQ(activity += 10'000, 10'000);
        for (int k = 0; k < 100; ++k) rt::cpu_relax();
        activity -= 10'000;
      }
    };
    wg.go(write);
    for (int i = 0; i < readers / 2; ++i) wg.go(read);
    wg.go(write);
    for (int i = readers / 2; i < readers; ++i) wg.go(read);
    wg.wait();
  });
}

TEST(Conformance, SYN_04_never_a_reader_with_a_writer) {
  for (const auto& [ps, readers] : {std::pair(1, 1),
                                    {1, 3},
                                    {1, 10},
                                    {4, 1},
                                    {4, 3},
                                    {4, 10},
                                    {10, 1},
                                    {10, 3},
                                    {10, 10},
                                    {10, 5}})
    never_mixed(ps, readers);
}

TEST(Conformance, SYN_04_try_matrix) {
  shared_mutex m;
  m.lock();
  EXPECT_FALSE(m.try_lock());
  EXPECT_FALSE(m.try_lock_shared());
  m.unlock();
  EXPECT_TRUE(m.try_lock());
  m.unlock();
  m.lock_shared();
  EXPECT_TRUE(m.try_lock_shared());
  EXPECT_FALSE(m.try_lock());
  m.unlock_shared();
  m.unlock_shared();
}

TEST(Conformance, SYN_04_a_writer_waits_for_both_readers) {
  run_clean([] {
    shared_mutex m;
    for (int round = 0; round < 10; ++round) {
      std::shared_lock first(m), second(m);
      std::atomic<rt::G*> g{nullptr};
      std::atomic<bool> in{false};
      wait_group wg;
      wg.go([&] {
        g = rt::current_g();
        std::lock_guard hold(m);
        in = true;
      });
      EXPECT_TRUE(eventually([&] { return waits(g, rt::wait_reason::sync_rwmutex_lock); }));
      first.unlock();
      yield();
      EXPECT_FALSE(in);
      second.unlock();
      wg.wait();
      EXPECT_TRUE(in);
    }
  });
}

// -- SYN-05

TEST(Conformance, SYN_05_a_waiting_writer_bars_new_readers) {
  run_clean([] {
    shared_mutex m;
    m.lock_shared();
    std::atomic<rt::G*> writer{nullptr}, reader{nullptr};
    std::atomic<bool> wrote{false};
    wait_group wg;
    wg.go([&] {
      writer = rt::current_g();
      std::lock_guard hold(m);
      wrote = true;
    });
    EXPECT_TRUE(eventually([&] { return waits(writer, rt::wait_reason::sync_rwmutex_lock); }));
    EXPECT_FALSE(m.try_lock_shared());
    EXPECT_FALSE(m.try_lock_shared_for(std::chrono::milliseconds(5)));
    wg.go([&] {
      reader = rt::current_g();
      std::shared_lock hold(m);
      EXPECT_TRUE(wrote);
    });
    EXPECT_TRUE(eventually([&] { return waits(reader, rt::wait_reason::sync_rwmutex_rlock); }));
    m.unlock_shared();
    wg.wait();
  });
}

// -- SYN-07

TEST(Conformance, SYN_07_wait_group_below_zero) {
  wait_group wg;
  wg.add(1);
  wg.done();
  try {
    wg.done();
    FAIL();
  } catch (const std::logic_error& e) {
    EXPECT_STREQ(e.what(), "sync: negative WaitGroup counter");
  }
}

// Where Go has two errors for it, a new round simply works.
TEST(Conformance, SYN_07_wait_group_used_again_at_once) {
  run_clean([] {
    wait_group wg;
    wait_group all;
    for (int i = 0; i < 4; ++i) {
      all.go([&] {
        for (int k = 0; k < full_or(2000, 200); ++k) {
          wg.add(1);
          go([&] { wg.done(); });
          wg.wait();
        }
      });
    }
    all.wait();
  });
}

// -- SYN-09

TEST(Conformance, SYN_09_once) {
  run_clean([] {
    once o;
    int count = 0;
    wait_group wg;
    for (int i = 0; i < 10; ++i) {
      wg.go([&] {
        o.call([&] { ++count; });
        EXPECT_EQ(count, 1);
      });
    }
    wg.wait();
  });
}

TEST(Conformance, SYN_09_once_that_throws) {
  once o;
  EXPECT_THROW(o.call([] { throw std::runtime_error("failed"); }), std::runtime_error);
  int count = 0;
  o.call([&] { ++count; });
  o.call([&] { ++count; });
  EXPECT_EQ(count, 1);
}

// -- SYN-10

TEST(Conformance, SYN_10_once_func_and_value) {
  int calls = 0;
  const auto f = once_func([&] { ++calls; });
  const auto v = once_value([&] { return ++calls; });
  const auto p = once_value([&] { return std::pair(++calls, std::string(100, 'x')); });
  f();
  EXPECT_EQ(v(), 2);
  EXPECT_EQ(p().first, 3);
  for (int i = 0; i < 100; ++i) {
    f();
    EXPECT_EQ(v(), 2);
    EXPECT_EQ(p().second.size(), 100U);
  }
  EXPECT_EQ(calls, 3);
}

TEST(Conformance, SYN_10_the_same_exception) {
  int calls = 0;
  const auto f = once_func([&] {
    ++calls;
    throw std::runtime_error("x");
  });
  for (int i = 0; i < 3; ++i) EXPECT_THROW(f(), std::runtime_error);
  EXPECT_EQ(calls, 1);
}

TEST(Conformance, SYN_10_goexit_is_not_repeated) {
  run_clean([] {
    int calls = 0;
    const auto f = once_func([&] {
      ++calls;
      goexit();
    });
    wait_group wg;
    for (int i = 0; i < 2; ++i) {
      wg.go([&] {
        try {
          f();
        } catch (const goexited&) {
        }
      });
      wg.wait();
    }
    EXPECT_EQ(calls, 1);
  });
}

TEST(Conformance, SYN_10_captures_are_released) {
  auto owned = std::make_shared<int>(1);
  const auto f = once_func([owned] {});
  const auto v = once_value([owned] { return *owned; });
  const auto t = once_func([owned] { throw 1; });
  EXPECT_EQ(owned.use_count(), 4);
  f();
  EXPECT_EQ(v(), 1);
  EXPECT_THROW(t(), int);
  EXPECT_EQ(owned.use_count(), 1);
}

// -- SYN-11

TEST(Conformance, SYN_11_signal_wakes_exactly_one) {
  run_clean([] {
    mutex mu;
    condition_variable cv;
    constexpr int n = 2;
    int running = 0, awake = 0;
    wait_group wg;
    for (int i = 0; i < n; ++i) {
      wg.go([&] {
        std::unique_lock lock(mu);
        ++running;
        cv.wait(lock);
        ++awake;
      });
    }
    const auto see = [&mu](int& what) {
      std::lock_guard hold(mu);
      return what;
    };
    EXPECT_TRUE(eventually([&] { return see(running) == n; }));
    for (int woken = 1; woken <= n; ++woken) {
      {
        std::lock_guard hold(mu);
        cv.notify_one();
      }
      EXPECT_TRUE(eventually([&] { return see(awake) == woken; }));
      for (int i = 0; i < 100; ++i) yield();
      EXPECT_EQ(see(awake), woken);
    }
    wg.wait();
    cv.notify_one();  // nobody there
    cv.notify_all();
  });
}

TEST(Conformance, SYN_11_signals_in_order_of_arrival) {
  run_clean([] {
    mutex mu;
    condition_variable cv;
    constexpr int n = 100;
    int running = 0;
    std::vector<int> awake;
    wait_group wg;
    for (int i = 0; i < n; ++i) {
      wg.go([&, i] {
        std::unique_lock lock(mu);
        ++running;
        cv.wait(lock);
        awake.push_back(i);
      });
      EXPECT_TRUE(eventually([&] {
        std::lock_guard hold(mu);
        return running == i + 1;
      }));
    }
    for (int i = 0; i < n; ++i) {
      cv.notify_one();
      EXPECT_TRUE(eventually([&] {
        std::lock_guard hold(mu);
        return awake.size() == static_cast<std::size_t>(i) + 1;
      }));
      EXPECT_EQ(awake.back(), i);
    }
    wg.wait();
  });
}

TEST(Conformance, SYN_11_broadcast) {
  constexpr int n = 200, rounds = full_or(200, 20);
  run_clean([] {
    mutex mu;
    condition_variable cv;
    int running = 0, woken = 0;
    bool exit = false;
    wait_group wg;
    for (int i = 0; i < n; ++i) {
      wg.go([&] {
        std::unique_lock lock(mu);
        while (!exit) {
          ++running;
          cv.wait(lock);
          ++woken;
        }
      });
    }
    for (int round = 0; round < rounds; ++round) {
      EXPECT_TRUE(eventually([&] {
        std::lock_guard hold(mu);
        return running == n;
      }));
      std::lock_guard hold(mu);
      EXPECT_EQ(woken, round * n);
      running = 0;
      exit = round == rounds - 1;
      cv.notify_all();
    }
    wg.wait();
    EXPECT_EQ(woken, rounds * n);
  });
}

TEST(Conformance, SYN_11_is_not_copied) {
  EXPECT_FALSE(std::is_copy_constructible_v<condition_variable>);
  EXPECT_FALSE(std::is_copy_assignable_v<condition_variable>);
}

}  // namespace
}  // namespace weft::test
