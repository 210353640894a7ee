// SPDX-License-Identifier: Apache-2.0
// Elements whose move sleeps: under the channel's lock, inside the runtime, and the one they wait
// for needs a P. A std::mutex stands for malloc's lock, which is what a vector waits for.
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/channels.h"
#include "support/effort.h"
#include "unit/sched/support.h"
#include "weft/chan.hpp"
#include "weft/select.hpp"
#include "weft/thread.hpp"
#include "weft/time.hpp"

namespace weft {
namespace {

using namespace sched_test;
using namespace std::chrono_literals;
using test::receiver_waits;
using test::sender_waits;
using test::spin_until;

class SleepingMove : public GoTest {
 protected:
  // Has the lock, computes, and lets go when `when` holds. Everybody else runs because it is
  // stopped in between, if there is one P.
  void hold_until(const std::function<bool()>& when) {
    go([this, when] {
      const std::lock_guard l(lock);
      held = true;
      released_in_time = spin_until(when);
    });
    ASSERT_TRUE(eventually([] { return held.load(); }));
  }
  void TearDown() override {
    EXPECT_TRUE(released_in_time);
    held = in_move = false;
    GoTest::TearDown();
  }

  static inline std::mutex lock;
  static inline std::atomic<bool> held{false}, in_move{false};
  std::atomic<bool> released_in_time{false};

