// SPDX-License-Identifier: Apache-2.0
// scope: what is started in it has ended when it has; the first exception comes out, once; the
// limit holds.
#include <algorithm>
#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/current.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

using namespace sched_test;

class Scope : public GoTest {};

TEST_F(Scope, WaitsForAll) {
  run_on_each([] {
    std::atomic<int> ended{0};
    scope s;
    s.wait();  // nobody there
    for (int i = 0; i < 500; ++i) {
      s.go([&] {
        weft::yield();
        ++ended;
      });
    }
    s.wait();
    EXPECT_EQ(ended, 500);
    s.wait();
    s.go([&] { ++ended; });  // and on
    s.wait();
    EXPECT_EQ(ended, 501);
  });
}

// All come back, and one of them with the exception.
TEST_F(Scope, ManyMayWait) {
  run_on_each([] {
    for (int i = 0; i < scaled(200); ++i) {
      std::atomic<int> caught{0};
      scope waiters, s;
      for (int k = 0; k < 3; ++k) {
        s.go([k] {
          weft::yield();
          if (k == 1) throw k;
        });
      }
      for (int k = 0; k < 4; ++k) {
        waiters.go([&] {
          try {
            s.wait();
          } catch (int) {
            ++caught;
          }
        });
      }
      waiters.wait();
      ASSERT_EQ(caught, 1);
    }
  });
}

// However it ends: with the scope goes all that was moved into it.
TEST_F(Scope, WhatAFunctionHoldsIsGone) {
  run_on_each([] {
    for (int how = 0; how < 3; ++how) {
      std::atomic<bool> gone{false};
      scope s;
      s.go([how, held = slow_to_go(gone)] {
        if (how == 1) goexit();
        if (how == 2) throw how;
      });
      try {
        s.wait();
      } catch (int) {
      }
      EXPECT_TRUE(gone) << how;
    }
  });
}

TEST_F(Scope, TheDestructorWaits) {
  run_on_each([] {
    for (int i = 0; i < scaled(200); ++i) {
      std::atomic<int> ended{0};
      {
        scope s;
        for (int k = 0; k < 5; ++k) {
          s.go([&] {
            weft::yield();
            ++ended;
          });
        }
      }
      ASSERT_EQ(ended, 5);
    }
  });
}

TEST_F(Scope, RethrowsTheFirstExceptionOnce) {
  run_on(1, [] {
    scope s;
    event first_has_thrown;
    s.go([&] {
      struct at_end {
        event& e;
        ~at_end() { e.set(); }
      } a{first_has_thrown};
      throw std::runtime_error("first");
    });
    s.go([&] {
      first_has_thrown.wait();
      weft::yield();
      throw std::runtime_error("second");
    });
    EXPECT_EQ(thrown_by<std::runtime_error>([&] { s.wait(); }), "first");
    s.wait();  // once
  });
}

TEST_F(Scope, OneOfManyExceptionsComesOut) {
  run_on_each([] {
    std::atomic<int> ran{0};
    scope s;
    for (int i = 0; i < 100; ++i) {
      s.go([&] {
        ++ran;
        throw std::runtime_error("one of them");
      });
    }
    EXPECT_EQ(thrown_by<std::runtime_error>([&] { s.wait(); }), "one of them");
    EXPECT_EQ(ran, 100);  // the others ran all the same
  });
}

TEST_F(Scope, UnwindingDropsExceptions) {
  run_on(2, [] {
    std::atomic<bool> ended{false};
    try {
      scope s;
      s.go([&] {
        weft::yield();
        ended = true;
        throw std::runtime_error("dropped");
      });
      throw std::logic_error("mine");
    } catch (const std::logic_error& e) {
      EXPECT_STREQ(e.what(), "mine");
    }
    EXPECT_TRUE(ended);
  });
}

TEST_F(Scope, GoexitCountsAsDone) {
  run_on_each([] {
    scope s;
    for (int i = 0; i < 50; ++i) s.go([] { goexit(); });
    s.wait();
  });
}

// Nothing can unwind out of a destructor, and those inside refer to the scope: a goexit that was
// put off goes on behind it.
TEST_F(Scope, AGoexitThatWasPutOffWaitsForItsEnd) {
  run_on_each([] {
    std::atomic<int> ended{0};
    bool behind_scope = false, behind_park = false;
    auto t = weft::async([&] {
      try {
        try {
          goexit();
        } catch (...) {
          throw std::runtime_error("instead");
        }
      } catch (const std::runtime_error&) {
      }
      {
        scope s;
        for (int i = 0; i < 3; ++i) {
          s.go([&] {
            weft::yield();
            ++ended;
          });
        }
      }
      behind_scope = ended == 3;
      weft::yield();
      behind_park = true;
    });
    EXPECT_THROW(t.get(), goexited);
    EXPECT_TRUE(behind_scope);
    EXPECT_FALSE(behind_park);
  });
}

TEST_F(Scope, TheLimitHolds) {
  run_on_each([] {
    for (std::size_t limit : {1U, 2U, 7U}) {
      std::atomic<int> inside{0}, most{0}, ran{0};
      scope s(limit);
      for (int i = 0; i < 200; ++i) {
        s.go([&] {
          const int now = ++inside;
          int seen = most;
          while (now > seen && !most.compare_exchange_weak(seen, now)) {
          }
          for (int k = 0; k < 3; ++k) weft::yield();
          ++ran;
          --inside;
        });
      }
      s.wait();
      EXPECT_EQ(ran, 200);
      EXPECT_LE(most, static_cast<int>(limit));
      // As many as that may be there: they wait for each other.
      for (std::size_t i = 0; i < limit; ++i) {
        s.go([&] {
          ++inside;
          EXPECT_TRUE(eventually([&] { return inside >= static_cast<int>(limit); }));
        });
      }
      s.wait();
    }
  });
}

