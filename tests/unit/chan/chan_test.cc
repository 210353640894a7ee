// SPDX-License-Identifier: Apache-2.0
// chan, send_chan, recv_chan: every member, for every kind of element. Long for that reason.
#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <sys/select.h>
#include <sys/socket.h>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
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

class Chan : public GoTest {};

// -- what compiles

static_assert(std::is_nothrow_constructible_v<chan<int>, std::nullptr_t>);
static_assert(std::convertible_to<std::nullptr_t, chan<int>>);
static_assert(std::convertible_to<std::nullptr_t, send_chan<int>>);
static_assert(std::convertible_to<std::nullptr_t, recv_chan<int>>);
static_assert(std::constructible_from<chan<int>, int> && !std::convertible_to<int, chan<int>>);
static_assert(std::constructible_from<chan<int>, unsigned char>);
static_assert(!std::constructible_from<chan<int>, bool>);
static_assert(!std::constructible_from<chan<int>, double>);
static_assert(!std::constructible_from<chan<int>, void*>);
static_assert(std::regular<chan<int>> && std::regular<send_chan<int>> &&
              std::regular<recv_chan<int>>);
static_assert(std::is_nothrow_copy_constructible_v<chan<int>>);
static_assert(std::is_nothrow_move_constructible_v<chan<int>>);
static_assert(std::convertible_to<chan<int>, send_chan<int>>);
static_assert(std::convertible_to<chan<int>, recv_chan<int>>);
static_assert(std::convertible_to<const chan<void>&, recv_chan<void>>);
static_assert(!std::constructible_from<chan<int>, recv_chan<int>>);
static_assert(!std::constructible_from<chan<int>, send_chan<int>>);
static_assert(!std::constructible_from<send_chan<int>, recv_chan<int>>);
static_assert(!std::constructible_from<recv_chan<int>, send_chan<int>>);
static_assert(!std::convertible_to<chan<int>, bool> && std::constructible_from<bool, chan<int>>);

static_assert(std::equality_comparable_with<chan<int>, std::nullptr_t> || requires(chan<int> c) {
  c == nullptr;
  nullptr == c;
  c != nullptr;
});
static_assert(requires(chan<int> c, send_chan<int> s, recv_chan<int> r) {
  c == s;
  s == c;
  s == r;
  r != c;
});
template <class A, class B>
concept comparable = requires(const A& a, const B& b) {
  a == b;
};
static_assert(!comparable<chan<int>, chan<long>> && !comparable<chan<int>, recv_chan<void>>);

template <class C>
concept copies_in = requires(const C& c, const typename C::element_type& v) {
  c.send(v);
};
static_assert(copies_in<chan<std::string>> && !copies_in<chan<std::unique_ptr<int>>>);

static_assert(std::same_as<decltype(std::declval<const chan<int>&>().recv()), std::optional<int>>);
static_assert(std::same_as<decltype(std::declval<const chan<void>&>().recv()), bool>);
static_assert(std::same_as<decltype(std::declval<const chan<int>&>().len()), std::size_t>);
static_assert(std::ranges::input_range<const chan<int>>);
static_assert(std::ranges::input_range<const recv_chan<std::unique_ptr<int>>>);
static_assert(std::same_as<std::ranges::range_value_t<const chan<void>>, std::monostate>);
static_assert(std::same_as<std::ranges::range_reference_t<const chan<int>>, int&>);

// -- handles

