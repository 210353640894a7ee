// SPDX-License-Identifier: Apache-2.0
// config::from_env, and procs, set_procs, set_procs_auto before, during and between runs.
#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/p.h"
#include "sched/sched.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace sched_test;

// The variables that configure weft, gone for the time of a test and back afterwards.
class Config : public GoTest {
 protected:
  static constexpr const char* names[] = {"WEFT_PROCS",   "WEFT_STACK", "WEFT_MAX_THREADS",
                                          "WEFT_PREEMPT", "WEFT_DEBUG", "WEFT_TRACEBACK"};
  void SetUp() override {
    GoTest::SetUp();
    for (const char* n : names) {
      const char* v = std::getenv(n);
      before_.push_back(v != nullptr ? v : "");
      ::unsetenv(n);
    }
  }
  void TearDown() override {
    for (std::size_t i = 0; i < before_.size(); ++i) {
      if (before_[i].empty()) {
        ::unsetenv(names[i]);
      } else {
        ::setenv(names[i], before_[i].c_str(), 1);
      }
    }
    rt::sched.wanted_procs.store(0);  // as if nobody had called set_procs
    GoTest::TearDown();
  }
  static config with(const char* name, const char* value) {
    ::setenv(name, value, 1);
    const config c = config::from_env();
    ::unsetenv(name);
    return c;
  }
  // Refused, with the name of the variable and the value.
  static void expect_refused(const char* name, const char* value) {
    ::setenv(name, value, 1);
    const std::string what = thrown_by<std::invalid_argument>([] { config::from_env(); });
    EXPECT_NE(what.find(name), std::string::npos) << name << "='" << value << "': '" << what << "'";
    EXPECT_THROW(run([] { ADD_FAILURE() << "it ran"; }), std::invalid_argument);
    ::unsetenv(name);
  }

 private:
  std::vector<std::string> before_;
};

