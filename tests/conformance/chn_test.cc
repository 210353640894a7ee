// SPDX-License-Identifier: Apache-2.0
// CHN: channels, one section an id. Long because each id asks for many shapes.
#include <array>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/allocations.h"
#include "support/channels.h"
#include "support/leaks.h"
#include "support/runtime.h"
#include "weft/chan.hpp"
#include "weft/select.hpp"
#include "weft/sync.hpp"

namespace weft::test {
namespace {

constexpr int capacities = full_or(200, 30);

template <class E, class F>
std::string what_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing thrown";
}

// -- CHN-01

TEST(Conformance, CHN_01_receivers_wait_on_empty) {
  run_clean([] {
    for (int cap = 0; cap < capacities; ++cap) {
      chan<int> c(cap);
      std::atomic<bool> first{false}, second{false};
      scope s;
      s.go([&] {
        EXPECT_EQ(c.recv(), 0);
        first = true;
      });
      s.go([&] {
        int v = -1;
        EXPECT_EQ(c.recv_for(v, patience), recv_status::ok);
        EXPECT_EQ(v, 0);
        second = true;
      });
      pause(1ms);
      EXPECT_FALSE(first || second) << "capacity " << cap;
      int v = -1;
      EXPECT_EQ(c.try_recv(v), recv_status::empty);
      EXPECT_EQ(v, -1);
      EXPECT_EQ(select(recv(c), otherwise()), 1);
      c.send(0);
      c.send(0);
      s.wait();
    }
  });
}

TEST(Conformance, CHN_01_sender_waits_on_full) {
  run_clean([] {
    for (int cap = 0; cap < capacities; ++cap) {
      chan<int> c(cap);
      for (int i = 0; i < cap; ++i) c.send(i);
      std::atomic<bool> sent{false};
      scope s;
      s.go([&] {
        c.send(cap);
        sent = true;
      });
      pause(1ms);
      EXPECT_FALSE(sent) << "capacity " << cap;
      EXPECT_FALSE(c.try_send(-1));
      EXPECT_EQ(select(send(c, -1), otherwise()), 1);
      for (int i = 0; i <= cap; ++i) EXPECT_EQ(c.recv(), i);
      s.wait();
      EXPECT_TRUE(sent);
    }
  });
}

// -- CHN-02

TEST(Conformance, CHN_02_closed_is_drained_in_order) {
  run_clean([] {
    for (int cap = 0; cap < capacities; ++cap) {
      chan<int> c(cap);
      for (int i = 0; i < cap; ++i) c.send(i);
      c.close();
      for (int i = 0; i < cap; ++i) EXPECT_EQ(c.recv(), i);
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(c.recv(), std::nullopt);
        int v = -1;
        EXPECT_EQ(c.try_recv(v), recv_status::closed);
        EXPECT_EQ(c.recv_for(v, 1h), recv_status::closed);
        EXPECT_EQ(v, -1);
      }
    }
  });
}

TEST(Conformance, CHN_02_close_wakes_a_receiver) {
  run_clean([] {
    for (int cap = 0; cap < capacities; ++cap) {
      chan<int> c(cap);
      chan<bool> done;
      go([c, done] { done.send(c.recv() == std::nullopt); });
      pause(1ms);
      c.close();
      EXPECT_EQ(done.recv(), true) << "capacity " << cap;
    }
  });
}

// -- CHN-03

TEST(Conformance, CHN_03_one_producer_keeps_its_order) {
  run_clean([] {
    for (int cap = 0; cap < capacities; ++cap) {
      chan<int> c(cap);
      go([c] {
        for (int i = 0; i < 100; ++i) c.send(i);
      });
      for (int i = 0; i < 100; ++i) ASSERT_EQ(c.recv(), i) << "capacity " << cap;
    }
  });
}

