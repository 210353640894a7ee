// SPDX-License-Identifier: Apache-2.0
// The state machine of one descriptor and direction.
#include "poll/desc.h"

#include <gtest/gtest.h>
#include <thread>

#include "unit/support.h"

namespace weft::rt {
namespace {

TEST(WaitSlot, ReadyBeforeTheWait) {
  wait_slot s;
  EXPECT_EQ(s.notify(true), nullptr);
  EXPECT_EQ(s.notify(true), nullptr);
  EXPECT_FALSE(s.begin());  // takes it
  EXPECT_TRUE(s.begin());
  EXPECT_FALSE(s.finish());
}

TEST(WaitSlot, ReadyWhileItWaits) {
  wait_slot s;
  poll_waiter w;
  ASSERT_TRUE(s.begin());
  ASSERT_TRUE(s.publish(&w));
  EXPECT_EQ(s.notify(true), &w);
  EXPECT_EQ(s.notify(true), nullptr);  // once
  EXPECT_TRUE(s.finish());
}

TEST(WaitSlot, UnblockedWhileItWaits) {
  wait_slot s;
  poll_waiter w;
  ASSERT_TRUE(s.begin());
  ASSERT_TRUE(s.publish(&w));
  EXPECT_EQ(s.notify(false), &w);
  EXPECT_EQ(s.notify(false), nullptr);
  EXPECT_FALSE(s.finish());
}

TEST(WaitSlot, BetweenBeginAndPublish) {
  for (const bool came : {true, false}) {
    wait_slot s;
    poll_waiter w;
    ASSERT_TRUE(s.begin());
    EXPECT_EQ(s.notify(came), nullptr);
    EXPECT_FALSE(s.publish(&w));
    EXPECT_EQ(s.finish(), came);
  }
}

TEST(WaitSlot, UnblockingNobodyLeavesNothing) {
  wait_slot s;
  EXPECT_EQ(s.notify(false), nullptr);
  EXPECT_TRUE(s.begin());
  s.finish();
  s.notify(true);
  EXPECT_EQ(s.notify(false), nullptr);  // does not take readiness away
  EXPECT_FALSE(s.begin());
}

TEST(WaitSlot, ForgetTakesOnlyReadiness) {
  wait_slot s;
  s.notify(true);
  s.forget();
  poll_waiter w;
  ASSERT_TRUE(s.begin());
  s.forget();
  ASSERT_TRUE(s.publish(&w));
  s.forget();
  EXPECT_EQ(s.notify(true), &w);
}

TEST(WaitSlot, AThreadWithdrawsUnlessItWasTaken) {
  wait_slot s;
  poll_waiter w;
  ASSERT_TRUE(s.begin());
  ASSERT_TRUE(s.publish(&w));
  EXPECT_TRUE(s.withdraw(&w));
  ASSERT_TRUE(s.begin());
  ASSERT_TRUE(s.publish(&w));
  EXPECT_EQ(s.notify(false), &w);
  EXPECT_FALSE(s.withdraw(&w));
}

TEST(WaitSlot, TwoWaitersAreFatal) {
  const auto end = unit_test::in_child([] {
    wait_slot s;
    poll_waiter w;
    s.begin();
    s.publish(&w);
    s.begin();
  });
  EXPECT_EQ(end.exit_status, 2);
  EXPECT_NE(end.err.find("two wait for one descriptor"), std::string::npos) << end.err;
}

// Nobody is lost and nobody is woken twice: each round ends with the waiter off the slot, by itself
// (refused) or by exactly one of two wakers.
TEST(WaitSlot, WakersAgainstAWaiter) {
  const int rounds = unit_test::scaled(20'000);
  wait_slot s;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> woken{0};
  const auto waker = [&](bool came) {
    while (!stop) {
      if (poll_waiter* w = s.notify(came)) {
        woken.fetch_add(1);
        w->taken.store(true, std::memory_order_release);
      } else {
        std::this_thread::yield();
      }
    }
  };
  std::thread a(waker, true), b(waker, false);
  std::uint64_t waited = 0;
  for (int i = 0; i < rounds; ++i) {
    if (!s.begin()) continue;
    poll_waiter w;
    if (s.publish(&w)) {
      ++waited;
      while (!w.taken.load(std::memory_order_acquire)) std::this_thread::yield();
    }
    s.finish();
  }
  stop = true;
  a.join();
  b.join();
  EXPECT_EQ(woken, waited);
}

TEST(WakeQueue, InOrder) {
  wake_queue q;
  EXPECT_TRUE(q.empty());
  poll_waiter w[3];
  q.push(nullptr);
  EXPECT_TRUE(q.empty());
  for (poll_waiter& x : w) q.push(&x);
  for (poll_waiter& x : w) EXPECT_EQ(q.pop(), &x);
  EXPECT_EQ(q.pop(), nullptr);
}

}  // namespace
}  // namespace weft::rt