TEST_F(Config, Defaults) {
  const config plain;
  const config c = config::from_env();
  EXPECT_EQ(c.procs, 0);
  EXPECT_EQ(c.stack_size, 256U * 1024);
  EXPECT_EQ(c.main_stack_size, 8U * 1024 * 1024);
  EXPECT_EQ(c.max_threads, 10'000U);
  EXPECT_TRUE(c.preempt);
  EXPECT_EQ(c.quantum, std::chrono::milliseconds(10));
  EXPECT_EQ(plain.procs, c.procs);
  EXPECT_EQ(plain.stack_size, c.stack_size);
}

TEST_F(Config, Procs) {
  EXPECT_EQ(with("WEFT_PROCS", "1").procs, 1);
  EXPECT_EQ(with("WEFT_PROCS", "3").procs, 3);
  EXPECT_EQ(with("WEFT_PROCS", "1024").procs, 1024);
  EXPECT_EQ(with("WEFT_PROCS", "").procs, 0);  // empty: not there
  for (const char* bad :
       {"0", "1025", "-1", "+1", " 1", "1 ", "x", "3x", "0x10", "1.5", "99999999999999999999999"}) {
    expect_refused("WEFT_PROCS", bad);
  }
  ::setenv("WEFT_PROCS", "3", 1);
  EXPECT_EQ(run([] { return procs(); }), 3);
}

TEST_F(Config, StackSize) {
  EXPECT_EQ(with("WEFT_STACK", "131072").stack_size, 131072U);
  EXPECT_EQ(with("WEFT_STACK", "64K").stack_size, 64U << 10);
  EXPECT_EQ(with("WEFT_STACK", "64k").stack_size, 64U << 10);
  EXPECT_EQ(with("WEFT_STACK", "2M").stack_size, 2U << 20);
  EXPECT_EQ(with("WEFT_STACK", "1G").stack_size, 1U << 30);
  EXPECT_EQ(with("WEFT_STACK", "").stack_size, 256U * 1024);
  for (const char* bad : {"K", "x", "1T", "1KB", "1 K", "-1", "1.5M", "64KK",
                          "99999999999999999999", "99999999999G"}) {
    expect_refused("WEFT_STACK", bad);
  }
}

TEST_F(Config, MaxThreadsAndPreempt) {
  EXPECT_EQ(with("WEFT_MAX_THREADS", "50").max_threads, 50U);
  EXPECT_TRUE(with("WEFT_PREEMPT", "1").preempt);
  EXPECT_FALSE(with("WEFT_PREEMPT", "0").preempt);
  for (const char* bad : {"x", "-1", "10K", "1 "}) expect_refused("WEFT_MAX_THREADS", bad);
  for (const char* bad : {"yes", "-", "1x"}) expect_refused("WEFT_PREEMPT", bad);
}

TEST_F(Config, DebugSettings) {
  EXPECT_EQ(with("WEFT_DEBUG", "").shuffle, 0U);
  EXPECT_EQ(with("WEFT_DEBUG", "shuffle=7").shuffle, 7U);
  for (const char* bad : {"shuffle", "shuffle=", "shuffle=x", "no_such_thing=1"})
    expect_refused("WEFT_DEBUG", bad);
}

TEST_F(Config, Embedded) {
  EXPECT_FALSE(config{}.embedded);
  EXPECT_TRUE(with("WEFT_DEBUG", "embedded=1").embedded);
  expect_refused("WEFT_DEBUG", "embedded");
}

TEST_F(Config, TracebackLevel) {
  EXPECT_EQ(config{}.level, traceback::single);
  EXPECT_EQ(with("WEFT_TRACEBACK", "").level, traceback::single);
  const std::pair<const char*, traceback> levels[] = {
      {"none", traceback::none},     {"single", traceback::single}, {"all", traceback::all},
      {"system", traceback::system}, {"crash", traceback::crash},   {"0", traceback::none},
      {"1", traceback::all},         {"2", traceback::system}};
  for (const auto& [text, level] : levels) EXPECT_EQ(with("WEFT_TRACEBACK", text).level, level);
  for (const char* bad : {"3", "loud", "ALL", "all "}) expect_refused("WEFT_TRACEBACK", bad);
}

TEST_F(Config, ShuffledRunsRunEverybody) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    config c = test::with_procs(1 + static_cast<int>(seed % 3));
    c.shuffle = seed;
    test::run_clean(c, [] {
      std::atomic<int> ran{0};
      scope s;
      for (int i = 0; i < 300; ++i) {
        s.go([&] {
          weft::yield();
          ++ran;
        });
      }
      s.wait();
      EXPECT_EQ(ran, 300);
    });
  }
}

// -- procs

TEST_F(Config, ProcsOfARun) {
  for (int n : {1, 2, 3, 16, 64}) {
    EXPECT_EQ(run(test::with_procs(n), [] { return procs(); }), n);
  }
  EXPECT_EQ(run(test::with_procs(5000), [] { return procs(); }), static_cast<int>(rt::max_procs));
  const int automatic = procs();
  EXPECT_GE(automatic, 1);
  EXPECT_EQ(run([] { return procs(); }), automatic);
  EXPECT_GE(num_cpu(), 1);
}

TEST_F(Config, SetProcsBeforeARun) {
  const int automatic = procs();
  EXPECT_EQ(set_procs(0), automatic);  // only reads
  EXPECT_EQ(set_procs(-7), automatic);
  EXPECT_EQ(set_procs(5), automatic);
  EXPECT_EQ(procs(), 5);
  EXPECT_EQ(set_procs(6), 5);
  EXPECT_EQ(run([] { return procs(); }), 6);
  EXPECT_EQ(run(test::with_procs(2), [] { return procs(); }), 2);  // the configuration comes first
  EXPECT_EQ(procs(), 6);
}