TEST(Conformance, CHN_03_four_producers_four_consumers) {
  static constexpr int each = full_or(1000, 200), parties = 4;
  run_clean([] {
    for (int cap = 0; cap < capacities; ++cap) {
      chan<int> c(cap);
      std::array<std::vector<int>, parties> seen;
      scope s;
      for (int p = 0; p < parties; ++p) {
        s.go([&] {
          for (int i = 0; i < each; ++i) c.send(i);
        });
        s.go([&, p] {
          for (int i = 0; i < each; ++i) seen[static_cast<std::size_t>(p)].push_back(*c.recv());
        });
      }
      s.wait();
      std::vector<int> times(each);
      for (const auto& part : seen) {
        for (const int v : part) ++times.at(static_cast<std::size_t>(v));
      }
      for (int i = 0; i < each; ++i) ASSERT_EQ(times[static_cast<std::size_t>(i)], parties) << i;
    }
  });
}

TEST(Conformance, CHN_03_len_and_cap) {
  for (int cap = 0; cap < 200; ++cap) {
    const auto n = static_cast<std::size_t>(cap);
    chan<int> c(cap);
    EXPECT_EQ(c.len(), 0U);
    EXPECT_EQ(c.cap(), n);
    for (std::size_t i = 0; i < n; ++i) {
      c.send(0);
      EXPECT_EQ(c.len(), i + 1);
    }
    EXPECT_EQ(c.len(), n);
    EXPECT_EQ(c.cap(), n);
  }
}

// -- CHN-04

TEST(Conformance, CHN_04_many_consumers) {
  static constexpr int workers = 23, items = full_or(271'828, 27'182);
  static constexpr int primes[] = {2, 3, 7, 11, 13, 17, 19, 23, 27, 31};
  run_clean([] {
    const chan<int> q(workers * 3), r(workers * 3);
    std::int64_t expected = 0;
    go([=] {
      scope s;
      for (int w = 0; w < workers; ++w) {
        s.go([=] {
          for (const int v : q) {
            if (primes[static_cast<std::size_t>(w) % std::size(primes)] == v)
              yield();  // mess with the fifo-ish order
            r.send(v);
          }
        });
      }
      s.wait();
      r.close();
    });
    go([&expected, q] {
      for (int i = 0; i < items; ++i) {
        const int v = primes[static_cast<std::size_t>(i) % std::size(primes)];
        expected += v;
        q.send(v);
      }
      q.close();
    });
    int n = 0;
    std::int64_t sum = 0;
    for (const int v : r) {
      ++n;
      sum += v;
    }
    EXPECT_EQ(n, items);
    EXPECT_EQ(sum, expected);
  });
}

// -- CHN-06

static_assert(std::is_base_of_v<std::logic_error, closed_channel>);
static_assert(std::is_base_of_v<std::logic_error, nil_channel>);

TEST(Conformance, CHN_06_misuse_is_an_exception) {
  run_clean([] {
    const chan<int> nil = nullptr;
    EXPECT_EQ(what_of<nil_channel>([&] { nil.close(); }), "close of nil channel");
    EXPECT_EQ(what_of<nil_channel>([] { send_chan<int>().close(); }), "close of nil channel");
    for (const int cap : {0, 1}) {
      const chan<int> c(cap);
      c.close();
      EXPECT_EQ(what_of<closed_channel>([&] { c.close(); }), "close of closed channel");
      EXPECT_EQ(what_of<closed_channel>([&] { c.send(1); }), "send on closed channel");
      const int v = 1;
      EXPECT_EQ(what_of<closed_channel>([&] { c.send(v); }), "send on closed channel");
      EXPECT_EQ(what_of<closed_channel>([&] { c.try_send(1); }), "send on closed channel");
      EXPECT_EQ(what_of<closed_channel>([&] { c.send_for(1, 1h); }), "send on closed channel");
      EXPECT_EQ(what_of<closed_channel>([&] { select(send(c, 1)); }), "send on closed channel");
      EXPECT_EQ(what_of<closed_channel>([&] { select(send(c, 1), otherwise()); }),
                "send on closed channel");
    }
  });
}

template <class T, class N>
std::string makechan(N n) {
  return what_of<std::length_error>([n] { chan<T> c(n); });
}

