// SPDX-License-Identifier: Apache-2.0
// The runtime's poller (sched/netpoll.h): waits, deadlines, closing, who polls; over plain sockets.
#include "sched/netpoll.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "os/clock.h"
#include "unit/sched/support.h"
#include "weft/chan.hpp"
#include "weft/time.hpp"

namespace weft::rt {
namespace {

using namespace std::chrono_literals;
using sched_test::run_on;
using sched_test::run_on_each;
using test::eventually;

constexpr std::int64_t ms = 1'000'000;

class pair {
 public:
  pair() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds_), 0);
    EXPECT_EQ(poll_open(fds_[0], &d), 0);
  }
  pair(const pair&) = delete;
  pair& operator=(const pair&) = delete;
  ~pair() {
    poll_close(d);
    ::close(fds_[0]);
    ::close(fds_[1]);
  }
  void feed() { EXPECT_EQ(::write(fds_[1], "x", 1), 1); }
  // As a read does it: try, wait, try again. A byte, or why not.
  poll_result read() {
    poll_result r = poll_prepare(d, poll_mode::read);
    while (r == poll_result::ready) {
      char c;
      if (::read(fds_[0], &c, 1) == 1) return r;
      r = poll_wait(d, poll_mode::read);
    }
    return r;
  }
  fd_desc* d = nullptr;

 private:
  int fds_[2] = {-1, -1};
};

// From a goroutine at each number of Ps, and from a plain thread without any run.
template <class F>
void everywhere(F f) {
  run_on_each(f);
  std::thread(f).join();
}

// Starts f beside the caller, whichever kind that is.
class beside {
 public:
  template <class F>
  explicit beside(F f) : thread_(current_g() == nullptr) {
    if (thread_) {
      t_ = std::thread(f);
    } else {
      go([f, done = done_] {
        f();
        done.send();
      });
    }
  }
  void wait() {
    if (thread_) {
      t_.join();
    } else {
      done_.recv();
    }
  }

 private:
  bool thread_;
  std::thread t_;
  chan<void> done_{1};
};

TEST(Netpoll, DataWakesAWaiter) {
  everywhere([] {
    pair p;
    beside reader([&] {
      for (int i = 0; i < 100; ++i) EXPECT_EQ(p.read(), poll_result::ready);
    });
    for (int i = 0; i < 100; ++i) {
      p.feed();
      yield();
    }
    reader.wait();
    EXPECT_EQ(netpoll.waiters.load(), 0);
  });
}

TEST(Netpoll, APlainThreadWaitsWhileTheWorldRuns) {
  run_on_each([] {
    pair p;
    std::atomic<int> got{0};
    std::thread t([&] {
      for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(p.read(), poll_result::ready);
        ++got;
      }
    });
    for (int i = 0; i < 50; ++i) {
      p.feed();
      EXPECT_TRUE(eventually([&] { return got > i; }));
    }
    t.join();
  });
}

TEST(Netpoll, AThreadWithoutADescriptorToSpareIsReachedToo) {
  pair p;
  // As under EMFILE: the waiter has no eventfd, so its waker leaves a mark.
  poll_waiter w;
  w.slot = &p.d->slot[0];
  ASSERT_TRUE(w.slot->begin());
  ASSERT_TRUE(w.slot->publish(&w));
  poll_evict(p.d);
  EXPECT_TRUE(w.taken);
}

TEST(Netpoll, ADeadlineEndsAWaitAndStays) {
  everywhere([] {
    pair p;
    const std::int64_t begin = nanotime();
    EXPECT_TRUE(poll_set_deadline(p.d, 1, begin + 5 * ms));
    EXPECT_EQ(p.read(), poll_result::expired);
    EXPECT_GE(nanotime(), begin + 5 * ms);
    p.feed();
    EXPECT_EQ(p.read(), poll_result::expired);  // data does not help
    EXPECT_TRUE(poll_set_deadline(p.d, 1, never));
    EXPECT_EQ(p.read(), poll_result::ready);
  });
}

TEST(Netpoll, ADeadlineSetWhileAnotherWaits) {
  everywhere([] {
    for (const std::int64_t in : {-1L, 0L, 2L}) {
      pair p;
      beside reader([&] { EXPECT_EQ(p.read(), poll_result::expired); });
      EXPECT_TRUE(poll_set_deadline(p.d, 1, nanotime() + in * ms));
      reader.wait();
    }
  });
}

