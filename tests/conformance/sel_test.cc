// SPDX-License-Identifier: Apache-2.0
// SEL: select.
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/channels.h"
#include "support/leaks.h"
#include "support/runtime.h"
#include "weft/chan.hpp"
#include "weft/select.hpp"

namespace weft::test {
namespace {

// -- SEL-03

template <class Index>
void four_ways(std::array<chan<int>, 4> c, int each, Index choose) {
  std::array<int, 4> n{};
  for (int i = 0; i < 4 * each; ++i) {
    const auto k = static_cast<std::size_t>(choose(c));
    if (++n[k] == each) c[k] = nullptr;
  }
  for (const int times : n) EXPECT_EQ(times, each);
}

TEST(Conformance, SEL_03_stress) {
  constexpr int n = full_or(100'000, 5'000);
  run_clean(with_procs(10), [] {
    const std::array<chan<int>, 4> c{chan<int>(0), chan<int>(0), chan<int>(2), chan<int>(3)};
    scope s;
    for (const chan<int>& k : c) {
      s.go([k] {
        for (int i = 0; i < n; ++i) k.send(i);
      });
      s.go([k] {
        for (int i = 0; i < n; ++i) ASSERT_TRUE(k.recv().has_value());
      });
    }
    s.go([c] {
      four_ways(c, n, [](const auto& k) {
        return 3 - select(send(k[3], 0), send(k[2], 0), send(k[1], 0), send(k[0], 0));
      });
    });
    s.go([c] {
      four_ways(c, n, [](const auto& k) {
        const auto open = [](std::optional<int> v) { EXPECT_TRUE(v); };
        return select(recv(k[0], open), recv(k[1], open), recv(k[2], open), recv(k[3], open));
      });
    });
    s.wait();
  });
}

// -- SEL-04

TEST(Conformance, SEL_04_fair_among_the_ready) {
  constexpr int trials = 10'000;
  run_clean([] {
    const chan<std::uint8_t> c1(trials + 1), c2(trials + 1);
    for (int i = 0; i < trials + 1; ++i) {
      c1.send(1);
      c2.send(2);
    }
    const chan<std::uint8_t> c3(0), c4(0);
    const chan<bool> out;
    const chan<void> done;
    go([=] {
      for (bool more = true; more;) {
        std::uint8_t b = 0;
        const auto take = [&](std::optional<std::uint8_t> v) { b = *v; };
        select(recv(c3, take), recv(c4, take), recv(c1, take), recv(c2, take));
        select(send(out, b == 1), recv(done, [&] { more = false; }));
      }
    });
    int first = 0;
    for (int i = 0; i < trials; ++i) first += *out.recv() ? 1 : 0;
    done.close();
    EXPECT_LE(std::abs(first - trials / 2), 500) << first;
  });
}

// The same for a selector, and for cases that all wait for the same party.
TEST(Conformance, SEL_04_fair_selector) {
  constexpr int trials = 10'000;
  run_clean([] {
    const chan<int> c(1);
    int wins[3] = {};
    selector s;
    for (int& n : wins) s.recv(c, [&n](std::optional<int>) { ++n; });
    for (int i = 0; i < trials; ++i) {
      c.send(i);
      s.wait();
    }
    for (const int n : wins) EXPECT_LE(std::abs(n - trials / 3), 500) << n;
  });
}

TEST(Conformance, SEL_04_pseudo_random_send) {
  constexpr int n = 100;
  for (const int procs : {1, 2, 4}) {
    run_clean(with_procs(procs), [procs] {
      for (const int cap : {0, n}) {
        const chan<int> c(cap);
        int zeros = 0, ones = 0;
        scope s;
        s.go([&] {
          for (int i = 0; i < n; ++i) {
            yield();
            ++(*c.recv() == 0 ? zeros : ones);
          }
        });
        for (int i = 0; i < n; ++i) select(send(c, 1), send(c, 0));
        s.wait();
        EXPECT_GT(zeros, n / 10) << "capacity " << cap << ", procs " << procs;
        EXPECT_GT(ones, n / 10) << "capacity " << cap << ", procs " << procs;
      }
    });
  }
}

// Two receives that stand on one channel when the value comes.
TEST(Conformance, SEL_04_pseudo_random_receive) {
  constexpr int n = 100;
  run_clean(with_procs(1), [] {
    const chan<int> c, other;
    int wins[2] = {};
    for (int i = 0; i < n; ++i) {
      const watched w([&] { ++wins[select(recv(c), recv(other), recv(c)) == 0 ? 0 : 1]; });
      ASSERT_TRUE(w.wait_parked());
      c.send(i);
      ASSERT_TRUE(w.wait_done());
    }
    EXPECT_GT(wins[0], n / 10);
    EXPECT_GT(wins[1], n / 10);
  });
}

// -- SEL-07: what blocks, what does not, what throws.

enum class expect { always_blocks, never_blocks };

void check(expect e, const char* what, std::function<void()> f) {
  const watched w(std::move(f));
  if (e == expect::never_blocks) {
    EXPECT_TRUE(w.wait_done()) << what;
    return;
  }
  EXPECT_TRUE(w.wait_parked()) << what;
  pause(10ms);
  EXPECT_FALSE(w.done()) << what;
}

TEST(Conformance, SEL_07_table) {
  goroutines_are_left_behind = true;
  weft::run([] {
    constexpr auto always = expect::always_blocks, never = expect::never_blocks;
    const chan<int> nil = nullptr;
    chan<int> closed;
    closed.close();

    check(always, "no cases", [] { weft::select(); });
    check(always, "empty selector", [] { selector().wait(); });
    check(always, "nil receive", [=] { select(recv(nil)); });
    check(always, "nil send", [=] { select(send(nil, 7)); });
    check(always, "only nil", [=] { select(recv(nil), send(nil, 7)); });
    check(always, "only nil in a selector", [=] { selector().recv(nil).send(nil, 7).wait(); });
    check(never, "nil and otherwise",
          [=] { EXPECT_EQ(select(recv(nil), send(nil, 7), otherwise()), 2); });
    check(never, "nil and a timeout",
          [=] { EXPECT_EQ(select(recv(nil), send(nil, 7), timeout(1ms)), 2); });

    check(always, "unready receive", [] { select(recv(chan<int>())); });
    check(always, "unready send", [] { select(send(chan<int>(), 7)); });
    check(always, "unready both", [] {
      const chan<int> a, b(10), c(10);
      for (int i = 0; i < 10; ++i) c.send(i);
      select(recv(a), send(a, 7), recv(b), send(c, 7));
    });
    check(never, "otherwise alone", [] { EXPECT_EQ(select(otherwise()), 0); });
    check(never, "unready and otherwise", [] {
      const chan<int> a, b(10), c(10);
      for (int i = 0; i < 10; ++i) c.send(i);
      EXPECT_EQ(select(recv(a), send(a, 7), recv(b), send(c, 7), otherwise()), 4);
      EXPECT_EQ(select(recv(a), otherwise()), 1);
      EXPECT_EQ(select(send(a, 1), otherwise()), 1);
      EXPECT_EQ(selector().recv(a).send(a, 7).otherwise().wait(), 2);
    });

    check(never, "buffered receive and send", [] {
      const chan<int> c(10);
      EXPECT_EQ(select(send(c, 7)), 0);
      EXPECT_EQ(select(recv(c)), 0);
    });
    check(never, "a nil case is never chosen", [=] {
      const chan<int> c(100);
      for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(select(recv(nil), send(nil, 1), send(c, 1), otherwise()), 2);
      }
      for (int i = 0; i < 100; ++i) EXPECT_EQ(select(send(nil, 1), recv(nil), recv(c)), 2);
    });
    check(always, "empty buffer", [] { select(recv(chan<int>(10))); });
    check(always, "full buffer", [] {
      const chan<int> c(10);
      for (int i = 0; i < 10; ++i) c.send(i);
      select(send(c, 7));
    });

    check(never, "closed is ready to be received from", [=] {
      for (int i = 0; i < 10; ++i) {
        const auto empty = [](std::optional<int> v) { EXPECT_FALSE(v); };
        EXPECT_EQ(select(recv(closed, empty)), 0);
        EXPECT_EQ(select(recv(closed, empty), otherwise()), 0);
        EXPECT_EQ(select(recv(nil), recv(closed, empty)), 1);
        EXPECT_EQ(select(recv(nil), recv(closed, empty), timeout(0s), otherwise()), 1);
      }
    });
    check(never, "a send on closed throws", [=] {
      EXPECT_THROW(select(send(closed, 7)), closed_channel);
      EXPECT_THROW(select(send(closed, 7), otherwise()), closed_channel);
      EXPECT_THROW(select(send(closed, 7), timeout(1h)), closed_channel);
      EXPECT_THROW(select(send(closed, 7), recv(nil)), closed_channel);
      EXPECT_THROW(select(send(closed, 7), recv(chan<int>())), closed_channel);
      EXPECT_THROW(selector().send(closed, 7).wait(), closed_channel);
    });
    check(never, "a close comes to a waiting send", [] {
      const chan<int> c, idle;
      go([c] {
        EXPECT_TRUE(eventually([&] { return sender_waits(c); }));
        c.close();
      });
      EXPECT_THROW(select(recv(idle), send(c, 1)), closed_channel);
    });
  });
}

// -- SEL-08

TEST(Conformance, SEL_08_every_operand_once) {
  run_clean([] {
    int evaluated = 0;
    const chan<int> nil = nullptr, ready(1);
    const auto channel = [&](const chan<int>& c) -> const chan<int>& {
      ++evaluated;
      return c;
    };
    const auto value = [&](int v) {
      ++evaluated;
      return v;
    };
    // 4 sends have two operands, 2 receives have one.
    EXPECT_EQ(select(send(channel(nil), value(1)), send(channel(nil), value(2)),
                     send(channel(ready), value(3)), send(channel(nil), value(4)),
                     recv(channel(nil)), recv(channel(nil))),
              2);
    EXPECT_EQ(evaluated, 10);
    EXPECT_EQ(ready.recv(), 3);
    evaluated = 0;
    EXPECT_EQ(select(send(channel(nil), value(1)), recv(channel(nil)), otherwise()), 2);
    EXPECT_EQ(evaluated, 3);
  });
}

TEST(Conformance, SEL_08_a_value_is_fixed_when_its_case_is_made) {
  run_clean([] {
    const chan<int> c(1);
    int v = 1;
    auto first = send(c, v);
    v = 2;
    EXPECT_EQ(select(first), 0);
    EXPECT_EQ(c.recv(), 1);
  });
}

TEST(Conformance, SEL_08_only_the_winner_is_handled) {
  run_clean([] {
    for (int i = 0; i < 100; ++i) {
      const chan<int> a(1), b(1), c(1);
      c.send(5);
      int out[4] = {};
      const int won = select(
          recv(a, [&](std::optional<int>) { ++out[0]; }), send(b, 6, [&] { ++out[1]; }),
          recv(c, [&](std::optional<int> v) { out[2] += *v; }), timeout(1h, [&] { ++out[3]; }));
      EXPECT_TRUE(won == 1 || won == 2);
      EXPECT_EQ(out[0], 0);
      EXPECT_EQ(out[1], won == 1 ? 1 : 0);
      EXPECT_EQ(out[2], won == 2 ? 5 : 0);
      EXPECT_EQ(out[3], 0);
      EXPECT_EQ(b.len(), won == 1 ? 1U : 0U);
      EXPECT_EQ(c.len(), won == 2 ? 0U : 1U);
    }
  });
}

// -- SEL-09

TEST(Conformance, SEL_09_nine_pairings) {
  using side = void (*)(const chan<int>&);
  static constexpr side receives[] = {[](const chan<int>& c) { (void)c.recv(); },
                                      [](const chan<int>& c) { select(recv(c)); },
                                      [](const chan<int>& c) {
                                        const chan<int> other;
                                        select(recv(other), recv(c));
                                      }};
  static constexpr side sends[] = {[](const chan<int>& c) { c.send(1); },
                                   [](const chan<int>& c) { select(send(c, 1)); },
                                   [](const chan<int>& c) {
                                     const chan<int> other;
                                     select(send(other, 1), send(c, 1));
                                   }};
  for (const int procs : {1, 2, 4}) {
    run_clean(with_procs(procs), [] {
      for (const side r : receives) {
        for (const side s : sends) {
          for (int i = 0; i < 100; ++i) {
            const chan<int> c;
            scope both;
            both.go([=] { r(c); });
            both.go([=] { s(c); });
            both.wait();
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace weft::test
