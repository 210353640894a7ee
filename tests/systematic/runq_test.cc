// SPDX-License-Identifier: Apache-2.0
// core/runq.h with a ring of 4, in every interleaving that the memory model allows: each goroutine
// is run once, by one who sees what was written before it was queued, and whoever looks never finds
// the queue empty while it is not.
//
// The counters begin just below their wrap-around. What a goroutine is made of is a plain word: its
// spawner writes it, whoever runs it changes it; without an order in between that is a race.
#include "core/runq.h"

#include <gtest/gtest.h>

#include "systematic/checker.h"

namespace {

using namespace systematic;
using weft::rt::G;
using queue = weft::rt::basic_runq<4>;
using owner = weft::rt::runq_owner<queue>;
using thief = weft::rt::runq_thief<queue>;

constexpr std::uint32_t just_before_the_wrap = 0xfffffffe;

struct subject {
  explicit subject(execution& x) {
    for (queue* q : {&first, &second, &third}) {
      q->head.store(just_before_the_wrap);
      q->tail.store(just_before_the_wrap);
    }
    x.name_threads({"owner", "thief", "second"});
    x.name(&first.head, "head");
    x.name(&first.tail, "tail");
    x.name(&first.runnext, "runnext");
    x.name(&first.moving, "moving");
    for (unsigned i = 0; i < 4; ++i) x.name(&first.slots[i], "slot" + std::to_string(i));
  }

  // The queue never looks at its goroutines (but for prefetch, of long rings).
  G* make(unsigned i) {
    contents[i] = 1;
    return reinterpret_cast<G*>((i + 1) * 64);
  }
  void run(G* g) {
    require(g != nullptr, "there is a goroutine");
    int& c = contents[number_of(g)];
    require(c == 1, "it runs once, with what its spawner wrote");
    c = 2;
  }
  // R6, as put_overflow (sched/schedule.cc): to the global queue, which is run at the end.
  void enqueue(G* g) {
    owner own(first);
    while (!own.put(g)) {
      G* batch[queue::capacity / 2];
      const std::uint32_t n = own.take_half(batch);
      if (n == 0) continue;
      for (std::uint32_t k = 0; k < n; ++k) run(batch[k]);
      run(g);
      return;
    }
  }
  void put(unsigned i) { enqueue(make(i)); }
  void put_next(unsigned i) {
    owner own(first);
    if (G* old = own.put_next(make(i)); old != nullptr) {
      enqueue(old);
      own.settled();
    }
  }
  // As steal_from (sched/find_work.cc).
  void steal(queue& from, queue& to) {
    if (const std::uint32_t n = thief(from).grab_into(to); n != 0) run(owner(to).publish_stolen(n));
  }
  void steal_next(unsigned but_not = 99) {
    thief t(first);
    G* g = t.peek_next();
    if (g != nullptr && number_of(g) != but_not && t.take_next(g)) run(g);
  }
  static unsigned number_of(G* g) {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(g) / 64 - 1);
  }
  void drain(queue& q) {
    owner own(q);
    if (G* g = own.take_next(); g != nullptr) run(g);
    while (G* g = own.take()) run(g);
  }
  void all_have_run(unsigned n) {
    for (queue* q : {&first, &second, &third}) drain(*q);
    for (unsigned i = 0; i < n; ++i) require(contents[i] == 2, "nobody is lost");
  }

  queue first, second, third;
  int contents[8] = {};
};

TEST(Runq, PutTakeSteal) {
  explore({}, [](execution& x) {
    subject s(x);
    x.threads(
        [&] {
          s.put(0);
          s.put(1);
          s.put(2);
          s.drain(s.first);
        },
        [&] { s.steal(s.first, s.second); });
    s.all_have_run(3);
  });
}

TEST(Runq, TwoThieves) {
  explore({}, [](execution& x) {
    subject s(x);
    s.put(0);
    s.put(1);
    x.threads([&] { s.put(2); }, [&] { s.steal(s.first, s.second); },
              [&] { s.steal(s.first, s.third); });
    s.all_have_run(3);
  });
}

