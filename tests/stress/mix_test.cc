// SPDX-License-Identifier: Apache-2.0
// Everything at once: goroutines that spawn, yield, park and are readied by random partners, by
// plain threads and by one another, throw, sit in handlers and destructors while they wait, exit in
// the middle, while the number of Ps changes and the scheduler is audited. Every actor keeps books;
// at the end they must agree.
#include <cerrno>
#include <exception>
#include <stdexcept>

#include "sched/waiter.h"
#include "stress/support.h"

namespace weft::stress {
namespace {

using test::sanitized;

__attribute__((noinline)) int get_errno() { return errno; }
__attribute__((noinline)) void set_errno(int e) { errno = e; }

// Places where goroutines and threads wait for whoever comes by. Coming to a taken place wakes the
// one who sits there.
class board {
 public:
  void wait(std::uint32_t place) {
    seat s{{}, &places_[place % std::size(places_)]};
    s.w.wait(
        [](void*, void* arg) {
          auto* self = static_cast<seat*>(arg);
          std::atomic<rt::waiter*>* place_of = self->place;
          rt::waiter* w = &self->w;
          if (rt::waiter* old = place_of->exchange(w, std::memory_order_acq_rel)) old->wake();
        },
        &s, rt::wait_reason::internal);
  }
  bool wake(std::uint32_t place) {
    rt::waiter* w =
        places_[place % std::size(places_)].exchange(nullptr, std::memory_order_acq_rel);
    if (w != nullptr) w->wake();
    return w != nullptr;
  }
  void wake_all() {
    for (std::uint32_t i = 0; i < std::size(places_); ++i) wake(i);
  }

 private:
  struct seat {
    rt::waiter w;
    std::atomic<rt::waiter*>* place;
  };
  std::atomic<rt::waiter*> places_[16] = {};
};

struct world {
  checker check;
  board places;
  std::atomic<bool> stop{false};
  std::atomic<int> threads{0};          // plain ones, running
  std::atomic<std::int64_t> actors{0};  // alive
  std::atomic<std::uint64_t> born{0}, ended{0};
  std::atomic<std::uint64_t> progress{0};
  std::atomic<std::uint64_t> audits{0}, resizes{0}, rethrown{0}, exits{0}, moved{0};
  local<std::uint64_t> identity;
  int max_actors = sanitized ? 150 : 400;
};

struct thrown : std::runtime_error {
  std::uint64_t who;
  int depth;
  thrown(std::uint64_t w, int d) : std::runtime_error("thrown on purpose"), who(w), depth(d) {}
};

class actor {
 public:
  actor(world& w, std::uint64_t seed) : w_(w), r_(seed), id_(seed) {
    ++w_.born;
    ++w_.actors;
  }
  ~actor() {
    --w_.actors;
    ++w_.ended;
  }

  void live() {
    *w_.identity = id_;
    const std::uint64_t goid_before = goid();
    for (std::uint32_t steps = 20 + r_.below(100); steps > 0 && !w_.stop; --steps) {
      ++w_.progress;
      set_errno(static_cast<int>(id_ % 1000));
      step();
      w_.check(get_errno() == static_cast<int>(id_ % 1000) || touched_errno_,
               "errno of another goroutine");
      touched_errno_ = false;
      w_.check(*w_.identity == id_, "local of another goroutine");
      w_.check(goid() == goid_before, "goid has changed");
      w_.check(std::uncaught_exceptions() == 0, "uncaught_exceptions");
      w_.check(std::current_exception() == nullptr, "a handler that is not ours");
    }
  }

