// SPDX-License-Identifier: Apache-2.0
// STW: how many Ps, and stopping the world. The CPU limit's files (STW-05, -06, -08, -09) are in
// stw_limit_test.cc; STW-07 changes the affinity mask instead of a quota, which needs no privilege.
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <dirent.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <thread>
#include <vector>

#include "sched/procs.h"
#include "sched/sched.h"
#include "support/chan.h"
#include "support/chaos.h"
#include "support/migrate.h"
#include "support/runtime.h"
#include "weft/go.hpp"

namespace weft::test {
namespace {

// -- STW-02

TEST(Conformance, STW_02_set_procs_returns_the_old_value) {
  run_clean(with_procs(3), [] {
    EXPECT_EQ(procs(), 3);
    EXPECT_EQ(set_procs(5), 3);
    EXPECT_EQ(set_procs(0), 5);
    EXPECT_EQ(set_procs(-1), 5);
    EXPECT_EQ(procs(), 5);
    EXPECT_EQ(set_procs(1), 5);
    EXPECT_EQ(set_procs(1), 1);
    EXPECT_EQ(procs(), 1);
    int from_outside = 0;
    std::thread([&] { from_outside = set_procs(0); }).join();
    EXPECT_EQ(from_outside, 1);
  });
}

// Work of every kind that the core has: spawns, yields, parks, plain computing. `rounds` of it in
// each of `width` goroutines; returns how much was done.
std::uint64_t load(int width, const std::atomic<bool>& stop) {
  std::atomic<std::uint64_t> asked{0}, done{0};
  {
    scope s;
    for (int i = 0; i < width; ++i) {
      s.go([&, i] {
        chan<int> c;
        scope own;
        own.go([&] {
          while (c.recv()) {
            done.fetch_add(1);
            if (i % 4 == 0) yield();
          }
        });
        for (int k = 0; !stop.load(); ++k) {
          asked.fetch_add(2);
          c.send(k);
          auto t = async([&done] { done.fetch_add(1); });
          if (k % 2 == 0) yield();
          t.wait();
        }
        c.close();
        own.wait();
      });
    }
    s.wait();
  }
  EXPECT_EQ(asked.load(), done.load());
  return done.load();
}

constexpr int sizes[] = {1, 2, 4, 8, 16, 8, 4, 2};

TEST(Conformance, STW_02_resize_every_millisecond_under_load) {
  constexpr int rounds = full_or(40, 6);
  run_clean([] {
    std::atomic<bool> stop{false};
    std::uint64_t done = 0;
    scope s;
    s.go([&] { done = load(20, stop); });
    for (int r = 0; r < rounds; ++r) {
      for (const int n : sizes) {
        const int before = procs();
        EXPECT_EQ(set_procs(n), before);
        EXPECT_EQ(procs(), n);
        const auto until = steady::now() + 1ms;
        while (steady::now() < until) yield();
      }
    }
    stop.store(true);
    s.wait();
    EXPECT_GT(done, 0U);
    EXPECT_EQ(debug::audit(), 0);
  });
}

TEST(Conformance, STW_02_resize_from_a_plain_thread) {
  constexpr int rounds = full_or(20, 4);
  run_clean([] {
    std::atomic<bool> stop{false};
    std::thread outside([&] {
      for (int r = 0; r < rounds; ++r) {
        for (const int n : sizes) {
          set_procs(n);
          EXPECT_EQ(procs(), n);
          std::this_thread::sleep_for(1ms);
        }
      }
      stop.store(true);
    });
    EXPECT_GT(load(10, stop), 0U);
    outside.join();
  });
}

TEST(Conformance, STW_02_several_resize_at_once) {
  constexpr int rounds = full_or(100, 20);
  run_clean([] {
    std::atomic<int> left{4};
    std::atomic<bool> stop{false};
    scope s;
    for (int i = 0; i < 4; ++i) {
      s.go([&, i] {
        for (int r = 0; r < rounds; ++r) {
          const int old = set_procs(1 + (r + i) % 5);
          EXPECT_TRUE(old >= 1 && old <= 1024) << old;
          yield();
        }
        if (left.fetch_sub(1) == 1) stop.store(true);
      });
    }
    EXPECT_GT(load(4, stop), 0U);
    s.wait();
  });
}

TEST(Conformance, STW_02_1024_ps) {
  run_clean(with_procs(1024), [] {
    constexpr int n = 4096;
    EXPECT_EQ(procs(), 1024);
    std::atomic<int> ran{0};
    scope s;
    for (int i = 0; i < n; ++i) {
      s.go([&ran] {
        yield();
        ran.fetch_add(1);
      });
    }
    s.wait();
    EXPECT_EQ(ran.load(), n);
    EXPECT_EQ(set_procs(2), 1024);
    EXPECT_EQ(set_procs(4000), 2);  // clamped
    EXPECT_EQ(procs(), 1024);
  });
}

// -- STW-03

std::uint64_t here() {
  return static_cast<std::uint64_t>(thread_id()) << 16 | rt::current_m()->p->id;
}

// Two goroutines that spin, on `procs` Ps. In how many of `runs` stops did one of them not go on
// where it was, on the same P and the same thread?
int misses_over_stops(int procs, int runs) {
  constexpr int targets = 2;
  int misses = 0;
  run_clean(with_procs(procs), [&misses, runs] {
    struct target {
      std::atomic<std::uint64_t> at{0};     // changes while the world runs
      std::atomic<std::uint64_t> after{0};  // the first place behind the stop
      std::atomic<int> stops{0};            // that it has seen
    } ts[targets];
    std::atomic<int> stops{0};
    std::atomic<bool> end{false};
    scope s;
    for (target& t : ts) {
      s.go([&] {
        while (!end.load()) {
          t.at.store(here());
          if (const int n = stops.load(); n != t.stops.load()) {
            t.after.store(here());
            t.stops.store(n);
          }
          rt::maybe_preempt();
        }
      });
    }
    bool running = true;
    for (target& t : ts) running = running && spin_until([&] { return t.at.load() != 0; });
    for (int i = 1; running && i <= runs; ++i) {
      std::uint64_t before[targets];
      {
        const rt::stopped_world w;
        for (int k = 0; k < targets; ++k) before[k] = ts[k].at.load();
        stops.store(i);
      }
      bool missed = false;
      for (int k = 0; k < targets; ++k) {
        running = running && spin_until([&] { return ts[k].stops.load() == i; });
        missed = missed || ts[k].after.load() != before[k];
      }
      misses += missed ? 1 : 0;
    }
    EXPECT_TRUE(running);
    end.store(true);
    s.wait();
  });
  return misses;
}

TEST(Conformance, STW_03_ps_restart_on_their_threads_with_their_goroutines) {
  WEFT_SKIP_UNDER_CHAOS("it counts how often a thread comes back in time");
  if (num_cpu() < 4) GTEST_SKIP() << "needs four CPUs: fewer, and thieves are faster than wake-ups";
  EXPECT_LE(misses_over_stops(4, 50), 50 / 4);
}

// The same with no P idle, so with no thief: that holds on any machine.
TEST(Conformance, STW_03_busy_ps_restart_on_their_threads_with_their_goroutines) {
  WEFT_SKIP_UNDER_CHAOS("it counts how often a thread comes back in time");
  if (under_tsan) GTEST_SKIP() << "it counts how often a thread comes back in time";
  EXPECT_LE(misses_over_stops(3, 50), 50 / 4);
}

// Nothing of the user's runs while the world is stopped, and all of it afterwards.
TEST(Conformance, STW_03_nothing_runs_in_a_stopped_world) {
  constexpr int runs = full_or(200, 50);
  run_clean([] {
    // One each, stored and not added to: for the others TSan has a lock, and who sleeps for it has
    // lost its P.
    std::array<std::atomic<std::uint64_t>, 8> steps{};
    const auto sum = [&] {
      std::uint64_t n = 0;
      for (const auto& one : steps) n += one.load(std::memory_order_relaxed);
      return n;
    };
    std::atomic<bool> end{false};
    scope s;
    for (auto& mine : steps) {
      s.go([&] {
        for (std::uint64_t n = 1; !end.load(); ++n) {
          mine.store(n, std::memory_order_relaxed);
          yield();
        }
      });
    }
    for (int i = 0; i < runs; ++i) {
      std::uint64_t at_stop = 0, at_end = 0;
      {
        const rt::stopped_world w;
        at_stop = sum();
        const auto until = steady::now() + 200us;
        while (steady::now() < until) {
        }
        at_end = sum();
      }
      EXPECT_EQ(at_stop, at_end);
      EXPECT_TRUE(eventually([&] { return sum() > at_end; }));
    }
    end.store(true);
    s.wait();
  });
}

// -- STW-07

// Changes the affinity mask of every thread of the process; the old one comes back at the end.
class process_affinity {
 public:
  process_affinity() { ::sched_getaffinity(0, sizeof all_, &all_); }
  ~process_affinity() { apply(all_); }
  int cpus() const { return CPU_COUNT(&all_); }
  void everywhere() const { apply(all_); }
  void one_cpu() const {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (!CPU_ISSET(i, &all_)) continue;
      CPU_SET(i, &one);
      break;
    }
    apply(one);
  }

