// SPDX-License-Identifier: Apache-2.0
// Timers and tickers with a channel, and after_func.
//
// A timer is a channel with a durable timer behind its buffer, in one block; the channel's count is
// its life and the channel's lock guards it. The buffer has one cell, which nobody sees: len and
// cap are 0, and stop and reset empty it, so that nothing stale is received after them.
//
// Each arming has a number. A firing that was already under way when the timer was stopped or reset
// finds another number, under the lock, and does nothing.
//
// A channel timer is armed when somebody first waits for it, and not before (as in Go 1.23): most
// are stopped before anybody does, and then no heap has heard of them. While it runs its channel is
// `timed`: who looks compares the clock with `due` and takes the value of a timer that is due
// himself, whether it is armed and late or not armed at all. Either way the value is the time it
// was due at. Once armed it stays in a heap until it fires or is stopped. In a bubble timers are
// what moves the time: there each is armed at once, and fires by itself.
//
// Who keeps it alive. A channel timer ends with its last handle: the heap does not count, and when
// it is due the heap only keeps one that is not yet on its way out (keep). A function timer must
// fire without any handle: each arming counts as one.
//
// Locks: the channel's, then the heap's. fired() comes without any. Runs on the caller's stack, and
// on g0 or the service thread (fired).
#include <new>
#include <stdexcept>

#include "chan/wait.h"
#include "sched/bubble.h"
#include "sched/park.h"
#include "sched/timers.h"
#include "weft/detail/chan_core.hpp"
#include "weft/go.hpp"
#include "weft/time.hpp"

namespace weft::detail {

// Friend of chan_core.
struct timer_core : rt::durable_timer {
  timer_core() noexcept : durable_timer(rt::current_bubble()) {}
  chan_core* c = nullptr;
  std::atomic<std::int64_t> due{rt::never};  // while it is timed; written under the lock
  // -- under the channel's lock.
  std::uint64_t number = 0;  // of the arming
  std::int64_t period = 0;
  bool pending = false;
  bool armed = false;  // it is in a heap, or was popped from one to be fired
  // -- a function timer's.
  void (*run)(void*) = nullptr;
  void* arg = nullptr;
  void (*drop)(void*) noexcept = nullptr;

  static timer_core* of(chan_core* core) noexcept {
    return static_cast<timer_core*>(core->extra());
  }

  static chan_ref make(bool channel) {
    chan_ref r(chan_core::make(1, ops_of<clock::time_point>, rt::current_bubble(),
                               sizeof(timer_core), &owner));
    auto* t = ::new (r->extra()) timer_core;
    t->c = r.get();
    t->keep = channel ? keep_channel : keep_function;
    t->fired = on_fire;
    t->dropped = [](rt::durable_timer* d) noexcept { static_cast<timer_core*>(d)->c->release(); };
    return r;
  }
  struct func_call {
    chan_ref t;
    void operator()() const {
      timer_core* self = of(t.get());
      self->run(self->arg);
    }
  };

  static bool keep_channel(rt::durable_timer* d) noexcept {
    auto& refs = static_cast<timer_core*>(d)->c->refs_;
    std::uint64_t n = refs.load(std::memory_order_relaxed);
    while (n != 0 && !refs.compare_exchange_weak(n, n + 1, std::memory_order_relaxed)) {
    }
    return n != 0;
  }
  static bool keep_function(rt::durable_timer*) noexcept { return true; }  // the arming's count

  static const chan_owner owner;
  static void last_rites(chan_core* core) noexcept {
    timer_core* t = of(core);
    rt::disarm(t);
    if (t->drop != nullptr) t->drop(t->arg);
    t->~timer_core();
  }

  // For a timer's two handles. Nobody else has it yet.
  void count_twice() const noexcept { c->refs_.store(2, std::memory_order_relaxed); }