// What a thief has stolen is stolen from the thief.
TEST(Runq, TheThiefIsRobbed) {
  explore({}, [](execution& x) {
    subject s(x);
    x.threads(
        [&] {
          for (unsigned i = 0; i < 4; ++i) s.put(i);
        },
        [&] {
          s.steal(s.first, s.second);
          s.drain(s.second);
        },
        [&] { s.steal(s.second, s.third); });
    s.all_have_run(4);
  });
}

// The ring is full: places that a thief has freed are used again while it may still be reading.
TEST(Runq, APlaceIsUsedAgain) {
  explore({}, [](execution& x) {
    subject s(x);
    for (unsigned i = 0; i < 3; ++i) s.put(i);
    x.threads(
        [&] {
          s.put(3);
          s.put(4);
          s.put(5);
        },
        [&] { s.steal(s.first, s.second); });
    s.all_have_run(6);
  });
}

TEST(Runq, OverflowMeetsTwoThieves) {
  explore({}, [](execution& x) {
    subject s(x);
    for (unsigned i = 0; i < 4; ++i) s.put(i);
    x.threads([&] { s.put(4); }, [&] { s.steal(s.first, s.second); },
              [&] { s.steal(s.first, s.third); });
    s.all_have_run(5);
  });
}

TEST(Runq, Runnext) {
  explore({}, [](execution& x) {
    subject s(x);
    x.threads(
        [&] {
          s.put_next(0);
          s.put_next(1);
          s.drain(s.first);
        },
        [&] { s.steal_next(); }, [&] { s.steal(s.first, s.third); });
    s.all_have_run(2);
  });
}

// RUN-02. Number 0 is in the queue all the time: in runnext, on its way, in the ring.
TEST(Runq, TheDisplacedOneIsNotLostToSight) {
  explore({}, [](execution& x) {
    subject s(x);
    s.put_next(0);
    x.threads([&] { s.put_next(1); }, [&] { s.steal_next(0); },
              [&] { require(!s.first.empty(), "it is not seen empty"); });
    s.all_have_run(2);
  });
}

// The second one to look has seen what the first one saw: it is not empty for him either.
TEST(Runq, NotEmptyIsNotForgotten) {
  explore({}, [](execution& x) {
    subject s(x);
    weft::rt::atomic<bool> said{false};
    x.threads([&] { s.put(0); },
              [&] {
                if (!s.first.empty()) said.store(true, std::memory_order_release);
              },
              [&] {
                if (said.load(std::memory_order_acquire))
                  require(!s.first.empty(), "it is not seen empty");
              });
    s.all_have_run(1);
  });
}

TEST(Runq, BatchesMeetAThief) {
  explore({}, [](execution& x) {
    subject s(x);
    s.put(0);
    s.put(1);
    x.threads(
        [&] {
          owner own(s.first);
          G* all[queue::capacity];
          const std::uint32_t n = own.take_all(all);
          for (std::uint32_t i = 0; i < n; ++i) s.run(all[i]);
          G* two[] = {s.make(2), s.make(3)};
          require(own.room() >= 2, "there is room");
          own.put_all(two, 2);
        },
        [&] {
          s.steal(s.first, s.second);
          s.steal(s.first, s.second);
        });
    s.all_have_run(4);
  });
}

TEST(Runq, ManyBySeeds) {
  explore({.random = 4000, .spurious = 1}, [](execution& x) {
    subject s(x);
    x.threads(
        [&] {
          for (unsigned i = 0; i < 6; ++i) {
            if (i % 3 == 2) {
              s.put_next(i);
            } else {
              s.put(i);
            }
          }
          s.drain(s.first);
        },
        [&] {
          s.steal(s.first, s.second);
          s.steal_next();
          s.drain(s.second);
        },
        [&] {
          s.steal(s.first, s.third);
          s.steal(s.second, s.third);
        });
    s.all_have_run(6);
  });
}

}  // namespace
