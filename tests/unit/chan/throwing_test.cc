// SPDX-License-Identifier: Apache-2.0
// Elements whose move throws, at every single move of an operation, on either side: nothing is
// lost, nothing comes twice, nobody is left waiting, and every object that was made is destroyed.
#include <atomic>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/channels.h"
#include "unit/sched/support.h"
#include "weft/chan.hpp"
#include "weft/select.hpp"

namespace weft {
namespace {

using namespace sched_test;
using namespace std::chrono_literals;
using test::pause;
using test::watched;

struct refused : std::runtime_error {
  refused() : std::runtime_error("move refused") {}
};

// A value with an identity. A move that throws has changed nothing.
struct bomb {
  static inline std::atomic<int> alive{0};
  static inline std::atomic<int> fuse{-1};  // moves until one throws; < 0: none does
  static inline std::atomic<int> every{0};  // else: each so-manieth throws
  static inline std::atomic<int> moves{0}, thrown{0};
  static void reset() {
    fuse = -1;
    every = moves = thrown = 0;
  }

  int id = -1;
  explicit bomb(int i) : id(i) { ++alive; }
  bomb(bomb&& o) : id((tick(), std::exchange(o.id, -1))) { ++alive; }
  bomb& operator=(bomb&& o) {
    tick();
    id = std::exchange(o.id, -1);
    return *this;
  }
  ~bomb() { --alive; }

