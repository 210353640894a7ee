// SPDX-License-Identifier: Apache-2.0
// Bubbles: the order is the seed's and nothing else's; where they may be run; what they give back;
// what they do to threads, slices and calls that block.
#include <algorithm>
#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/leaks.h"
#include "support/runtime.h"
#include "weft/context.hpp"
#include "weft/debug.hpp"
#include "weft/select.hpp"
#include "weft/sync.hpp"
#include "weft/testing.hpp"
#include "weft/thread.hpp"
#include "weft/time.hpp"

namespace weft::test {
namespace {

template <class... F>
void wg_of(F... f) {
  wait_group wg;
  (wg.go(f), ...);
  wg.wait();
}

// A bit of everything that blocks; what happened, in the order in which it did.
std::string everything(std::uint64_t seed) {
  std::string log;
  testing::bubble(seed, [&log] {
    const auto note = [&log](char c) { log += std::to_string(goid()) + c; };
    chan<int> c, d(2);
    mutex m;
    wait_group wg;
    condition_variable cv;
    int turns = 0;
    for (int i = 0; i < 3; ++i) {
      wg.go([&, i] {
        for (int k = 0; k < 3; ++k) {
          const std::lock_guard hold(m);
          note('m');
        }
        sleep_for(i == 2 ? 2ms : 1ms);
        note('s');
        c.send(i);
        note('c');
        std::unique_lock lock(m);
        ++turns;
        cv.notify_all();
      });
      wg.go([&, i] {
        yield();
        note('y');
        d.send(i);
        note('d');
      });
    }
    wg.go([&] {
      std::unique_lock lock(m);
      cv.wait(lock, [&] { return turns == 3; });
      note('v');
    });
    const timer a = after_func(1ms, [&] { note('f'); });
    const ticker t(500us);
    for (int got = 0; got < 6;) {
      select(recv(c, [&](std::optional<int>) { note('1'), ++got; }),
             recv(d, [&](std::optional<int>) { note('2'), ++got; }),
             recv(t.c, [&](std::optional<clock::time_point>) { note('t'); }));
    }
    auto [ctx, cancel] = with_timeout(background(), 3ms);
    const auto done = async([&, ctx = ctx] {
      ctx.done().recv();
      note('x');
      return 1;
    });
    done.wait();
    wg.wait();
    note('.');
  });
  return log;
}

TEST(Bubble, TheSameSeedGivesTheSameTrace) {
  std::set<std::string> traces;
  const std::uint64_t seeds = by_effort(100, 10);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const std::string first = everything(seed);  // without a run
    traces.insert(first);
    run_clean([&] {
      // Others that compute, sleep and spawn are none of its business.
      std::atomic<bool> stop{false};
      wait_group busy;
      for (int i = 0; i < 2; ++i) {
        busy.go([&] {
          while (!stop.load()) {
            go([] {});
            yield();
          }
        });
      }
      for (int i = 0; i < 3; ++i) EXPECT_EQ(everything(seed), first) << seed;
      stop = true;
      busy.wait();
    });
  }
  EXPECT_EQ(traces.size(), seeds);  // and they differ
}

// These are the same on every machine, whatever its architecture: that is the promise. Whoever
// changes what a seed means changes them, and says so.
std::string letters(std::uint64_t seed) {
  std::string log;
  testing::bubble(seed, [&log] {
    wait_group wg;
    chan<char> c(1);
    for (char who = 'a'; who < 'e'; ++who) {
      wg.go([&, who] {
        log += who;
        c.send(who);
        sleep_for(1s);
        log += static_cast<char>(who - 'a' + 'A');
      });
    }
    for (int i = 0; i < 4; ++i) {
      select(recv(c, [&](std::optional<char> v) { log += static_cast<char>(*v - 'a' + '0'); }),
             recv(c, [&](std::optional<char>) { log += '+'; }));
    }
    wg.wait();
  });
  return log;
}

TEST(Bubble, LiteralTraces) {
  EXPECT_EQ(letters(0), "acbd+++2BCDA");
  EXPECT_EQ(letters(1), "cdb1+a0+BACD");
  EXPECT_EQ(letters(2), "d3acb0+1DBAC");
  EXPECT_EQ(letters(12345), "dca++b++CDAB");
  EXPECT_EQ(letters(~0ULL), "cab201d+ACDB");
}

// Woken and beaten to it, one waits for the rest of its time, which is still virtual.
TEST(Bubble, ATimedLockThatIsWokenInVainEndsInTime) {
  testing::bubble(1, [] {
    mutex m;
    m.lock();
    auto b = async([&] { return m.try_lock_for(10s); });
    sleep_for(1s);
    m.unlock();  // wakes it
    ASSERT_TRUE(m.try_lock());
    const auto begin = clock::now();
    EXPECT_FALSE(b.get());
    EXPECT_EQ(clock::now() - begin, 9s);
    m.unlock();
  });
}

// A time that had passed before one could wait says nothing about the next wait.
TEST(Bubble, ATimedLockThatDoesNotWaitMarksNobody) {
  mutex outside;
  outside.lock();
  std::thread other;
  testing::bubble(1, [&] {
    const auto begin = clock::now();
    EXPECT_FALSE(outside.try_lock_until(begin - 1s));
    other = std::thread([&] {
      std::this_thread::sleep_for(20ms);
      outside.unlock();
    });
    outside.lock();  // whoever has it is outside: no time passes here
    EXPECT_EQ(clock::now(), begin);
    outside.unlock();
  });
  other.join();
}

// At zero it belongs to nobody again, whoever else is in a bubble when it is counted next.
TEST(Bubble, AWaitGroupIsFreeAgainAtZero) {
  wait_group wg;
  testing::bubble(1, [&] {
    wg.go([] {});
    wg.wait();
  });
  wg.add(1);
  const chan<void> done;
  std::atomic<bool> begun{false};
  std::thread other([&] {
    testing::bubble(2, [&] {
      begun = true;
      done.recv();
    });
  });
  while (!begun) std::this_thread::yield();
  wg.done();
  done.close();
  other.join();
  wg.wait();
}

TEST(Bubble, WithAndWithoutARun) {
  const auto body = [] {
    sleep_for(1h);
    return 7;
  };
  EXPECT_EQ(testing::bubble(1, body), 7);  // a plain thread, no run
  run_clean([&] {
    EXPECT_EQ(testing::bubble(1, body), 7);  // main, on m0
    EXPECT_EQ(async([&] { return testing::bubble(1, body); }).get(), 7);
    const os_thread_guard lock;
    EXPECT_EQ(testing::bubble(1, body), 7);  // one that is locked to its thread
    int got = 0;
    blocking([&] {  // a plain thread beside the run
      std::thread([&] { got = testing::bubble(1, body); }).join();
    });
    EXPECT_EQ(got, 7);
  });
}

TEST(Bubble, ManyAtOnce) {
  run_clean([] {
    const std::string expected = letters(9);
    wait_group wg;
    for (int i = 0; i < 50; ++i) wg.go([&] { EXPECT_EQ(letters(9), expected); });
    wg.wait();
  });
}

TEST(Bubble, GivesBackWhatTheFunctionReturns) {
  testing::bubble(1, [] {});
  int x = 0;
  int& r = testing::bubble(1, [&]() -> int& { return x; });
  EXPECT_EQ(&r, &x);
  EXPECT_EQ(*testing::bubble(1, [] { return std::make_unique<int>(3); }), 3);
  struct once_only {
    std::unique_ptr<int> p;
    int operator()() && { return *p; }
  };
  EXPECT_EQ(testing::bubble(1, once_only{std::make_unique<int>(4)}), 4);
}

TEST(Bubble, PassesOnWhatTheFunctionThrows) {
  const auto thrown = [] {
    try {
      testing::bubble(1, [] {
        go([] { sleep_for(1s); });  // neither the sleeper nor the deadlock hides it
        throw std::runtime_error("mine");
      });
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(thrown(), "mine");
  EXPECT_THROW(testing::bubble(1, [] { goexit(); }), goexited);
}

TEST(Bubble, IdsCountFromOne) {
  testing::bubble(1, [] {
    EXPECT_EQ(goid(), 1U);
    std::set<std::uint64_t> ids;
    wait_group wg;
    for (int i = 0; i < 5; ++i) wg.go([&] { ids.insert(goid()); });
    wg.wait();
    EXPECT_EQ(ids, (std::set<std::uint64_t>{2, 3, 4, 5, 6}));
  });
}

TEST(Bubble, HasOneThread) {
  run_clean(with_procs(4), [] {
    testing::bubble(5, [] {
      const pid_t here = ::gettid();
      wait_group wg;
      for (int i = 0; i < 20; ++i) {
        wg.go([&] {
          for (int k = 0; k < 10; ++k) {
            EXPECT_EQ(::gettid(), here);
            sleep_for(1ms);
            yield();
            blocking([] { ::usleep(50); });
          }
        });
      }
      wg.wait();
      EXPECT_EQ(::gettid(), here);
    });
  });
}

TEST(Bubble, AYieldGivesEverybodyATurn) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    testing::bubble(seed, [] {
      int ran = 0;
      for (int i = 0; i < 5; ++i) go([&] { ++ran; });
      yield();
      EXPECT_EQ(ran, 5);
    });
  }
}

// The slice ends and the signal comes, but the same goroutine goes on.
TEST(Bubble, AHogMerelyHogs) {
  run_clean(with_procs(1), [] {
    std::string first;
    std::atomic<int> outside{0};
    go([&] {
      for (; outside.load() < 3; ++outside) yield();
    });
    for (int round = 0; round < 2; ++round) {
      std::string log;
      testing::bubble(3, [&] {
        wait_group wg;
        mutex m;
        for (char who = 'a'; who < 'd'; ++who) {
          wg.go([&, who] {
            for (int k = 0; k < 2; ++k) {
              const auto until = steady::now() + (round == 0 ? 25ms : 0ms);
              while (steady::now() < until) {
              }
              log += who;
              const std::lock_guard point(m);  // a call at which the slice would end
              log += who;
            }
          });
        }
        wg.wait();
      });
      if (round == 0) first = log;
      EXPECT_EQ(log, first);
    }
    EXPECT_TRUE(eventually([&] { return outside.load() == 3; }));
  });
}

TEST(Bubble, OthersRunBesideIt) {
  run_clean(with_procs(1), [] {
    std::atomic<bool> ran{false};
    go([&] { ran = true; });
    testing::bubble(1, [&] {
      // Goroutines of the bubble only, for ever; the P is shared all the same.
      wait_group wg;
      for (int i = 0; i < 2; ++i) {
        wg.go([&] {
          while (!ran.load()) yield();
        });
      }
      wg.wait();
    });
    EXPECT_TRUE(ran.load());
  });
}

TEST(Bubble, TheWorldStopsWithIt) {
  run_clean([] {
    testing::bubble(1, [] {
      wait_group wg;
      for (int i = 0; i < 3; ++i) {
        wg.go([] {
          for (int k = 0; k < 20; ++k) {
            yield();
            if (k % 5 == 0) {
              EXPECT_EQ(debug::audit(), 0);
            }
          }
        });
      }
      wg.wait();
    });
    // Audits from outside, while bubbles run.
    std::atomic<int> running{2};
    for (int i = 0; i < 2; ++i) {
      go([&] {
        for (std::uint64_t k = 0; k < by_effort(40, 10); ++k) everything(k);
        --running;
      });
    }
    while (running.load() != 0) {
      EXPECT_EQ(debug::audit(), 0);
      yield();
    }
  });
}

TEST(Bubble, AThreadThatAMemberHasSpoiltEndsWithIt) {
  run_clean([] {
    testing::bubble(1, [] {
      wait_group wg;
      wg.go([] { lock_os_thread(); });
      wg.wait();
      const os_thread_guard lock;
      EXPECT_EQ(async([] { return 3; }).get(), 3);  // locked, and the others run all the same
    });
    testing::bubble(1, [] { sleep_for(1s); });
  });
}

TEST(Bubble, ADeadlockLeavesNothingThatWakes) {
  goroutines_are_left_behind = true;
  run_clean([] {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      EXPECT_THROW(testing::bubble(seed,
                                   [] {
                                     const chan<int> c;
                                     for (int i = 0; i < 3; ++i) go([c] { c.recv(); });
                                     c.recv();
                                   }),
                   testing::deadlock);
      EXPECT_TRUE(eventually([] { return num_goroutines() == 1; }));
    }
    EXPECT_EQ(debug::audit(), 0);
  });
}