TEST_F(Config, SetProcsDuringARun) {
  for (int first : {1, 2, 16}) {
    run_on(first, [first] {
      EXPECT_EQ(set_procs(0), first);
      EXPECT_EQ(set_procs(4), first);
      EXPECT_EQ(procs(), 4);
      EXPECT_EQ(set_procs(4), 4);
      EXPECT_EQ(set_procs(1), 4);
      EXPECT_EQ(procs(), 1);
      EXPECT_EQ(set_procs(1 << 20), 1);
      EXPECT_EQ(procs(), static_cast<int>(rt::max_procs));
      EXPECT_EQ(set_procs(2), static_cast<int>(rt::max_procs));
    });
  }
}

TEST_F(Config, SetProcsFromGoroutinesAndThreadsAtOnce) {
  run_on(2, [] {
    std::atomic<int> ran{0};
    {
      scope s;
      for (int i = 0; i < 8; ++i) {
        s.go([&, i] {
          for (int k = 0; k < 20; ++k) {
            const int old = set_procs(1 + (i + k) % 6);
            EXPECT_GE(old, 1);
            EXPECT_LE(old, 6);
            weft::yield();
            ++ran;
          }
        });
      }
      event thread_done;  // a join would keep the P that the thread wants to stop
      std::thread t([&] {
        for (int k = 0; k < 20; ++k) set_procs(1 + k % 6);
        thread_done.set();
      });
      s.wait();
      thread_done.wait();
      t.join();
    }
    EXPECT_EQ(ran, 160);
  });
}

TEST_F(Config, ShrinkingKeepsEverybodyRunning) {
  run_on(16, [] {
    std::atomic<int> ran{0};
    std::atomic<bool> stop{false};
    scope s;
    for (int i = 0; i < 1000; ++i) {  // in many rings and the global queue
      s.go([&] {
        ++ran;
        while (!stop) weft::yield();
      });
    }
    for (int n : {8, 3, 1, 7, 2, 1}) {
      set_procs(n);
      weft::yield();
    }
    EXPECT_TRUE(eventually([&] { return ran == 1000; }));
    stop = true;
  });
}

TEST_F(Config, NoMoreThanProcsRunAtOnce) {
  run_unpreempted(2, [] {  // one that is stopped inside would count as one more
    for (int n : {1, 2, 3}) {
      set_procs(n);
      std::atomic<int> inside{0}, most{0};
      scope s;
      for (int i = 0; i < 20; ++i) {
        s.go([&] {
          for (int k = 0; k < 20; ++k) {
            const int now = ++inside;
            int seen = most;
            while (now > seen && !most.compare_exchange_weak(seen, now)) {
            }
            for (int spin = 0; spin < 200; ++spin) rt::cpu_relax();
            --inside;
            weft::yield();
          }
        });
      }
      s.wait();
      EXPECT_LE(most, n);
    }
  });
}

TEST_F(Config, SetProcsStopsFollowingAndAutoFollowsAgain) {
  run([] {
    EXPECT_TRUE(rt::sched.procs_auto);
    const int automatic = procs();
    set_procs(automatic);  // even to the same value
    EXPECT_FALSE(rt::sched.procs_auto);
    set_procs_auto();
    EXPECT_TRUE(rt::sched.procs_auto);
    set_procs(automatic + 3);
    EXPECT_FALSE(rt::sched.procs_auto);
    set_procs_auto();
    EXPECT_TRUE(rt::sched.procs_auto);
    EXPECT_EQ(procs(), automatic);
  });
  run(test::with_procs(2), [] { EXPECT_FALSE(rt::sched.procs_auto); });
}

TEST_F(Config, SetProcsAutoBeforeARunMakesItFollow) {
  const int automatic = procs();
  set_procs(automatic + 1);
  set_procs_auto();
  EXPECT_EQ(procs(), automatic);
  run([automatic] {
    EXPECT_EQ(procs(), automatic);
    EXPECT_TRUE(rt::sched.procs_auto) << "the run does not follow the CPU limit";
  });
}

}  // namespace
}  // namespace weft