TEST_F(Scope, GoBlocksAtTheLimitAndGoesOnInOrder) {
  run_on(1, [] {
    scope inner(1);
    event release;
    std::vector<int> order;
    inner.go([&] { release.wait(); });
    scope outer;
    for (int i = 0; i < 5; ++i) {
      std::atomic<rt::G*> g{nullptr};
      outer.go([&, i] {
        g = rt::current_g();
        inner.go([&order, i] { order.push_back(i); });  // blocks
      });
      EXPECT_TRUE(
          eventually([&] { return g != nullptr && g.load()->state() == rt::g_status::waiting; }));
    }
    EXPECT_TRUE(order.empty());
    release.set();
    outer.wait();
    inner.wait();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  });
}

TEST_F(Scope, AFailedStartGivesItsPlaceBack) {
  run_on_each([] {
    const counted c(1);
    scope s(1);
    for (int i = 0; i < 100; ++i) {
      counted::copies_until_throw = 0;
      EXPECT_EQ(thrown_by([&] { s.go([](const counted&) {}, c); }), "copy refused");
    }
    counted::copies_until_throw = -1;
    bool ran = false;
    s.go([&](const counted&) { ran = true; }, c);  // would block for ever if a place were lost
    s.wait();
    EXPECT_TRUE(ran);
  });
}

TEST_F(Scope, ExceptionsAndGoexitsGiveTheirPlaceBack) {
  run_on(2, [] {
    scope s(2);
    for (int i = 0; i < 30; ++i) {
      s.go([i] {
        if (i % 2 == 0) goexit();
        throw i;
      });
    }
    EXPECT_THROW(s.wait(), int);
  });
}

TEST_F(Scope, UsedFromSeveralGoroutines) {
  run_on_each([] {
    std::atomic<int> ran{0};
    scope s;
    {
      scope starters;
      for (int i = 0; i < 10; ++i) {
        starters.go([&] {
          for (int k = 0; k < 50; ++k) s.go([&] { ++ran; });
        });
      }
    }
    s.wait();
    EXPECT_EQ(ran, 500);
  });
}

TEST_F(Scope, FromItsOwnGoroutines) {
  run_on_each([] {
    std::atomic<int> ran{0};
    scope s;
    s.go([&] {
      for (int i = 0; i < 10; ++i) {
        s.go([&] {
          weft::yield();
          s.go([&] { ++ran; });
        });
      }
    });
    s.wait();
    EXPECT_EQ(ran, 10);
  });
}

// The waiter's count of what was started is old by the time it parks: more than that may have ended
// meanwhile.
TEST_F(Scope, StartedAndEndedWhileTheWaiterParks) {
  run_on_each([] {
    for (int round = 0; round < scaled(3000); ++round) {
      std::atomic<int> ran{0};
      scope s;
      for (int i = 0; i < 3; ++i) {
        s.go([&] {
          s.go([&] { ++ran; });
          weft::yield();
          s.go([&] { ++ran; });
        });
      }
      s.wait();
      ASSERT_EQ(ran, 6);
    }
  });
}

TEST_F(Scope, FromAPlainThread) {
  run_on_each([] {
    event joined;
    std::atomic<int> ran{0}, most{0}, inside{0};
    std::string text;
    std::thread t([&] {
      {
        scope s(3);
        for (int i = 0; i < 100; ++i) {
          s.go([&] {
            const int now = ++inside;
            if (now > most) most = now;
            weft::yield();
            ++ran;
            --inside;
          });
        }
        s.go([] { throw std::runtime_error("to the thread"); });
        text = thrown_by<std::runtime_error>([&] { s.wait(); });
      }
      joined.set();
    });
    joined.wait();
    t.join();
    EXPECT_EQ(ran, 100);
    EXPECT_LE(most, 3);
    EXPECT_EQ(text, "to the thread");
  });
}

TEST_F(Scope, Nested) {
  run_on_each([] {
    std::atomic<int> ran{0};
    scope outer(4);
    for (int i = 0; i < 20; ++i) {
      outer.go([&] {
        scope inner(2);
        for (int k = 0; k < 10; ++k) inner.go([&] { ++ran; });
        inner.wait();
      });
    }
    outer.wait();
    EXPECT_EQ(ran, 200);
  });
}

TEST_F(Scope, MayGoAsSoonAsItHasWaited) {
  // The last goroutine must not touch the scope once the waiter can run; ASan builds watch.
  run_on_each([] {
    for (int i = 0; i < scaled(2000); ++i) {
      auto s = std::make_unique<scope>(i % 2 == 0 ? 0 : 1);
      s->go([] {});
      if (i % 3 == 0) weft::yield();
      s->wait();
    }
  });
}

TEST_F(Scope, MoveOnlyAndMembersAndBigClosures) {
  struct machine {
    std::atomic<int> sum{0};
    void add(int n) { sum += n; }
  };
  run_on(2, [] {
    machine m;
    scope s;
    s.go(&machine::add, &m, 4);
    s.go([&m](std::unique_ptr<int> p) { m.add(*p); }, std::make_unique<int>(5));
    s.go([&m, big = std::vector<int>(3, 1), load = std::array<char, 30'000>{}] {
      m.add(big[0] + load[29'999]);
    });
    s.wait();
    EXPECT_EQ(m.sum, 10);
  });
}

}  // namespace
}  // namespace weft