TEST(Conformance, CHN_06_bad_sizes) {
  const std::string bad = "makechan: size out of range";
  EXPECT_EQ(makechan<int>(-1), bad);
  EXPECT_EQ(makechan<int>(std::int8_t{-1}), bad);
  EXPECT_EQ(makechan<int>(std::numeric_limits<std::int64_t>::min()), bad);
  EXPECT_EQ(makechan<std::int64_t>(std::int64_t{1} << 59), bad);
  EXPECT_EQ(makechan<std::int64_t>(std::uint64_t{1} << 59), bad);
  EXPECT_EQ(makechan<std::int64_t>(std::numeric_limits<std::int64_t>::max()), bad);
  EXPECT_EQ(makechan<std::int64_t>(std::numeric_limits<std::uint64_t>::max()), bad);
  EXPECT_EQ(makechan<std::string>(std::numeric_limits<std::uint64_t>::max()), bad);
  EXPECT_EQ(makechan<char>(std::numeric_limits<std::uint64_t>::max()), bad);
  EXPECT_EQ(makechan<void>(-1), bad);
  EXPECT_EQ(makechan<void>(std::numeric_limits<std::uint64_t>::max()), bad);
  // Elements without a size take no room, as in Go.
  EXPECT_EQ(makechan<void>(std::int64_t{1} << 59), "nothing thrown");
}

TEST(Conformance, CHN_06_len_of_ten) {
  chan<int> c(10);
  EXPECT_EQ(c.len(), 0U);
  EXPECT_EQ(c.cap(), 10U);
  for (int i = 0; i < 3; ++i) c.send(i);
  EXPECT_EQ(c.len(), 3U);
  EXPECT_EQ(c.cap(), 10U);
}

// -- CHN-08: the three shapes of each operation.

struct shape {
  const char* name;
  std::optional<int> (*recv_one)(const chan<int>&);
  void (*send_one)(const chan<int>&, int);
};

const shape shapes[] = {
    {"plain", [](const chan<int>& c) { return c.recv(); },
     [](const chan<int>& c, int v) { c.send(v); }},
    {"select",
     [](const chan<int>& c) {
       std::optional<int> got;
       EXPECT_EQ(weft::select(weft::recv(c, [&](std::optional<int> v) { got = v; })), 0);
       return got;
     },
     [](const chan<int>& c, int v) { EXPECT_EQ(weft::select(weft::send(c, v)), 0); }},
    {"select with an idle case",
     [](const chan<int>& c) {
       chan<int> idle;
       std::optional<int> got;
       EXPECT_EQ(
           weft::select(weft::recv(idle), weft::recv(c, [&](std::optional<int> v) { got = v; })),
           1);
       return got;
     },
     [](const chan<int>& c, int v) {
       chan<int> idle;
       EXPECT_EQ(weft::select(weft::recv(idle), weft::send(c, v)), 1);
     }},
    {"timed",
     [](const chan<int>& c) {
       std::optional<int> got;
       c.recv_for(got, 1h);
       return got;
     },
     [](const chan<int>& c, int v) { c.send_for(v, 1h); }},
};

TEST(Conformance, CHN_08_closed_alike_in_every_shape) {
  run_clean([] {
    for (const shape& in : shapes) {
      for (const int cap : {0, 1, 2}) {
        chan<int> c(cap);
        for (int i = 0; i < cap; ++i) in.send_one(c, i);
        c.close();
        EXPECT_TRUE(c.closed());
        EXPECT_THROW(in.send_one(c, 7), closed_channel) << in.name;
        for (int i = 0; i < cap; ++i) EXPECT_EQ(in.recv_one(c), i) << in.name;
        EXPECT_THROW(in.send_one(c, 7), closed_channel) << in.name;
        for (int i = 0; i < 3; ++i) EXPECT_EQ(in.recv_one(c), std::nullopt) << in.name;
        EXPECT_EQ(what_of<closed_channel>([&] { c.close(); }), "close of closed channel");
        EXPECT_EQ(in.recv_one(c), std::nullopt) << in.name;
      }
      // Blocked when the close comes.
      chan<int> c;
      scope s;
      for (int i = 0; i < 3; ++i) s.go([&] { EXPECT_EQ(in.recv_one(c), std::nullopt) << in.name; });
      pause(1ms);
      c.close();
      s.wait();
      chan<int> full(1);
      full.send(1);
      for (int i = 0; i < 3; ++i) s.go([&] { EXPECT_THROW(in.send_one(full, 2), closed_channel); });
      pause(1ms);
      full.close();
      s.wait();
      EXPECT_EQ(in.recv_one(full), 1);
      EXPECT_EQ(in.recv_one(full), std::nullopt);
    }
  });
}

