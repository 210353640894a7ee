// SPDX-License-Identifier: Apache-2.0
// SPN: spawn and exit. What ends the process (SPN-02, -05, -08, -10 and the uncaught part of -04)
// is in tests/crash.
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/current.h"
#include "support/chan.h"
#include "support/migrate.h"
#include "support/runtime.h"
#include "weft/go.hpp"

namespace weft::test {
namespace {

TEST(Conformance, SPN_01_chain_of_10000) {
  constexpr int n = under_tsan ? 1'000 : 10'000;  // its clocks make it the square
  run_clean([] {
    std::deque<chan<int>> links(n + 1);
    for (int i = 0; i < n; ++i) {
      go([&left = links[static_cast<std::size_t>(i)],
          &right = links[static_cast<std::size_t>(i) + 1]] { left.send(right.recv().value()); });
    }
    go([&last = links.back()] { last.send(1); });
    EXPECT_EQ(links.front().recv(), 1);
    EXPECT_TRUE(eventually([] { return num_goroutines() == 1; }));  // links are ours
  });
}

// -- SPN-03

struct observations {
  std::vector<std::string> order;
  bool in_flight = false;
};

class cleanup {
 public:
  cleanup(observations& o, std::string name) : o_(o), name_(std::move(name)) {}
  ~cleanup() {
    o_.order.push_back(name_);
    if (std::uncaught_exceptions() != 0 || std::current_exception() != nullptr) o_.in_flight = true;
  }