TEST_F(Chan, HandlesAreSharedAndMoveToNil) {
  chan<int> a(2), b = a;
  EXPECT_TRUE(a == b && a);
  b.send(1);
  EXPECT_EQ(a.len(), 1U);
  chan<int> c = std::move(a);
  EXPECT_TRUE(a == nullptr && nullptr == a && !a);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(c, b);
  c = nullptr;
  EXPECT_TRUE(c == nullptr);
  EXPECT_NE(b, c);
  send_chan<int> s = b;
  recv_chan<int> r = std::move(b);
  EXPECT_TRUE(b == nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(s == r);
  EXPECT_EQ(r.recv(), 1);
  chan<int>& self = c;
  c = chan<int>(3);
  c = self;
  EXPECT_EQ(c.cap(), 3U);
  c = std::move(self);
  EXPECT_EQ(c.cap(), 3U);
  EXPECT_TRUE(send_chan<int>() == nullptr && recv_chan<void>() == nullptr);
  EXPECT_NE(chan<int>(), chan<int>());
}

TEST_F(Chan, HashesAcrossTheThreeKinds) {
  const chan<int> a, b;
  const send_chan<int> s = a;
  const recv_chan<int> r = a;
  EXPECT_EQ(std::hash<chan<int>>()(a), std::hash<send_chan<int>>()(s));
  EXPECT_EQ(std::hash<chan<int>>()(a), std::hash<recv_chan<int>>()(r));
  std::unordered_set<chan<int>> set{a, b, a};
  EXPECT_EQ(set.size(), 2U);
  std::unordered_map<recv_chan<int>, int> map;
  map[a] = 1;
  map[r] += 1;
  EXPECT_EQ(map[a], 2);
  std::unordered_set<chan<void>> voids{chan<void>(), nullptr};
  EXPECT_EQ(voids.size(), 2U);
}

TEST_F(Chan, NilOperations) {
  const chan<std::string> nil = nullptr;
  std::string v = "mine";
  std::optional<std::string> o = "kept";
  EXPECT_FALSE(nil.try_send(std::move(v)));
  EXPECT_FALSE(nil.try_send(std::as_const(v)));
  EXPECT_EQ(nil.send_for(std::move(v), 1ms), send_status::timeout);
  EXPECT_EQ(nil.send_for(std::as_const(v), 1ms), send_status::timeout);
  EXPECT_EQ(v, "mine");  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(nil.try_recv(v), recv_status::empty);
  EXPECT_EQ(nil.try_recv(o), recv_status::empty);
  EXPECT_EQ(nil.recv_for(v, 1ms), recv_status::timeout);
  EXPECT_EQ(nil.recv_for(o, -1ms), recv_status::timeout);
  EXPECT_EQ(v, "mine");
  EXPECT_EQ(o, "kept");
  EXPECT_EQ(nil.len(), 0U);
  EXPECT_EQ(nil.cap(), 0U);
  EXPECT_FALSE(nil.closed());
  EXPECT_THROW(nil.close(), nil_channel);
  const chan<void> none = nullptr;
  EXPECT_FALSE(none.try_send());
  EXPECT_EQ(none.try_recv(), recv_status::empty);
  EXPECT_EQ(none.send_for(1ms), send_status::timeout);
  EXPECT_EQ(none.recv_for(1ms), recv_status::timeout);
}

chan<int> early(4);  // before main and the first run
TEST_F(Chan, StaticHandle) {
  early.send(1);
  run_on(2, [] {
    EXPECT_EQ(early.recv(), 1);
    early.send(2);
  });
  EXPECT_EQ(early.recv(), 2);
}

// -- elements

struct plain_move_only {  // trivially copyable, but not by a copy
  int v;
  explicit plain_move_only(int x) : v(x) {}
  plain_move_only(plain_move_only&&) = default;
  plain_move_only(const plain_move_only&) = delete;
  plain_move_only& operator=(plain_move_only&&) = default;
};
static_assert(std::is_trivially_copyable_v<plain_move_only>);

struct no_default {
  explicit no_default(std::string s) : text(std::move(s)) {}
  std::string text;
};
struct no_assign {
  explicit no_assign(int x) : v(x) {}
  no_assign(no_assign&&) = default;
  no_assign& operator=(no_assign&&) = delete;
  int v;
  std::string rest = "rest";
};
struct alignas(128) wide {
  explicit wide(int x) : v(x) {}
  bool aligned() const { return reinterpret_cast<std::uintptr_t>(this) % 128 == 0; }
  int v;
};
struct alignas(64) wide_counted : counted {
  explicit wide_counted(int x) : counted(x), at(this) {}
  wide_counted(wide_counted&& o) noexcept : counted(std::move(o)), at(this) {}
  wide_counted& operator=(wide_counted&&) = default;
  bool aligned() const { return reinterpret_cast<std::uintptr_t>(this) % 64 == 0 && at == this; }
  const void* at;
};
struct big {
  std::array<std::uint64_t, 40> a{};
};

template <class T, class Make, class Look>
void round_trip(Make make, Look look) {
  for (const int cap : {0, 1, 3}) {
    const chan<T> c(cap);
    scope s;
    s.go([&] {
      for (int i = 0; i < 50; ++i) c.send(make(i));
      for (int i = 50; i < 100; ++i) {
        T v = make(i);
        EXPECT_EQ(c.send_for(std::move(v), 1h), send_status::ok);
      }
      for (int i = 100; i < 150; ++i) select(send(c, make(i)), timeout(1h));
      c.close();
    });
    int i = 0;
    for (; i < 60; ++i) {
      auto v = c.recv();
      ASSERT_TRUE(v);
      EXPECT_EQ(look(*v), i);
    }
    for (; i < 90; ++i) {
      std::optional<T> v;
      ASSERT_EQ(c.recv_for(v, 1h), recv_status::ok);
      EXPECT_EQ(look(*v), i);
    }
    for (; i < 120; ++i)
      select(recv(c, [&](const std::optional<T>& v) { EXPECT_EQ(look(*v), i); }), timeout(1h));
    for (T& v : c) EXPECT_EQ(look(v), i++);
    EXPECT_EQ(i, 150);
    EXPECT_FALSE(c.recv());
    s.wait();
  }
}

TEST_F(Chan, EveryKindOfElement) {
  run_on_each([] {
    round_trip<std::uint8_t>([](int i) { return static_cast<std::uint8_t>(i); },
                             [](std::uint8_t v) { return v; });
    round_trip<std::int64_t>([](int i) { return std::int64_t{i} << 33; },
                             [](std::int64_t v) { return v >> 33; });
    round_trip<double>([](int i) { return i; }, [](double v) { return static_cast<int>(v); });
    round_trip<std::string>([](int i) { return std::string(30, 'x') + std::to_string(i); },
                            [](const std::string& v) { return std::stoi(v.substr(30)); });
    round_trip<std::unique_ptr<int>>([](int i) { return std::make_unique<int>(i); },
                                     [](const std::unique_ptr<int>& v) { return *v; });
    round_trip<plain_move_only>([](int i) { return plain_move_only(i); },
                                [](const plain_move_only& v) { return v.v; });
    round_trip<no_default>([](int i) { return no_default(std::to_string(i)); },
                           [](const no_default& v) { return std::stoi(v.text); });
    round_trip<no_assign>([](int i) { return no_assign(i); },
                          [](const no_assign& v) { return v.rest == "rest" ? v.v : -1; });
    round_trip<wide>([](int i) { return wide(i); },
                     [](const wide& v) { return v.aligned() ? v.v : -1; });
    round_trip<wide_counted>([](int i) { return wide_counted(i); },
                             [](const wide_counted& v) { return v.aligned() ? v.value : -1; });
    round_trip<counted>([](int i) { return counted(i); }, [](const counted& v) { return v.value; });
    round_trip<big>(
        [](int i) {
          big b;
          b.a.fill(static_cast<std::uint64_t>(i));
          return b;
        },
        [](const big& b) {
          const bool same = std::ranges::all_of(b.a, [&](auto x) { return x == b.a[0]; });
          return same ? static_cast<int>(b.a[0]) : -1;
        });
    round_trip<std::optional<int>>([](int i) { return std::optional<int>(i); },
                                   [](std::optional<int> v) { return *v; });
    round_trip<std::exception_ptr>([](int i) { return std::make_exception_ptr(i); },
                                   [](const std::exception_ptr& e) {
                                     try {
                                       std::rethrow_exception(e);
                                     } catch (int i) {
                                       return i;
                                     }
                                   });
    EXPECT_EQ(counted::alive, 0);
  });
}

TEST_F(Chan, OfChannels) {
  run_on_each([] {
    const chan<chan<int>> requests;
    go([requests] {
      for (const chan<int>& reply : requests) reply.send(7);
    });
    const chan<int> reply;
    requests.send(reply);
    EXPECT_EQ(reply.recv(), 7);
    requests.close();
  });
}

TEST_F(Chan, Void) {
  run_on_each([] {
    const chan<void> c(2), done;
    EXPECT_TRUE(c.try_send());
    EXPECT_EQ(c.send_for(1ms), send_status::ok);
    EXPECT_FALSE(c.try_send());
    EXPECT_EQ(c.send_for(1ms), send_status::timeout);
    EXPECT_EQ(c.len(), 2U);
    EXPECT_EQ(c.try_recv(), recv_status::ok);
    EXPECT_EQ(c.recv_for(1ms), recv_status::ok);
    EXPECT_EQ(c.try_recv(), recv_status::empty);
    EXPECT_EQ(c.recv_for(1ms), recv_status::timeout);
    go([=] {
      for (int i = 0; i < 100; ++i) c.send();
      c.close();
      EXPECT_THROW(c.send(), closed_channel);
      EXPECT_THROW(c.try_send(), closed_channel);
      EXPECT_THROW(c.send_for(1h), closed_channel);
      done.close();
    });
    int n = 0;
    for (auto& v : c) {
      static_assert(std::same_as<decltype(v), std::monostate&>);
      ++n;
    }
    EXPECT_EQ(n, 100);
    EXPECT_FALSE(done.recv());
    EXPECT_FALSE(c.recv());
    EXPECT_EQ(c.try_recv(), recv_status::closed);
    EXPECT_EQ(c.recv_for(1h), recv_status::closed);
    const chan<void> many(std::int64_t{1} << 50);  // takes no room
    for (int i = 0; i < 1000; ++i) many.send();
    EXPECT_EQ(many.len(), 1000U);
  });
}

TEST_F(Chan, WhatIsLeftInTheBufferIsDestroyed) {
  {
    chan<counted> c(5);
    for (int i = 0; i < 5; ++i) c.send(counted(i));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(c.recv()->value, i);
    for (int i = 5; i < 8; ++i) c.send(counted(i));  // over the end of the ring
    EXPECT_EQ(counted::alive, 5);
  }
  EXPECT_EQ(counted::alive, 0);
  chan<counted> c(2);
  c.send(counted(1));
  c.close();
  c = nullptr;
  EXPECT_EQ(counted::alive, 0);
}

TEST_F(Chan, MovesOnceAHop) {
  run_on(1, [] {
    const chan<counted> c;
    watched r([c] { EXPECT_EQ(c.recv()->value, 1); });
    ASSERT_TRUE(r.wait_parked());
    counted::reset();
    c.send(counted(1));
    EXPECT_EQ(counted::moves, 1);
    EXPECT_EQ(counted::copies, 0);
    ASSERT_TRUE(r.wait_done());
    const counted v(2);
    watched r2([c] { EXPECT_EQ(c.recv()->value, 2); });
    ASSERT_TRUE(r2.wait_parked());
    c.send(v);
    EXPECT_EQ(counted::copies, 1);
    ASSERT_TRUE(r2.wait_done());
  });
}

// -- nothing is touched unless it happens

TEST_F(Chan, GivesTheValueBack) {
  run_on_each([] {
    for (const int cap : {0, 1}) {
      const chan<std::unique_ptr<int>> c(cap);
      if (cap == 1) c.send(std::make_unique<int>(0));
      auto v = std::make_unique<int>(5);
      EXPECT_FALSE(c.try_send(std::move(v)));
      ASSERT_TRUE(v);  // NOLINT(bugprone-use-after-move)
      EXPECT_EQ(c.send_for(std::move(v), 1ms), send_status::timeout);
      ASSERT_TRUE(v);
      EXPECT_EQ(c.send_for(std::move(v), 0ms), send_status::timeout);
      EXPECT_EQ(c.send_for(std::move(v), -1h), send_status::timeout);
      ASSERT_TRUE(v);
      EXPECT_EQ(select(send(c, std::move(v)), otherwise()), 1);
      EXPECT_EQ(select(send(c, std::move(v)), timeout(1ms)), 1);
      ASSERT_TRUE(v);
      // A close while it waits.
      for (int how = 0; how < 3; ++how) {
        const chan<std::unique_ptr<int>> d(cap);
        if (cap == 1) d.send(std::make_unique<int>(0));
        watched s([&, how] {
          const auto attempt = [&] {
            if (how == 0) d.send(std::move(v));
            if (how == 1) d.send_for(std::move(v), 1h);
            if (how == 2) select(send(d, std::move(v)), recv(chan<int>()));
          };
          EXPECT_THROW(attempt(), closed_channel);
        });
        ASSERT_TRUE(s.wait_parked());
        d.close();
        ASSERT_TRUE(s.wait_done());
        ASSERT_TRUE(v);
      }
      c.close();
      EXPECT_THROW(c.send(std::move(v)), closed_channel);
      EXPECT_THROW(c.try_send(std::move(v)), closed_channel);
      EXPECT_THROW(c.send_for(std::move(v), 1h), closed_channel);
      EXPECT_THROW(select(send(c, std::move(v))), closed_channel);
      ASSERT_TRUE(v);
      EXPECT_EQ(*v, 5);
    }
    const chan<std::unique_ptr<int>> c(1);  // taken: moved from
    auto v = std::make_unique<int>(5);
    EXPECT_TRUE(c.try_send(std::move(v)));
    EXPECT_FALSE(v);
  });
}

TEST_F(Chan, OutIsUntouchedUnlessOk) {
  run_on_each([] {
    for (const int cap : {0, 1}) {
      const chan<std::string> c(cap);
      std::string v = "old";
      std::optional<std::string> o = "old", none;
      const auto untouched = [&] { return v == "old" && o == "old" && !none; };
      EXPECT_EQ(c.try_recv(v), recv_status::empty);
      EXPECT_EQ(c.try_recv(o), recv_status::empty);
      EXPECT_EQ(c.recv_for(v, 1ms), recv_status::timeout);
      EXPECT_EQ(c.recv_for(o, 1ms), recv_status::timeout);
      EXPECT_EQ(c.recv_for(none, -1ms), recv_status::timeout);
      EXPECT_TRUE(untouched());
      watched r([&] { EXPECT_EQ(c.recv_for(v, 1h), recv_status::closed); });
      watched r2([&] { EXPECT_EQ(c.recv_for(o, 1h), recv_status::closed); });
      ASSERT_TRUE(r.wait_parked() && r2.wait_parked());
      c.close();
      ASSERT_TRUE(r.wait_done() && r2.wait_done());
      EXPECT_EQ(c.try_recv(v), recv_status::closed);
      EXPECT_EQ(c.try_recv(o), recv_status::closed);
      EXPECT_EQ(c.recv_for(none, 1h), recv_status::closed);
      EXPECT_TRUE(untouched());
    }
    const chan<std::string> c(4);
    for (int i = 0; i < 4; ++i) c.send("new");
    std::string v = "old";
    std::optional<std::string> o = "old", none;
    EXPECT_EQ(c.try_recv(v), recv_status::ok);
    EXPECT_EQ(c.try_recv(o), recv_status::ok);
    EXPECT_EQ(c.recv_for(none, 0s), recv_status::ok);
    EXPECT_TRUE(v == "new" && o == "new" && none == "new");
    c.close();
    EXPECT_EQ(c.try_recv(v), recv_status::ok);  // drained first
    EXPECT_EQ(c.try_recv(v), recv_status::closed);
  });
}

TEST_F(Chan, DurationsOfAnyKind) {
  run_on(2, [] {
    const chan<int> c(1);
    int v = 0;
    EXPECT_EQ(c.recv_for(v, 1ns), recv_status::timeout);
    EXPECT_EQ(c.recv_for(v, std::chrono::duration<double>(0.001)), recv_status::timeout);
    EXPECT_EQ(c.recv_for(v, std::chrono::nanoseconds::min()), recv_status::timeout);
    c.send(1);
    EXPECT_EQ(c.recv_for(v, std::chrono::hours::max()), recv_status::ok);
    const auto before = test::steady::now();
    EXPECT_EQ(c.recv_for(v, 20ms), recv_status::timeout);
    EXPECT_GE(test::steady::now() - before, 20ms);
    watched r([&] { EXPECT_EQ(c.recv_for(v, std::chrono::hours::max()), recv_status::ok); });
    ASSERT_TRUE(r.wait_parked());
    c.send(1);
    ASSERT_TRUE(r.wait_done());
  });
}

// -- ranges

TEST_F(Chan, Ranges) {
  run_on_each([] {
    const chan<std::unique_ptr<int>> c(3);
    for (int i = 0; i < 3; ++i) c.send(std::make_unique<int>(i));
    c.close();
    std::vector<std::unique_ptr<int>> all;
    for (auto& v : c) all.push_back(std::move(v));
    EXPECT_EQ(all.size(), 3U);
    const recv_chan<std::unique_ptr<int>> r = c;
    for ([[maybe_unused]] auto& v : r) ADD_FAILURE();

    int sum = 0;
#if !defined(__clang__) || __clang_major__ >= 16  // older ones cannot compile libstdc++'s views
    chan<int> d(10);
    for (int i = 0; i < 10; ++i) d.send(i);
    d.close();
    for (const int v : d | std::views::filter([](int x) { return x % 2 == 0; })) sum += v;
    EXPECT_EQ(sum, 20);
#endif

    const auto numbers = [] {  // a temporary in the range
      const chan<int> n;
      go([n] {
        for (int i = 0; i < 5; ++i) n.send(i);
        n.close();
      });
      return recv_chan<int>(n);
    };
    sum = 0;
    for (const int v : numbers()) sum += v;
    EXPECT_EQ(sum, 10);

    chan<int> e(3);  // a break leaves the rest
    for (int i = 0; i < 3; ++i) e.send(i);
    for (const int v : e) {
      if (v == 1) break;
    }
    EXPECT_EQ(e.len(), 1U);
    auto it = e.begin();
    EXPECT_EQ(*it, 2);
  });
}

TEST_F(Chan, ARangeKeepsItsChannel) {
  run_on_each([] {
    const auto three = [](std::vector<std::weak_ptr<int>>& seen) {
      chan<std::shared_ptr<int>> c(3);
      for (int i = 0; i < 3; ++i) {
        auto v = std::make_shared<int>(i);
        seen.push_back(v);
        c.send(std::move(v));
      }
      c.close();
      return c;
    };
    std::vector<std::weak_ptr<int>> sent;
    chan<std::shared_ptr<int>> c = three(sent);
    int n = 0;
    for (auto& v : c) {  // the last handle goes in the loop
      EXPECT_EQ(*v, n++);
      c = nullptr;
      ASSERT_TRUE(n == 3 || !sent.back().expired());
    }
    EXPECT_EQ(n, 3);
    EXPECT_TRUE(sent.back().expired());

    sent.clear();
    auto it = three(sent).begin();  // nobody but the iterator has one
    ASSERT_FALSE(sent.back().expired());
    const auto again = it;
    for (n = 0; it != std::default_sentinel; ++it) EXPECT_EQ(**it, n++);
    EXPECT_EQ(n, 3);
    EXPECT_EQ(**again, 0);

    std::weak_ptr<int> rest;
    {
      chan<void> done(1);
      done.send();
      done.close();
      auto i = recv_chan<void>(std::move(done)).begin();
      EXPECT_TRUE(i != std::default_sentinel);
      EXPECT_TRUE(++i == std::default_sentinel);
      sent.clear();
      const auto left = three(sent).begin();  // a range that is left takes the rest with it
      rest = sent.back();
      EXPECT_FALSE(rest.expired());
    }
    EXPECT_TRUE(rest.expired());
  });
}

// -- closing

TEST_F(Chan, CloseWakesEverybody) {
  run_on_each([] {
    const chan<int> c, full(1);
    full.send(0);
    std::atomic<int> ended{0}, thrown{0};
    std::vector<watched> all;
    for (int i = 0; i < 10; ++i) {
      all.emplace_back([&] {
        EXPECT_FALSE(c.recv());
        ++ended;
      });
      all.emplace_back([&] {
        EXPECT_EQ(select(recv(chan<int>()), recv(c)), 1);
        ++ended;
      });
      all.emplace_back([&] {
        try {
          full.send(i);
        } catch (const closed_channel&) {
          ++thrown;
        }
      });
    }
    for (const watched& w : all) ASSERT_TRUE(w.wait_parked());
    c.close();
    full.close();
    for (const watched& w : all) ASSERT_TRUE(w.wait_done());
    EXPECT_EQ(ended, 20);
    EXPECT_EQ(thrown, 10);
    EXPECT_EQ(full.recv(), 0);
    EXPECT_FALSE(full.recv());
  });
}

// More than close takes at a time; the first to wake drops the last handle while close is still at
// it.
TEST_F(Chan, CloseOutlivesTheLastHandle) {
  run_on_each([] {
    constexpr int n = 200;
    std::optional<chan<int>> c(std::in_place);
    std::atomic<int> woken{0};
    std::vector<watched> all;
    for (int i = 0; i < n; ++i) {
      all.emplace_back([&c, &woken, i] {
        if (i % 4 == 0) {
          EXPECT_EQ(select(recv(chan<int>()), recv(*c)), 1);
        } else {
          EXPECT_FALSE(c->recv());
        }
        if (woken.fetch_add(1) == 0) c.reset();
      });
    }
    for (const watched& w : all) ASSERT_TRUE(w.wait_parked());
    c->close();
    for (const watched& w : all) ASSERT_TRUE(w.wait_done());
    EXPECT_EQ(woken, n);
    EXPECT_FALSE(c);
  });
}

TEST_F(Chan, OneOfManyClosesWins) {
  run_on_each([] {
    for (int round = 0; round < scaled(100); ++round) {
      const chan<int> c;
      std::atomic<int> won{0}, lost{0};
      scope s;
      for (int i = 0; i < 8; ++i) {
        s.go([&] {
          try {
            c.close();
            ++won;
          } catch (const closed_channel&) {
            ++lost;
          }
        });
      }
      s.wait();
      ASSERT_EQ(won, 1);
      ASSERT_EQ(lost, 7);
    }
  });
}

// A receiver is known to wait: a try_send either serves it, or comes after the close and throws. It
// never finds an open channel with nobody there.
TEST_F(Chan, TrySendAgainstClose) {
  run_on(3, [] {
    const auto end = test::steady::now() + 40s;  // a busy machine does not come to all of it
    for (int round = 0; round < scaled(20'000) && test::steady::now() < end; ++round) {
      const chan<int> c;
      watched r([c] { (void)c.recv(); });
      ASSERT_TRUE(test::spin_until([&] { return receiver_waits(c); }));
      std::atomic<bool> start{false};
      scope s;
      s.go([&] {
        start = true;
        c.close();
      });
      test::spin_until([&] { return start.load(); }, 1ms);
      for (int i = round % 64; i > 0; --i) rt::cpu_relax();
      try {
        ASSERT_TRUE(c.try_send(1)) << "round " << round;
      } catch (const closed_channel&) {
      }
      s.wait();
      ASSERT_TRUE(r.wait_done());
    }
  });
}

// -- lifetime

TEST_F(Chan, MayGoAsSoonAsTheOtherSideHasReturned) {
  // Each side's operation on a handle that the other one destroys; ASan builds watch.
  run_on_each([] {
    for (int i = 0; i < scaled(3000); ++i) {
      auto c = std::make_unique<chan<int>>(i % 3 == 0 ? 1 : 0);
      go([p = c.get(), i] { i % 2 == 0 ? p->send(1) : p->close(); });
      if (i % 5 == 0) yield();
      (void)c->recv();
    }
  });
}

TEST_F(Chan, MayGoWhileASelectIsOnItsWayOut) {
  // Whoever gets a value from a select knows that it is over, and may destroy all its channels.
  run_on_each([] {
    for (int i = 0; i < scaled(3000); ++i) {
      struct pair {
        chan<int> a, b;
      };
      auto p = std::make_unique<pair>();
      const chan<void> done;
      go([q = p.get(), done, i] {
        int v = 0;
        if (i % 3 == 0) select(recv(q->a), recv(q->b));
        if (i % 3 == 1) q->b.recv_for(v, 1h);
        if (i % 3 == 2) select(send(q->a, 1), recv(q->b), timeout(1h));
        done.close();
      });
      if (i % 2 == 0) yield();
      p->b.send(1);
      p.reset();
      done.recv();
    }
  });
}

TEST_F(Chan, MayGoWhileASelectOfAThreadIsOnItsWayOut) {
  for (int i = 0; i < scaled(300); ++i) {
    auto a = std::make_unique<chan<int>>(), b = std::make_unique<chan<int>>();
    std::thread t([x = a.get(), y = b.get(), i] {
      int v = 0;
      if (i % 2 == 0) {
        select(recv(*x), recv(*y));
      } else {
        y->recv_for(v, 1h);
      }
    });
    b->send(1);
    a.reset();
    b.reset();
    t.join();
  }
}

// -- over the end of a run

TEST_F(Chan, WaitersOfARunThatIsOverAreForgotten) {
  test::goroutines_are_left_behind = true;
  const chan<int> c, full(1);
  full.send(1);
  weft::run(test::with_procs(2), [&] {
    for (int kind = 0; kind < 6; ++kind) {
      watched w([c, full, kind] {
        int v = 0;
        if (kind == 0) (void)c.recv();
        if (kind == 1) (void)c.recv_for(v, 1h);
        if (kind == 2) select(recv(c), recv(chan<int>()));
        if (kind == 3) full.send(2);
        if (kind == 4) (void)full.send_for(2, 1h);
        if (kind == 5) select(send(full, 2), recv(chan<int>()));
      });
      EXPECT_TRUE(w.wait_parked());
    }
  });
  EXPECT_FALSE(c.try_send(1));
  EXPECT_EQ(c.send_for(1, 1ms), send_status::timeout);
  run_on(2, [&] {
    EXPECT_FALSE(c.try_send(1));
    watched r([&] { EXPECT_EQ(c.recv(), 7); });
    ASSERT_TRUE(r.wait_parked());
    c.send(7);  // to the living
    ASSERT_TRUE(r.wait_done());
    EXPECT_EQ(full.recv(), 1);
    EXPECT_EQ(full.len(), 0U);  // nothing from the dead
    int v = 0;
    EXPECT_EQ(full.try_recv(v), recv_status::empty);
    c.close();
    full.close();
  });
}

// -- elements that look like something else

TEST_F(Chan, OfOptionals) {
  run_on(2, [] {
    const chan<std::optional<int>> c(1);
    std::optional<int> out = 7;
    c.send(std::nullopt);
    EXPECT_EQ(c.try_recv(out), recv_status::ok);
    EXPECT_EQ(out, std::nullopt);
    c.send(std::optional<int>(5));
    EXPECT_EQ(c.recv_for(out, 1s), recv_status::ok);
    EXPECT_EQ(out, 5);
    std::optional<std::optional<int>> outer;
    c.send(std::nullopt);
    EXPECT_EQ(c.try_recv(outer), recv_status::ok);
    ASSERT_TRUE(outer.has_value());
    EXPECT_EQ(*outer, std::nullopt);
    c.send(std::nullopt);
    EXPECT_EQ(c.recv(), std::make_optional(std::optional<int>()));

    const chan<std::optional<std::string>> s(1);
    std::optional<std::string> text = "old";
    s.send(std::nullopt);
    EXPECT_EQ(s.try_recv(text), recv_status::ok);
    EXPECT_EQ(text, std::nullopt);
    s.send(std::optional<std::string>("new"));
    EXPECT_EQ(s.recv_for(text, 1s), recv_status::ok);
    EXPECT_EQ(text, "new");
  });
}

struct request {
  std::string body;
  chan<request> reply = nullptr;
  send_chan<request> out;
  recv_chan<request> in;
};

TEST_F(Chan, AMessageWithAChannelForTheAnswer) {
  run_on(2, [] {
    const chan<request> server, back(1);
    go([server] {
      const auto r = server.recv();
      r->reply.send({"re: " + r->body, nullptr, {}, {}});
    });
    server.send({"hello", back, {}, {}});
    EXPECT_EQ(back.recv()->body, "re: hello");
  });
}

struct without_address {
  std::string s;
  without_address* operator&() = delete;              // NOLINT(google-runtime-operator)
  const without_address* operator&() const = delete;  // NOLINT(google-runtime-operator)
};

TEST_F(Chan, AnAmpersandOfItsOwn) {
  run_on(2, [] {
    const chan<without_address> c(2);
    c.send({"a"});
    selector s;
    s.send(c, without_address{"b"});
    EXPECT_EQ(s.wait(), 0);
    c.close();
    std::string all;
    for (auto i = c.begin(); i != c.end(); ++i) all += i->s;
    EXPECT_EQ(all, "ab");
  });
}

// -- names

TEST_F(Chan, PosixNamesStayTheirs) {
  using namespace weft;  // NOLINT(google-build-using-namespace)
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  char buf[4] = {};
  EXPECT_EQ(::send(fds[0], "abc", 3, 0), 3);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fds[1], &set);
  timeval now{};
  EXPECT_EQ(::select(fds[1] + 1, &set, nullptr, nullptr, &now), 1);
  EXPECT_EQ(::recv(fds[1], buf, 3, 0), 3);
  ::close(fds[0]);
  ::close(fds[1]);
}

}  // namespace
}  // namespace weft

// Outside the namespace, where both sets of names are candidates.
namespace {
using namespace weft;  // NOLINT(google-build-using-namespace)
[[maybe_unused]] ssize_t unqualified(int fd, char* p) {
  timeval now{};
  return send(fd, p, 1, 0) + recv(fd, p, 1, 0) + select(0, nullptr, nullptr, nullptr, &now);
}
[[maybe_unused]] int ours(const chan<int>& c) { return select(recv(c), send(c, 1), otherwise()); }
}  // namespace