TEST(Conformance, CHN_08_nil_blocks_for_ever) {
  goroutines_are_left_behind = true;
  weft::run([] {
    std::vector<watched> all;
    for (const shape& in : shapes) {
      if (std::string(in.name) == "select with an idle case") continue;  // the same, see SEL-07
      all.emplace_back([in] { (void)in.recv_one(nullptr); });
      all.emplace_back([in] { in.send_one(nullptr, 1); });
    }
    all.emplace_back([] { (void)chan<void>(nullptr).recv(); });
    all.emplace_back([] { chan<void>(nullptr).send(); });
    all.emplace_back([] { (void)recv_chan<int>().recv(); });
    all.emplace_back([] { send_chan<int>().send(1); });
    for (const watched& w : all) EXPECT_TRUE(w.wait_parked());
    pause(20ms);
    for (const watched& w : all) EXPECT_TRUE(w.parked());
  });
}

// -- CHN-09

TEST(Conformance, CHN_09_fifo_daisy_chain) {
  constexpr int n = 10;
  run_clean([] {
    chan<int> c(n);  // buffered: in order
    for (int i = 0; i < n; ++i) c.send(i);
    for (int i = 0; i < n; ++i) EXPECT_EQ(c.recv(), i);

    chan<int> ch, in;  // each waits for its predecessor before it receives
    const chan<int> start = in;
    for (int i = 0; i < n; ++i) {
      chan<int> out;
      go([=] {
        in.recv();
        EXPECT_EQ(ch.recv(), i);
        out.send(1);
      });
      in = out;
    }
    start.send(0);
    for (int i = 0; i < n; ++i) ch.send(i);
    in.recv();
  });
}

TEST(Conformance, CHN_09_sleepers_are_served_in_order) {
  constexpr int n = 10;
  run_clean([] {
    chan<int> c;
    std::array<int, n> got{};
    std::vector<watched> receivers;
    for (int i = 0; i < n; ++i) {
      receivers.emplace_back([&, i] { got[static_cast<std::size_t>(i)] = *c.recv(); });
      ASSERT_TRUE(receivers.back().wait_parked());
    }
    for (int i = 0; i < n; ++i) c.send(i);
    for (int i = 0; i < n; ++i) {
      ASSERT_TRUE(receivers[static_cast<std::size_t>(i)].wait_done());
      EXPECT_EQ(got[static_cast<std::size_t>(i)], i);
    }
    std::vector<watched> senders;
    for (int i = 0; i < n; ++i) {
      senders.emplace_back([c, i] { c.send(i); });
      ASSERT_TRUE(senders.back().wait_parked());
    }
    for (int i = 0; i < n; ++i) EXPECT_EQ(c.recv(), i);
  });
}

struct empty_type {};

TEST(Conformance, CHN_09_zero_size) {
  run_clean([] {
    for (const int cap : {0, 1, 3}) {
      chan<void> c(cap);
      chan<empty_type> d(cap);
      std::array<char, 1> pattern{42};
      chan<std::array<char, 0>> e(cap);
      scope s;
      s.go([&] {
        for (int i = 0; i < 100; ++i) {
          c.send();
          d.send({});
          e.send({});
        }
        c.close();
        d.close();
        e.close();
      });
      for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(c.recv());
        EXPECT_TRUE(d.recv().has_value());
        EXPECT_TRUE(e.recv().has_value());
      }
      EXPECT_FALSE(c.recv());
      EXPECT_FALSE(d.recv().has_value());
      EXPECT_FALSE(e.recv().has_value());
      EXPECT_EQ(pattern[0], 42);
      s.wait();
    }
  });
}

