// SPDX-License-Identifier: Apache-2.0
// What a thread keeps for the code that runs on it travels with the goroutine: exceptions being
// handled and in flight, errno, the rounding mode. Each goroutine is really moved
// (support/migrate.h).
//
// errno is read and written in functions that are not inlined: its address must not be carried over
// a switch, and compilers may do that within one function.
#include <atomic>
#include <cerrno>
#include <cfenv>
#include <exception>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>

#include "support/chan.h"
#include "support/migrate.h"
#include "support/runtime.h"
#include "weft/go.hpp"

namespace weft::test {
namespace {

constexpr int rounds = full_or(200, 50);

[[gnu::noinline]] int get_errno() { return errno; }
[[gnu::noinline]] void set_errno(int e) { errno = e; }

struct payload : std::runtime_error {
  int id;
  explicit payload(int i) : std::runtime_error("payload " + std::to_string(i)), id(i) {}
};

// The exception that the current handler handles.
int current_id() {
  try {
    throw;
  } catch (const payload& p) {
    return p.id;
  }
}

TEST(Conformance, exception_in_a_catch_block_survives_a_migration) {
  run_clean(at_least_procs(2), [] {
    for (int i = 0; i < rounds; ++i) {
      bool rethrown = false;
      try {
        try {
          throw payload(i);
        } catch (const payload& p) {
          ASSERT_TRUE(migrate());
          EXPECT_EQ(p.id, i);
          EXPECT_EQ(current_id(), i);
          EXPECT_EQ(std::uncaught_exceptions(), 0);
          EXPECT_NE(std::current_exception(), nullptr);
          ASSERT_TRUE(migrate());
          throw;
        }
      } catch (const payload& p) {
        rethrown = p.id == i;
      }
      EXPECT_TRUE(rethrown);
      EXPECT_EQ(std::current_exception(), nullptr);
    }
  });
}

// Moves in its destructor; finds `expected` exceptions in flight before and behind.
struct moving_cleanup {
  int expected;
  bool& moved;
  ~moving_cleanup() {
    EXPECT_EQ(std::uncaught_exceptions(), expected);
    moved = migrate();
    EXPECT_EQ(std::uncaught_exceptions(), expected);
  }
};

TEST(Conformance, exception_in_flight_survives_a_migration) {
  run_clean(at_least_procs(2), [] {
    for (int i = 0; i < rounds; ++i) {
      bool caught = false, moved = false;
      try {
        const moving_cleanup c{1, moved};
        throw payload(i);
      } catch (const payload& p) {
        caught = p.id == i;
        EXPECT_EQ(std::uncaught_exceptions(), 0);
      }
      ASSERT_TRUE(moved);
      EXPECT_TRUE(caught);
    }
  });
}

// A clean-up, run by an exception, that throws and handles one of its own.
struct nesting_cleanup {
  int depth;
  int& handled;
  bool& moved;
  ~nesting_cleanup() {
    const int outer = std::uncaught_exceptions();
    try {
      bool inner_moved = false;
      {
        const moving_cleanup c{outer + 1, inner_moved};
        if (depth > 0) {
          const nesting_cleanup deeper{depth - 1, handled, moved};
          throw payload(depth);
        }
        throw payload(depth);
      }
    } catch (const payload& p) {
      EXPECT_EQ(p.id, depth);
      EXPECT_EQ(std::uncaught_exceptions(), outer);
      moved = migrate() && moved;
      EXPECT_EQ(current_id(), depth);
      EXPECT_EQ(std::uncaught_exceptions(), outer);
      ++handled;
    }
    EXPECT_EQ(std::uncaught_exceptions(), outer);
  }
};

TEST(Conformance, nested_exceptions_survive_a_migration) {
  run_clean(at_least_procs(2), [] {
    for (int i = 0; i < rounds / 10; ++i) {
      bool moved = true, caught = false;
      int handled = 0;
      try {
        const nesting_cleanup c{2, handled, moved};
        throw payload(100 + i);
      } catch (const payload& p) {
        caught = p.id == 100 + i;
      }
      ASSERT_TRUE(moved);
      EXPECT_TRUE(caught);
      EXPECT_EQ(handled, 3);
      EXPECT_EQ(std::uncaught_exceptions(), 0);
    }
  });
}

TEST(Conformance, nested_handlers_survive_a_migration) {
  run_clean(at_least_procs(2), [] {
    for (int i = 0; i < rounds; ++i) {
      try {
        throw payload(1);
      } catch (const payload&) {
        ASSERT_TRUE(migrate());
        try {
          throw payload(2);
        } catch (const payload&) {
          ASSERT_TRUE(migrate());
          EXPECT_EQ(current_id(), 2);
          try {
            std::rethrow_exception(std::current_exception());
          } catch (const payload&) {
            ASSERT_TRUE(migrate());
            EXPECT_EQ(current_id(), 2);
          }
        }
        EXPECT_EQ(current_id(), 1);
      }
      EXPECT_EQ(std::current_exception(), nullptr);
    }
  });
}

// Many at once: handlers of different goroutines interleave on each thread.
TEST(Conformance, exceptions_of_many_goroutines_do_not_mix) {
  constexpr int goroutines = 100, each = full_or(50, 10);
  run_clean([] {
    std::atomic<int> good{0};
    scope s;
    for (int g = 0; g < goroutines; ++g) {
      s.go([&good, g] {
        for (int i = 0; i < each; ++i) {
          const int id = g * 1000 + i;
          try {
            struct giving_way {
              ~giving_way() {
                yield();
                EXPECT_EQ(std::uncaught_exceptions(), 1);
                yield();
              }
            } w;
            EXPECT_EQ(std::uncaught_exceptions(), 0);
            throw payload(id);
          } catch (const payload& p) {
            for (int k = 0; k < 3; ++k) {
              yield();
              EXPECT_EQ(current_id(), id);
              EXPECT_EQ(std::uncaught_exceptions(), 0);
            }
            if (p.id == id) good.fetch_add(1);
          }
          EXPECT_EQ(std::current_exception(), nullptr);
        }
      });
    }
    s.wait();
    EXPECT_EQ(good.load(), goroutines * each);
  });
}

// A goroutine that starts on a thread whose last one waits in a handler knows nothing of it.
TEST(Conformance, a_new_goroutine_starts_without_exceptions) {
  run_clean(with_procs(1), [] {
    chan<int> c;
    scope s;
    s.go([&c] {
      try {
        throw payload(1);
      } catch (const payload&) {
        c.recv();
        EXPECT_EQ(current_id(), 1);
      }
    });
    s.go([&c] {
      struct waits {
        chan<int>& c;
        ~waits() { c.recv(); }
      };
      try {
        const waits w{c};
        throw payload(2);
      } catch (const payload& p) {
        EXPECT_EQ(p.id, 2);
      }
    });
    yield();
    EXPECT_EQ(std::uncaught_exceptions(), 0);
    EXPECT_EQ(std::current_exception(), nullptr);
    s.go([] {
      EXPECT_EQ(std::uncaught_exceptions(), 0);
      EXPECT_EQ(std::current_exception(), nullptr);
    });
    yield();
    c.send(1);
    c.send(2);
    s.wait();
  });
}

TEST(Conformance, exception_thrown_on_one_thread_is_caught_on_another) {
  run_clean(at_least_procs(2), [] {
    for (int i = 0; i < rounds; ++i) {
      // The task's goroutine moves between making and storing the exception; we may be anywhere.
      auto t = async([i]() -> int {
        std::exception_ptr e;
        try {
          throw payload(i);
        } catch (...) {
          EXPECT_TRUE(migrate());
          e = std::current_exception();
        }
        EXPECT_TRUE(migrate());
        std::rethrow_exception(e);
      });
      int id = -1;
      try {
        t.get();
      } catch (const payload& p) {
        id = p.id;
      }
      EXPECT_EQ(id, i);
    }
  });
}

TEST(Conformance, errno_travels) {
  run_clean(at_least_procs(2), [] {
    for (int i = 1; i <= rounds; ++i) {
      set_errno(i);
      ASSERT_TRUE(migrate());
      ASSERT_EQ(get_errno(), i);
    }
  });
}

TEST(Conformance, errno_of_many_goroutines_does_not_mix) {
  run_clean([] {
    scope s;
    for (int g = 1; g <= 50; ++g) {
      s.go([g] {
        EXPECT_EQ(get_errno(), 0);
        for (int i = 0; i < 100; ++i) {
          set_errno(g * 1000 + i);
          yield();
          ASSERT_EQ(get_errno(), g * 1000 + i);
        }
      });
    }
    s.wait();
  });
}

// One third, rounded as the current mode says; volatile: at run time, by the current mode.
double third() {
  volatile double one = 1, three = 3;
  return one / three;
}
long double long_third() {
  volatile long double one = 1, three = 3;
  return one / three;
}

TEST(Conformance, rounding_mode_travels) {
  const double nearest = third();
  // Two move at once, and each keeps its P until a third has taken its helper.
  run_clean(at_least_procs(4), [nearest] {
    scope s;
    s.go([nearest] {
      ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
      const double up = third();
      const long double long_up = long_third();
      ASSERT_NE(up, nearest);
      for (int i = 0; i < rounds; ++i) {
        ASSERT_TRUE(migrate());
        ASSERT_EQ(std::fegetround(), FE_UPWARD);
        ASSERT_EQ(third(), up);
        ASSERT_EQ(long_third(), long_up);
        // Goroutines start with the default, whatever their creator has set.
        auto t = async([] { return std::pair(std::fegetround(), third()); });
        const auto [mode, value] = t.get();
        ASSERT_EQ(mode, FE_TONEAREST);
        ASSERT_EQ(value, nearest);
      }
    });
    for (int i = 0; i < rounds; ++i) {
      ASSERT_TRUE(migrate());
      EXPECT_EQ(std::fegetround(), FE_TONEAREST);
      EXPECT_EQ(third(), nearest);
    }
    s.wait();
  });
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

}  // namespace
}  // namespace weft::test