TEST(Bubble, TheEndOfTheRunStopsIt) {
  goroutines_are_left_behind = true;
  for (std::uint64_t i = 0; i < by_effort(20, 5); ++i) {
    std::atomic<bool> begun{false};
    weft::run(with_procs(2), [&] {
      go([&] {
        testing::bubble(1, [&] {
          for (;;) {
            sleep_for(1s);
            begun = true;
          }
        });
      });
      ASSERT_TRUE(eventually([&] { return begun.load(); }));
    });
  }
  EXPECT_FALSE(detail::any_bubble());  // or every clock and wait group asks for one from now on
  EXPECT_EQ(testing::bubble(1, [] { return 1; }), 1);
}

TEST(Bubble, TheEndOfARunBesideItIsAnError) {
  goroutines_are_left_behind = true;
  for (std::uint64_t i = 0; i < by_effort(20, 5); ++i) {
    std::atomic<bool> begun{false};
    std::string text;
    std::thread t;
    weft::run(with_procs(2), [&] {
      t = std::thread([&] {
        try {
          testing::bubble(i, [&] {
            for (;;) {
              sleep_for(1s);
              begun = true;
            }
          });
        } catch (const std::logic_error& e) {
          text = e.what();
        }
      });
      ASSERT_TRUE(eventually([&] { return begun.load(); }));
    });
    t.join();
    EXPECT_EQ(text, "the run that the bubble was in has ended");
  }
  EXPECT_FALSE(detail::any_bubble());
}