  // Under the channel's lock.
  void start(std::int64_t deadline, std::int64_t every) noexcept {
    period = every;
    pending = true;
    ++number;
    if (deadline == rt::never) return;  // for ever
    if (run != nullptr) {
      c->retain();
    } else if (bubble == 0) {
      due.store(deadline, std::memory_order_relaxed);
      // Release: with the acquire in select, which then reads `due`.
      c->state_.store(chan_core::state::timed, std::memory_order_release);
      if (!is_awaited()) return;
    }
    armed = true;
    rt::arm(this, deadline, number);
  }
  // Under the channel's lock. *releases: the count of an arming that will not fire.
  bool halt(bool* releases) noexcept {
    const bool was = pending || c->count_.load(std::memory_order_relaxed) != 0;
    pending = false;
    ++number;
    c->count_.store(0, std::memory_order_release);                       // with looks_empty
    c->state_.store(chan_core::state::open, std::memory_order_release);  // likewise
    *releases = std::exchange(armed, false) && rt::disarm(this) && run != nullptr;
    return was;
  }

  // Its bubble's only; in a bubble, one from outside still counts the real time.
  std::int64_t reset_deadline(std::int64_t deadline) const noexcept {
    const std::uint32_t here = rt::current_bubble();
    if (bubble == here) return deadline;
    if (bubble != 0) rt::fatal("reset of synctest timer from outside bubble");
    return rt::real_deadline(deadline);
  }

  static bool stop(chan_core* core) noexcept {
    if (const std::uint32_t b = of(core)->bubble; b != 0 && b != rt::current_bubble())
      rt::fatal("stop of synctest timer from outside bubble");
    bool releases = false;
    core->lock();
    const bool was = of(core)->halt(&releases);
    core->unlock();
    if (releases) core->release();
    return was;
  }
  static bool reset(chan_core* core, std::int64_t deadline, std::int64_t every) noexcept {
    bool releases = false;
    deadline = of(core)->reset_deadline(deadline);
    core->lock();
    const bool was = of(core)->halt(&releases);
    of(core)->start(deadline, every);
    core->unlock();
    if (releases) core->release();
    of(core)->if_due();
    return was;
  }

  static bool is_due(const chan_core* core) noexcept {
    // A timer's channel is never const where it was made.
    const timer_core* t = of(const_cast<chan_core*>(core));
    return t->due.load(std::memory_order_relaxed) <= rt::nanotime();
  }
  // Under the channel's lock, while it is timed and has no value. False too if the value was for
  // one who has waited longer than the caller: he is woken, under the lock, which is rare.
  static bool take_due(chan_core* core) noexcept {
    timer_core* t = of(core);
    const std::int64_t at = t->due.load(std::memory_order_relaxed), now = rt::nanotime();
    if (at > now) return false;
    ++t->number;  // one who is about to fire it finds that he is too late
    if (std::exchange(t->armed, false)) rt::disarm(t);
    const bool last = t->go_on(at, now) == rt::never;
    chan_wait* woken = nullptr;
    clock::time_point tp{std::chrono::nanoseconds(at)};
    core->send_now(&tp, &woken);
    if (last) t->leave_time();
    if (t->is_awaited() && core->state_.load(std::memory_order_relaxed) == chan_core::state::timed)
      before_wait(core);
    if (woken != nullptr) woken->w->wake();
    return core->count_.load(std::memory_order_relaxed) != 0;
  }
  // Under the channel's lock, while it is timed.
  static void before_wait(chan_core* core) noexcept {
    timer_core* t = of(core);
    if (std::exchange(t->armed, true)) return;
    rt::arm(t, t->due.load(std::memory_order_relaxed), t->number);
  }

  static void on_fire(rt::durable_timer* d, std::uint64_t seq, std::int64_t now) noexcept {
    auto* t = static_cast<timer_core*>(d);
    chan_core* c = t->c;
    if (t->deliver(seq, now) && t->run != nullptr) {
      spawn<closure<func_call>>(func_call{chan_ref(c)});
    } else {
      let_go(c);
    }
  }

