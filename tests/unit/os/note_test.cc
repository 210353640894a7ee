// SPDX-License-Identifier: Apache-2.0
// os/note.h: a wake-up is never lost, whatever the order, with and without a deadline.
#include "os/note.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "base/random.h"
#include "support/chaos.h"
#include "unit/support.h"

namespace weft::rt {
namespace {

constexpr std::int64_t ms = 1'000'000;

TEST(Note, WakeBeforeSleepIsNotLost) {
  note n;
  EXPECT_FALSE(n.is_set());
  n.wake();
  EXPECT_TRUE(n.is_set());
  n.sleep();
  EXPECT_TRUE(n.sleep_until(0));  // even with a deadline long past
  n.clear();
  EXPECT_FALSE(n.is_set());
}

TEST(Note, DeadlinePasses) {
  note n;
  const std::int64_t begin = nanotime();
  errno = 42;
  EXPECT_FALSE(n.sleep_until(begin + 5 * ms));
  EXPECT_GE(nanotime(), begin + 5 * ms);
  EXPECT_EQ(errno, 42);
  EXPECT_FALSE(n.is_set());
  EXPECT_FALSE(n.sleep_until(0));  // the note is as good as before
  n.wake();
  EXPECT_TRUE(n.sleep_until(nanotime() + 60'000 * ms));
}

TEST(Note, SleeperSeesWhatTheWakerDid) {
  for (int i = 0; i < unit_test::scaled(1'000); ++i) {
    note n;
    int data = 0;
    std::thread waker([&] {
      data = 17;  // not atomic: the note orders it
      n.wake();
    });
    n.sleep();
    EXPECT_EQ(data, 17);
    waker.join();
  }
}

TEST(Note, PingPong) {
  note ping, pong;
  std::int64_t turn = 0;  // belongs to whoever is awake
  constexpr int rounds = unit_test::scaled(50'000);
  std::thread other([&] {
    for (int i = 0; i < rounds; ++i) {
      ping.sleep();
      ping.clear();
      turn = turn * 2 + 1 - turn;  // turn + 1
      pong.wake();
    }
  });
  for (int i = 0; i < rounds; ++i) {
    ping.wake();
    pong.sleep();
    pong.clear();
    ASSERT_EQ(turn, i + 1);
  }
  other.join();
}

// A sleep that times out while the waker comes: either the sleeper hears of it (true), or the note
// is set a moment later and a second sleep returns at once. Nothing in between.
TEST(Note, TimedSleepRacesWithTheWaker) {
  note n, back;
  std::atomic<bool> stop{false};
  std::thread waker([&] {
    random r(3);
    for (;;) {
      back.sleep();
      back.clear();
      if (stop.load()) return;
      for (std::uint32_t i = r.below(600); i > 0; --i) cpu_relax();
      n.wake();
    }
  });
  random r(4);
  int heard = 0, timed_out = 0;
  for (int i = 0; i < unit_test::scaled(20'000); ++i) {
    back.wake();
    if (n.sleep_until(nanotime() + r.below(60'000))) {
      ASSERT_TRUE(n.is_set());
      ++heard;
    } else {
      ++timed_out;
      n.sleep();  // the waker is on its way
      ASSERT_TRUE(n.is_set());
    }
    n.clear();
  }
  stop = true;
  back.wake();
  waker.join();
  RecordProperty("heard", heard);
  RecordProperty("timed_out", timed_out);
}

TEST(Note, NobodyTouchesItAfterTheSleeperIsGone) {
  // The note lives on a stack that is used again at once; ASan and TSan builds watch.
  std::atomic<note*> where{nullptr};
  std::atomic<bool> stop{false};
  std::thread waker([&] {
    while (!stop.load()) {
      if (note* n = where.exchange(nullptr)) n->wake();
    }
  });
  for (int i = 0; i < unit_test::scaled(20'000); ++i) {
    auto n = std::make_unique<note>();
    where.store(n.get());
    n->sleep();
  }
  stop = true;
  waker.join();
}

TEST(Futex, WaitReturnsAtOnceIfTheWordHasChanged) {
  const weft::test::order_matters here("a wake-up for nothing looks like one in time");
  atomic<std::uint32_t> word{1};
  EXPECT_TRUE(futex_wait(word, 0));
  EXPECT_FALSE(futex_wait(word, 1, nanotime() + ms));
  EXPECT_FALSE(futex_wait(word, 1, 0));
}

TEST(Clock, NeverGoesBack) {
  std::int64_t last = nanotime();
  for (int i = 0; i < 100'000; ++i) {
    const std::int64_t now = nanotime();
    ASSERT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace weft::rt