 private:
  // Somewhere between a moment and a long wait.
  void linger() {
    switch (r_.below(6)) {
      case 0:
      case 1:
        yield();
        break;
      case 2:
        w_.places.wait(static_cast<std::uint32_t>(r_.next()));
        break;
      case 3:
        w_.places.wake(static_cast<std::uint32_t>(r_.next()));
        break;
      case 4:
        for (std::uint32_t i = r_.below(300); i > 0; --i) rt::cpu_relax();
        break;
      case 5:
        touched_errno_ = true;
        async([] { yield(); }).wait();
        break;
    }
  }
  void spawn() {
    if (w_.actors >= w_.max_actors) return;
    const std::uint64_t seed = r_.next();
    world& w = w_;
    switch (r_.below(3)) {
      case 0:
        go([&w, seed] { actor(w, seed).live(); });
        break;
      case 1:
        go({.stack_size = 512 * 1024, .name = "large"}, [&w, seed] { actor(w, seed).live(); });
        break;
      case 2:
        (void)async([&w, seed] { actor(w, seed).live(); });
        break;
    }
  }
  void step() {
    switch (r_.below(14)) {
      case 0:
      case 1:
      case 2:
        linger();
        break;
      case 3:
      case 4:
        spawn();
        break;
      case 5:
        join_a_task();
        break;
      case 6:
        hold_a_scope();
        break;
      case 7:
        wait_in_a_handler(1 + static_cast<int>(r_.below(3)));
        break;
      case 8:
        wait_while_unwinding();
        break;
      case 9:
        exit_in_the_middle();
        break;
      case 10:
        share_an_event();
        break;
      case 11:
        recurse(static_cast<int>(r_.below(30)));
        break;
      case 12:
        if (r_.below(200) == 0) {
          touched_errno_ = true;
          w_.check(debug::audit() == 0, "audit");
          ++w_.audits;
        }
        break;
      case 13:
        if (r_.below(200) == 0) {
          touched_errno_ = true;
          set_procs(1 + static_cast<int>(r_.below(64)));
          ++w_.resizes;
        }
        break;
    }
  }
  void join_a_task() {
    touched_errno_ = true;
    const std::uint64_t n = r_.next();
    const std::uint32_t kind = r_.below(3);
    auto t = async([this, n, kind, seed = r_.next()]() -> std::uint64_t {
      actor inner(w_, seed);
      inner.linger();
      if (kind == 1) throw thrown(n, 0);
      if (kind == 2) goexit();
      return n;
    });
    linger();
    try {
      w_.check(t.get() == n && kind == 0, "result of a task");
    } catch (const thrown& e) {
      w_.check(e.who == n && kind == 1, "exception of a task");
    } catch (const goexited&) {
      w_.check(kind == 2, "goexited");
    }
  }
  void hold_a_scope() {
    touched_errno_ = true;
    std::atomic<int> ended{0};
    const std::uint32_t n = 1 + r_.below(6);
    const bool throws = r_.below(2) == 0;
    bool caught = false;
    {
      scope s(r_.below(3));
      for (std::uint32_t i = 0; i < n; ++i) {
        s.go([this, &ended, throws, seed = r_.next()] {
          struct count {
            std::atomic<int>& n;
            ~count() { ++n; }
          } c{ended};
          actor inner(w_, seed);
          inner.linger();
          if (throws) throw thrown(seed, 0);
        });
      }
      linger();
      try {
        s.wait();
      } catch (const thrown&) {
        caught = true;
      }
    }
    w_.check(ended == static_cast<int>(n), "a scope that does not wait");
    w_.check(caught == throws, "the exception of a scope");
  }
  void wait_in_a_handler(int depth) {
    touched_errno_ = true;
    const pid_t before = rt::current_m()->tid;
    try {
      try {
        throw thrown(id_, depth);
      } catch (const thrown& e) {
        linger();
        w_.check(e.who == id_ && e.depth == depth, "an exception in a handler has changed");
        if (depth > 1) wait_in_a_handler(depth - 1);
        linger();
        w_.check(std::current_exception() != nullptr, "the handler has lost its exception");
        throw;
      }
    } catch (const thrown& e) {
      w_.check(e.who == id_ && e.depth == depth, "rethrown: another exception");
      ++w_.rethrown;
    }
    if (rt::current_m()->tid != before) ++w_.moved;
  }
  void wait_while_unwinding() {
    touched_errno_ = true;
    struct waits_in_destructor {
      actor& a;
      int expect;
      ~waits_in_destructor() {
        a.w_.check(std::uncaught_exceptions() == expect, "uncaught_exceptions before");
        a.linger();
        a.w_.check(std::uncaught_exceptions() == expect, "uncaught_exceptions after");
        try {
          waits_in_nested n{a, expect + 1};
          throw thrown(a.id_, 7);
        } catch (const thrown& e) {
          a.w_.check(e.depth == 7, "nested exception");
        }
      }
      struct waits_in_nested {
        actor& a;
        int expect;
        ~waits_in_nested() {
          a.linger();
          a.w_.check(std::uncaught_exceptions() == expect, "uncaught_exceptions nested");
        }
      };
    };
    try {
      waits_in_destructor d{*this, 1};
      throw thrown(id_, 9);
    } catch (const thrown& e) {
      w_.check(e.who == id_ && e.depth == 9, "unwinding: another exception");
    }
  }
  void exit_in_the_middle() {
    touched_errno_ = true;
    std::atomic<int> destroyed{0};
    struct guard {
      actor& a;
      std::atomic<int>& n;
      ~guard() {
        a.linger();  // while goexit unwinds
        ++n;
      }
    };
    async([this, &destroyed, seed = r_.next()] {
      actor inner(w_, seed);
      guard outer{inner, destroyed};
      try {
        guard g{inner, destroyed};
        inner.linger();
        goexit();
      } catch (const std::exception&) {
        inner.w_.check(false, "goexit went into a typed handler");
      }
    }).wait();
    w_.check(destroyed == 2, "goexit skipped a destructor");
    ++w_.exits;
  }
  void share_an_event() {
    touched_errno_ = true;
    auto e = std::make_unique<event>();
    int data = 0;
    go([this, p = e.get(), &data, seed = r_.next()] {
      actor inner(w_, seed);
      if (inner.r_.below(2) == 0) inner.linger();
      data = 1;
      p->set();
    });
    if (r_.below(2) == 0) linger();
    e->wait();
    e.reset();  // at once
    w_.check(data == 1, "an event without what came before it");
  }
  void recurse(int depth) {
    volatile char room[512];
    room[0] = static_cast<char>(depth);
    if (depth == 0) {
      linger();
    } else {
      recurse(depth - 1);
    }
    touched_errno_ = true;
    w_.check(room[0] == static_cast<char>(depth), "a frame has changed");
  }

