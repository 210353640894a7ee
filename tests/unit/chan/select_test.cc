// SPDX-License-Identifier: Apache-2.0
// select and selector: every rule of the interface.
#include <array>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/channels.h"
#include "support/leaks.h"
#include "unit/sched/support.h"
#include "weft/chan.hpp"
#include "weft/select.hpp"

namespace weft {
namespace {

using namespace sched_test;
using namespace std::chrono_literals;
using test::pause;
using test::receiver_waits;
using test::sender_waits;
using test::watched;

class Select : public GoTest {};
class Selector : public GoTest {};

// -- what compiles

template <class... K>
concept selectable = requires(K&&... k) {
  weft::select(std::forward<K>(k)...);
};
static_assert(selectable<> && selectable<decltype(otherwise())>);
static_assert(!selectable<int> && !selectable<chan<int>> && !selectable<std::function<void()>>);

template <class C, class F>
concept handles_recv = requires(const C& c, F f) {
  weft::recv(c, f);
};
using any_int = void (*)(std::optional<int>);
using any_ref = void (*)(const std::optional<int>&);
using value_out = int (*)(std::optional<int>);
using bare_int = void (*)(int);
using nothing_in = void (*)();
using bool_in = void (*)(bool);
static_assert(handles_recv<chan<int>, any_int> && handles_recv<recv_chan<int>, any_ref> &&
              handles_recv<chan<int>, value_out>);
static_assert(!handles_recv<chan<int>, bare_int> && !handles_recv<chan<int>, nothing_in>);
static_assert(handles_recv<chan<void>, nothing_in> && handles_recv<recv_chan<void>, bool_in> &&
              !handles_recv<chan<void>, void (*)(std::string)>);
static_assert(!handles_recv<send_chan<int>, any_int>);

template <class C, class V>
concept sends_value = requires(const C& c, V&& v) {
  weft::send(c, std::forward<V>(v));
};
static_assert(sends_value<chan<std::string>, const char*> && sends_value<chan<long>, int>);
static_assert(!sends_value<chan<int>, std::string> && !sends_value<recv_chan<int>, int>);
static_assert(sends_value<chan<std::unique_ptr<int>>, std::unique_ptr<int>> &&
              !sends_value<chan<std::unique_ptr<int>>, std::unique_ptr<int>&>);

// -- one case after the other

TEST_F(Select, ReturnsTheIndexOfWhatRan) {
  run_on_each([] {
    const chan<int> a(1), b(1);
    b.send(7);
    int got = 0;
    EXPECT_EQ(select(recv(a), recv(b, [&](std::optional<int> v) { got = *v; })), 1);
    EXPECT_EQ(got, 7);
    bool sent = false;
    EXPECT_EQ(
        select(recv(a), recv(b), send(recv_chan<int>(a) == a ? a : b, 8, [&] { sent = true; })), 2);
    EXPECT_TRUE(sent);
    EXPECT_EQ(a.recv(), 8);
    EXPECT_EQ(select(recv(a), timeout(1ms), recv(b)), 1);
    EXPECT_EQ(select(otherwise(), recv(a), recv(b)), 0);
    EXPECT_EQ(select(timeout(1h), otherwise(), recv(b)), 1);
    EXPECT_EQ(select(timeout(1h), timeout(1ms), recv(b)), 1);
    EXPECT_EQ(select(timeout(1ms), timeout(1h)), 0);
    EXPECT_EQ(select(timeout(0s)), 0);
    EXPECT_EQ(select(timeout(-1s)), 0);
    EXPECT_EQ(select(otherwise()), 0);
  });
}

TEST_F(Select, HandlersOfVoid) {
  run_on_each([] {
    const chan<void> c(2);
    int n = 0;
    EXPECT_EQ(select(send(c, [&] { n += 1; })), 0);
    EXPECT_EQ(select(send(c)), 0);
    EXPECT_EQ(select(recv(c, [&] { n += 10; })), 0);
    EXPECT_EQ(select(recv(c, [&](bool ok) { n += ok ? 100 : 0; })), 0);
    c.close();
    EXPECT_EQ(select(recv(c, [&](bool ok) { n += ok ? 0 : 1000; }), timeout(1h)), 0);
    EXPECT_EQ(select(recv(c, [&] { n += 10'000; }), otherwise()), 0);
    EXPECT_EQ(n, 11'111);
    EXPECT_THROW(select(send(c)), closed_channel);
  });
}

TEST_F(Select, HandlersMayReturnThrowParkAndSelect) {
  run_on_each([] {
    const chan<int> c(3), d;
    for (int i = 0; i < 3; ++i) c.send(i);
    EXPECT_EQ(select(recv(c, [](std::optional<int> v) { return *v + 1; })), 0);
    EXPECT_THROW(select(recv(c, [](std::optional<int>) { throw std::runtime_error("mine"); })),
                 std::runtime_error);
    EXPECT_EQ(c.len(), 1U);  // it was taken
    go([d] { d.send(5); });
    int inner = -1;
    select(recv(c, [&](std::optional<int> v) {
      EXPECT_EQ(v, 2);
      yield();
      inner = select(recv(c), recv(d, [](std::optional<int> w) { EXPECT_EQ(w, 5); }));
    }));
    EXPECT_EQ(inner, 1);
    EXPECT_THROW(select(otherwise([] { throw 1; })), int);
    EXPECT_THROW(select(timeout(1us, [] { throw 1; })), int);
    EXPECT_THROW(select(send(c, 1, [] { throw 1; })), int);
    EXPECT_EQ(c.len(), 1U);  // and it was sent
  });
}

TEST_F(Select, TakesEveryKindOfHandle) {
  run_on(1, [] {
    chan<int> c(1);
    const send_chan<int> s = c;
    recv_chan<int> r = c;
    EXPECT_EQ(select(send(s, 1)), 0);
    EXPECT_EQ(select(recv(r)), 0);
    EXPECT_EQ(select(send(send_chan<int>(c), 1)), 0);
    EXPECT_EQ(select(recv(recv_chan<int>(c))), 0);
    EXPECT_EQ(select(send(chan<int>(1), 1)), 0);  // only the case holds it
    auto kept = recv(chan<int>(c), [](std::optional<int> v) { EXPECT_EQ(v, 3); });
    c.send(3);
    EXPECT_EQ(select(kept), 0);
    c.send(3);
    EXPECT_EQ(select(kept, otherwise()), 0);  // again
    auto number = send(c, 4);                 // keeps its value
    EXPECT_EQ(select(number), 0);
    EXPECT_EQ(c.recv(), 4);
  });
}

TEST_F(Select, ConvertsAndMovesOnlyIfItFires) {
  run_on_each([] {
    const chan<std::string> c(1), full(1);
    full.send("x");
    EXPECT_EQ(select(send(c, "text")), 0);
    EXPECT_EQ(c.recv(), "text");
    std::string mine = "a string that is too long for its own room";
    const std::string copy = mine;
    EXPECT_EQ(select(send(full, std::move(mine)), timeout(1ms)), 1);
    EXPECT_EQ(mine, copy);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(select(send(full, std::move(mine)), otherwise()), 1);
    EXPECT_EQ(mine, copy);
    EXPECT_EQ(select(send(full, mine), send(c, mine)), 1);  // an lvalue is copied
    EXPECT_EQ(mine, copy);
    EXPECT_EQ(c.recv(), copy);
    EXPECT_EQ(select(send(full, std::move(mine)), send(c, std::string("other"))), 1);
    EXPECT_EQ(mine, copy);
    EXPECT_EQ(c.recv(), "other");
    EXPECT_EQ(select(send(c, std::move(mine))), 0);
    EXPECT_EQ(c.recv(), copy);
    const chan<std::pair<int, std::string>> pairs(2);
    EXPECT_EQ(select(send(pairs, {1, "braces"})), 0);
    selector s;
    s.send(pairs, {2, "too"});
    EXPECT_EQ(s.wait(), 0);
    EXPECT_EQ(pairs.recv()->second, "braces");
    EXPECT_EQ(pairs.recv()->second, "too");
    const chan<std::unique_ptr<int>> p;
    auto v = std::make_unique<int>(1);
    EXPECT_EQ(select(send(p, std::move(v)), otherwise()), 1);
    ASSERT_TRUE(v);
    go([p] { EXPECT_EQ(**p.recv(), 1); });
    EXPECT_EQ(select(send(p, std::move(v)), recv(full, [](std::optional<std::string>) {})) >= 0,
              true);
    if (v) p.send(std::move(v));
  });
}

// -- which one

TEST_F(Select, UniformAmongTheReady) {
  run_on(1, [] {
    constexpr int trials = 9000;
    std::array<int, 3> wins{};
    const chan<int> never, a(1), b(1), c(1);
    a.send(1);
    c.close();
    for (int i = 0; i < trials; ++i) {
      const int k = select(recv(never), recv(a), send(b, 1), recv(c), timeout(0s));
      ASSERT_TRUE(k >= 1 && k <= 3);
      ++wins[static_cast<std::size_t>(k - 1)];
      if (k == 1) a.send(1);
      if (k == 2) (void)b.recv();
    }
    for (const int n : wins) EXPECT_LE(std::abs(n - trials / 3), 450) << n;
  });
}

TEST_F(Select, TimeoutFiresOnlyIfNothingElseIsReady) {
  run_on_each([] {
    const chan<int> c(1);
    for (int i = 0; i < 100; ++i) {
      c.send(i);
      EXPECT_EQ(select(timeout(0s), recv(c)), 1);
      EXPECT_EQ(select(timeout(-1h), send(c, 1)), 1);
      EXPECT_EQ(c.recv(), 1);
    }
    const auto before = test::steady::now();
    EXPECT_EQ(select(recv(c), timeout(15ms)), 1);
    EXPECT_GE(test::steady::now() - before, 15ms);
  });
}

TEST_F(Select, SameChannelInBothDirections) {
  run_on_each([] {
    // Two that both offer to send and to receive meet each other.
    for (int round = 0; round < scaled(500); ++round) {
      const chan<int> c;
      std::atomic<int> sent{0}, got{0};
      const auto either = [&, c] {
        select(send(c, 1, [&] { ++sent; }), recv(c, [&](std::optional<int> v) { got += *v; }),
               send(c, 1, [&] { ++sent; }));
      };
      scope s;
      for (int i = 0; i < 4; ++i) s.go(either);
      s.wait();
      ASSERT_EQ(sent, 2);
      ASSERT_EQ(got, 2);
    }
    // Alone it does not meet itself.
    const chan<int> c;
    EXPECT_EQ(select(send(c, 1), recv(c), timeout(2ms)), 2);
    EXPECT_EQ(select(send(c, 1), recv(c), otherwise()), 2);
    const chan<int> b(1);  // a buffer takes it, or gives it
    EXPECT_EQ(select(recv(b), send(b, 1)), 1);
    EXPECT_EQ(select(recv(b), send(b, 1)), 0);
  });
}

TEST_F(Select, CloseWhileInBothDirections) {
  run_on_each([] {
    for (int i = 0; i < scaled(100); ++i) {
      const chan<int> c;
      watched w([c] {
        try {
          EXPECT_EQ(select(send(c, 1), recv(c, [](std::optional<int> v) { EXPECT_FALSE(v); })), 1);
        } catch (const closed_channel&) {
        }
      });
      ASSERT_TRUE(w.wait_parked());
      c.close();
      ASSERT_TRUE(w.wait_done());
    }
  });
}

TEST_F(Select, LosersLeaveTheirQueues) {
  run_on_each([] {
    const chan<int> a, b;
    for (int i = 0; i < scaled(1000); ++i) {
      watched w([a, b] { select(recv(a), recv(b), send(b, 1), recv(a)); });
      ASSERT_TRUE(w.wait_parked());
      a.send(1);
      ASSERT_TRUE(w.wait_done());
      ASSERT_FALSE(receiver_waits(b) || sender_waits(b) || receiver_waits(a));
      watched t([a, b] { select(recv(a), send(b, 1), timeout(10us)); });
      ASSERT_TRUE(t.wait_done());
      ASSERT_FALSE(receiver_waits(a) || sender_waits(b));
    }
  });
}

TEST_F(Select, ParksAndDoesNotPoll) {
  run_on(2, [] {
    const chan<int> a, b;
    const auto cpu = [] {
      rusage u{};
      ::getrusage(RUSAGE_SELF, &u);
      return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1'000'000 + u.ru_utime.tv_usec +
             u.ru_stime.tv_usec;
    };
    const auto before = cpu();
    EXPECT_EQ(select(recv(a), send(b, 1), timeout(200ms)), 2);
    EXPECT_LT(cpu() - before, sanitized ? 150'000 : 50'000);
  });
}

// A deadline and a value at the same moment: one of them, never both, never neither.
TEST_F(Select, DeadlineAgainstValue) {
  run_on_each([] {
    const chan<int> c, other;
    int timeouts = 0, values = 0;
    for (int i = 0; i < scaled(2000); ++i) {
      std::atomic<bool> taken{false};
      watched s([&, c] { taken = c.send_for(1, 20us) == send_status::ok; });
      const int k = select(recv(c), recv(other), timeout(std::chrono::microseconds(i % 40)));
      ASSERT_TRUE(s.wait_done());
      ASSERT_EQ(k == 0, taken);
      ++(k == 0 ? values : timeouts);
    }
    EXPECT_EQ(values + timeouts, scaled(2000));
  });
}

TEST_F(Select, ManyCases) {
  run_on_each([] {
    for (const int n : {1, 7, 8, 9, 16, 100, 1000}) {
      std::vector<chan<int>> cs;
      for (int i = 0; i < n; ++i) cs.emplace_back(0);
      int got = -1;
      selector s;
      for (int i = 0; i < n; ++i)
        s.recv(cs[static_cast<std::size_t>(i)], [&, i](auto v) { got = v ? i : -2; });
      for (const int k : {0, n / 2, n - 1}) {
        go([c = cs[static_cast<std::size_t>(k)]] { c.send(1); });
        EXPECT_EQ(s.wait(), k);
        EXPECT_EQ(got, k);
      }
      for (const chan<int>& c : cs) EXPECT_FALSE(receiver_waits(c));
    }
    selector too_many;
    const chan<int> c;
    for (int i = 0; i < 70'000; ++i) too_many.recv(c);
    EXPECT_THROW(too_many.wait(), std::length_error);
  });
}

// -- selector

TEST_F(Selector, KeepsItsCases) {
  run_on_each([] {
    const chan<int> in(1), out(1);
    int received = 0, sent = 0;
    selector s;
    s.recv(in, [&](std::optional<int> v) { received += v.value_or(1000); });
    s.send(out, 5, [&] { ++sent; });
    EXPECT_EQ(s.size(), 2U);
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(s.wait(), 1);  // a copyable value is sent again each time
      in.send(1);
      EXPECT_EQ(s.wait(), 0);
      EXPECT_EQ(out.recv(), 5);
    }
    EXPECT_EQ(received, 10);
    EXPECT_EQ(sent, 10);
    s.clear();
    EXPECT_EQ(s.size(), 0U);
    s.otherwise();
    EXPECT_EQ(s.wait(), 0);
  });
}

TEST_F(Selector, CopiesOnceAFiring) {
  run_on(1, [] {
    const chan<counted> c(1);
    selector s;
    s.send(c, counted(3));
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(s.wait(), 0);
      EXPECT_EQ(c.recv()->value, 3);
    }
    EXPECT_LE(counted::copies, 6);
  });
}

TEST_F(Selector, AMoveOnlyValueFiresOnce) {
  run_on_each([] {
    const chan<std::unique_ptr<int>> c(2);
    selector s;
    s.send(c, std::make_unique<int>(1)).otherwise();
    EXPECT_EQ(s.wait(), 0);
    EXPECT_EQ(s.wait(), 1);
    EXPECT_EQ(c.len(), 1U);
    EXPECT_EQ(**c.recv(), 1);
    selector full;  // not taken: not spent
    const chan<std::unique_ptr<int>> d;
    full.send(d, std::make_unique<int>(2)).timeout(1ms);
    EXPECT_EQ(full.wait(), 1);
    go([d] { EXPECT_EQ(**d.recv(), 2); });
    while (full.wait() != 0) {
    }
  });
}

TEST_F(Selector, TimeoutsStartAnew) {
  run_on_each([] {
    const chan<int> c;
    selector s;
    s.recv(c).timeout(5ms).timeout(1h);
    for (int i = 0; i < 3; ++i) {
      const auto before = test::steady::now();
      EXPECT_EQ(s.wait(), 1);
      EXPECT_GE(test::steady::now() - before, 5ms);
    }
    selector never;
    const chan<int> ready(1);
    ready.send(1);
    never.timeout(std::chrono::hours::max()).recv(ready);
    EXPECT_EQ(never.wait(), 1);
  });
}

TEST_F(Selector, HandlersMayChangeIt) {
  run_on_each([] {
    const chan<int> c(10);
    for (int i = 0; i < 10; ++i) c.send(i);
    selector s;
    int n = 0;
    s.recv(c, [&](std::optional<int>) {
      ++n;
      s.clear();
      s.recv(c, [&](std::optional<int>) { n += 10; });
      s.recv(c, [&](std::optional<int>) { n += 10; });
    });
    EXPECT_EQ(s.wait(), 0);
    (void)s.wait();
    EXPECT_EQ(n, 11);
    selector again;  // waits inside its own handler
    int depth = 0;
    again.recv(c, [&](std::optional<int> v) {
      ASSERT_TRUE(v);
      if (++depth < 3) again.wait();
    });
    EXPECT_EQ(again.wait(), 0);
    EXPECT_EQ(depth, 3);
    selector thrower;
    thrower.recv(c, [](std::optional<int>) { throw 1; });
    EXPECT_THROW(thrower.wait(), int);
    EXPECT_THROW(thrower.wait(), int);
  });
}

TEST_F(Selector, HoldsItsChannels) {
  run_on(1, [] {
    selector s;
    {
      const chan<counted> c(1);
      c.send(counted(1));
      s.recv(c, [](std::optional<counted> v) { EXPECT_EQ(v->value, 1); });
    }
    EXPECT_EQ(counted::alive, 1);
    EXPECT_EQ(s.wait(), 0);
    selector moved = std::move(s);
    EXPECT_EQ(moved.size(), 1U);
  });
}

TEST_F(Selector, VoidAndClosed) {
  run_on(1, [] {
    const chan<void> c(1);
    int n = 0;
    selector s;
    s.send(c, [&] { n += 1; });
    EXPECT_EQ(s.wait(), 0);
    selector r;
    r.recv(c, [&](bool ok) { n += ok ? 10 : 100; });
    EXPECT_EQ(r.wait(), 0);
    c.close();
    EXPECT_EQ(r.wait(), 0);
    EXPECT_EQ(n, 111);
    EXPECT_THROW(s.wait(), closed_channel);
    EXPECT_THROW(s.wait(), closed_channel);
  });
}

// Compiled with what it is called with, and with nothing else.
TEST_F(Select, GenericHandlers) {
  run_on(2, [] {
    const chan<std::string> c(1);
    const chan<void> v(1);
    std::size_t n = 0;
    c.send("abc");
    select(recv(c, [&](auto s) { n = s->size(); }));
    EXPECT_EQ(n, 3U);
    v.send();
    select(recv(v, [&](auto ok) { n = ok ? 4 : 0; }));
    EXPECT_EQ(n, 4U);
    c.send("abcde");
    selector r;
    r.recv(c, [&](auto&& s) { n = s->size(); });
    EXPECT_EQ(r.wait(), 0);
    EXPECT_EQ(n, 5U);
  });
}

struct base {
  virtual ~base() = default;
};
struct derived : base {};
struct wrapped {
  static inline bool refuse = false;
  std::string s;
  wrapped(std::string&& x) {  // NOLINT(google-explicit-constructor)
    if (refuse) throw std::runtime_error("refused");
    s = std::move(x);
  }
};

TEST_F(Select, AnRvalueIsConvertedOnlyIfItFires) {
  run_on_each([] {
    const chan<std::unique_ptr<base>> c;
    auto d = std::make_unique<derived>();
    EXPECT_EQ(select(send(c, std::move(d)), otherwise()), 1);
    EXPECT_NE(d, nullptr);
    EXPECT_EQ(select(send(c, std::move(d)), timeout(1ms)), 1);
    EXPECT_NE(d, nullptr);
    const chan<wrapped> w;
    std::string text(100, 'w');
    EXPECT_EQ(select(send(w, std::move(text)), send(c, std::move(d)), otherwise()), 2);
    EXPECT_EQ(text.size(), 100U);

    // One who waits gets it,
    go([c] { EXPECT_NE(*c.recv(), nullptr); });
    EXPECT_TRUE(eventually([&] { return receiver_waits(c); }));
    EXPECT_EQ(select(send(c, std::move(d)), otherwise()), 0);
    EXPECT_EQ(d, nullptr);
    // or one who comes,
    go([w] { EXPECT_EQ(w.recv()->s.size(), 100U); });
    EXPECT_EQ(select(send(w, std::move(text))), 0);
    EXPECT_TRUE(text.empty());
    // or the buffer: when there is room,
    const chan<wrapped> b(1);
    text.assign(50, 'b');
    EXPECT_EQ(select(send(b, std::move(text)), otherwise()), 0);
    EXPECT_TRUE(text.empty());
    // and when there will be.
    go([b] {
      pause(1ms);
      EXPECT_EQ(b.recv()->s.size(), 50U);
    });
    text.assign(60, 'b');
    EXPECT_EQ(select(send(b, std::move(text)), recv(chan<int>())), 0);
    EXPECT_TRUE(text.empty());
    EXPECT_EQ(b.recv()->s.size(), 60U);
  });
}

// As a move that throws: the exception leaves the call that ran it, the other side goes on waiting.
TEST_F(Select, AConversionThatThrows) {
  run_on(2, [] {
    for (const int capacity : {0, 1}) {
      const chan<wrapped> c(capacity);
      if (capacity != 0) c.send(wrapped("first"));
      std::string text(40, 't');
      const watched sender(
          [&] { EXPECT_EQ(select(send(c, std::move(text)), recv(chan<int>())), 0); });
      EXPECT_TRUE(sender.wait_parked());
      wrapped::refuse = true;
      EXPECT_THROW((void)c.recv(), std::runtime_error);
      EXPECT_THROW((void)c.recv(), std::runtime_error);
      wrapped::refuse = false;
      if (capacity != 0) {
        EXPECT_EQ(c.recv()->s, "first");
      }
      EXPECT_EQ(c.recv()->s.size(), 40U);
      EXPECT_TRUE(sender.wait_done());
    }
    const chan<wrapped> c;
    go([c] { EXPECT_EQ(c.recv()->s, "second"); });
    EXPECT_TRUE(eventually([&] { return receiver_waits(c); }));
    wrapped::refuse = true;
    EXPECT_THROW(select(send(c, std::string("first"))), std::runtime_error);
    wrapped::refuse = false;
    EXPECT_EQ(select(send(c, std::string("second"))), 0);
  });
}

}  // namespace
}  // namespace weft
