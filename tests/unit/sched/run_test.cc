// SPDX-License-Identifier: Apache-2.0
// run: results and exceptions, one at a time, again and again, what is left behind, what was there
// before. Long because a goroutine can be left behind in so many places.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/current.h"
#include "sched/sched.h"
#include "support/effort.h"
#include "support/leaks.h"
#include "support/migrate.h"
#include "unit/sched/support.h"
#include "weft/sync.hpp"
#include "weft/thread.hpp"
#include "weft/time.hpp"

// A namesake beside main's own type must not be taken for weft::run.
namespace namesakes {
template <class C, class F>
int run(C&&, F&&) {
  return 99;
}
struct main_function {
  int operator()() const { return 3; }
};
}  // namespace namesakes

// Under a using directive exit(status) is the C library's, and weft's has to be asked for by name.
namespace directive {
using namespace weft;
static_assert(
    requires { exit(1); } && requires { weft::exit(1); });
}  // namespace directive

namespace weft {
namespace {

using namespace sched_test;
using test::with_procs;

class Run : public GoTest {};

// -- results

TEST_F(Run, GivesMainsResult) {
  EXPECT_EQ(run(with_procs(1), [] { return 42; }), 42);
  EXPECT_EQ(run(with_procs(1), [] {}), 0);
  EXPECT_EQ(run(with_procs(1), [] { return true; }), 1);
  EXPECT_EQ(run(with_procs(1), [] { return 'a'; }), 'a');
  EXPECT_EQ(run(with_procs(1), [] { return -5L; }), -5);
  struct status {
    operator int() const { return 17; }
  };
  EXPECT_EQ(run(with_procs(2), [] { return status{}; }), 17);
  EXPECT_EQ(run([] { return 3; }), 3);  // configured by the environment
}

TEST_F(Run, TakesAnyCallable) {
  struct object {
    int calls = 0;
    int operator()() { return ++calls; }
  } o;
  EXPECT_EQ(run(with_procs(1), o), 1);  // by reference, not a copy
  EXPECT_EQ(o.calls, 1);
  EXPECT_EQ(run(with_procs(1), [p = std::make_unique<int>(9)] { return *p; }), 9);
  const auto constant = [] { return 4; };
  EXPECT_EQ(run(with_procs(1), constant), 4);
  int (*function)() = [] { return 5; };
  EXPECT_EQ(run(with_procs(1), function), 5);
  struct rvalue_only {
    int operator()() && { return 6; }
  };
  EXPECT_EQ(run(with_procs(1), rvalue_only{}), 6);
}

TEST_F(Run, RethrowsWhatMainThrows) {
  for (int procs : {1, 2, 3}) {
    EXPECT_EQ(thrown_by<std::range_error>(
                  [&] { run(with_procs(procs), [] { throw std::range_error("out"); }); }),
              "out");
    EXPECT_THROW(run(with_procs(procs),
                     [] {
                       for (int i = 0; i < 100; ++i) weft::yield();
                       throw 5;
                     }),
                 int);
    EXPECT_EQ(run(with_procs(procs), [] { return 1; }), 1);  // and starts clean
  }
  EXPECT_EQ(std::uncaught_exceptions(), 0);
  EXPECT_EQ(std::current_exception(), nullptr);
}

TEST_F(Run, ReturnsThoughOthersWait) {
  static event never;  // they stay in it for good
  const int result = run(with_procs(2), [] {
    for (int i = 0; i < 10; ++i) weft::go([] { never.wait(); });
    weft::yield();
    return 8;
  });
  EXPECT_EQ(result, 8);
}

TEST_F(Run, TheThreadComesBackAsItWas) {
  const pid_t before = test::thread_id();
  run_on(3, [] {
    for (int i = 0; i < 200; ++i) weft::yield();
  });
  EXPECT_EQ(test::thread_id(), before);
  EXPECT_EQ(goid(), 0U);
  EXPECT_EQ(rt::current_m(), nullptr);
}

// -- one at a time

TEST_F(Run, InsideARunThrows) {
  run_on_each([] {
    EXPECT_THROW(run(with_procs(1), [] {}), std::logic_error);
    EXPECT_THROW(weft::async([] { run(with_procs(1), [] {}); }).get(), std::logic_error);
    for (int i = 0; i < 10; ++i) weft::yield();
    EXPECT_THROW(run(with_procs(1), [] {}), std::logic_error);  // no longer on the first thread
  });
}

TEST_F(Run, BesideARunThrows) {
  run_on_each([] {
    bool threw = false;
    event done;
    std::thread t([&] {
      try {
        run(with_procs(1), [] {});
      } catch (const std::logic_error&) {
        threw = true;
      }
      done.set();
    });
    done.wait();
    t.join();
    EXPECT_TRUE(threw);
  });
}

TEST_F(Run, SeveralThreadsTryAtOnce) {
  // Each gets its run or a logic_error, and never are there two.
  std::atomic<int> inside{0}, runs{0}, refused{0};
  std::vector<std::thread> ts;
  for (int t = 0; t < 4; ++t) {
    ts.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        try {
          run(with_procs(1 + i % 3), [&] {
            EXPECT_EQ(++inside, 1);
            weft::yield();
            --inside;
          });
          ++runs;
        } catch (const std::logic_error&) {
          ++refused;
        }
      }
    });
  }
  for (auto& t : ts) t.join();
  EXPECT_EQ(runs + refused, 200);
  EXPECT_GT(runs, 0);
}