  world& w_;
  rt::random r_;
  std::uint64_t id_;
  bool touched_errno_ = false;
};

class Mix : public Procs {};

TEST_P(Mix, EverythingAtOnce) {
  world w;
  const std::int64_t until = nanotime() + duration_ns(3);
  watchdog dog(w.progress, "mix");
  const auditor audits;
  const auto plain_thread = [&](std::uint64_t seed) {
    struct count {
      std::atomic<int>& n;
      ~count() { --n; }
    } c{w.threads};
    rt::random r(seed);
    while (!w.stop) {
      switch (r.below(8)) {
        case 0:
          if (w.actors < w.max_actors) go([&w, s = r.next()] { actor(w, s).live(); });
          break;
        case 1:
          w.places.wait(static_cast<std::uint32_t>(r.next()));
          break;
        case 2: {
          promise<int> p;
          (void)async([&w, t = p.get_task()]() mutable { w.check(t.get() == 5, "promise"); });
          p.set_value(5);
          break;
        }
        case 3:
          if (r.below(50) == 0) {
            w.check(debug::audit() == 0, "audit by a plain thread");
            ++w.audits;
          }
          break;
        case 4:
          if (r.below(50) == 0) {
            set_procs(1 + static_cast<int>(r.below(64)));
            ++w.resizes;
          }
          break;
        default:
          w.places.wake(static_cast<std::uint32_t>(r.next()));
          std::this_thread::sleep_for(std::chrono::microseconds(r.below(300)));
          break;
      }
    }
  };
  run(test::with_procs(procs()), [&] {
    std::vector<std::thread> threads;
    w.threads = 2;
    for (std::uint64_t t = 1; t <= 2; ++t) threads.emplace_back([&, t] { plain_thread(t); });
    rt::random r(42);
    while (nanotime() < until) {
      if (w.actors < w.max_actors / 2) {
        go([&w, s = r.next()] { actor(w, s).live(); });
      } else {
        w.places.wake(static_cast<std::uint32_t>(r.next()));
      }
      yield();
    }
    w.stop = true;
    while (w.actors != 0 || num_goroutines() > 1) {  // whoever still waits is waked
      w.places.wake_all();
      ++w.progress;
      yield();
    }
    while (w.threads != 0) {  // no join before: it would keep a P that a thread may want to stop
      w.places.wake_all();
      yield();
    }
    for (auto& t : threads) t.join();
    EXPECT_TRUE(test::eventually([] { return num_goroutines() == 1; }));
    EXPECT_EQ(debug::audit(), 0);
  });
  w.check.report();
  EXPECT_EQ(w.born, w.ended);
  EXPECT_EQ(num_goroutines(), 0U);
  std::printf(
      "  %llu actors, %llu steps, %llu rethrown (%llu on another thread), %llu goexits, %llu "
      "audits, %llu resizes\n",
      static_cast<unsigned long long>(w.born), static_cast<unsigned long long>(w.progress),
      static_cast<unsigned long long>(w.rethrown), static_cast<unsigned long long>(w.moved),
      static_cast<unsigned long long>(w.exits), static_cast<unsigned long long>(w.audits),
      static_cast<unsigned long long>(w.resizes));
}
WEFT_STRESS_PROCS(Mix);

}  // namespace
}  // namespace weft::stress