// Each has a run of its own, or joins the other's, which then waits for it.
TEST(Bubble, TwoThreadsWithoutARun) {
  const auto one = [](std::uint64_t seed) {
    return testing::bubble(seed, [] {
      wait_group wg;
      for (int i = 0; i < 3; ++i) wg.go([i] { sleep_for(i * 1ms); });
      wg.wait();
      return 7;
    });
  };
  const auto many = [one] {
    for (std::uint64_t seed = 0; seed < by_effort(300, 50); ++seed) {
      EXPECT_NO_THROW(EXPECT_EQ(one(seed), 7));
    }
  };
  std::thread others[] = {std::thread(many), std::thread(many)};
  many();
  for (std::thread& t : others) t.join();
  EXPECT_FALSE(detail::any_bubble());
}

// A run() beside a bubble that has a run of its own is nobody's mistake.
TEST(Bubble, ARunBesideOneWaits) {
  std::atomic<bool> begun{false}, go_on{false};
  std::thread t([&] {
    testing::bubble(1, [&] {
      begun = true;
      while (!go_on) std::this_thread::yield();
    });
  });
  while (!begun) std::this_thread::yield();
  std::thread lets_it([&] {
    std::this_thread::sleep_for(5ms);
    go_on = true;
  });
  EXPECT_EQ(run(with_procs(1), [] { return 3; }), 3);
  EXPECT_TRUE(go_on);
  t.join();
  lets_it.join();
}

