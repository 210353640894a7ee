// SPDX-License-Identifier: Apache-2.0
// How goroutines begin and end: in crowds, in scopes that throw, by goexit, with results, deep in a
// recursion whose stack pages must come back, in a bubble of their own.
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include <weft/context.hpp>
#include <weft/go.hpp>
#include <weft/sync.hpp>
#include <weft/testing.hpp>
#include <weft/time.hpp>

#include "soak/soak.h"

namespace weft::soak {
namespace {

std::uint64_t crowd(lane& l) {
  const std::uint32_t n =
      static_cast<std::uint32_t>(test::scaled(200 + static_cast<int>(l.r.below(800))));
  std::atomic<std::uint32_t> ran{0};
  wait_group wg;
  for (std::uint32_t i = 0; i < n; ++i) {
    wg.go([&, i] {
      if (i % 16 == 0) weft::yield();
      if (i % 64 == 0) wg.go([&] { ++ran; });
      ++ran;
    });
  }
  wg.wait();
  l.check(ran == n + (n + 63) / 64, "a goroutine ran twice or not at all");
  return ran;
}

struct thrown : std::runtime_error {
  std::uint64_t who;
  explicit thrown(std::uint64_t w) : std::runtime_error("thrown on purpose"), who(w) {}
};

// One throws, the others are told by their context; the exception arrives, once.
std::uint64_t scopes(lane& l) {
  const std::uint64_t who = l.r.next();
  const std::uint32_t n = 2 + l.r.below(6);
  const std::uint32_t culprit = l.r.below(n + 1);  // n: nobody
  std::atomic<std::uint32_t> ended{0}, told{0};
  bool caught = false;
  {
    scope s(background(), l.chance(3) ? n : 0);
    for (std::uint32_t i = 0; i < n; ++i) {
      s.go([&, i, ctx = s.context()] {
        struct guard {
          std::atomic<std::uint32_t>& n;
          ~guard() { ++n; }
        } g{ended};
        if (i == culprit) {
          try {
            weft::yield();
            throw thrown(who);
          } catch (const thrown&) {
            weft::yield();  // in a handler, perhaps to another thread
            throw;
          }
        }
        if (culprit < n) {
          ctx.done().recv();
          ++told;
        }
      });
    }
    try {
      s.wait();
    } catch (const thrown& e) {
      caught = e.who == who;
    }
  }
  l.check(ended == n, "a scope that did not wait");
  l.check(caught == (culprit < n), "the exception of a scope");
  l.check(culprit == n || told == n - 1, "a scope's context");
  return n;
}

std::uint64_t tasks(lane& l) {
  const std::uint64_t v = l.r.next();
  std::vector<task<std::uint64_t>> all;
  for (int i = 0; i < 12; ++i) {
    all.push_back(async([v, i]() -> std::uint64_t {
      if (i % 3 == 0) weft::yield();
      if (i % 4 == 1) throw thrown(v);
      if (i % 4 == 2) goexit();
      return v;
    }));
  }
  for (int i = 0; i < 12; ++i) {
    int how = 0;
    try {
      l.check(all[static_cast<std::size_t>(i)].get() == v, "the result of a task");
    } catch (const thrown& e) {
      how = e.who == v ? 1 : -1;
    } catch (const goexited&) {
      how = 2;
    }
    l.check(how == (i % 4 == 3 ? 0 : i % 4), "how a task ended");
  }
  promise<std::uint64_t> p;
  task<std::uint64_t> t = p.get_task();
  go([p = std::move(p), v]() mutable { p.set_value(v); });
  l.check(t.get() == v, "the value of a promise");
  return 13;
}

// Destructors run, those of goroutine locals too, and catch (...) does not keep it.
std::uint64_t exits(lane& l) {
  static local<std::uint64_t> mine([] { return std::uint64_t{5}; });
  std::atomic<int> destroyed{0}, wrong{0};
  wait_group wg;
  constexpr int n = 10;
  for (int i = 0; i < n; ++i) {
    wg.go([&, i] {
      struct guard {
        std::atomic<int>& n;
        ~guard() {
          weft::yield();  // while it unwinds
          ++n;
        }
      } outer{destroyed};
      if (*mine != 5) ++wrong;
      *mine = static_cast<std::uint64_t>(i);
      weft::yield();
      if (*mine != static_cast<std::uint64_t>(i)) ++wrong;
      try {
        const guard inner{destroyed};
        goexit();
      } catch (const std::exception&) {
        ++wrong;
      }
    });
  }
  wg.wait();
  l.check(destroyed == 2 * n, "goexit left out a destructor");
  l.check(wrong == 0, "a goroutine local, or a handler that goexit went into");
  return n;
}

// Until it has used so many bytes of its stack.
__attribute__((noinline)) std::uint64_t descend(const char* top, std::size_t bytes) {
  volatile char room[800];
  room[0] = 1;
  const auto* here = const_cast<const char*>(room);
  if (static_cast<std::size_t>(top - here) > bytes) {
    weft::yield();  // some stay down there for a while
    return static_cast<std::uint64_t>(room[0]);
  }
  return descend(top, bytes) + static_cast<std::uint64_t>(room[0]);
}

std::uint64_t recursion(lane& l) {
  std::atomic<std::uint64_t> frames{0};
  wait_group wg;
  const int n = 2 + static_cast<int>(l.r.below(6));
  for (int i = 0; i < n; ++i) {
    const std::size_t size = l.chance(2) ? 256U * 1024 : (1024U * 1024) << l.r.below(2);
    wg.add();
    go({.stack_size = size}, [&, size] {
      const char top = 0;
      frames += descend(&top, size / 2);
      wg.done();
    });
  }
  wg.wait();
  l.check(frames > static_cast<std::uint64_t>(n) * 50, "a recursion came back early");
  return frames;
}

// The same seed, the same order, whatever goes on outside; time there is another.
std::uint64_t bubbles(lane& l) {
  const std::uint64_t seed = l.r.next();
  const auto once_over = [&] {
    return testing::bubble(seed, [] {
      std::uint64_t order = 0;
      wait_group wg;
      for (std::uint64_t i = 1; i <= 6; ++i) {
        wg.go([&order, i] {
          weft::yield();
          order = order * 7 + i;
          weft::sleep_for(std::chrono::hours(i));
          order = order * 7 + i;
        });
      }
      wg.wait();
      return order;
    });
  };
  l.check(once_over() == once_over(), "two bubbles of one seed");
  weft::sleep_for(5ms);
  return 12;
}

}  // namespace

std::span<const workload> life_workloads() {
  static constexpr workload all[] = {
      {"spawn", 2, crowd},  {"scope", 2, scopes},        {"task", 1, tasks},
      {"goexit", 1, exits}, {"recursion", 1, recursion}, {"bubble", 1, bubbles},
  };
  return all;
}

}  // namespace weft::soak
