// SPDX-License-Identifier: Apache-2.0
// The checker itself: for the classic small programs exactly the outcomes that memory.h promises,
// found by the full search, with and without partial-order reduction; and that it sees races,
// deadlocks, dead atomics and livelocks, and repeats what it found.
#include <gtest/gtest.h>
#include <set>
#include <string>

#include "base/atomic.h"
#include "os/futex.h"
#include "systematic/checker.h"

namespace {

using namespace systematic;
using rt_order = std::memory_order;
using weft::rt::atomic;
constexpr auto relaxed = rt_order::relaxed, acquire = rt_order::acquire,
               release = rt_order::release, acq_rel = rt_order::acq_rel,
               seq_cst = rt_order::seq_cst;
using outcomes = std::set<std::string>;

std::string text(std::initializer_list<int> values) {
  std::string s;
  for (const int v : values) s += std::to_string(v);
  return s;
}

// What all executions give. The reduction must not lose an outcome: the search without it (so many
// preemptions are no bound) must find the same.
template <class Body>
outcomes all(Body b) {
  outcomes reduced, whole;
  const result r = try_explore({}, [&](execution& x) { reduced.insert(b(x)); });
  EXPECT_EQ(r.failure, "");
  const result w = try_explore({.preemptions = 100}, [&](execution& x) { whole.insert(b(x)); });
  EXPECT_EQ(w.failure, "");
  EXPECT_EQ(reduced, whole);
  EXPECT_LE(r.executions, w.executions);
  return reduced;
}

// -- store buffering

outcomes store_buffering(rt_order store, rt_order load, bool fences) {
  return all([=](execution& x) {
    atomic<int> a{0}, b{0};
    int ra = -1, rb = -1;
    x.threads(
        [&] {
          a.store(1, store);
          if (fences) weft::rt::fence(seq_cst);
          rb = b.load(load);
        },
        [&] {
          b.store(1, store);
          if (fences) weft::rt::fence(seq_cst);
          ra = a.load(load);
        });
    return text({ra, rb});
  });
}

TEST(Litmus, StoreBuffering) {
  const outcomes weak{"00", "01", "10", "11"}, strong{"01", "10", "11"};
  EXPECT_EQ(store_buffering(relaxed, relaxed, false), weak);
  EXPECT_EQ(store_buffering(release, acquire, false), weak);
  EXPECT_EQ(store_buffering(seq_cst, acquire, false), weak);
  EXPECT_EQ(store_buffering(release, seq_cst, false), weak);
  EXPECT_EQ(store_buffering(seq_cst, seq_cst, false), strong);
  EXPECT_EQ(store_buffering(relaxed, relaxed, true), strong);
}

TEST(Litmus, StoreBufferingWithOneFence) {
  const outcomes found = all([](execution& x) {
    atomic<int> a{0}, b{0};
    int ra = -1, rb = -1;
    x.threads(
        [&] {
          a.store(1, relaxed);
          weft::rt::fence(seq_cst);
          rb = b.load(relaxed);
        },
        [&] {
          b.store(1, relaxed);
          weft::rt::fence(acq_rel);
          ra = a.load(relaxed);
        });
    return text({ra, rb});
  });
  EXPECT_EQ(found, (outcomes{"00", "01", "10", "11"}));
}

// A read-modify-write of another location is no fence; one of the same location reads the newest.
TEST(Litmus, StoreBufferingWithExchanges) {
  const outcomes found = all([](execution& x) {
    atomic<int> a{0}, b{0};
    int ra = -1, rb = -1;
    x.threads(
        [&] {
          a.exchange(1, acq_rel);
          rb = b.load(acquire);
        },
        [&] {
          b.exchange(1, acq_rel);
          ra = a.load(acquire);
        });
    return text({ra, rb});
  });
  EXPECT_EQ(found, (outcomes{"00", "01", "10", "11"}));
}

// -- message passing

outcomes message_passing(rt_order store, rt_order load, rt_order writer_fence,
                         rt_order reader_fence) {
  return all([=](execution& x) {
    atomic<int> data{0}, flag{0};
    int f = -1, d = -1;
    x.threads(
        [&] {
          data.store(1, relaxed);
          if (writer_fence != relaxed) weft::rt::fence(writer_fence);
          flag.store(1, store);
        },
        [&] {
          f = flag.load(load);
          if (reader_fence != relaxed) weft::rt::fence(reader_fence);
          d = data.load(relaxed);
        });
    return text({f, d});
  });
}

TEST(Litmus, MessagePassing) {
  const outcomes weak{"00", "01", "10", "11"}, strong{"00", "01", "11"};
  EXPECT_EQ(message_passing(relaxed, relaxed, relaxed, relaxed), weak);
  EXPECT_EQ(message_passing(release, relaxed, relaxed, relaxed), weak);
  EXPECT_EQ(message_passing(relaxed, acquire, relaxed, relaxed), weak);
  EXPECT_EQ(message_passing(release, acquire, relaxed, relaxed), strong);
  EXPECT_EQ(message_passing(seq_cst, seq_cst, relaxed, relaxed), strong);
  EXPECT_EQ(message_passing(relaxed, acquire, release, relaxed), strong);
  EXPECT_EQ(message_passing(release, relaxed, relaxed, acquire), strong);
  EXPECT_EQ(message_passing(relaxed, relaxed, release, acquire), strong);
  EXPECT_EQ(message_passing(relaxed, relaxed, acquire, acquire), weak);
}

// Load buffering is not shown (memory.h).
TEST(Litmus, LoadBufferingIsLeftOut) {
  const outcomes found = all([](execution& x) {
    atomic<int> a{0}, b{0};
    int ra = -1, rb = -1;
    x.threads(
        [&] {
          ra = a.load(relaxed);
          b.store(1, relaxed);
        },
        [&] {
          rb = b.load(relaxed);
          a.store(1, relaxed);
        });
    return text({ra, rb});
  });
  EXPECT_EQ(found, (outcomes{"00", "01", "10"}));
}

// Nor is a modification order against the order of execution: both 1 would be allowed.
TEST(Litmus, TwoPlusTwoWritesAreInOrder) {
  const outcomes found = all([](execution& x) {
    atomic<int> a{0}, b{0};
    x.threads(
        [&] {
          a.store(1, relaxed);
          b.store(2, relaxed);
        },
        [&] {
          b.store(1, relaxed);
          a.store(2, relaxed);
        });
    return text({a.load(), b.load()});
  });
  EXPECT_EQ(found, (outcomes{"12", "21", "22"}));
}

// -- independent reads of independent writes

outcomes independent_reads(rt_order store, rt_order load, bool fences) {
  return all([=](execution& x) {
    atomic<int> a{0}, b{0};
    int r[4] = {};
    x.threads([&] { a.store(1, store); }, [&] { b.store(1, store); },
              [&] {
                r[0] = a.load(load);
                if (fences) weft::rt::fence(seq_cst);
                r[1] = b.load(load);
              },
              [&] {
                r[2] = b.load(load);
                if (fences) weft::rt::fence(seq_cst);
                r[3] = a.load(load);
              });
    return text({r[0], r[1], r[2], r[3]});
  });
}

TEST(Litmus, IndependentReadsOfIndependentWrites) {
  EXPECT_EQ(independent_reads(release, acquire, false).size(), 16U);
  outcomes strong = independent_reads(seq_cst, seq_cst, false);
  EXPECT_EQ(strong.size(), 15U);
  EXPECT_FALSE(strong.contains("1010"));
  strong = independent_reads(relaxed, relaxed, true);
  EXPECT_EQ(strong.size(), 15U);
  EXPECT_FALSE(strong.contains("1010"));
}

// -- write to read causality: what is acquired is handed on

TEST(Litmus, WriteToReadCausality) {
  const auto run = [](rt_order store, rt_order load) {
    return all([=](execution& x) {
      atomic<int> a{0}, b{0};
      int r[3] = {};
      x.threads([&] { a.store(1, release); },
                [&] {
                  r[0] = a.load(load);
                  b.store(1, store);
                },
                [&] {
                  r[1] = b.load(acquire);
                  r[2] = a.load(relaxed);
                });
      return text({r[0], r[1], r[2]});
    });
  };
  EXPECT_FALSE(run(release, acquire).contains("110"));
  EXPECT_TRUE(run(relaxed, acquire).contains("110"));
}

// -- coherence

TEST(Litmus, ReadsOfOneLocationDoNotGoBack) {
  const outcomes found = all([](execution& x) {
    atomic<int> a{0};
    int r[2] = {};
    x.threads(
        [&] {
          a.store(1, relaxed);
          a.store(2, relaxed);
        },
        [&] {
          r[0] = a.load(relaxed);
          r[1] = a.load(relaxed);
        });
    return text({r[0], r[1]});
  });
  EXPECT_EQ(found, (outcomes{"00", "01", "02", "11", "12", "22"}));
}

TEST(Litmus, AReadModifyWriteSeesTheNewest) {
  const outcomes found = all([](execution& x) {
    atomic<int> a{0};
    x.threads([&] { a.fetch_add(1, relaxed); }, [&] { a.fetch_add(1, relaxed); },
              [&] { a.fetch_add(1, relaxed); });
    return text({a.load()});
  });
  EXPECT_EQ(found, outcomes{"3"});
}

// A failed exchange is a load and may see an old store.
TEST(Litmus, AFailedExchangeMaySeeAnOldStore) {
  const outcomes found = all([](execution& x) {
    atomic<int> a{0}, flag{0};
    int e = 7, f = -1;
    x.threads(
        [&] {
          a.store(1, relaxed);
          flag.store(1, relaxed);
        },
        [&] {
          f = flag.load(relaxed);
          a.compare_exchange_strong(e, 9, relaxed, relaxed);
        });
    return text({f, e});
  });
  EXPECT_EQ(found, (outcomes{"00", "01", "10", "11"}));
}

// -- release sequences

outcomes release_sequence(bool by_rmw, bool same_thread) {
  return all([=](execution& x) {
    atomic<int> data{0}, flag{0};
    int f = -1, d = -1;
    const auto second = [&, by_rmw] {
      if (by_rmw) {
        int one = 1;
        flag.compare_exchange_strong(one, 2, relaxed, relaxed);
      } else {
        flag.store(2, relaxed);
      }
    };
    x.threads(
        [&, same_thread] {
          data.store(1, relaxed);
          flag.store(1, release);
          if (same_thread) second();
        },
        [&, same_thread] {
          if (!same_thread) second();
        },
        [&] {
          f = flag.load(acquire);
          d = data.load(relaxed);
        });
    return text({f, d});
  });
}

TEST(Litmus, ReleaseSequences) {
  EXPECT_FALSE(release_sequence(true, false).contains("20"));
  EXPECT_FALSE(release_sequence(true, true).contains("20"));
  EXPECT_TRUE(release_sequence(false, false).contains("20"));
  EXPECT_TRUE(release_sequence(false, true).contains("20"));  // as of C++20
}

// -- Dekker's: both may be inside unless the stores are ordered before the loads.

result dekker(bool fences, rt_order o) {
  return try_explore({}, [=](execution& x) {
    atomic<int> a{0}, b{0};
    int inside = 0;
    x.threads(
        [&] {
          a.store(1, o);
          if (fences) weft::rt::fence(seq_cst);
          if (b.load(o) == 0) ++inside;
        },
        [&] {
          b.store(1, o);
          if (fences) weft::rt::fence(seq_cst);
          if (a.load(o) == 0) ++inside;
        });
    require(inside <= 1, "one inside");
  });
}

TEST(Litmus, Dekker) {
  EXPECT_TRUE(dekker(true, relaxed));
  EXPECT_TRUE(dekker(false, seq_cst));
  const result r = dekker(false, relaxed);
  EXPECT_NE(r.failure.find("a data race"), std::string::npos) << r.failure;
}

// -- plain memory

result handing_over(rt_order store, rt_order load) {
  return try_explore({}, [=](execution& x) {
    int data = 0;
    atomic<bool> flag{false};
    x.threads(
        [&] {
          data = 1;
          flag.store(true, store);
        },
        [&] {
          if (flag.load(load)) require(data == 1, "it came");
        });
  });
}

TEST(Plain, ARaceIsSeen) {
  EXPECT_TRUE(handing_over(release, acquire));
  for (const result& r : {handing_over(relaxed, acquire), handing_over(release, relaxed)}) {
    EXPECT_NE(r.failure.find("a data race"), std::string::npos) << r.failure;
    EXPECT_NE(r.failure.find("litmus_test.cc:"), std::string::npos) << r.failure;
  }
}

// A seq_cst fence alone hands no plain data over, though both sides have one.
TEST(Plain, FencesOrderAndDoNotHandOver) {
  const result r = try_explore({}, [](execution& x) {
    int data = 0;
    atomic<int> a{0}, b{0};
    x.threads(
        [&] {
          data = 1;
          a.store(1, relaxed);
          weft::rt::fence(seq_cst);
          b.load(relaxed);
        },
        [&] {
          b.store(1, relaxed);
          weft::rt::fence(seq_cst);
          // If it was a's turn first it is seen; but the fences did not meet through a store.
          if (a.load(relaxed) == 1) data = 2;
        });
  });
  EXPECT_NE(r.failure.find("a data race"), std::string::npos) << r.failure;
}

TEST(Plain, NeighbouringBytesDoNotRace) {
  EXPECT_TRUE(try_explore({}, [](execution& x) {
    struct {
      char a = 0, b = 0;
    } s;
    atomic<int> meet{0};
    x.threads(
        [&] {
          meet.load(relaxed);
          s.a = 1;
        },
        [&] {
          meet.load(relaxed);
          s.b = 1;
        });
  }));
}

TEST(Plain, DeletedMemoryIsDead) {
  const result r = try_explore({}, [](execution& x) {
    atomic<int*> p{nullptr};
    x.threads(
        [&] {
          int* mine = new int(1);
          p.store(mine, release);
          delete mine;
        },
        [&] {
          if (const int* theirs = p.load(acquire); theirs != nullptr)
            require(*theirs == 1, "it is there");
        });
  });
  EXPECT_FALSE(r);
}

TEST(Plain, AnAtomicHasALife) {
  const result late = try_explore({}, [](execution& x) {
    atomic<atomic<int>*> p{nullptr};
    x.threads(
        [&] {
          atomic<int> mine{1};
          p.store(&mine, release);
        },
        [&] {
          if (atomic<int>* theirs = p.load(acquire); theirs != nullptr) theirs->load(relaxed);
        });
  });
  EXPECT_NE(late.failure.find("atomic"), std::string::npos) << late.failure;
  const result early = try_explore({}, [](execution& x) {
    atomic<atomic<int>*> p{nullptr};
    x.threads([&] { p.store(new atomic<int>{1}, relaxed); },
              [&] {
                if (atomic<int>* theirs = p.load(relaxed); theirs != nullptr) theirs->load(relaxed);
              });
  });
  EXPECT_NE(early.failure.find("construction"), std::string::npos) << early.failure;
}

// -- waiting

result sleeper(bool checks_first) {
  return try_explore({}, [=](execution& x) {
    atomic<std::uint32_t> word{0};
    x.threads(
        [&] {
          word.store(1, release);
          weft::rt::futex_wake(word, 1);
        },
        [&] {
          // Without the comparison in the kernel a wake-up between look and sleep would be lost.
          if (word.load(acquire) == 0) weft::rt::futex_wait(word, checks_first ? 0 : word.load());
        });
  });
}

TEST(Waiting, ALostWakeUpIsSeen) {
  EXPECT_TRUE(sleeper(true));
  const result r = sleeper(false);
  EXPECT_NE(r.failure.find("nobody can go on"), std::string::npos) << r.failure;
}

TEST(Waiting, ADeadlineMayPassAtAnyMoment) {
  outcomes found;
  const result r = try_explore({}, [&](execution& x) {
    atomic<std::uint32_t> word{0};
    bool woken = false;
    x.threads(
        [&] {
          word.store(1, relaxed);
          weft::rt::futex_wake(word, 1);
        },
        [&] { woken = weft::rt::futex_wait(word, 0, 1); });
    found.insert(text({woken ? 1 : 0}));
  });
  EXPECT_EQ(r.failure, "");
  EXPECT_EQ(found, (outcomes{"0", "1"}));
}

TEST(Waiting, SpinnersWaitForAChange) {
  EXPECT_TRUE(try_explore({}, [](execution& x) {
    atomic<int> a{0};
    x.threads([&] { a.store(1, relaxed); },
              [&] {
                while (a.load(relaxed) == 0) weft::rt::cpu_relax();
              });
  }));
  const result r = try_explore({}, [](execution& x) {
    atomic<int> a{0};
    x.threads([&] {
      while (a.load(relaxed) == 0) weft::rt::cpu_relax();
    });
  });
  EXPECT_NE(r.failure.find("nobody can go on"), std::string::npos) << r.failure;
}

TEST(Waiting, GatesHandOver) {
  EXPECT_TRUE(try_explore({}, [](execution& x) {
    gate g;
    int data = 0;
    x.threads(
        [&] {
          data = 1;
          g.open();
        },
        [&] {
          g.pass();
          require(data == 1, "it came");
        });
  }));
}

// -- the search

// A counter that is loaded and stored: how often is it 1 at the end, and does the string repeat it?
const body lost_update = [](execution& x) {
  atomic<int> a{0};
  const auto add = [&] { a.store(a.load(relaxed) + 1, relaxed); };
  x.threads(add, add);
  require(a.load() == 2, "nothing is lost");
};

TEST(Search, AFailureIsRepeatedByItsString) {
  const result r = try_explore({}, lost_update);
  ASSERT_FALSE(r);
  EXPECT_NE(r.failure.find("nothing is lost"), std::string::npos);
  const result again = try_replay({}, lost_update, r.replay);
  EXPECT_EQ(again.failure, r.failure);
}

TEST(Search, ByPreemptionsAndBySeeds) {
  EXPECT_TRUE(try_explore({.preemptions = 0, .stale = 0}, lost_update));
  EXPECT_FALSE(try_explore({.preemptions = 1, .stale = 0}, lost_update));
  const result r = try_explore({.random = 1000}, lost_update);
  ASSERT_FALSE(r);
  EXPECT_EQ(try_replay({}, lost_update, r.replay).failure, r.failure);
}

// Threads that do not touch one another: one order is enough.
TEST(Search, IndependentThreadsAreRunOnce) {
  const result r = try_explore({}, [](execution& x) {
    atomic<int> a{0}, b{0}, c{0};
    const auto use = [](atomic<int>& mine) {
      for (int i = 0; i < 4; ++i) mine.fetch_add(1);
    };
    x.threads([&] { use(a); }, [&] { use(b); }, [&] { use(c); });
  });
  EXPECT_EQ(r.failure, "");
  EXPECT_EQ(r.executions, 1U);
}

TEST(Search, WhatIsNotDeterminedIsSaid) {
  int calls = 0;
  const result r = try_explore({}, [&](execution& x) {
    atomic<int> a{0};
    ++calls;
    x.threads([&] { a.store(1); },
              [&] {
                for (int i = 0; i < calls % 3; ++i) a.load();
              });
  });
  EXPECT_FALSE(r);
}

}  // namespace