// A mutex is not durable, but the clock must not stand still for one who gives it up in time.
TEST(Bubble, TimedWaitsForAMutexEnd) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    testing::bubble(seed, [] {
      mutex m;
      shared_mutex rw;
      m.lock();
      rw.lock();
      const auto begin = clock::now();
      wg_of([&] { EXPECT_FALSE(m.try_lock_for(1h)); }, [&] { EXPECT_FALSE(rw.try_lock_for(2h)); },
            [&] { EXPECT_FALSE(rw.try_lock_shared_until(clock::now() + 3h)); });
      EXPECT_EQ(clock::now() - begin, 3h);
      // Given away before its time.
      wg_of([&] { EXPECT_TRUE(m.try_lock_for(1h)); },
            [&] {
              sleep_for(1min);
              m.unlock();
            });
      EXPECT_EQ(clock::now() - begin, 3h + 1min);
    });
  }
}

TEST(Bubble, BesideRunsThatComeAndGo) {
  goroutines_are_left_behind = true;
  std::atomic<bool> stop{false};
  std::atomic<int> made{0}, ended{0};
  std::thread t([&] {
    for (std::uint64_t seed = 0; !stop; ++seed) {
      try {
        EXPECT_EQ(testing::bubble(seed,
                                  [] {
                                    wait_group wg;
                                    for (int i = 0; i < 3; ++i) wg.go([i] { sleep_for(i * 1ms); });
                                    wg.wait();
                                    return 7;
                                  }),
                  7);
        ++made;
      } catch (const std::logic_error& e) {
        EXPECT_STREQ(e.what(), "the run that the bubble was in has ended");
        ++ended;
      }
    }
  });
  for (std::uint64_t i = 0; i < by_effort(2000, 100); ++i) {
    try {
      weft::run(with_procs(2), [&] {
        for (std::uint64_t n = i % 20; n > 0; --n) yield();
      });
    } catch (const std::logic_error& e) {  // the bubble has a run of its own just now
      EXPECT_STREQ(e.what(), "weft::run called beside another run");
    }
  }
  EXPECT_TRUE(eventually([&] { return made > 0; }));  // nobody ends its runs any more
  stop = true;
  t.join();
}

