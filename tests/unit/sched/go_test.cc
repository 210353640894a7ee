// SPDX-License-Identifier: Apache-2.0
// weft::go, spawn_options, yield, goid, num_goroutines: what a goroutine is started with and what
// it keeps to itself. Long because go takes so many kinds of callables, closures and stacks.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cfenv>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "core/current.h"
#include "support/chaos.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace sched_test;

class Go : public GoTest {};

// -- arguments

TEST_F(Go, CopiesItsArgumentsAtTheCall) {
  run_on_each([] {
    int seen = 0;
    std::string text_seen;
    event done;
    int x = 1;
    std::string text = "before";
    weft::go(
        [&](int v, std::string t) {
          seen = v;
          text_seen = t;
          done.set();
        },
        x, text);
    x = 2;
    text = "after";
    done.wait();
    EXPECT_EQ(seen, 1);
    EXPECT_EQ(text_seen, "before");
  });
}

TEST_F(Go, EvaluatesItsArgumentsAtTheCall) {
  run_on(1, [] {
    int calls = 0, seen = 0;
    const auto next = [&calls] { return ++calls; };
    event done;
    weft::go(
        [&](int v) {
          seen = v;
          done.set();
        },
        next());
    EXPECT_EQ(calls, 1);  // before the goroutine has run at all
    EXPECT_EQ(seen, 0);
    done.wait();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(seen, 1);
  });
}

TEST_F(Go, DecaysArraysAndFunctionsAndLetsReferencesThrough) {
  run_on(2, [] {
    event done;
    int target = 0;
    weft::go(
        [&done](auto text, auto fn, int& by_ref) {
          static_assert(std::is_same_v<decltype(text), const char*>);
          static_assert(std::is_same_v<decltype(fn), int (*)(int)>);
          by_ref = fn(text[0]);
          done.set();
        },
        "a", +[](int c) { return c + 1; }, std::ref(target));
    done.wait();
    EXPECT_EQ(target, 'b');
  });
}

TEST_F(Go, TakesMoveOnlyFunctionsAndArguments) {
  run_on(2, [] {
    event done;
    int sum = 0;
    weft::go(
        [&, owned = std::make_unique<int>(1)](std::unique_ptr<int> p) {
          sum = *owned + *p;
          done.set();
        },
        std::make_unique<int>(2));
    done.wait();
    EXPECT_EQ(sum, 3);
  });
}

TEST_F(Go, MovesArgumentsIntoTheCall) {
  run_on(1, [] {
    event done;
    const counted c(5);
    int seen = 0;
    weft::go(
        [&](counted v) {  // by value: moved from the goroutine's copy
          seen = v.value;
          done.set();
        },
        c);
    EXPECT_EQ(counted::copies, 1);
    done.wait();
    EXPECT_EQ(seen, 5);
    EXPECT_EQ(counted::copies, 1);
  });
}

TEST_F(Go, DropsTheResult) {
  struct result : counted {
    event* destroyed;
    explicit result(event* e) : destroyed(e) {}
    result(result&&) = delete;
    ~result() { destroyed->set(); }
  };
  run_on(2, [] {
    event destroyed;
    weft::go([&] { return result(&destroyed); });
    destroyed.wait();
  });
}

TEST_F(Go, CallsMembers) {
  struct machine {
    std::atomic<int> sum{0};
    event done;
    int data = 3;
    void add(int n, int m) {
      sum += n * m;
      done.set();
    }
  };
  run_on(2, [] {
    machine m;
    weft::go(&machine::add, &m, 6, 7);
    m.done.wait();
    EXPECT_EQ(m.sum, 42);
    auto shared = std::make_shared<machine>();
    weft::go(&machine::add, shared, 2, 3);
    shared->done.wait();
    EXPECT_EQ(shared->sum, 6);
    machine by_ref;
    weft::go(&machine::add, std::ref(by_ref), 1, 1);
    by_ref.done.wait();
    EXPECT_EQ(by_ref.sum, 1);
    weft::go(&machine::data, &m);  // a data member: looked at and dropped
  });
}

