// SPDX-License-Identifier: Apache-2.0
// Those who wait for a sync object: their records, lists and locks.
//
// A record lies on the stack of the one who waits, a goroutine or a plain thread. The object holds
// the list; the lock of the list is one of a static table, chosen by the object's address. So a
// record's lock outlives the object, and whoever comes late to end a wait (a timer, a cancellation)
// can always take it, look, and find the record off the list, though the object may be gone by
// then: that is what makes API.md's rule of destruction simple to keep.
//
// Rejected: a lock in each object (a late timer would touch a dead object), and a table of lists
// as in Go (objects that meet in one bucket pay for each other's waiters; ours meet only for the
// lock).
//
// **S1** A record is on a list exactly while record.list is set; under its lock. Whoever takes it
// off wakes it, once, after giving the lock up; it is that record's last touch.
// **S2** Nobody arms or disarms a timer under a list's lock: firing takes the lock under the
// timer's.
// **S3** No thread holds two of these locks.
// **S4** A plain thread never waits for a goroutine that is left behind: whoever takes somebody off
// a list drops those first, and the end of a run lets by whom they only stood in the way of.
//
// Runs on the caller's stack, goroutine's or thread's; commits on the stack that is arrived at;
// expire() on g0 when a timer fires.
#pragma once

#include "base/chaos.h"
#include "base/fatal.h"
#include "sched/bubble.h"
#include "sched/timers.h"
#include "sched/waiter.h"
#include "weft/detail/wait_list.hpp"

namespace weft::detail {

rt::mutex& lock_of(const void* object) noexcept;
// The event that is waited for; waiting_on is what was given to park (wait_reason::task_wait).
const void* event_waited_for(const void* waiting_on) noexcept;  // event.cc

class wake_chain;

struct waiting {
  explicit waiting(const void* of) noexcept : mu(lock_of(of)), object(of) {}
  waiting(const waiting&) = delete;
  waiting& operator=(const waiting&) = delete;

  rt::waiter w;
  rt::mutex& mu;
  const void* const object;  // what is waited for
  // -- under mu.
  waiting* next = nullptr;
  waiting* prev = nullptr;
  wait_list* list = nullptr;  // S1
  bool expired = false;       // somebody wants the wait to end: its time is up, or it is cancelled
  // -- by whoever takes us off, before it wakes us; ours to read after block().
  bool thrown_out = false;  // expire() did
  bool granted = false;     // the waker has done our work for us
  // What the object has to do when expire() takes us off; may pass others that can go on now.
  void (*left)(waiting* me, wake_chain& others) noexcept = nullptr;
  // What the object has to do at the end of a run while we, a plain thread, are on its list: of
  // those in front of us some may never run again. Passes those that can go on now.
  void (*run_over)(waiting* me, wake_chain& others) noexcept = nullptr;
  // -- see block_unlocked.
  rt::atomic<std::uint32_t> met{0};
  bool meets = false;

  // mu is held and we are on a list; returns when we have been taken off, without mu. Gives mu up
  // once parked.
  void block(rt::wait_reason why, std::int64_t deadline = no_deadline);
  // The same for one that has left mu alone since it queued: the waker may come before we have
  // parked. `meets` was set before queueing.
  void block_unlocked(rt::wait_reason why, std::int64_t deadline = no_deadline);
  // By whoever took us off, once (S1).
  void wake() noexcept {
    // Both sides exchange; the second one wakes. Acq_rel: with the other's exchange.
    rt::chaos::point("event.wake");
    if (!meets || met.exchange(1, rt::memory_order_acq_rel) != 0) w.wake();
  }
  // Ends the wait from outside, at any time while the record lives, from any thread and under a
  // timer's lock. If we are on no list it only leaves the mark.
  void expire() noexcept;
  // For another round of one record.
  void again() noexcept {
    w.asleep.clear();
    granted = thrown_out = false;
  }

 private:
  friend void rt::sync_end_run() noexcept;
  void sleep_thread(std::int64_t deadline) noexcept;
  bool give_up() noexcept;
  // -- under mu: the plain threads that sleep under this lock and have a run_over.
  void list_thread() noexcept;
  void unlist_thread() noexcept;
  waiting* next_thread_ = nullptr;
  waiting** back_thread_ = nullptr;  // what points at us
};

// Records taken off under the lock, to be woken after it. Inside the runtime until then: who leaves
// it may be stopped, for good if its run is over, and a plain thread would wait for ever.
class wake_chain {
 public:
  void push(waiting* w) noexcept {
    w->next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = w;
    last_ = w;
  }
  bool empty() const noexcept { return first_ == nullptr; }
  // All of a list that was detached; those whose run is over are left where they are.
  void take(waiting* ring) noexcept;
  void wake_all() noexcept {
    for (waiting* w = first_; w != nullptr;) {
      waiting* next = w->next;
      w->wake();
      w = next;
    }
  }

 private:
  rt::in_runtime inside_;
  waiting* first_ = nullptr;
  waiting* last_ = nullptr;
};

// The time-out of a goroutine's wait. Armed once, before the record is queued; gone, and certain
// not to be firing, when destroyed. A plain thread is its own alarm clock (sleep_thread).
class alarm : private rt::timer {
 public:
  alarm(waiting& who, std::int64_t deadline) noexcept : who_(who), deadline_(deadline) {}
  alarm(const alarm&) = delete;
  alarm& operator=(const alarm&) = delete;
  ~alarm() {
    if (armed_) rt::disarm(this);
  }
  void set() noexcept {
    if (deadline_ == no_deadline || who_.w.g == nullptr || armed_) return;
    fire = [](rt::timer* t) noexcept -> rt::G* {
      static_cast<alarm*>(t)->who_.expire();
      return nullptr;
    };
    armed_ = true;
    rt::arm(this, deadline_, who_.w.g);
  }

 private:
  waiting& who_;
  std::int64_t deadline_;
  bool armed_ = false;
};

// Spinning for something that a running goroutine or thread is about to give up: four short rounds,
// and only where it can: another CPU, another P at work, nothing else to do here.
class spinner {
 public:
  bool can() const noexcept;
  void round() noexcept {
    ++rounds_;
    for (int i = 0; i < 30; ++i) rt::cpu_relax();
  }
  void reset() noexcept { rounds_ = 0; }

 private:
  static constexpr int max_rounds = 4;
  int rounds_ = 0;
};

}  // namespace weft::detail