TEST_F(Run, ManyInARowFromAlternatingThreads) {
  for (int i = 0; i < 200; ++i) {
    const auto once = [i] {
      const int result = run(with_procs(1 + i % 4), [i] {
        EXPECT_EQ(goid(), 1U);
        EXPECT_EQ(num_goroutines(), 1U);
        std::atomic<int> ran{0};
        {
          scope s;
          for (int k = 0; k < 20; ++k) {
            s.go([&] {
              weft::yield();
              ++ran;
            });
          }
        }
        EXPECT_EQ(ran, 20);
        return i;
      });
      EXPECT_EQ(result, i);
    };
    if (i % 3 == 0) {
      once();
    } else {
      std::thread(once).join();
    }
  }
}

TEST_F(Run, BadConfigurationsThrow) {
  const auto refuses = [](auto change) {
    config c;
    c.procs = 1;
    change(c);
    EXPECT_THROW(run(c, [] { ADD_FAILURE() << "it ran"; }), std::invalid_argument);
  };
  refuses([](config& c) { c.stack_size = ~std::size_t{0}; });
  refuses([](config& c) { c.main_stack_size = ~std::size_t{0}; });
  refuses([](config& c) { c.max_threads = 0; });
}

// -- what is left behind

// Something that goroutines of a finished run would do if they ever ran again.
struct afterlife {
  event wake;
  std::atomic<int> before{0}, after{0};
};

// Gives whatever could still run every chance to. (Between main's return and the stop they may have
// run a little.)
void expect_nobody_moves(afterlife& a) {
  const int before = a.after;
  run_on(2, [] {
    for (int i = 0; i < 200; ++i) {
      weft::async([] { weft::yield(); }).get();
      weft::yield();
    }
  });
  EXPECT_EQ(a.after, before) << "a goroutine of a finished run ran again";
}

TEST_F(Run, LeftBehindParkedNeverRunAgain) {
  static afterlife a;
  run(with_procs(2), [] {
    for (int i = 0; i < 20; ++i) {
      weft::go([] {
        ++a.before;
        a.wake.wait();
        ++a.after;
      });
    }
    EXPECT_TRUE(eventually([] { return a.before == 20; }));
    for (int i = 0; i < 20; ++i) weft::yield();
  });
  EXPECT_EQ(num_goroutines(), 0U);
  a.wake.set();  // by a plain thread, between runs
  EXPECT_EQ(num_goroutines(), 0U);
  expect_nobody_moves(a);
  EXPECT_EQ(a.after, 0);
}

TEST_F(Run, LeftBehindParkedAreNotWokenByALaterRun) {
  static afterlife a;
  run(with_procs(2), [] {
    for (int i = 0; i < 20; ++i) {
      weft::go([] {
        ++a.before;
        a.wake.wait();
        ++a.after;
      });
    }
    EXPECT_TRUE(eventually([] { return a.before == 20; }));
    for (int i = 0; i < 20; ++i) weft::yield();
  });
  run_on(2, [] {
    a.wake.set();
    for (int i = 0; i < 200; ++i) weft::yield();
  });
  expect_nobody_moves(a);
  EXPECT_EQ(a.after, 0);
}