 private:
  observations& o_;
  std::string name_;
};

template <int Depth>
[[gnu::noinline]] void goexit_below(observations& o) {
  const cleanup c(o, "frame " + std::to_string(Depth));
  if constexpr (Depth == 0) {
    goexit();
  } else {
    goexit_below<Depth - 1>(o);
    o.order.push_back("behind");
  }
}

TEST(Conformance, SPN_03_goexit_runs_every_cleanup) {
  run_clean([] {
    observations o;
    auto captured = std::make_shared<int>(0);
    {
      scope s;
      s.go([&o, captured] {
        const cleanup outer(o, "outer");
        try {
          const cleanup in_try(o, "in try");
          goexit_below<2>(o);
        } catch (const std::exception&) {
          o.order.push_back("typed handler");
        }
      });
      s.wait();
    }
    EXPECT_EQ(o.order,
              (std::vector<std::string>{"frame 0", "frame 1", "frame 2", "in try", "outer"}));
    EXPECT_FALSE(o.in_flight);
    // The closure is part of what is cleaned up.
    EXPECT_TRUE(eventually([&] { return captured.use_count() == 1; }));
  });
}

TEST(Conformance, SPN_03_goexit_while_an_exception_is_handled) {
  run_clean([] {
    observations o;
    bool behind = false;
    scope s;
    s.go([&] {
      const cleanup outer(o, "outer");
      try {
        throw std::runtime_error("handled");
      } catch (const std::runtime_error&) {
        goexit();
      }
      behind = true;
    });
    s.wait();
    EXPECT_EQ(o.order, std::vector<std::string>{"outer"});
    EXPECT_FALSE(o.in_flight);
    EXPECT_FALSE(behind);
  });
}

TEST(Conformance, SPN_03_goexit_counts_as_done) {
  run_clean([] {
    auto t = async([]() -> int { goexit(); });
    t.wait();
    EXPECT_TRUE(t.done());
    EXPECT_THROW(t.get(), goexited);
    scope s;
    s.go([] { goexit(); });
    s.wait();
  });
}

// -- SPN-04: nothing stops a goexit.

// Runs `shape` in a goroutine; what stands behind it must not run, what stands around it must.
template <class F>
void expect_unstoppable(F shape) {
  run_clean([&shape] {
    bool behind = false, cleaned = false;
    int uncaught = 0;
    scope s;
    s.go([&] {
      struct around {
        bool& done;
        int& in_flight;
        ~around() {
          done = true;
          in_flight = std::uncaught_exceptions();
        }
      } a{cleaned, uncaught};
      shape();
      behind = true;
    });
    s.wait();
    EXPECT_FALSE(behind);
    EXPECT_TRUE(cleaned);
    EXPECT_EQ(uncaught, 0);
  });
}

TEST(Conformance, SPN_04_swallowed_by_a_catch_all) {
  int entered = 0;
  expect_unstoppable([&entered] {
    try {
      goexit();
    } catch (...) {  // NOLINT: swallowing it is the point
      ++entered;
    }
  });
  EXPECT_EQ(entered, 1);
}

TEST(Conformance, SPN_04_swallowed_again_and_again) {
  int entered = 0;
  bool between = false;
  expect_unstoppable([&] {
    try {
      try {
        try {
          goexit();
        } catch (...) {
          ++entered;
        }
        between = true;
      } catch (...) {
        ++entered;
      }
      between = true;
    } catch (...) {
      ++entered;
    }
  });
  EXPECT_EQ(entered, 3);
  EXPECT_FALSE(between);
}

TEST(Conformance, SPN_04_swallowed_in_a_loop) {
  int rounds = 0;
  expect_unstoppable([&rounds] {
    for (int i = 0; i < 3; ++i) {
      try {
        goexit();
      } catch (...) {
        ++rounds;
      }
    }
  });
  EXPECT_EQ(rounds, 1);
}

TEST(Conformance, SPN_04_left_by_throwing_another_exception) {
  bool behind_handler = false;
  expect_unstoppable([&behind_handler] {
    try {
      try {
        goexit();
      } catch (...) {
        throw std::runtime_error("instead");
      }
    } catch (const std::runtime_error&) {
    }
    // Nothing can unwind out of a handler that is being left by a throw, so this goexit goes on at
    // the next call that may park.
    yield();
    behind_handler = true;
  });
  EXPECT_FALSE(behind_handler);
}

TEST(Conformance, SPN_04_cleanup_that_throws_and_catches) {
  int caught = 0;
  expect_unstoppable([&caught] {
    struct noisy {
      int& n;
      ~noisy() {
        try {
          throw std::runtime_error("inside a cleanup");
        } catch (const std::runtime_error&) {
          ++n;
        }
      }
    } a{caught}, b{caught};
    goexit();
  });
  EXPECT_EQ(caught, 2);
}

TEST(Conformance, SPN_04_cleanup_that_throws_and_catches_parks_too) {
  int caught = 0;
  expect_unstoppable([&caught] {
    struct noisy {
      int& n;
      ~noisy() {
        try {
          throw std::runtime_error("inside a cleanup");
        } catch (const std::runtime_error&) {
          yield();
          ++n;
        }
      }
    } a{caught}, b{caught};
    goexit();
  });
  EXPECT_EQ(caught, 2);
}

TEST(Conformance, SPN_04_goexit_replaces_an_exception_that_is_handled) {
  bool caught = false;
  expect_unstoppable([&caught] {
    try {
      try {
        throw std::runtime_error("replaced");
      } catch (const std::runtime_error&) {
        goexit();
      }
    } catch (const std::runtime_error&) {
      caught = true;
    }
  });
  EXPECT_FALSE(caught);
}

// In a destructor that no unwind has called.
TEST(Conformance, SPN_04_goexit_in_a_destructor) {
  int destroyed = 0;
  expect_unstoppable([&destroyed] {
    struct leaver {
      int& n;
      ~leaver() noexcept(false) {
        ++n;
        goexit();
      }
    };
    struct witness {
      int& n;
      ~witness() { ++n; }
    } w{destroyed};
    { const leaver l{destroyed}; }
    destroyed = 100;
  });
  EXPECT_EQ(destroyed, 2);
}

// -- SPN-07, SPN-08

TEST(Conformance, SPN_07_num_goroutines) {
  run_clean([] {
    EXPECT_EQ(num_goroutines(), 1U);  // no helper counts
    EXPECT_EQ(goid(), 1U);            // SPN-08
    std::atomic<bool> ran{false};
    go([&ran] { ran.store(true, std::memory_order_release); });
    EXPECT_TRUE(eventually([&] { return ran.load(std::memory_order_acquire); }));
    EXPECT_TRUE(eventually([] { return num_goroutines() == 1; }));
  });
}

TEST(Conformance, SPN_07_num_goroutines_counts_those_that_wait) {
  run_clean([] {
    chan<int> c;
    for (int i = 0; i < 100; ++i) go([&c] { c.recv(); });
    EXPECT_EQ(num_goroutines(), 101U);
    yield();
    EXPECT_EQ(num_goroutines(), 101U);
    for (int i = 0; i < 100; ++i) c.send(i);
    EXPECT_TRUE(eventually([] { return num_goroutines() == 1; }));  // c is ours
  });
}

TEST(Conformance, SPN_08_main_is_goroutine_1) {
  for (int run = 0; run < 3; ++run) {
    std::uint64_t other = 0;
    run_clean([&other] {
      EXPECT_EQ(goid(), 1U);
      yield();
      EXPECT_EQ(goid(), 1U);
      scope s;
      s.go([&other] { other = goid(); });
      s.wait();
      EXPECT_EQ(goid(), 1U);
    });
    EXPECT_GT(other, 1U);
    EXPECT_EQ(goid(), 0U);
  }
}

// -- SPN-11

TEST(Conformance, SPN_11_current_goroutine_survives_a_thread_switch) {
  constexpr int rounds = full_or(1000, 100);
  run_clean(at_least_procs(2), [] {
    for (int i = 0; i < rounds; ++i) {
      rt::G* const before = rt::current_g();
      const std::uint64_t id = goid();
      const pid_t thread = thread_id();
      ASSERT_TRUE(migrate());
      // Branches behind the switch, in which a compiler may want to use what it read before it.
      if (i % 2 == 0) {
        ASSERT_EQ(rt::current_g(), before);
        ASSERT_NE(thread_id(), thread);
      } else {
        ASSERT_EQ(rt::current_m()->curg, before);
        ASSERT_EQ(goid(), id);
      }
      ASSERT_EQ(rt::current_m()->tid, thread_id());
    }
  });
}

TEST(Conformance, SPN_11_current_goroutine_after_a_blocking_receive) {
  run_clean(at_least_procs(2), [] {
    chan<rt::G*> there, back;
    scope s;
    s.go([&] {
      while (std::optional<rt::G*> g = there.recv()) back.send(*g);
    });
    std::vector<std::uint64_t> ids(4);
    {
      scope workers;
      for (auto& id : ids) {
        workers.go([&] {
          rt::G* const before = rt::current_g();
          id = goid();
          for (int i = 0; i < 2000; ++i) {
            there.send(before);
            back.recv();
            ASSERT_EQ(rt::current_g(), before);
            ASSERT_EQ(goid(), id);
          }
        });
      }
      workers.wait();
    }
    there.close();
    s.wait();
    for (const std::uint64_t id : ids) EXPECT_GT(id, 1U);
  });
}

}  // namespace
}  // namespace weft::test