TEST(Netpoll, AChangedDeadlineDoesNotFire) {
  everywhere([] {
    pair p;
    for (int i = 0; i < 200; ++i) {
      poll_set_deadline(p.d, 3, nanotime() + 20'000);
      poll_set_deadline(p.d, 3, nanotime() + 3600 * 1000 * ms);
      p.feed();
      ASSERT_EQ(p.read(), poll_result::ready);
      ASSERT_EQ(p.d->check(poll_mode::write), poll_result::ready);
    }
  });
}

TEST(Netpoll, TheDirectionsAreApart) {
  everywhere([] {
    pair p;
    poll_set_deadline(p.d, 2, nanotime() - 1);
    EXPECT_EQ(p.d->check(poll_mode::write), poll_result::expired);
    p.feed();
    EXPECT_EQ(p.read(), poll_result::ready);
  });
}

TEST(Netpoll, EvictionWakesBothSidesAndIsFinal) {
  everywhere([] {
    pair p;
    beside reader([&] { EXPECT_EQ(p.read(), poll_result::closed); });
    poll_evict(p.d);
    reader.wait();
    EXPECT_EQ(p.read(), poll_result::closed);
    EXPECT_EQ(poll_wait(p.d, poll_mode::write), poll_result::closed);
    EXPECT_FALSE(poll_set_deadline(p.d, 3, never));
  });
}

TEST(Netpoll, CellsAreUsedAgainAndLateReportsAreDropped) {
  everywhere([] {
    for (int i = 0; i < 300; ++i) {
      pair p;
      p.feed();
      poll_set_deadline(p.d, 3, nanotime() + 10'000);  // may fire when p is gone
      if (i % 2 == 0) yield();
      const poll_result r = p.read();
      EXPECT_NE(r, poll_result::closed);
      poll_evict(p.d);
    }
  });
}

TEST(Netpoll, AWaiterOutlivesItsRun) {
  pair p;
  {
    std::atomic<bool> waits{false};
    weft::run(test::with_procs(2), [&] {
      go([&] {
        waits = true;
        p.read();
      });
      EXPECT_TRUE(eventually([&] { return waits && netpoll.waiters.load() == 1; }));
    });
  }
  EXPECT_EQ(netpoll.waiters.load(), 0);
  p.feed();  // wakes one who never runs again
  run_on_each([] {
    pair q;
    beside reader([&] { EXPECT_EQ(q.read(), poll_result::ready); });
    q.feed();
    reader.wait();
  });
}

// One P computes without a call; the other's M sits in the poller.
TEST(Netpoll, AnIdleMSitsInThePollerWhileAnotherComputes) {
  if (num_cpu() < 2) GTEST_SKIP() << "needs two CPUs";
  run_on(2, [] {
    pair p;
    std::atomic<int> got{0};
    std::atomic<bool> stop{false};
    beside reader([&] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(p.read(), poll_result::ready);
        ++got;
      }
    });
    EXPECT_TRUE(eventually([] { return netpoll.waiters.load() == 1; }));
    std::thread feeder([&] {
      for (int i = 0; i < 20; ++i) {
        p.feed();
        EXPECT_TRUE(test::spin_until([&] { return got > i; }));
      }
      stop = true;
    });
    while (!stop) cpu_relax();  // no call: only another M can have run the reader
    feeder.join();
    reader.wait();
  });
}

// Every P is busy with goroutines that only yield: sysmon looks, and makes way.
TEST(Netpoll, BusyPsDoNotStarveADescriptor) {
  for (const int procs : {1, 2, 3}) {
    run_on(procs, [procs] {
      pair p;
      std::atomic<bool> stop{false};
      chan<void> done(8);
      for (int i = 0; i < 2 * procs; ++i) {
        go([&] {
          while (!stop) yield();
          done.send();
        });
      }
      beside reader([&] { EXPECT_EQ(p.read(), poll_result::ready); });
      EXPECT_TRUE(eventually([] { return netpoll.waiters.load() == 1; }));
      p.feed();
      reader.wait();
      stop = true;
      for (int i = 0; i < 2 * procs; ++i) done.recv();
    });
  }
}

// A timer armed by one who computes on wakes the M in the poller in time.
TEST(Netpoll, AnEarlierTimerInterruptsThePoller) {
  if (num_cpu() < 2) GTEST_SKIP() << "needs two CPUs";
  run_on(2, [] {
    pair p;
    beside reader([&] { EXPECT_EQ(p.read(), poll_result::expired); });
    EXPECT_TRUE(eventually([] { return netpoll.held.load(); }));
    std::atomic<bool> fired{false};
    after_func(2ms, [&] { fired = true; });
    EXPECT_TRUE(test::spin_until([&] { return fired.load(); }));
    poll_set_deadline(p.d, 1, nanotime());
    reader.wait();
  });
}

TEST(Netpoll, MainMayWaitFirst) {  // m0 hands its P on, and somebody must take the poller
  for (const int procs : {1, 2, 16}) {
    pair p;
    std::thread feeder;
    weft::run(test::with_procs(procs), [&] {
      feeder = std::thread([&] {
        EXPECT_TRUE(test::spin_until([] { return netpoll.waiters.load() == 1; }));
        p.feed();
      });
      EXPECT_EQ(p.read(), poll_result::ready);
    });
    feeder.join();
  }
}

TEST(Netpoll, AnIdleProgramUsesNoCpu) {
  run_on(2, [] {
    std::vector<std::unique_ptr<pair>> all;
    for (int i = 0; i < 20; ++i) all.push_back(std::make_unique<pair>());
    chan<void> done(20);
    for (auto& p : all) {
      go([q = p.get(), done] {
        EXPECT_EQ(q->read(), poll_result::closed);
        done.send();
      });
    }
    sleep_for(100ms);  // let it settle
    const auto cpu = [] {
      timespec ts;
      ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
      return ts.tv_sec * 1'000 * ms + ts.tv_nsec;
    };
    // The best of some: where a host takes the CPU away, that may count as ours.
    const std::int64_t most = (unit_test::sanitized ? 50 : 5) * ms;
    std::int64_t used = INT64_MAX;
    for (int i = 0; i < 5 && used >= most; ++i) {
      const std::int64_t before = cpu();
      sleep_for(500ms);
      used = std::min(used, cpu() - before);
    }
    EXPECT_LT(used, most);
    for (auto& p : all) poll_evict(p->d);
    for (int i = 0; i < 20; ++i) done.recv();
  });
}

TEST(Netpoll, StoppingTheWorldWhileDescriptorsBecomeReady) {
  run_on_each([] {
    pair p;
    std::atomic<int> got{0};
    beside reader([&] {
      for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(p.read(), poll_result::ready);
        ++got;
      }
    });
    for (int i = 0; i < 200; ++i) {
      p.feed();
      if (i % 8 == 0) {
        EXPECT_EQ(debug::audit(), 0);
      }
      EXPECT_TRUE(eventually([&] { return got > i; }));
    }
    reader.wait();
  });
}

}  // namespace
}  // namespace weft::rt