  // In a bubble time stands still, so what is due is so at once.
  void if_due() const noexcept {
    if (bubble != 0) rt::fire_due_here();
  }

 private:
  // Under the channel's lock: somebody queues for it.
  bool is_awaited() const noexcept {
    return c->receivers_.first.load(std::memory_order_relaxed) != nullptr;
  }
  // Under the channel's lock: the time `at` has come. A ticker's next one that is not past, or
  // never; then leave_time when its value is there.
  std::int64_t go_on(std::int64_t at, std::int64_t now) noexcept {
    std::int64_t next = 0;
    pending = period != 0;
    if (!pending || __builtin_mul_overflow((now - at) / period + 1, period, &next) ||
        __builtin_add_overflow(at, next, &next)) {
      return rt::never;
    }
    due.store(next, std::memory_order_relaxed);
    return next;
  }
  // From here on it is a channel like others. Release, behind the value: with looks_empty, which
  // would miss both a time that has come and its value otherwise.
  void leave_time() noexcept { c->state_.store(chan_core::state::open, std::memory_order_release); }
  // False: stopped or reset meanwhile.
  bool deliver(std::uint64_t armed_as, std::int64_t now) noexcept {
    chan_wait* woken = nullptr;
    c->lock();
    if (number != armed_as || !pending) {
      c->unlock();
      return false;
    }
    const std::int64_t at = when;
    armed = false;
    const std::int64_t next = go_on(at, now);
    if (next != rt::never) {
      armed = true;
      rt::arm(this, next, armed_as);
    }
    if (run == nullptr) {
      clock::time_point tp{std::chrono::nanoseconds(at)};
      c->send_now(&tp, &woken);  // if the last one has not been received it stays
    }
    if (next == rt::never) leave_time();
    c->unlock();
    if (woken != nullptr) woken->w->wake();
    return true;
  }
  // Gives up what keep() or the arming has counted. Not the last one on g0, where nothing may call
  // free (DESIGN 2.3) and no destructor of a user's may run: a goroutine does that.
  static void let_go(chan_core* core) noexcept {
    std::uint64_t n = core->refs_.load(std::memory_order_relaxed);
    while (n > 1) {
      // Release: with the acquire of the one that ends it.
      if (core->refs_.compare_exchange_weak(n, n - 1, std::memory_order_release,
                                            std::memory_order_relaxed))
        return;
    }
    if (rt::current_m() == nullptr) {
      core->release();
    } else {
      spawn<closure<last_one>>(last_one{chan_ref(core)});
    }
  }
  struct last_one {
    chan_ref t;
    void operator()() const noexcept {}
  };
};

constexpr chan_owner timer_core::owner{last_rites, is_due, take_due, before_wait};

chan_core* make_timer(std::int64_t deadline, std::int64_t period) {
  chan_core* c = timer_core::make(true).give_up();
  timer_core* t = timer_core::of(c);
  t->count_twice();
  t->start(deadline, period);  // nobody else has it yet
  t->if_due();
  return c;
}

chan_ref make_func_timer(std::int64_t deadline, void (*run)(void*), void* arg,
                         void (*drop)(void*) noexcept) {
  chan_ref r = timer_core::make(false);
  timer_core* t = timer_core::of(r.get());
  t->run = run;
  t->arg = arg;
  t->drop = drop;
  t->start(deadline, 0);
  t->if_due();
  return r;
}

bool stop_timer(chan_core* c) noexcept { return timer_core::stop(c); }

bool reset_timer(chan_core* c, std::int64_t deadline, std::int64_t period) noexcept {
  return timer_core::reset(c, deadline, period);
}

void throw_timer_misuse(const char* what) { throw std::logic_error(what); }

void sleep_until_ns(std::int64_t deadline) {
  if (deadline <= rt::clock_now()) {
    rt::maybe_preempt();
    return;
  }
  rt::before_certain_park();
  rt::sleep_until(deadline, rt::wait_reason::sleep);
}

}  // namespace weft::detail