void add_to(std::atomic<int>* sum, int n) { sum->fetch_add(n); }

TEST_F(Go, TakesAPlainFunction) {  // no warning either: it has an address that is never null
  run_on(1, [] {
    std::atomic<int> sum{0};
    scope s;
    s.go(add_to, &sum, 1);
    s.go(&add_to, &sum, 2);
    weft::go(add_to, &sum, 4);
    s.wait();
    while (sum.load() != 7) yield();
  });
}

TEST_F(Go, CallsFunctionsAndFunctionObjects) {
  run_on(2, [] {
    static event plain;
    static void (*const function)() = [] { plain.set(); };
    weft::go(function);
    plain.wait();
    event done;
    weft::go(std::function<void()>([&] { done.set(); }));
    done.wait();
    struct once {
      event& e;
      void operator()() && { e.set(); }  // called as an rvalue
    };
    event rvalue;
    weft::go(once{rvalue});
    rvalue.wait();
  });
}

// -- closures of all sizes

template <std::size_t N>
struct load {
  std::array<unsigned char, N> bytes;
  counted c;
  load() {
    for (std::size_t i = 0; i < N; ++i) bytes[i] = static_cast<unsigned char>(i * 7);
  }
  bool whole() const {
    for (std::size_t i = 0; i < N; ++i) {
      if (bytes[i] != static_cast<unsigned char>(i * 7)) return false;
    }
    return true;
  }
};

template <std::size_t N>
void carries() {
  bool whole = false;
  event done;
  const auto what = std::make_unique<load<N>>();
  weft::go([&whole, &done, l = *what] {
    whole = l.whole();
    weft::yield();
    whole = whole && l.whole();
    done.set();
  });
  done.wait();
  EXPECT_TRUE(whole) << N;
}

TEST_F(Go, CarriesClosuresOfAnySize) {
  run_on(2, [] {
    carries<1>();
    carries<100>();
    carries<4096>();
    carries<16 * 1024 - 64>();  // on the goroutine's stack
    carries<16 * 1024>();
    carries<16 * 1024 + 1>();  // too big for it
    carries<100'000>();
    carries<1'000'000>();
  });
}

template <std::size_t Align, std::size_t Size>
void keeps_alignment() {
  struct alignas(Align) aligned {
    char bytes[Size] = {};
  };
  for (int i = 0; i < 20; ++i) {  // stack tops differ by their colour
    std::uintptr_t at = 1;
    event done;
    weft::go([&at, &done, a = aligned{}] {
      at = reinterpret_cast<std::uintptr_t>(&a) % Align;
      done.set();
    });
    done.wait();
    EXPECT_EQ(at, 0U) << Align << " of " << Size;
  }
}

TEST_F(Go, KeepsTheAlignmentOfItsClosure) {
  run_on(1, [] {
    keeps_alignment<16, 8>();
    keeps_alignment<32, 40>();
    keeps_alignment<64, 64>();
    keeps_alignment<128, 1>();
    keeps_alignment<4096, 5000>();
    keeps_alignment<64, 20'000>();  // boxed
  });
}

TEST_F(Go, AlignsTheStackBelowOddClosures) {
  run_on(1, [] {
    const auto check = [](auto closure) {
      event done;
      std::uintptr_t misalignment = 1;
      weft::go([&, closure] {
        (void)closure;
        alignas(16) volatile char local[16] = {};  // SSE code counts on the ABI's alignment
        misalignment = reinterpret_cast<std::uintptr_t>(&local[0]) % 16;
        done.set();
      });
      done.wait();
      EXPECT_EQ(misalignment, 0U);
    };
    check(std::array<char, 1>{});
    check(std::array<char, 3>{});
    check(std::array<char, 8>{});
    check(std::array<char, 17>{});
    check(std::array<char, 129>{});
  });
}