 private:
  static void tick() {
    const int n = ++moves, e = every;
    if (fuse.fetch_sub(1) == 0 || (e != 0 && n % e == 0)) {
      ++thrown;
      throw refused();
    }
  }
};
static_assert(!std::is_nothrow_move_constructible_v<bomb>);

class Throwing : public GoTest {
 protected:
  void SetUp() override {
    GoTest::SetUp();
    bomb::reset();
  }
  void TearDown() override {
    bomb::reset();
    EXPECT_EQ(bomb::alive, 0);
    GoTest::TearDown();
  }
};

// -- the operations, by shape. A send tries again until the value is taken: it is still there.

enum class how { plain, timed, select1, select2, both_ways, trying, selecting };
constexpr how all_hows[] = {how::plain,     how::timed,  how::select1,  how::select2,
                            how::both_ways, how::trying, how::selecting};

void send_one(const chan<bomb>& c, int id, how h) {
  bomb b(id);
  const chan<bomb> idle;
  for (;;) {
    try {
      switch (h) {
        case how::plain:
          c.send(std::move(b));
          return;
        case how::timed:
          if (c.send_for(std::move(b), 200us) == send_status::ok) return;
          break;
        case how::select1:
          select(send(c, std::move(b)));
          return;
        case how::select2:
          select(recv(idle), send(c, std::move(b)));
          return;
        case how::both_ways:  // and never receives: no sender comes to idle
          select(send(c, std::move(b)), recv(idle), timeout(1h));
          return;
        case how::trying:
          if (c.try_send(std::move(b))) return;
          yield();
          break;
        case how::selecting:
          if (select(send(c, std::move(b)), recv(idle), timeout(100us)) == 0) return;
          break;
      }
      ASSERT_EQ(b.id, id) << "moved from though not taken";
    } catch (const refused&) {
      ASSERT_EQ(b.id, id) << "moved from though the move threw";
    }
  }
}

// The id, or nullopt: closed. A move into a handler's argument is the receiver's own affair, so
// what is selected is looked at by reference.
std::optional<int> recv_one(const chan<bomb>& c, how h) {
  const chan<bomb> idle;
  for (;;) {
    try {
      std::optional<bomb> out;
      bomb assigned(-2);
      const auto id = [&]() -> std::optional<int> {
        return out ? std::optional<int>(out->id) : std::nullopt;
      };
      detail::select_case k[2] = {
          {detail::chan_access::core(c), nullptr, detail::into_optional(out), false},
          {detail::chan_access::core(idle), nullptr, detail::into_optional(out), false}};
      switch (h) {
        case how::plain:
          out = std::nullopt;
          if (std::optional<bomb> v = c.recv()) return v->id;
          return std::nullopt;
        case how::timed: {
          const recv_status s = c.recv_for(assigned, 200us);
          if (s == recv_status::ok) return assigned.id;
          if (s == recv_status::closed) return std::nullopt;
          break;
        }
        case how::select1:
          detail::select_cases(k, 1, detail::chan_core::forever, true);
          return id();
        case how::select2:
          detail::select_cases(k, 2, detail::chan_core::forever, true);
          return id();
        case how::both_ways:
          detail::select_cases(k, 2, detail::deadline_in(1h), true);
          return id();
        case how::trying: {
          const recv_status s = c.try_recv(out);
          if (s == recv_status::ok) return out->id;
          if (s == recv_status::closed) return std::nullopt;
          yield();
          break;
        }
        case how::selecting: {
          const auto r = detail::select_cases(k, 2, detail::deadline_in(100us), true);
          if (r.index == 0) return id();
          break;
        }
      }
    } catch (const refused&) {
    }
  }
}

// -- one throw, at the n-th move, for every n

constexpr int values = 6;

// Sends and receives `values` with one move throwing; the number of moves it took.
int pass_through(int cap, how out, how in, int fuse, bool receiver_first) {
  bomb::reset();
  bomb::fuse = fuse;
  {
    const chan<bomb> c(cap);
    std::vector<int> got;
    const auto sender = [&] {
      for (int i = 0; i < values; ++i) send_one(c, i, out);
    };
    const auto receiver = [&] {
      for (int i = 0; i < values; ++i) got.push_back(recv_one(c, in).value_or(-9));
    };
    scope s;
    if (receiver_first) {
      s.go(receiver);
      yield();
      s.go(sender);
    } else {
      s.go(sender);
      yield();
      s.go(receiver);
    }
    s.wait();
    std::vector<int> expected;
    for (int i = 0; i < values; ++i) expected.push_back(i);
    EXPECT_EQ(got, expected) << "capacity " << cap << ", send " << static_cast<int>(out)
                             << ", receive " << static_cast<int>(in) << ", move " << fuse;
    EXPECT_EQ(c.len(), 0U);
  }
  return bomb::moves;
}

TEST_F(Throwing, AtEveryMove) {
  for (const int procs : {1, 2, 3}) {
    run_on(procs, [] {
      for (const int cap : {0, 1, 3}) {
        for (const how out : all_hows) {
          for (const how in : all_hows) {
            if (out == how::trying && in == how::trying && cap == 0) continue;  // never meet
            for (const bool receiver_first : {false, true}) {
              for (int n = 0; n < (sanitized ? 8 : 2 * values + 2); ++n) {
                pass_through(cap, out, in, n, receiver_first);
                ASSERT_LE(bomb::thrown, 1);
              }
            }
          }
        }
      }
    });
    ASSERT_EQ(bomb::alive, 0);
  }
}

// -- the promises, one by one, on one P

TEST_F(Throwing, SenderThrowsAndTheReceiverGoesOnWaiting) {
  run_on(1, [] {
    for (const how in : {how::plain, how::timed, how::select2}) {
      const chan<bomb> c;
      bomb::reset();
      std::optional<int> got;
      watched r([&] {
        if (in == how::timed) {
          bomb b(-2);
          EXPECT_EQ(c.recv_for(b, 1h), recv_status::ok);
          got = b.id;
        } else {
          got = recv_one(c, in);
        }
      });
      ASSERT_TRUE(r.wait_parked());
      bomb b(5);
      for (int times = 0; times < 3; ++times) {
        bomb::fuse = 0;
        EXPECT_THROW(c.send(std::move(b)), refused);
        bomb::fuse = 0;
        EXPECT_THROW(c.try_send(std::move(b)), refused);
        bomb::fuse = 0;
        EXPECT_THROW(c.send_for(std::move(b), 1h), refused);
        bomb::fuse = 0;
        EXPECT_THROW(select(send(c, std::move(b)), recv(chan<int>())), refused);
        EXPECT_EQ(b.id, 5);
        EXPECT_TRUE(r.parked());
      }
      EXPECT_TRUE(c.try_send(std::move(b)));
      ASSERT_TRUE(r.wait_done());
      EXPECT_EQ(got, 5);
    }
  });
}

TEST_F(Throwing, ReceiverThrowsAndTheSenderGoesOnWaiting) {
  run_on(1, [] {
    for (const int cap : {0, 1, 3}) {
      for (const how out : {how::plain, how::both_ways, how::select2}) {
        bomb::reset();
        const chan<bomb> c(cap);
        for (int i = 0; i < cap; ++i) c.send(bomb(i));
        watched s([&] { send_one(c, cap, out); });
        ASSERT_TRUE(s.wait_parked());
        bomb::fuse = 0;  // the sender's value into the ring, or straight to us
        EXPECT_THROW(c.recv(), refused);
        EXPECT_TRUE(s.parked());
        if (cap > 0) {
          EXPECT_EQ(c.len(), static_cast<std::size_t>(cap));
          bomb::fuse = 1;  // the sender's value is in the ring, ours does not come out
          std::optional<bomb> o;
          EXPECT_THROW(c.try_recv(o), refused);
          ASSERT_TRUE(s.wait_done());
          EXPECT_EQ(c.len(), static_cast<std::size_t>(cap));  // one more inside
          EXPECT_FALSE(c.try_send(bomb(99)));
        }
        for (int i = 0; i <= cap; ++i) EXPECT_EQ(c.recv()->id, i);
        ASSERT_TRUE(s.wait_done());
        for (int i = 0; i < cap; ++i) EXPECT_TRUE(c.try_send(bomb(i)));  // as good as new
        EXPECT_FALSE(c.try_send(bomb(99)));
        EXPECT_EQ(bomb::alive, cap);
      }
    }
  });
}

TEST_F(Throwing, OneMoreThanTheRingHoldsAndACloseAndTheEnd) {
  run_on(1, [] {
    for (const bool drain : {false, true}) {
      const chan<bomb> c(2);
      c.send(bomb(0));
      c.send(bomb(1));
      watched first([&] { send_one(c, 2, how::plain); });
      ASSERT_TRUE(first.wait_parked());
      watched second([&] { EXPECT_THROW(c.send(bomb(3)), closed_channel); });
      ASSERT_TRUE(second.wait_parked());
      bomb::fuse = 1;
      EXPECT_THROW(c.recv(), refused);
      ASSERT_TRUE(first.wait_done());
      EXPECT_TRUE(second.parked());
      c.close();
      ASSERT_TRUE(second.wait_done());
      if (drain) {
        for (int i = 0; i < 3; ++i) EXPECT_EQ(c.recv()->id, i);
        EXPECT_FALSE(c.recv());
      }
    }
    EXPECT_EQ(bomb::alive, 0);
  });
}

// The time of a waiter runs out while somebody's move to it is under way and then throws.
TEST_F(Throwing, DeadlineDuringAMove) {
  struct slow {
    static void hold_up() {
      const auto until = test::steady::now() + 5ms;
      while (test::steady::now() < until) rt::cpu_relax();
    }
    slow() = default;
    slow(slow&& o) : throws(o.throws) {
      if (throws) {
        hold_up();
        throw refused();
      }
    }
    slow& operator=(slow&& o) {
      if (o.throws) {
        hold_up();
        throw refused();
      }
      return *this;
    }
    bool throws = false;
  };
  for (const bool thread : {false, true}) {
    run_on(3, [thread] {
      for (int i = 0; i < 10; ++i) {
        const chan<slow> c;
        std::atomic<bool> timed_out{false};
        const auto waits = [&] {
          slow out;
          timed_out = c.recv_for(out, 3ms) == recv_status::timeout;
        };
        std::thread t;
        scope s;
        if (thread) {
          t = std::thread(waits);
        } else {
          s.go(waits);
        }
        EXPECT_TRUE(eventually([&] { return timed_out || test::receiver_waits(c); }));
        slow v;
        v.throws = true;
        try {
          EXPECT_FALSE(c.try_send(std::move(v)));
        } catch (const refused&) {
        }
        if (t.joinable()) t.join();
        s.wait();
        EXPECT_TRUE(timed_out);
      }
    });
  }
}

// -- many at once

TEST_F(Throwing, ManyAtOnce) {
  run_on_each([] {
    for (const int cap : {0, 1, 3}) {
      bomb::reset();
      bomb::every = 7;
      constexpr int senders = 7, each = scaled(300);
      const chan<bomb> c(cap);
      std::vector<std::atomic<int>> seen(senders * each);
      std::atomic<bool> in_order{true};
      scope in, out;
      std::vector<std::thread> threads;
      for (int k = 0; k < senders; ++k) {
        const auto send_all = [&, k] {
          for (int i = 0; i < each; ++i) send_one(c, k * each + i, all_hows[k]);
        };
        if (k == 3) {
          threads.emplace_back(send_all);
        } else {
          in.go(send_all);
        }
      }
      for (const how h : all_hows) {
        const auto recv_all = [&, h] {
          std::vector<int> last(senders, -1);
          while (const auto id = recv_one(c, h)) {
            ++seen[static_cast<std::size_t>(*id)];
            int& l = last[static_cast<std::size_t>(*id / each)];
            if (*id <= l) in_order = false;
            l = *id;
          }
        };
        if (h == how::select2) {
          threads.emplace_back(recv_all);
        } else {
          out.go(recv_all);
        }
      }
      in.wait();
      threads.front().join();
      c.close();
      out.wait();
      threads.back().join();
      for (const auto& n : seen) ASSERT_EQ(n, 1);
      EXPECT_TRUE(in_order);
      EXPECT_GT(bomb::thrown, 0);
    }
    EXPECT_EQ(bomb::alive, 0);
  });
}

// Copies that throw are made before anything else.
TEST_F(Throwing, Copies) {
  run_on(1, [] {
    const chan<counted> c(1);
    const counted v(1);
    counted::copies_until_throw = 0;
    EXPECT_THROW(c.send(v), std::runtime_error);
    counted::copies_until_throw = 0;
    EXPECT_THROW(c.try_send(v), std::runtime_error);
    counted::copies_until_throw = 0;
    EXPECT_THROW(c.send_for(v, 1h), std::runtime_error);
    counted::copies_until_throw = 0;
    EXPECT_THROW(select(send(c, v)), std::runtime_error);
    selector s;
    s.send(c, counted(2));
    counted::copies_until_throw = 0;
    EXPECT_THROW(s.wait(), std::runtime_error);
    EXPECT_EQ(c.len(), 0U);
    counted::copies_until_throw = -1;
    EXPECT_EQ(s.wait(), 0);
    EXPECT_EQ(c.recv()->value, 2);
  });
}

}  // namespace
}  // namespace weft