TEST_F(Run, LeftBehindRunnableNeverRunAgain) {
  static afterlife a;
  run(with_procs(1), [] {
    for (int i = 0; i < 1000; ++i) weft::go([] { ++a.after; });  // ring, runnext and global queue
  });
  expect_nobody_moves(a);
}

TEST_F(Run, LeftBehindInTheMiddleOfYieldingNeverRunAgain) {
  static std::atomic<int> epoch{0}, late{0};
  for (int round = 1; round <= scaled(100); ++round) {
    epoch = round;
    run(with_procs(1 + round % 3), [round] {
      for (int i = 0; i < 10; ++i) {
        weft::go([round] {
          for (;;) {
            if (epoch != round) ++late;
            weft::yield();
          }
        });
      }
      for (int i = 0; i < 5; ++i) weft::yield();
    });
    epoch = -round;  // from here on nobody of this run may move
  }
  EXPECT_EQ(late, 0);
}

// Stopped in the middle of libc they run on, because of its locks; but run has not returned until
// they have come out of it.
TEST_F(Run, LeftBehindInsideLibcNeverRunAgain) {
#if defined(WEFT_TEST_EMULATED)
  GTEST_SKIP() << "the CPU-time timers of the emulated come too rarely for run's patience";
#endif
  static std::atomic<int> epoch{0}, late{0};
  for (int round = 1; round <= scaled(50); ++round) {
    epoch = round;
    run(with_procs(1 + round % 3), [round] {
      for (int i = 0; i < 4; ++i) {
        weft::go([round] {
          for (;;) {
            char text[32];
            std::snprintf(text, sizeof text, "%d %g", round, 0.125 * round);
            if (epoch != round) ++late;
            for (int k = 0; k < 20'000; ++k) asm volatile("");
          }
        });
      }
      weft::yield();
    });
    epoch = -round;
  }
  EXPECT_EQ(late, 0);
}

#if defined(__x86_64__) && !defined(WEFT_TSAN)  // whose handlers come late, with old registers
// Those that are hardly ever met outside: the library returns, or throws, to where they stop.
TEST_F(Run, LeftBehindMostlyInsideLibcNeverRunAgain) {
  test::goroutines_are_left_behind = true;  // with what the library has given them
  static std::atomic<int> epoch{0}, late{0};
  static const auto copy = [] {
    static thread_local char big[1 << 20];
    std::memset(big, 1, sizeof big);
  };
  static const auto raise = [] {
    try {
      throw std::runtime_error("again");
    } catch (const std::exception&) {
    }
  };
  static const auto sort = [] {  // the frames of the library have ours below them
    int numbers[1000];
    for (int i = 0; i < 1000; ++i) numbers[i] = i * 7919 % 1000;
    std::qsort(numbers, 1000, sizeof *numbers, [](const void* a, const void* b) {
      return *static_cast<const int*>(a) - *static_cast<const int*>(b);
    });
  };
  using what = void (*)();
  for (int round = 1; round <= scaled(30); ++round) {
    epoch = round;
    run(with_procs(1 + round % 3), [round] {
      const what f = round % 3 == 0 ? what(copy) : round % 3 == 1 ? what(raise) : what(sort);
      for (int i = 0; i < 3; ++i) {
        weft::go([round, f] {
          for (;;) {
            f();
            if (epoch != round) ++late;
          }
        });
      }
      weft::yield();
    });
    epoch = -round;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // for those who would run
  }
  EXPECT_EQ(late, 0);
}

// Those that had slept in a call that nobody announced, so that their P was taken, and are up again
// when main returns.
TEST_F(Run, LeftBehindWithoutAPNeverRunAgain) {
  test::goroutines_are_left_behind = true;
  static std::atomic<int> epoch{0}, late{0};
  for (int round = 1; round <= scaled(20); ++round) {
    epoch = round;
    run(with_procs(2), [round] {
      for (int i = 0; i < 4; ++i) {
        weft::go([round] {
          ::usleep(2000);
          for (;;) {
            try {
              throw std::runtime_error("again");
            } catch (const std::exception&) {
            }
            if (epoch != round) ++late;
          }
        });
      }
      weft::sleep_for(std::chrono::milliseconds(2) + std::chrono::microseconds(100 * (round % 20)));
    });
    epoch = -round;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(late, 0);
}
#endif

TEST_F(Run, LeftBehindWaitersForTheWorldDoNotHoldItUp) {
  // Goroutines that wait to stop the world when main returns: the next run must get its turn.
  for (int round = 0; round < scaled(60); ++round) {
    run(with_procs(3), [] {
      for (int i = 0; i < 6; ++i) {
        weft::go([i] {
          for (int n = 0;; ++n) set_procs(1 + (n + i) % 3);
        });
      }
      for (int i = 0; i < 20; ++i) weft::yield();
    });
  }
  run_on(2, [] {});
}

TEST_F(Run, LeftBehindOwnersAreNotDestroyed) {
  static event never;
  static std::atomic<int> destroyed{0};
  struct guard {
    ~guard() { ++destroyed; }
  };
  run(with_procs(2), [] {
    event there;
    weft::go([&there] {
      guard g;
      there.set();
      never.wait();
    });
    there.wait();
  });
  run_on(2, [] {});
  EXPECT_EQ(destroyed, 0);
}

TEST_F(Run, LeftBehindComputingIsAbandoned) {
  // A goroutine that never calls the runtime is stopped by the end of the run; the run ends, and
  // what counts goroutines is not confused by the P that went with it.
  static std::atomic<bool> stop{false}, running{false};
  static std::atomic<int> later{0};
  run(with_procs(2), [] {
    for (int i = 0; i < 100; ++i) weft::async([] {}).get();
    weft::go([] {
      running = true;
      while (!stop) rt::cpu_relax();
      weft::yield();  // its run is over: it stays here
      ++later;
    });
    EXPECT_TRUE(eventually([] { return running.load(); }));
  });
  EXPECT_EQ(num_goroutines(), 0U);
  run_on(2, [] { EXPECT_EQ(num_goroutines(), 1U); });
  stop = true;
  run_on(2, [] {
    for (int i = 0; i < 200; ++i) weft::async([] { weft::yield(); }).get();
    // The last one is done when its task is, and gone a moment later.
    EXPECT_TRUE(eventually([] { return num_goroutines() == 1U; }));
  });
  EXPECT_EQ(later, 0);
}

// A waker without a P (sysmon, a plain thread) that the machine stops after it has claimed a
// spinner: the run ends and the next begins before it goes on.
TEST_F(Run, AWakersClaimOutlivesTheRun) {
  using rt::sched;
  run(with_procs(2), [] {
    ASSERT_TRUE(eventually([] {
      const rt::idle_counts c = sched.idle.load();
      return c.idle_ps != 0 && c.spinning == 0 &&
             sched.idle.claim_spinner() == rt::idle_word::wake_result::start;
    }));
  });
  EXPECT_EQ(sched.idle.load().spinning, 1U);
  run(with_procs(2), [] {
    EXPECT_EQ(sched.idle.load().spinning, 1U);
    sched.lock.lock();  // as wake_slow does where no P is left
    sched.idle.unclaim_spinner();
    sched.lock.unlock();
    EXPECT_EQ(debug::audit(), 0);
    std::atomic<int> ran{0};
    for (int i = 0; i < 10; ++i) go([&ran] { ++ran; });
    EXPECT_TRUE(eventually([&ran] { return ran == 10; }));
  });
  EXPECT_EQ(sched.idle.load().spinning, 0U);
}

// main has lost its P in a call that nobody announced, and computes: the timer of its thread's CPU
// time stops it until it has one again. Each run has another thread, and the M of all is one.
TEST_F(Run, MainWithoutAPIsStoppedOnWhateverThread) {
  if (!rt::can_detach()) GTEST_SKIP() << "no membarrier";
  const auto lose_p = [] {
    int fd[2];
    ASSERT_EQ(::pipe(fd), 0);
    std::atomic<bool> stop{false};
    run(with_procs(1), [&] {
      const rt::M* m = rt::current_m();
      scope s;
      s.go([&] {
        EXPECT_EQ(::write(fd[1], "x", 1), 1);
        while (!stop.load(std::memory_order_relaxed)) {
        }
      });
      char c = 0;
      EXPECT_EQ(::read(fd[0], &c, 1), 1);
      EXPECT_EQ(rt::current_m(), m);
      EXPECT_TRUE(m->is_m0);
      // It computes, and nothing else. `detached` lasts until it enters the runtime: here, in the
      // handler.
      const auto until = test::steady::now() + test::patience;
      while (m->hold.load() == rt::hold_state::detached && test::steady::now() < until) {
      }
      EXPECT_NE(m->hold.load(), rt::hold_state::detached);
      stop.store(true);
      s.wait();
    });
    ::close(fd[0]);
    ::close(fd[1]);
  };
  lose_p();
  for (int i = 0; i < 3; ++i) std::thread(lose_p).join();
  lose_p();
}

// It runs nobody but main, whichever P main comes back with: from a call that blocked, and to a
// thread that it was locked to. One that locks itself to it would be taken for main.
TEST_F(Run, TheFirstThreadRunsMainAndNobodyElse) {
  const auto parks_on_m0 = [] {
    ASSERT_TRUE(rt::current_m()->is_m0);
    event done;
    bool here = true;
    weft::go([&] {
      here = rt::current_m()->is_m0;
      done.set();
    });
    done.wait();  // it is at hand
    EXPECT_FALSE(here);
  };
  run_unpreempted(1, [&] {
    std::atomic<bool> taken{false};
    weft::go([&] { taken = true; });
    weft::blocking([&] {  // until it has run, and its P is there for us
      EXPECT_TRUE(
          test::spin_until([&] { return taken.load() && rt::sched.idle.load().idle_ps != 0; }));
    });
    parks_on_m0();
  });
  run_unpreempted(1, [&] {
    lock_os_thread();
    event came;
    weft::go([&] { came.set(); });
    came.wait();
    unlock_os_thread();
    parks_on_m0();
  });
}

// main's first call that may park takes it away from the first thread, and not its turn: the others
// would keep the only P for ever here.
TEST_F(Run, MainKeepsItsTurnWhenItLeavesTheFirstThread) {
  config c = with_procs(1);
  c.preempt = false;
  std::atomic<bool> ran{false}, stop{false};
  run(c, [&] {
    for (int i = 0; i < 2; ++i) {
      weft::go([&] {
        ran = true;
        EXPECT_TRUE(test::spin_until([&] { return stop.load(); }));
      });
    }
    EXPECT_TRUE(rt::current_m()->is_m0);
    mutex m;
    m.lock();
    EXPECT_FALSE(rt::current_m()->is_m0);
    EXPECT_FALSE(ran);
    m.unlock();
    stop = true;
    EXPECT_TRUE(eventually([] { return num_goroutines() == 1; }));
  });
  EXPECT_TRUE(ran);
}

// Nor does it leave a thread that it is locked to.
TEST_F(Run, MainStaysOnTheFirstThreadIfItIsLockedToIt) {
  run_unpreempted(1, [] {
    const os_thread_guard fixed;
    std::atomic<bool> ran{false};
    weft::go([&] { ran = true; });
    mutex m;
    m.lock();
    EXPECT_TRUE(rt::current_m()->is_m0);
    EXPECT_FALSE(ran);
    m.unlock();
    EXPECT_TRUE(eventually([&] { return ran.load(); }));
  });
}

// One that locks and unlocks its thread all the time makes no call that parks: only the signal
// stops it, and an unlock must not tell the handler that there is no need.
TEST_F(Run, MainThatLocksAndUnlocksIsStopped) {
  run(with_procs(1), [] {
    std::atomic<bool> ran{false};
    weft::go([&] { ran = true; });
    while (!ran) {
      lock_os_thread();
      unlock_os_thread();
    }
  });
}

// The threads of locked goroutines end with their run, each woken once for it: a wake-up too many
// would wake whoever has the M next, while it stands on the idle list.
TEST_F(Run, ThreadsOfLockedGoroutinesAreWokenOnce) {
  using rt::sched;
  constexpr std::uint32_t locked = 32;
  const std::uint32_t before = sched.mcount.load();
  for (std::uint64_t round = 0; round < test::by_effort(200, 50); ++round) {
    run(with_procs(2), [] {
      static event never;
      for (std::uint32_t i = 0; i < locked; ++i) {
        weft::go([] {
          lock_os_thread();
          never.wait();
        });
      }
      EXPECT_TRUE(eventually([] {
        sched.lock.lock();
        const bool all = sched.locked_asleep >= locked;
        sched.lock.unlock();
        return all;
      }));
    });
    // They are on their way out, and have to pass the scheduler lock.
    for (int i = 0; i < 3; ++i) run(with_procs(2), [] {});
  }
  ASSERT_TRUE(eventually([before] { return sched.mcount.load() < before + locked; }));
  for (const rt::M* m = sched.allm.load(); m != nullptr; m = m->all_next) {
    if (m->tid.load() != 0) continue;
    EXPECT_FALSE(m->park.is_set()) << "M" << m->id << " has ended, and was woken again";
  }
  run_on(2, [] {});
}

TEST_F(Run, TheFirstThreadRunsNobodyButMain) {
  // Once main has left it, it only waits for the end: a goroutine that computed there would hold up
  // run's return.
  const pid_t first = test::thread_id();
  const auto expect_elsewhere = [first](const char* when) {
    std::atomic<int> there{0};
    {
      scope s;
      for (int i = 0; i < 20; ++i) {
        s.go([&] { there += test::thread_id() == first ? 1 : 0; });
        weft::yield();
      }
    }
    EXPECT_EQ(there, 0) << when;
  };
  run_on(1, [&] { expect_elsewhere("from the start"); });
  run_on(2, [&] {
    set_procs(1);  // stops and starts the world while main is still on the first thread
    expect_elsewhere("after a resize");
  });
  run_on(1, [&] {
    debug::audit();
    expect_elsewhere("after an audit");
  });
  run_on(1, [&] {
    for (int i = 0; i < 100; ++i) weft::yield();  // nobody to give way to
    expect_elsewhere("after vain yields");
  });
}

// -- what was there before

TEST_F(Run, GoBeforeARunIsRunByTheNext) {
  static std::atomic<int> ran{0};
  ran = 0;
  for (int i = 0; i < 10; ++i) weft::go([] { ++ran; });
  std::thread([] {
    for (int i = 0; i < 10; ++i) weft::go([] { ++ran; });
  }).join();
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(num_goroutines(), 20U);
  run_on(2, [] { EXPECT_TRUE(eventually([] { return ran == 20; })); });
  EXPECT_EQ(ran, 20);
}

TEST_F(Run, ManyBeforeARun) {
  static std::atomic<int> ran{0};
  ran = 0;
  constexpr int n = tsan ? 2000 : 10'000;
  for (int i = 0; i < n; ++i) weft::go([] { ++ran; });
  run_on(3, [] { EXPECT_TRUE(eventually([] { return ran == n; })); });
}

TEST_F(Run, GoBetweenRunsWithOtherStackSizes) {
  for (const std::size_t size : {64U * 1024, 512U * 1024, 256U * 1024}) {
    static std::atomic<int> ran{0};
    ran = 0;
    for (int i = 0; i < 50; ++i) weft::go([] { ++ran; });
    config c = with_procs(2);
    c.stack_size = size;
    test::run_clean(c, [] { EXPECT_TRUE(eventually([] { return ran == 50; })); });
  }
}

TEST_F(Run, AsyncAndPromiseReachFromOneRunIntoTheNext) {
  auto early = weft::async([] { return 11; });
  EXPECT_FALSE(early.done());
  promise<int> p;
  auto late = p.get_task();
  run_on(2, [&] { EXPECT_EQ(early.get(), 11); });
  p.set_value(12);
  run_on(2, [&] { EXPECT_EQ(late.get(), 12); });
}

TEST_F(Run, APlainThreadWaitsThroughRuns) {
  promise<int> p;
  int seen = 0;
  std::thread waits([&seen, t = p.get_task()]() mutable { seen = t.get(); });
  run_on(2, [] {});
  run_on(1, [&] { p.set_value(5); });
  waits.join();
  EXPECT_EQ(seen, 5);
}

TEST_F(Run, ANamesakeOfTheUsersIsNotCalled) { EXPECT_EQ(run(namesakes::main_function()), 3); }

// -- main's stack

__attribute__((noinline)) std::size_t recurse(std::uintptr_t from, std::size_t bytes) {
  volatile char frame[4096];
  frame[0] = 1;
  const auto here = reinterpret_cast<std::uintptr_t>(&frame[0]);
  if (from - here >= bytes) return 1;
  return recurse(from, bytes) + static_cast<std::size_t>(frame[0]);
}

TEST_F(Run, MainHasTheStackItAskedFor) {
  constexpr std::size_t mib = 1024 * 1024;
  for (std::size_t size : {mib, 8 * mib, 64 * mib}) {
    config c = with_procs(1);
    c.main_stack_size = size;
    EXPECT_GT(run(c,
                  [size] {
                    const auto top = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
                    return static_cast<int>(recurse(top, size - 128 * 1024));
                  }),
              0);
  }
}

}  // namespace
}  // namespace weft