template <class T>
void nonblocking(const T& value, int cap) {
  chan<T> c(cap);
  std::optional<T> got;
  EXPECT_EQ(c.try_recv(got), recv_status::empty);
  EXPECT_EQ(select(recv(c), otherwise()), 1);
  if (cap == 0) {
    EXPECT_FALSE(c.try_send(value));
    EXPECT_EQ(select(send(c, value), otherwise()), 1);
  }
  {  // a blocked receiver takes what a non-blocking send brings
    watched r([c, value] { EXPECT_EQ(c.recv(), value); });
    ASSERT_TRUE(r.wait_parked());
    EXPECT_TRUE(c.try_send(value));
    ASSERT_TRUE(r.wait_done());
  }
  {
    watched r([c, value] { EXPECT_EQ(c.recv(), value); });
    ASSERT_TRUE(r.wait_parked());
    EXPECT_EQ(select(send(c, value), otherwise()), 0);
    ASSERT_TRUE(r.wait_done());
  }
  for (int i = 0; i < cap; ++i) EXPECT_TRUE(c.try_send(value));
  EXPECT_FALSE(c.try_send(value));
  {  // a blocked sender gives to a non-blocking receive
    watched s([c, value] { c.send(value); });
    ASSERT_TRUE(s.wait_parked());
    EXPECT_EQ(c.try_recv(got), recv_status::ok);
    EXPECT_EQ(got, value);
    ASSERT_TRUE(s.wait_done());
  }
  {
    watched s([c, value] { c.send(value); });
    ASSERT_TRUE(s.wait_parked());
    EXPECT_EQ(select(recv(c, [&](std::optional<T> v) { EXPECT_EQ(v, value); }), otherwise()), 0);
    ASSERT_TRUE(s.wait_done());
  }
  for (int i = 0; i < cap; ++i) EXPECT_EQ(c.try_recv(got), recv_status::ok);
  EXPECT_EQ(c.try_recv(got), recv_status::empty);
}

TEST(Conformance, CHN_09_nonblocking_operations) {
  run_clean([] {
    for (int round = 0; round < 10; ++round) {
      for (const int cap : {0, 1}) {
        nonblocking<std::int32_t>(123, cap);
        nonblocking<std::int64_t>(123456, cap);
        nonblocking<std::uint8_t>(123, cap);
        nonblocking<std::string>("hello", cap);
        nonblocking<std::string>(std::string(100, 'x'), cap);
      }
    }
  });
}

// -- CHN-11

// Ten goroutines select three times over one channel that is then closed; ten more wait on a
// condition.
void select_and_wait_round() {
  const chan<bool> c;
  weft::mutex m;
  condition_variable ready;
  bool go_on = false;
  std::atomic<int> ended{0};
  scope s;
  for (int i = 0; i < 10; ++i) {
    s.go([&] {
      select(recv(c), recv(c), recv(c));
      ++ended;
    });
    s.go([&] {
      std::unique_lock hold(m);
      ready.wait(hold, [&] { return go_on; });
      ++ended;
    });
  }
  yield();
  c.close();
  {
    const std::lock_guard hold(m);
    go_on = true;
  }
  ready.notify_all();
  s.wait();
  EXPECT_EQ(ended, 20);
}

TEST(Conformance, CHN_11_rounds_of_selects_leave_nothing) {
  run_clean([] {
    for (int i = 0; i < 3; ++i) select_and_wait_round();  // caches fill
    const std::int64_t before = live_allocations.objects;
    for (int i = 0; i < 10; ++i) select_and_wait_round();
    EXPECT_LE(live_allocations.objects - before, 20);
  });
}