 public:
  static void wait_for_lock() {
    if (!held) return;
    in_move = true;
    const std::lock_guard l(lock);
  }
};

// Its move waits; `Throws` says only that it might throw.
template <bool Throws>
struct sleeper {
  int value = 0;
  explicit sleeper(int v) : value(v) {}
  sleeper(sleeper&& o) noexcept(!Throws) : value(std::exchange(o.value, -1)) {
    SleepingMove::wait_for_lock();
  }
  sleeper& operator=(sleeper&& o) noexcept(!Throws) {
    value = std::exchange(o.value, -1);
    SleepingMove::wait_for_lock();
    return *this;
  }
  ~sleeper() = default;
};
using safe = sleeper<false>;
using unsafe = sleeper<true>;

TEST_F(SleepingMove, IntoTheRing) {
  run_on(1, [this] {
    chan<safe> c(1);
    hold_until([] { return in_move.load(); });
    c.send(safe(1));
    EXPECT_EQ(c.recv()->value, 1);
  });
}

TEST_F(SleepingMove, OutOfTheRing) {
  run_on(1, [this] {
    chan<safe> c(1);
    c.send(safe(1));
    hold_until([] { return in_move.load(); });
    EXPECT_EQ(c.recv()->value, 1);
  });
}

TEST_F(SleepingMove, ToOneWhoWaits) {
  run_on(1, [this] {
    chan<safe> c;
    int got = 0;
    scope s;
    s.go([&] { got = c.recv()->value; });
    ASSERT_TRUE(eventually([&] { return receiver_waits(c); }));
    hold_until([] { return in_move.load(); });
    c.send(safe(1));
    s.wait();
    EXPECT_EQ(got, 1);
  });
}

TEST_F(SleepingMove, WithADeadline) {
  run_on(1, [this] {
    chan<safe> c(1);
    hold_until([] { return in_move.load(); });
    EXPECT_EQ(c.send_for(safe(1), 10s), send_status::ok);
    safe got(0);
    EXPECT_EQ(c.recv_for(got, 10s), recv_status::ok);
    EXPECT_EQ(got.value, 1);
  });
}

// One case of a select, whose other channel nobody keeps locked meanwhile.
TEST_F(SleepingMove, InASelect) {
  run_on(1, [this] {
    chan<safe> c(1), other;
    hold_until([] { return in_move.load(); });
    safe v(1);
    select(send(c, std::move(v), [] {}), recv(other, [](std::optional<safe>) { ADD_FAILURE(); }));
    EXPECT_EQ(c.recv()->value, 1);
  });
}

// A move that announces its call loses its P there, and finds none when it comes back: it must not
// leave the thread then, with the channel's lock.
struct announcer {
  int value = 0;
  explicit announcer(int v) : value(v) {}
  announcer(announcer&& o) noexcept : value(std::exchange(o.value, -1)) {
    blocking([] { SleepingMove::wait_for_lock(); });
  }
  announcer& operator=(announcer&&) = delete;
  ~announcer() = default;
};

TEST_F(SleepingMove, AnAnnouncedCall) {
  run_on(1, [this] {
    for (int i = 0; i < 20; ++i) {
      chan<announcer> c(1);
      scope s;
      hold_until([] { return in_move.load(); });
      s.go([&] {
        c.send(announcer(1));
        EXPECT_EQ(c.recv()->value, 1);
      });
      // Nobody lets go of the P while the sender comes back.
      ASSERT_TRUE(spin_until([] { return in_move.load(); }));
      const auto until = std::chrono::steady_clock::now() + 2ms;
      while (std::chrono::steady_clock::now() < until) {
      }
      s.wait();
      held = in_move = false;
    }
  });
}

// Nor does one whose slice ends in a move that uses another channel.
struct closer {
  chan<void> inner;
  explicit closer(chan<void> c) : inner(std::move(c)) {}
  closer(closer&& o) noexcept : inner(std::exchange(o.inner, nullptr)) {
    const auto until = std::chrono::steady_clock::now() + 25ms;
    while (std::chrono::steady_clock::now() < until) {
    }
    if (inner && !inner.closed()) inner.close();
  }
  closer& operator=(closer&&) = delete;
  ~closer() = default;
};

TEST_F(SleepingMove, TheEndOfASlice) {
  released_in_time = true;  // nobody holds the lock here
  run_on(1, [] {
    std::atomic<bool> done{false};
    scope s;
    s.go([&] {
      while (!done) {
        async([] {
        }).get();  // dev builds find out here that somebody has left the lock with its thread
        yield();
      }
    });
    yield();
    for (int i = 0; i < 3; ++i) {
      chan<void> inner;
      chan<closer> c(1);
      c.send(closer(inner));
      EXPECT_FALSE(inner.recv());
    }
    done = true;
    s.wait();
  });
}

// Somebody sleeps in the move without a P, another comes to the same lock with the only one.
TEST_F(SleepingMove, OthersAtTheLock) {
  run_on(1, [this] {
    chan<safe> c(8);
    std::atomic<int> come{0};
    hold_until([&] { return come == 3; });
    scope s;
    s.go([&] { c.send(safe(1)); });
    ASSERT_TRUE(eventually([] { return in_move.load(); }));
    for (int i = 0; i < 3; ++i) {
      s.go([&] {
        ++come;
        c.send(safe(1));
      });
    }
    s.wait();
    EXPECT_EQ(c.len(), 4U);
  });
}

// The same at the claim of one that stands in two queues: the move might throw, so the second
// sender cannot pass by before it has ended.
TEST_F(SleepingMove, OthersAtTheClaim) {
  run_on(1, [this] {
    chan<unsafe> a, b;
    std::atomic<bool> come{false};
    int got = 0;
    scope s;
    s.go([&] {
      const auto take = [&](std::optional<unsafe> v) { got += v->value; };
      select(recv(a, take), recv(b, take));
      got += b.recv()->value;
    });
    ASSERT_TRUE(eventually([&] { return receiver_waits(a) && receiver_waits(b); }));
    hold_until([&] { return come.load(); });
    s.go([&] { a.send(unsafe(1)); });
    ASSERT_TRUE(eventually([] { return in_move.load(); }));
    s.go([&] {
      come = true;
      b.send(unsafe(2));
    });
    s.wait();
    EXPECT_EQ(got, 3);
  });
}

// The world is stopped while somebody sleeps in a move, and does not wait for it.
TEST_F(SleepingMove, AStopOfTheWorld) {
  run_on(2, [this] {
    chan<safe> c(1);
    std::atomic<bool> let_go{false};
    hold_until([&] { return let_go.load(); });
    scope s;
    s.go([&] { c.send(safe(1)); });
    ASSERT_TRUE(eventually([] { return in_move.load(); }));
    for (int i = 0; i < 20; ++i) set_procs(1 + i % 2);
    let_go = true;
    s.wait();
    EXPECT_EQ(c.recv()->value, 1);
  });
}

// The real thing: everybody allocates, everything is moved.
TEST_F(SleepingMove, VectorsBesideMallocHogs) {
  released_in_time = true;
  run_on_each([] {
    chan<std::vector<int>> c(4);
    std::atomic<bool> over{false};
    std::atomic<long> got{0};
    scope s;
    for (int i = 0; i < 4; ++i) {
      s.go([&] {
        while (!over) std::vector<std::vector<int>>(50, std::vector<int>(30)).clear();
      });
    }
    for (int i = 0; i < 2; ++i) {
      s.go([&] {
        while (!over) (void)c.send_for(std::vector<int>(100), 1ms);
      });
      s.go([&] {
        std::vector<int> v(10);
        while (!over) {
          if (c.recv_for(v, 1ms) == recv_status::ok) ++got;
        }
      });
    }
    sleep_for(std::chrono::milliseconds(test::by_effort(300, 100)));
    EXPECT_TRUE(test::eventually([&] { return got > 0; }));  // behind hogs on an emulated CPU
    over = true;
    s.wait();
  });
}

}  // namespace
}  // namespace weft