TEST(Bubble, TimersOfAFinishedBubbleMayBeDropped) {
  run_clean([] {
    std::vector<timer> kept;
    std::vector<ticker> tickers;
    context ctx;
    auto owned = std::make_shared<int>(1);
    testing::bubble(1, [&] {
      kept.emplace_back(1h);
      kept.push_back(after_func(1h, [owned] {}));
      after_func(1h, [owned] {});
      tickers.emplace_back(1s);
      ctx = with_timeout(background(), 1h).first;
      after_cancel(ctx, [owned] {});
    });
    kept.clear();
    tickers.clear();
    ctx = background();
    EXPECT_EQ(owned.use_count(), 1);
  });
}

TEST(Bubble, TheDumpNamesIt) {
  run_clean([] {
    std::ostringstream out;
    testing::bubble(1, [&] {
      const chan<int> c;
      go([c] { c.recv(); });
      testing::wait();
      debug::dump(out);
      c.close();
    });
    EXPECT_NE(out.str().find("goroutine 2 [chan receive (durable), synctest bubble "),
              std::string::npos)
        << out.str();
  });
}

// A point of a real clock is as far ahead in the bubble's time as it is on its own, once: the real
// clock does not follow when ours jumps there.
TEST(Bubble, DeadlinesOfRealClocksAreSpansOfItsOwn) {
  const auto roughly_an_hour = [](clock::time_point since) {
    const auto d = clock::now() - since;
    return d > 59min && d <= 1h;
  };
  const auto round = [&]<class Clock>(Clock) {
    mutex m;
    condition_variable cv;
    std::unique_lock lock(m);
    auto begin = clock::now();
    EXPECT_EQ(cv.wait_until(lock, Clock::now() + 1h), std::cv_status::timeout);
    EXPECT_TRUE(roughly_an_hour(begin));
    begin = clock::now();
    const auto [ctx, cancel] = with_deadline(background(), Clock::now() + 1h);
    EXPECT_FALSE(ctx.err());
    EXPECT_FALSE(ctx.done().recv());
    EXPECT_TRUE(roughly_an_hour(begin));
  };
  testing::bubble(1, [&] {
    round(std::chrono::steady_clock());
    round(std::chrono::system_clock());
  });
}

// Which of two deadlines comes first cannot be said if they are of different clocks: each one
// counts.
TEST(Bubble, ADeadlineUnderOneOfTheRealClockIsItsOwn) {
  const auto [outer, cancel_outer] = with_timeout(background(), 1h);
  testing::bubble(1, [&, outer = outer, cancel_outer = cancel_outer] {
    const auto begin = clock::now();
    const auto [ctx, cancel] = with_timeout(with_cancel(outer).first, 5s);
    EXPECT_EQ(ctx.deadline(), begin + 5s);
    const auto [later, cancel_later] = with_timeout(ctx, 6s);  // of one clock: the nearer one
    EXPECT_EQ(later.deadline(), begin + 5s);
    EXPECT_FALSE(later.done().recv());
    EXPECT_EQ(later.err(), errc::deadline_exceeded);
    EXPECT_EQ(ctx.err(), errc::deadline_exceeded);
    EXPECT_EQ(clock::now() - begin, 5s);
    const auto [other, cancel_other] = with_timeout(outer, 5s);
    cancel_outer();
    EXPECT_EQ(other.err(), errc::canceled);
  });
}

TEST(Bubble, RealClocksPassThrough) {
  testing::bubble(1, [] {
    const auto before = clock::now();
    sleep_until(std::chrono::system_clock::now() + 1h);
    EXPECT_GT(clock::now() - before, 59min);
    sleep_until(steady::now() + 1h);
    EXPECT_GT(clock::now() - before, 119min);
  });
}

}  // namespace
}  // namespace weft::test