TEST(Conformance, CHN_11_a_hundred_thousand_selects) {
  constexpr int n = full_or(100'000, 20'000);
  run_clean([] {
    const chan<int> c, dummy;
    const auto sender = [=] {
      for (int i = 0; i < n; ++i)
        select(send(c, i), recv(dummy, [](std::optional<int>) { ADD_FAILURE(); }));
    };
    const auto receiver = [=] {
      for (int i = 0; i < n; ++i)
        select(recv(dummy, [](std::optional<int>) { ADD_FAILURE(); }),
               recv(c, [i](std::optional<int> v) { ASSERT_EQ(v, i); }));
    };
    const auto both = [&] {
      scope s;
      s.go(sender);
      s.go(receiver);
      s.wait();
    };
    both();
    const std::int64_t objects = live_allocations.objects, bytes = live_allocations.bytes;
    both();
    EXPECT_LE(live_allocations.bytes - bytes, 110'000);
    EXPECT_LE(live_allocations.objects - objects, 20);
  });
}

// Plain and timed operations and small selects allocate nothing at all while they wait.
TEST(Conformance, CHN_11_waiting_takes_no_memory) {
  run_clean([] {
    const chan<int> c, d;
    scope s;
    s.go([=] {
      while (c.recv()) d.send(1);
    });
    const auto round = [&] {
      c.send(1);
      int v = 0;
      EXPECT_EQ(d.recv_for(v, 1h), recv_status::ok);
      select(send(c, 1), timeout(1h));
      select(recv(d), recv(c), recv(c), recv(d), recv(c), recv(c), recv(c), recv(c));
    };
    for (int i = 0; i < 10; ++i) round();
    const std::int64_t before = live_allocations.objects;
    for (int i = 0; i < 100; ++i) round();
    EXPECT_EQ(live_allocations.objects, before);
    c.close();
    s.wait();
  });
}

// -- CHN-13

template <class C>
concept can_send = requires(const C& c) {
  c.send(1);
};
template <class C>
concept can_recv = requires(const C& c) {
  c.recv();
};
template <class C>
concept can_close = requires(const C& c) {
  c.close();
};
template <class C>
concept can_range = requires(const C& c) {
  c.begin();
};
template <class C>
concept in_recv_case = requires(const C& c) {
  weft::recv(c);
};
template <class C>
concept in_send_case = requires(const C& c) {
  weft::send(c, 1);
};

using both = chan<int>;
using only_send = send_chan<int>;
using only_recv = recv_chan<int>;
static_assert(can_send<both> && can_recv<both> && can_close<both> && can_range<both>);
static_assert(can_send<only_send> && !can_recv<only_send> && can_close<only_send> &&
              !can_range<only_send>);
static_assert(!can_send<only_recv> && can_recv<only_recv> && !can_close<only_recv> &&
              can_range<only_recv>);
static_assert(in_recv_case<both> && in_send_case<both> && in_recv_case<only_recv> &&
              in_send_case<only_send> && !in_recv_case<only_send> && !in_send_case<only_recv>);
static_assert(std::convertible_to<both, only_send> && std::convertible_to<both, only_recv>);
static_assert(!std::constructible_from<both, only_send> &&
              !std::constructible_from<both, only_recv>);
static_assert(!std::constructible_from<only_send, only_recv> &&
              !std::constructible_from<only_recv, only_send>);
static_assert(!std::assignable_from<both&, only_send> && !std::assignable_from<both&, only_recv> &&
              !std::assignable_from<only_send&, only_recv> &&
              !std::assignable_from<only_recv&, only_send>);
static_assert(!std::constructible_from<chan<long>, chan<int>> &&
              !std::constructible_from<send_chan<long>, chan<int>> &&
              !std::constructible_from<recv_chan<long>, chan<int>>);

TEST(Conformance, CHN_13_one_way_ends_are_the_same_channel) {
  run_clean([] {
    chan<int> c(1);
    const send_chan<int> in = c;
    const recv_chan<int> out = c;
    in.send(5);
    EXPECT_EQ(out.recv(), 5);
    EXPECT_TRUE(in == out && c == in && out == c);
    in.close();
    EXPECT_EQ(out.recv(), std::nullopt);
  });
}

}  // namespace
}  // namespace weft::test