 private:
  // New threads have the mask of the one that makes them, so two rounds catch all.
  static void apply(const cpu_set_t& set) {
    for (int round = 0; round < 2; ++round) {
      DIR* d = ::opendir("/proc/self/task");
      if (d == nullptr) return;
      while (const dirent* e = ::readdir(d)) {
        if (e->d_name[0] != '.') ::sched_setaffinity(std::atoi(e->d_name), sizeof set, &set);
      }
      ::closedir(d);
    }
  }
  cpu_set_t all_;
};

config automatic() {
  config c = config::from_env();
  c.procs = 0;  // whatever WEFT_PROCS says
  return c;
}

TEST(Conformance, STW_07_procs_follow_the_cpus) {
  const process_affinity mask;
  if (mask.cpus() < 2) GTEST_SKIP() << "needs two CPUs";
  run_clean(automatic(), [&mask] {
    const int all = procs();
    ASSERT_GE(all, 2);
    for (int i = 0; i < 2; ++i) {
      mask.one_cpu();
      EXPECT_TRUE(eventually([] { return procs() == 1; })) << procs();
      EXPECT_EQ(num_cpu(), 1);
      mask.everywhere();
      EXPECT_TRUE(eventually([all] { return procs() == all; })) << procs();
    }
  });
}

// Watched for 5 s: the monitor looks once a second.
bool procs_stay(int n) {
  return !eventually([n] { return procs() != n; }, 5s);
}

TEST(Conformance, STW_07_an_explicit_call_stops_updates) {
  const process_affinity mask;
  if (mask.cpus() < 2) GTEST_SKIP() << "needs two CPUs";
  run_clean(automatic(), [&mask] {
    const int all = procs();
    EXPECT_EQ(set_procs(all), all);  // even to the current value
    mask.one_cpu();
    EXPECT_TRUE(procs_stay(all));
    set_procs_auto();  // applies at once
    EXPECT_EQ(procs(), 1);
    mask.everywhere();
    EXPECT_TRUE(eventually([all] { return procs() == all; })) << procs();
  });
}

TEST(Conformance, STW_07_an_explicit_configuration_stops_updates) {
  const process_affinity mask;
  if (mask.cpus() < 2) GTEST_SKIP() << "needs two CPUs";
  ASSERT_EQ(::setenv("WEFT_PROCS", std::to_string(mask.cpus()).c_str(), 1), 0);
  run_clean(config::from_env(), [&mask] {
    EXPECT_EQ(procs(), mask.cpus());
    mask.one_cpu();
    EXPECT_TRUE(procs_stay(mask.cpus()));
    set_procs_auto();
    EXPECT_EQ(procs(), 1);
  });
}

}  // namespace
}  // namespace weft::test