// -- what throws on the way in

TEST_F(Go, AThrowingCopyLeavesNothingBehind) {
  run_on_each([] {
    const counted c(1);
    for (int i = 0; i < 300; ++i) {  // more than any free list: a shell lost each time would show
      counted::copies_until_throw = 0;
      EXPECT_EQ(thrown_by([&] { weft::go([c] {}); }),
                "copy refused");  // in the caller's own lambda
      counted::copies_until_throw = 0;
      EXPECT_EQ(thrown_by([&] { weft::go([](const counted&) {}, c); }),
                "copy refused");  // inside go
      counted::copies_until_throw = 1;
      EXPECT_EQ(thrown_by([&] { weft::go([](auto&&...) {}, c, c); }),
                "copy refused");  // the second argument
      counted::copies_until_throw = 0;
      EXPECT_EQ(thrown_by([&] {
                  weft::go(
                      {.name = "never"}, [](const counted&) {}, c);
                }),
                "copy refused");
      counted::copies_until_throw = 0;
      EXPECT_EQ(thrown_by([&] {
                  weft::go(
                      {.stack_size = 1 << 20}, [](const counted&) {}, c);
                }),
                "copy refused");
      counted::copies_until_throw = 0;
      EXPECT_EQ(thrown_by([&] { weft::go([](auto&&...) {}, c, std::array<char, 20'000>{}); }),
                "copy refused");
      counted::copies_until_throw = 0;
      EXPECT_EQ(thrown_by([&] { (void)weft::async([](const counted&) {}, c); }), "copy refused");
    }
    counted::copies_until_throw = -1;
    EXPECT_EQ(counted::alive, 1);
    EXPECT_EQ(num_goroutines(), 1U);
    event done;
    weft::go([&](const counted&) { done.set(); }, c);  // as if nothing had happened
    done.wait();
  });
}

TEST_F(Go, ACopyMayParkAndSpawn) {
  // User code between taking a goroutine and starting it: it may run anything.
  struct busy_copy {
    std::atomic<int>* spawned;
    explicit busy_copy(std::atomic<int>* s) : spawned(s) {}
    busy_copy(const busy_copy& o) : spawned(o.spawned) {
      auto t = weft::async([s = spawned] { ++*s; });
      weft::yield();
      t.wait();
    }
  };
  run_on_each([] {
    std::atomic<int> spawned{0};
    const busy_copy b(&spawned);
    for (int i = 0; i < 50; ++i) {
      event done;
      weft::go([&](const busy_copy&) { done.set(); }, b);
      done.wait();
    }
    EXPECT_EQ(spawned, 50);
  });
}

// -- the start is clean

__attribute__((noinline)) int get_errno() { return errno; }
__attribute__((noinline)) void set_errno(int e) { errno = e; }

TEST_F(Go, ErrnoBelongsToTheGoroutine) {
  run_on_each([] {
    scope s;
    for (int i = 1; i <= 50; ++i) {
      s.go([i] {
        EXPECT_EQ(get_errno(), 0);
        for (int k = 0; k < 50; ++k) {
          set_errno(i);
          weft::yield();
          EXPECT_EQ(get_errno(), i);
        }
      });
    }
  });
}

TEST_F(Go, StartsOutsideOfItsCreatorsExceptions) {
  run_on(1, [] {
    struct at_unwind {
      int* uncaught;
      bool* current;
      ~at_unwind() {
        weft::async([this] {
          *uncaught = std::uncaught_exceptions();
          *current = std::current_exception() != nullptr;
        }).get();
      }
    };
    int uncaught = -1;
    bool current = true;
    try {
      at_unwind u{&uncaught, &current};
      throw std::runtime_error("x");
    } catch (const std::runtime_error&) {
      bool in_handler = true;
      weft::async([&] { in_handler = std::current_exception() != nullptr; }).get();
      EXPECT_FALSE(in_handler);
      EXPECT_NE(std::current_exception(), nullptr);
    }
    EXPECT_EQ(uncaught, 0);
    EXPECT_FALSE(current);
    EXPECT_EQ(std::uncaught_exceptions(), 0);
  });
}

__attribute__((noinline)) int rounding() { return std::fegetround(); }

TEST_F(Go, TheFloatingPointEnvironmentBelongsToTheGoroutine) {
  run_on_each([] {
    std::fesetround(FE_UPWARD);
    scope s;
    for (int mode : {FE_DOWNWARD, FE_TOWARDZERO, FE_UPWARD, FE_TONEAREST}) {
      s.go([mode] {
        EXPECT_EQ(rounding(), FE_TONEAREST);  // whatever the creator has set
        std::fesetround(mode);
        for (int i = 0; i < 50; ++i) {
          weft::yield();
          EXPECT_EQ(rounding(), mode);
        }
      });
    }
    s.wait();
    EXPECT_EQ(rounding(), FE_UPWARD);
    std::fesetround(FE_TONEAREST);
  });
}

// -- spawn_options

std::string own_name() {
  const rt::G* g = rt::current_g();
  return g->named ? g->name : "";
}

// -- a stack is bound at the first switch, not at the spawn

TEST_F(Go, ABurstNeedsNoStacksUntilItRuns) {
  config c = test::with_procs(1);
  c.preempt = false;  // none is to run before main waits, however slow the machine
  test::run_clean(c, [] {
    constexpr int n = 20'000;
    std::atomic<int> ran{0};
    const auto before = debug::runtime_stats().stacks;
    scope s;
    for (int i = 0; i < n; ++i) s.go([&ran] { ran.fetch_add(1, std::memory_order_relaxed); });
    EXPECT_EQ(ran.load(), 0);
    s.wait();
    EXPECT_EQ(ran.load(), n);
    EXPECT_LT(debug::runtime_stats().stacks, before + 100);
  });
}

TEST_F(Go, NothingIsInheritedFromWhoeverUsedTheStackBefore) {
  run_on_each([] {
    constexpr int n = 400;
    std::atomic<int> wrong{0};
    scope s;
    for (int i = 0; i < n; ++i) {
      if (i % 2 == 0) {
        s.go([] {
          static local<int> mine([] { return 1; });
          *mine = 2;
          errno = EDOM;
          std::fesetround(FE_UPWARD);
          try {
            throw 1;
          } catch (int) {
          }
        });
      } else {
        s.go([&wrong] {
          if (errno != 0 || std::fegetround() != FE_TONEAREST) ++wrong;
          if (std::uncaught_exceptions() != 0 || std::current_exception() != nullptr) ++wrong;
        });
      }
    }
    s.wait();
    EXPECT_EQ(wrong.load(), 0);
  });
}

TEST_F(Go, ClosuresOfTheSizeThatJustFitsAndOneMore) {
  run_on_each([] {
    std::atomic<int> sum{0};
    scope s;
    const auto of_size = [&]<std::size_t size>(std::integral_constant<std::size_t, size>) {
      std::array<unsigned char, size> bytes;
      bytes.fill(static_cast<unsigned char>(size));
      s.go([bytes, &sum] {
        int n = 0;
        for (unsigned char b : bytes) n += b == size;
        sum += n == size;
      });
    };
    of_size(std::integral_constant<std::size_t, 8>{});
    of_size(std::integral_constant<std::size_t, 24>{});
    of_size(std::integral_constant<std::size_t, 25>{});
    of_size(std::integral_constant<std::size_t, 32>{});
    of_size(std::integral_constant<std::size_t, 33>{});
    of_size(std::integral_constant<std::size_t, 40>{});
    of_size(std::integral_constant<std::size_t, 48>{});
    s.wait();
    EXPECT_EQ(sum.load(), 7);
  });
}

TEST_F(Go, GoexitAndExceptionsOnStacksThatWereTakenOver) {
  run_on_each([] {
    std::atomic<int> destroyed{0}, after{0};
    scope s;
    for (int i = 0; i < 300; ++i) {
      s.go([&destroyed, &after, i] {
        struct counts {
          std::atomic<int>& n;
          ~counts() { ++n; }
        } c{destroyed};
        if (i % 3 == 0) weft::goexit();
        if (i % 3 == 1) weft::yield();
        ++after;
      });
    }
    s.wait();
    EXPECT_EQ(destroyed.load(), 300);
    EXPECT_EQ(after.load(), 200);
  });
}

TEST_F(Go, NameIsCopiedAndCutOff) {
  run_on(1, [] {
    std::string seen, long_seen, unnamed = "?";
    event done;
    {
      std::string name = "first";
      weft::go({.name = name}, [&] { seen = own_name(); });
      name.assign(name.size(), 'x');
    }
    const std::string long_name(1000, 'n');
    weft::go({.name = long_name}, [&] { long_seen = own_name(); });
    weft::go([&] {
      unnamed = own_name();
      done.set();
    });
    done.wait();
    while (seen.empty() || long_seen.empty()) weft::yield();
    EXPECT_EQ(seen, "first");
    EXPECT_EQ(long_seen, std::string(sizeof rt::G::name - 1, 'n'));
    EXPECT_EQ(unnamed, "");
  });
}

TEST_F(Go, ANameGoesWithItsGoroutine) {
  run_on(1, [] {
    for (int i = 0; i < 200; ++i) {  // shells are used again
      std::string seen = "?";
      event done;
      weft::go({.name = "named"}, [&] { done.set(); });
      done.wait();
      weft::yield();
      event second;
      weft::go([&] {
        seen = own_name();
        second.set();
      });
      second.wait();
      ASSERT_EQ(seen, "");
    }
  });
}

// Uses the stack down to `room` bytes above its end, frame by frame, and touches all of it.
__attribute__((noinline)) std::size_t use_stack(std::uintptr_t lo, std::size_t room) {
  volatile char frame[1024];
  for (std::size_t i = 0; i < sizeof frame; i += 64) frame[i] = static_cast<char>(i);
  const auto here = reinterpret_cast<std::uintptr_t>(&frame[0]);
  std::size_t depth = 1;
  if (here - lo > room) depth += use_stack(lo, room);
  return depth + static_cast<std::size_t>(frame[0]);
}

constexpr std::size_t kib = 1024, mib = 1024 * kib;

// What a goroutine has below its first frame, used to the last 16 KiB.
std::size_t use_own_stack() {
  const rt::stack& s = rt::current_g()->stk;
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  use_stack(s.lo, 16 * kib);
  return here - s.lo;
}

TEST_F(Go, StackSizesAreThereToBeUsed) {
  run_on(2, [] {
    for (std::size_t size : {64 * kib, 100 * kib, 128 * kib, 256 * kib, 300 * kib, 512 * kib,
                             1 * mib, 2 * mib, 3 * mib, 4 * mib, 8 * mib}) {
      // Up to 256 KiB the 64 KiB guard is part of the size, with 64 KiB of stack at least
      // (stack.h).
      const std::size_t least = size <= 256 * kib ? std::max(64 * kib, size - 64 * kib) : size;
      for (int i = 0; i < 3; ++i) {
        std::size_t got = 0;
        event done;
        weft::go({.stack_size = size}, [&] {
          got = use_own_stack();
          done.set();
        });
        done.wait();
        EXPECT_GE(got, least - 8 * kib) << size;
        EXPECT_LT(got, 2 * least + 64 * kib) << size;
      }
    }
  });
}

TEST_F(Go, DifferentStackSizesAtOnce) {
  run_on_each([] {
    scope s;
    for (int i = 0; i < 40; ++i) {
      s.go([i] {
        event done;
        weft::go({.stack_size = (static_cast<std::size_t>(i) % 4 + 1) * 256 * kib}, [&] {
          weft::yield();
          use_own_stack();
          done.set();
        });
        done.wait();
      });
    }
  });
}

TEST_F(Go, AnImpossibleStackSizeThrows) {
  run_on(1, [] {
    const counted c(1);
    EXPECT_THROW(
        weft::go(
            {.stack_size = std::numeric_limits<std::size_t>::max()}, [](const counted&) {}, c),
        std::bad_alloc);
    EXPECT_EQ(num_goroutines(), 1U);
  });
}

TEST_F(Go, TheConfigsStackSizeIsUsed) {
  for (std::size_t size : {64 * kib, 256 * kib, 1 * mib, 256 * kib}) {  // and changes between runs
    config c;
    c.procs = 1;
    c.stack_size = size;
    std::size_t got = 0;
    run(c, [&] { got = weft::async(&use_own_stack).get(); });
    const std::size_t least = size <= 256 * kib ? std::max(64 * kib, size - 64 * kib) : size;
    EXPECT_GE(got, least - 8 * kib) << size;
    EXPECT_LT(got, 2 * least + 64 * kib) << size;
  }
}

// -- identity and number

TEST_F(Go, GoidIsUniqueAndStays) {
  EXPECT_EQ(goid(), 0U);
  run_on_each([] {
    EXPECT_EQ(goid(), 1U);
    std::mutex m;
    std::set<std::uint64_t> ids;
    {
      scope s;
      for (int i = 0; i < 1000; ++i) {
        s.go([&] {
          const std::uint64_t id = goid();
          weft::yield();
          EXPECT_EQ(goid(), id);
          std::lock_guard hold(m);
          ids.insert(id);
        });
      }
    }
    EXPECT_EQ(ids.size(), 1000U);
    EXPECT_GT(*ids.begin(), 1U);
    std::uint64_t on_thread = 1;
    std::thread([&] { on_thread = goid(); }).join();
    EXPECT_EQ(on_thread, 0U);
    EXPECT_EQ(goid(), 1U);
  });
}

TEST_F(Go, NumGoroutinesCountsThoseAlive) {
  EXPECT_EQ(num_goroutines(), 0U);
  run_on_each([] {
    EXPECT_EQ(num_goroutines(), 1U);
    event stop;
    {
      scope s;
      for (std::size_t i = 1; i <= 100; ++i) {
        s.go([&] { stop.wait(); });
        EXPECT_EQ(num_goroutines(), 1 + i);
      }
      std::size_t from_thread = 0;
      std::thread([&] { from_thread = num_goroutines(); }).join();
      EXPECT_EQ(from_thread, 101U);
      stop.set();
    }
    EXPECT_TRUE(alone());
  });
  EXPECT_EQ(num_goroutines(), 0U);
}

// -- yield

TEST_F(Go, YieldGoesRoundInOrder) {
  const test::order_matters here("in order");
  run_unpreempted(1, [] {
    std::vector<int> order;
    scope s;
    for (int i = 0; i < 5; ++i) {
      s.go([&order, i] {
        for (int k = 0; k < 3; ++k) {
          order.push_back(i);
          weft::yield();
        }
      });
    }
    s.wait();
    ASSERT_EQ(order.size(), 15U);
    // Whoever comes first, each round has everybody once, and the rounds are alike.
    for (int round = 0; round < 3; ++round) {
      const auto at = order.begin() + round * 5;
      EXPECT_EQ(std::set<int>(at, at + 5).size(), 5U);
      EXPECT_TRUE(std::equal(at, at + 5, order.begin()));
    }
  });
}

TEST_F(Go, YieldLetsEverybodyHaveATurn) {
  const test::order_matters here("whose turn it is");
  // More than the ring holds: the rest wait in the global queue, and one who yields must not come
  // round before them.
  run_unpreempted(1, [] {
    constexpr int n = 1000;
    std::vector<int> turns(n);
    std::atomic<bool> stop{false};
    scope s;
    for (int i = 0; i < n; ++i) {
      s.go([&, i] {
        while (!stop) {
          ++turns[static_cast<std::size_t>(i)];
          weft::yield();
        }
      });
    }
    for (int round = 0; round < 20; ++round) {
      weft::yield();
      const auto [least, most] = std::minmax_element(turns.begin(), turns.end());
      EXPECT_GE(*least, round) << "round " << round;
      EXPECT_LE(*most, *least + 3) << "round " << round;
    }
    stop = true;
  });
}

TEST_F(Go, TheFirstYieldOfMainGivesWay) {
  run_unpreempted(1, [] {
    event ran;
    weft::go([&] { ran.set(); });
    weft::yield();
    EXPECT_TRUE(ran.is_set());
    ran.wait();
  });
}

TEST_F(Go, AYieldAtTheEndOfTheSliceGivesWay) {
  const test::order_matters here("whose turn it is");
  run_unpreempted(1, [] {
    weft::yield();
    for (int round = 0; round < 3; ++round) {
      event ran;
      rt::current_m()->p->preempt.store(1);  // what sysmon does
      weft::go([&] { ran.set(); });
      weft::yield();
      EXPECT_TRUE(ran.is_set());
      ran.wait();
    }
  });
}

// The same for one who lies in the global queue: a plain thread has started it.
TEST_F(Go, AYieldAtTheEndOfTheSliceGivesWayToTheGlobalQueue) {
  const test::order_matters here("whose turn it is");
  run_unpreempted(1, [] {
    for (int round = 0; round < 3; ++round) {
      event ran;
      std::atomic<bool> queued{false};
      std::thread other([&] {
        weft::go([&] { ran.set(); });
        queued = true;
      });
      while (!queued) rt::cpu_relax();  // awake: asleep we would lose our P
      rt::current_m()->p->preempt.store(1);
      weft::yield();
      EXPECT_TRUE(ran.is_set());
      ran.wait();
      other.join();
    }
  });
}

TEST_F(Go, YieldOnAPlainThreadIsHarmless) { weft::yield(); }

TEST_F(Go, ManyAtOnce) {
  run_on_each([] {
    constexpr int n = tsan ? 3000 : 20'000;
    std::atomic<int> ran{0};
    scope s;
    for (int i = 0; i < n; ++i) s.go([&] { ++ran; });
    s.wait();
    EXPECT_EQ(ran, n);
  });
}

TEST_F(Go, GrandchildrenOfGrandchildren) {
  run_on_each([] {
    std::atomic<int> ran{0};
    scope s;
    struct tree {
      static void grow(scope& in, std::atomic<int>& count, int depth) {
        ++count;
        if (depth == 0) return;
        for (int i = 0; i < 3; ++i) in.go(&tree::grow, std::ref(in), std::ref(count), depth - 1);
      }
    };
    s.go(&tree::grow, std::ref(s), std::ref(ran), 6);
    s.wait();
    EXPECT_EQ(ran, (2187 - 1) / 2);
  });
}

// -- from plain threads, while a run is on

TEST_F(Go, PlainThreadsMaySpawn) {
  run_on_each([] {
    constexpr int threads = 4, each = 200;
    std::atomic<int> ran{0};
    std::vector<std::thread> ts;
    event all;
    for (int t = 0; t < threads; ++t) {
      ts.emplace_back([&] {
        for (int i = 0; i < each; ++i) {
          weft::go([&] {
            if (++ran == threads * each) all.set();
          });
        }
      });
    }
    all.wait();
    for (auto& t : ts) t.join();
    EXPECT_EQ(ran, threads * each);
  });
}

}  // namespace
}  // namespace weft
