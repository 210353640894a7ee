// SPDX-License-Identifier: Apache-2.0
// STK: deep stacks, and slots on stacks that others write to. What overflows (STK-01, STK-05) is in
// tests/crash/stk_test.cc.
//
// STK-06 in Go is about stacks that move. Ours stay where they are; what remains is that somebody
// on another thread writes into the frame of one that is parked, and that pages given back after a
// deep call take nothing along that is in use.
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <gtest/gtest.h>
#include <numeric>
#include <string>
#include <thread>

#include "support/runtime.h"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

// Runs f on a goroutine with such a stack.
template <class F>
void on_stack_of(std::size_t bytes, F f) {
  chan<void> done;
  go({.stack_size = bytes}, [&] {
    f();
    done.close();
  });
  (void)done.recv();
}

// -- STK-02

// n frames, each with words of its own that must be there on the way back.
[[gnu::noinline]] std::uint64_t dive(int n,
                                     const chan<void>* also_park) {  // NOLINT(misc-no-recursion)
  std::array<volatile std::uint64_t, 8> mine;
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<std::uint64_t>(n) * 1000 + i;
  std::uint64_t below = 0;
  if (n > 0) {
    below = dive(n - 1, also_park);
  } else {
    EXPECT_EQ(debug::audit(), 0);  // stops the world
    if (also_park != nullptr) also_park->send();
  }
  std::uint64_t bad = 0;
  for (std::size_t i = 0; i < mine.size(); ++i)
    bad += mine[i] != static_cast<std::uint64_t>(n) * 1000 + i ? 1U : 0U;
  return below + bad;
}

constexpr std::size_t roomy = 8 * 1024 * 1024;
const int deepest = 1024, step = full_or(1, 16);

void dive_to_all_depths() {
  const chan<void> c;
  for (int n = 0; n < deepest; n += step) EXPECT_EQ(dive(n, nullptr), 0U) << n;
  wait_group others;
  others.go([&] {
    while (c.recv()) {
    }
  });
  for (int n = 0; n < deepest; n += 16 * step) EXPECT_EQ(dive(n, &c), 0U) << n;
  c.close();
  others.wait();
}

TEST(Conformance, STK_02_deep_in_a_goroutine) {
  run_clean([] { on_stack_of(roomy, dive_to_all_depths); });
}

TEST(Conformance, STK_02_deep_in_a_locked_goroutine) {
  run_clean([] {
    on_stack_of(roomy, [] {
      const os_thread_guard locked;
      dive_to_all_depths();
    });
  });
}

// Numbers as chains: n is what has n behind it. count() is as deep as its number is large.
class peano {
 public:
  struct number {
    const number* less_one;
  };
  using n = const number*;

  n fact(n x) {  // NOLINT(misc-no-recursion)
    return x == zero ? add1(zero) : mul(fact(x->less_one), x);
  }
  n gen(int k) { return k > 0 ? add1(gen(k - 1)) : zero; }  // NOLINT(misc-no-recursion)
  [[gnu::noinline]] static int count(n x) {                 // NOLINT(misc-no-recursion)
    if (x == zero) return 0;
    const volatile int below = count(x->less_one);  // volatile: else it is made a loop
    return below + 1;
  }

 private:
  static constexpr n zero = nullptr;
  n add1(n x) { return &all_.emplace_back(number{x}); }
  n add(n x, n y) {
    return y == zero ? x : add(add1(x), y->less_one);
  }                  // NOLINT(misc-no-recursion)
  n mul(n x, n y) {  // NOLINT(misc-no-recursion)
    return x == zero || y == zero ? zero : add(mul(x, y->less_one), x);
  }
  std::deque<number> all_;
};

TEST(Conformance, STK_02_unary_factorials) {
  constexpr int most = sanitized ? 7 : 9;
  run_clean([] {
    on_stack_of(256 * 1024 * 1024, [] {
      int expected = 1;
      for (int i = 0; i <= most; ++i) {
        expected *= i == 0 ? 1 : i;
        peano p;
        EXPECT_EQ(peano::count(p.fact(p.gen(i))), expected) << i << "!";
      }
    });
  });
}

// -- STK-06

// A deep call, whose pages are given back afterwards.
[[gnu::noinline]] int go_deep() {
  volatile char frame[100 * 1024];
  for (std::size_t i = 0; i < sizeof frame; i += 1024) frame[i] = 1;
  return frame[0];
}

// What stands round a slot, and what is in it: all of it must be as expected.
struct guarded {
  std::array<std::uint64_t, 16> before;
  std::string slot;
  std::array<std::uint64_t, 16> after;
  guarded() {
    before.fill(0xb3f04e);
    after.fill(0xaf7e4);
  }
  bool intact() const {
    return std::accumulate(before.begin(), before.end(), 0ULL) == 16 * 0xb3f04eULL &&
           std::accumulate(after.begin(), after.end(), 0ULL) == 16 * 0xaf7e4ULL;
  }
};

const int rounds = full_or(500, 50);
std::string word(int i) {
  return "a word that is too long for its own buffer " + std::to_string(i);
}

// The receivers' slots are filled by a plain thread.
TEST(Conformance, STK_06_slots_of_parked_receivers) {
  run_clean([] {
    const chan<std::string> c, selected;
    const chan<void> never;
    wait_group wg;
    wg.go([&] {
      for (int i = 0; i < rounds; ++i) {
        EXPECT_EQ(go_deep(), 1);
        guarded g;
        ASSERT_EQ(c.recv_for(g.slot, 1h), recv_status::ok);
        ASSERT_TRUE(g.intact());
        ASSERT_EQ(g.slot, word(i));
      }
    });
    wg.go([&] {
      for (int i = 0; i < rounds; ++i) {
        EXPECT_EQ(go_deep(), 1);
        guarded g;
        select(recv(never), recv(selected, [&](std::optional<std::string> v) { g.slot = *v; }));
        ASSERT_TRUE(g.intact());
        ASSERT_EQ(g.slot, word(i));
      }
    });
    std::thread writer([&] {
      for (int i = 0; i < rounds; ++i) {
        c.send(word(i));
        selected.send(word(i));
      }
    });
    wg.wait();
    blocking([&] { writer.join(); });
  });
}

// The senders' slots are emptied by a plain thread, which stops the world while they are parked.
TEST(Conformance, STK_06_slots_of_parked_senders) {
  run_clean([] {
    const chan<std::string> c, selected;
    const chan<void> never;
    wait_group wg;
    wg.go([&] {
      for (int i = 0; i < rounds; ++i) {
        EXPECT_EQ(go_deep(), 1);
        guarded g;
        g.slot = word(i);
        c.send(std::move(g.slot));
        ASSERT_TRUE(g.intact());
      }
    });
    wg.go([&] {
      for (int i = 0; i < rounds; ++i) {
        EXPECT_EQ(go_deep(), 1);
        guarded g;
        g.slot = word(i);
        select(recv(never), send(selected, std::move(g.slot)));
        ASSERT_TRUE(g.intact());
      }
    });
    std::thread reader([&] {
      for (int i = 0; i < rounds; ++i) {
        if (i % 50 == 0) {
          EXPECT_EQ(debug::audit(), 0);
        }
        EXPECT_EQ(c.recv(), word(i));
        EXPECT_EQ(selected.recv(), word(i));
      }
    });
    wg.wait();
    blocking([&] { reader.join(); });
  });
}

}  // namespace
}  // namespace weft::test
