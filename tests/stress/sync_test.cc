// SPDX-License-Identifier: Apache-2.0
// Everything of sync.hpp at once: goroutines and plain threads meet at a few objects of each kind,
// with time-outs short enough to hit the moment of the wake-up. What they guard is checked all the
// time, and that nobody is left waiting at the end.
#include <mutex>
#include <shared_mutex>

#include <weft/sync.hpp>

#include "stress/support.h"

namespace weft::stress {
namespace {

constexpr int permits = 3;

struct objects {
  mutex mu;
  long guarded = 0;  // by mu
  bool inside = false;
  condition_variable cv;
  long tickets = 0;  // by mu

  shared_mutex rw;
  long written = 0;  // by rw
  std::atomic<int> readers{0}, writers{0};

  semaphore sem{permits};
  std::atomic<int> used{0};
};

struct world {
  checker check;
  std::atomic<std::uint64_t> progress{0}, locked{0}, timed_out{0};
  std::atomic<bool> stop{false};
  objects all[3];
};

class actor {
 public:
  actor(world& w, std::uint64_t seed) : w_(w), r_(seed), goroutine_(goid() != 0) {}

  void live() {
    while (!w_.stop) {
      objects& o = w_.all[r_.below(3)];
      switch (r_.below(9)) {
        case 0:
        case 1:
        case 2:
          exclusive(o);
          break;
        case 3:
          shared(o);
          break;
        case 4:
          counted(o);
          break;
        case 5:
          take_a_ticket(o);
          break;
        case 6:
          give_a_ticket(o);
          break;
        case 7:
          together();
          break;
        case 8:
          one_off();
          break;
      }
      w_.progress.fetch_add(1, std::memory_order_relaxed);
    }
  }

 private:
  std::chrono::microseconds moment() { return std::chrono::microseconds(r_.below(60)); }
  void linger() {
    if (goroutine_ && r_.below(3) == 0) {
      yield();
    } else {
      for (std::uint32_t i = r_.below(60); i > 0; --i) rt::cpu_relax();
    }
  }
  bool got(bool ok) {
    (ok ? w_.locked : w_.timed_out).fetch_add(1, std::memory_order_relaxed);
    return ok;
  }
  void exclusive(objects& o) {
    switch (r_.below(4)) {
      case 0:
        if (!o.mu.try_lock()) return;
        break;
      case 1:
        if (!got(o.mu.try_lock_for(moment()))) return;
        break;
      default:
        o.mu.lock();
    }
    w_.check(!o.inside, "two in a mutex");
    o.inside = true;
    ++o.guarded;
    linger();
    o.inside = false;
    o.mu.unlock();
  }
  void shared(objects& o) {
    if (r_.below(4) == 0) {
      if (r_.below(2) == 0) {
        o.rw.lock();
      } else if (!got(o.rw.try_lock_for(moment()))) {
        return;
      }
      w_.check(++o.writers == 1 && o.readers == 0, "a writer with others");
      ++o.written;
      linger();
      --o.writers;
      o.rw.unlock();
      return;
    }
    if (r_.below(2) == 0) {
      o.rw.lock_shared();
    } else if (!got(o.rw.try_lock_shared_for(moment()))) {
      return;
    }
    ++o.readers;
    w_.check(o.writers == 0, "a reader with a writer");
    linger();
    --o.readers;
    o.rw.unlock_shared();
  }
  void counted(objects& o) {
    const int n = 1 + static_cast<int>(r_.below(permits));
    if (r_.below(2) == 0) {
      o.sem.acquire(n);
    } else if (!got(o.sem.try_acquire_for(moment(), n))) {
      return;
    }
    w_.check((o.used += n) <= permits, "more permits than there are");
    linger();
    o.used -= n;
    o.sem.release(n);
  }
  void take_a_ticket(objects& o) {
    std::unique_lock lock(o.mu);
    if (got(o.cv.wait_for(lock, moment(), [&] { return o.tickets > 0; }))) --o.tickets;
  }
  void give_a_ticket(objects& o) {
    {
      std::lock_guard hold(o.mu);
      if (o.tickets > 20) return;
      ++o.tickets;
    }
    if (r_.below(4) == 0) {
      o.cv.notify_all();
    } else {
      o.cv.notify_one();
    }
  }
  // Objects that go as soon as the last call that needs them has returned.
  void together() {
    auto wg = std::make_unique<wait_group>();
    auto l = std::make_unique<latch>(3);
    int data[3] = {};
    for (int i = 0; i < 3; ++i) {
      wg->go([&, i, p = l.get()] {
        data[i] = 1;
        p->count_down();
      });
    }
    l->wait();
    w_.check(data[0] + data[1] + data[2] == 3, "a latch that opens early");
    wg->wait();
  }
  void one_off() {
    auto b = std::make_unique<barrier<>>(2);
    auto done = std::make_unique<semaphore>(0);
    const auto value = once_value([] { return 7; });
    go([this, p = b.get(), q = done.get(), value] {
      w_.check(value() == 7, "once_value");
      p->arrive_and_wait();
      q->release();
    });
    w_.check(value() == 7, "once_value");
    b->arrive_and_wait();
    done->acquire();
  }

  world& w_;
  rt::random r_;
  bool goroutine_;
};

class Sync : public Procs {};

TEST_P(Sync, EverythingAtOnce) {
  auto w = std::make_unique<world>();
  watchdog dog(w->progress, "sync");
  const auditor audits;
  const std::int64_t until = nanotime() + duration_ns(2);
  run(test::with_procs(procs()), [&] {
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 3; ++t)
      threads.emplace_back([&, t] { actor(*w, 1000 + t).live(); });
    wait_group wg;
    for (std::uint64_t i = 0; i < 24; ++i) wg.go([&, i] { actor(*w, i).live(); });
    while (nanotime() < until) yield();
    w->stop = true;
    wg.wait();
    latch gone(1);
    std::thread joiner([&] {  // not on a P: the threads may need a goroutine to run
      for (auto& t : threads) t.join();
      gone.count_down();
    });
    gone.wait();
    joiner.join();
    EXPECT_TRUE(test::eventually([] { return num_goroutines() == 1; }));
    EXPECT_EQ(debug::audit(), 0);
  });
  w->check.report();
  for (objects& o : w->all) {
    EXPECT_TRUE(o.mu.try_lock());
    EXPECT_TRUE(o.rw.try_lock());
    EXPECT_TRUE(o.sem.try_acquire(permits));
  }
  std::printf("  %llu steps, %llu timed calls in time, %llu too late\n",
              static_cast<unsigned long long>(w->progress),
              static_cast<unsigned long long>(w->locked),
              static_cast<unsigned long long>(w->timed_out));
}
WEFT_STRESS_PROCS(Sync);

}  // namespace
}  // namespace weft::stress
