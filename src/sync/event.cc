// SPDX-License-Identifier: Apache-2.0
// See weft/detail/event.hpp. Waiters lie on the stacks of those who wait; commits run on the
// arriving stack.
#include "weft/detail/event.hpp"

#include <memory>
#include <sched.h>

#include "sched/bubble.h"
#include "sched/timers.h"
#include "sched/waiter.h"
#include "sync/wait_list.h"
#include "weft/detail/chan_core.hpp"

namespace weft::detail {

using rt::waiter;

// One who waits for an event. With a deadline a timer may take it off the list; `queued` and
// `timed_out` are under the event's lock. One that `closes` a channel is nobody's: it lies on the
// heap, first in the list, later in the word, and goes with the event.
//
// Event and channel happen at one moment for everybody: set() stores the mark with the record, and
// closes then. Whoever finds the channel closed finds the mark; whoever finds the mark waits until
// the channel is closed, which is never long. Rejected: closing first and storing the mark then. It
// touches the event when one who waited on the channel may have destroyed it.
struct event::waiting {
  waiter w;
  const event* e;
  waiting* prev = nullptr;
  waiting* next = nullptr;
  bool queued = false;
  bool timed_out = false;
  chan_core* closes = nullptr;

  void publish() noexcept;
  void enlist() noexcept;
  void append() noexcept;
};

struct event::timed : waiting, rt::timer {
  static rt::G* time_is_up(rt::timer* t) noexcept;
};

bool event::lock() const noexcept {
  rt::enter_rt();
  for (;;) {
    // Acquire: with unlock, with publish, and with set's last store.
    std::uintptr_t w = word_.load(std::memory_order_acquire);
    if ((w & set_mark) != 0) {
      rt::leave_rt();
      return false;
    }
    if (w != lock_mark && word_.compare_exchange_weak(w, lock_mark, std::memory_order_acquire)) {
      if (w > list_mark) reinterpret_cast<waiting*>(w)->append();
      return true;
    }
    rt::cpu_relax();
  }
}

void event::unlock() const noexcept {
  word_.store(first_ != nullptr ? list_mark : 0, std::memory_order_release);
  rt::leave_rt();
}

// The commit of one without a deadline.
void event::waiting::publish() noexcept {
  std::uintptr_t nobody = 0;
  // Release: set finds all of *this. The last touch: set may have woken us when it returns.
  if (e->word_.compare_exchange_strong(nobody, reinterpret_cast<std::uintptr_t>(this),
                                       std::memory_order_release, std::memory_order_relaxed))
    return;
  enlist();
}

// The commit of all others: on the list, unless the reason to wait has gone meanwhile.
void event::waiting::enlist() noexcept {
  if (!e->lock()) {
    e->is_set();  // and its channel closed
    w.wake();
    return;
  }
  if (timed_out) {
    e->unlock();
    w.wake();
    return;
  }
  append();
  e->unlock();
}

void event::waiting::append() noexcept {  // under the lock
  prev = e->last_;
  (prev == nullptr ? e->first_ : prev->next) = this;
  e->last_ = this;
  queued = true;
}

// Under the timer heap's lock. If the event has happened, set() wakes us; nobody waits here until
// the channel is closed.
rt::G* event::timed::time_is_up(rt::timer* t) noexcept {
  waiting* self = static_cast<timed*>(t);
  const event* e = self->e;
  if (!e->lock()) return nullptr;
  self->timed_out = true;
  const bool parked = self->queued;
  if (parked) {
    (self->prev == nullptr ? e->first_ : self->prev->next) = self->next;
    (self->next == nullptr ? e->last_ : self->next->prev) = self->prev;
  }
  e->unlock();
  return parked ? self->w.g : nullptr;
}

namespace {
constexpr auto publish = [](void*, void* arg) { static_cast<event::waiting*>(arg)->publish(); };
constexpr auto enlist = [](void*, void* arg) { static_cast<event::waiting*>(arg)->enlist(); };
}  // namespace

const void* event_waited_for(const void* waiting_on) noexcept {
  return static_cast<const event::waiting*>(waiting_on)->e;
}

void event::wait_slow() const {
  rt::maybe_preempt();
  waiting me;
  me.e = this;
  rt::waits_in(me.w.g, born_.bubble());
  me.w.wait(publish, &me, rt::wait_reason::task_wait);
}

bool event::wait_slow(std::int64_t deadline) const {
  rt::maybe_preempt();
  timed me;
  me.e = this;
  if (me.w.g == nullptr) {  // a plain thread is its own alarm clock
    me.enlist();
    if (!me.w.asleep.sleep_until(deadline)) {
      if (lock()) {
        me.timed_out = true;
        (me.prev == nullptr ? first_ : me.prev->next) = me.next;
        (me.next == nullptr ? last_ : me.next->prev) = me.prev;
        unlock();
        return false;
      }
      me.w.asleep.sleep();  // set() has us and is about to wake us
    }
    return true;
  }
  me.fire = &timed::time_is_up;
  rt::arm(&me, deadline, me.w.g);
  rt::waits_in(me.w.g, born_.bubble());
  me.w.wait(enlist, static_cast<waiting*>(&me), rt::wait_reason::task_wait);
  rt::disarm(&me);  // and waits for a time_is_up under way: `me` must outlive it
  return is_set();
}

chan_core* event::channel() const {
  chan_ref c(chan_core::make(0, ops_of<nothing>, born_.bubble()));
  if (is_set()) {
    c->close_now();
    return c.give_up();
  }
  auto me = std::make_unique<waiting>();
  me->e = this;
  me->closes = c.get();
  if (!lock()) {
    is_set();  // those handed out before are closed too
    c->close_now();
    return c.give_up();
  }
  if (first_ != nullptr && first_->closes != nullptr) {
    chan_core* known = first_->closes;
    known->retain();
    unlock();
    return known;
  }
  c->retain();  // the list's
  me->next = first_;
  (first_ == nullptr ? last_ : first_->prev) = me.get();
  first_ = me.release();
  unlock();
  return c.give_up();
}

bool event::is_closed(std::uintptr_t word) noexcept {
  const chan_core* c = reinterpret_cast<waiting*>(word - set_mark)->closes;
  // Its load is an acquire: what is done after is_set() finds the channel as it has been closed.
  for (int i = 0; !c->closed(); ++i) {
    if (i < 100) {
      rt::cpu_relax();
    } else {
      ::sched_yield();
    }
  }
  return true;
}

void event::forget(std::uintptr_t word) noexcept {
  const std::unique_ptr<waiting> record(reinterpret_cast<waiting*>(word - set_mark));
  record->closes->release();
}

void event::set() noexcept {
  std::uintptr_t one = word_.load(std::memory_order_relaxed);
  while (one == 0 || (one > list_mark && (one & set_mark) == 0)) {
    const bool waited = one != 0;
    if (waited) rt::enter_rt();  // until he is awake, as in wake_chain
    // Release: the result is seen by whoever finds the mark. Acquire: with publish.
    const bool ours = word_.compare_exchange_weak(one, set_mark, std::memory_order_acq_rel,
                                                  std::memory_order_relaxed);
    if (ours && waited) reinterpret_cast<waiting*>(one)->w.wake();
    if (waited) rt::leave_rt();
    if (ours) return;
  }
  if (!lock()) return;
  waiting* w = first_;
  waiting* record = w != nullptr && w->closes != nullptr ? w : nullptr;
  chan_core* channel = nullptr;
  if (record != nullptr) {
    w = record->next;
    channel = record->closes;
    channel->retain();  // the record goes with the event
  }
  // Release: as above, and the record is seen. The last touch: whoever finds the mark may destroy
  // the event.
  word_.store(reinterpret_cast<std::uintptr_t>(record) | set_mark, std::memory_order_release);
  if (channel != nullptr) channel->close_now();
  while (w != nullptr) {  // after that: whom we wake does not look again
    waiting* next = w->next;
    w->w.wake();
    w = next;
  }
  rt::leave_rt();                              // not before all are awake, as in wake_chain
  if (channel != nullptr) channel->release();  // memory is given back outside
}

// While somebody waits, done_ holds waits - (how many are still to come). Whoever starts more
// meanwhile is itself one that runs, so the waiter cannot be woken for good before it has: it looks
// again and finds the two counts unequal.
void countdown::wait_slow() {
  rt::maybe_preempt();
  waiter w;
  waiter_ = &w;
  snapshot_ = added_.load(std::memory_order_relaxed);
  rt::waits_in(w.g, born_.bubble());
  w.wait(
      [](void*, void* arg) {
        auto* self = static_cast<countdown*>(arg);
        const std::uint64_t n = self->snapshot_;
        // Release: waiter_ and snapshot_ are seen by the one who counts to the end (acq_rel in
        // done). More than n may have ended since the snapshot: those who were started after it.
        if (self->done_.fetch_add(waits - n, std::memory_order_acq_rel) >= n) self->wake();
      },
      this, rt::wait_reason::scope_wait);
}

void countdown::wake() noexcept {
  auto* w = static_cast<waiter*>(waiter_);
  done_.fetch_sub(
      waits - snapshot_,
      std::memory_order_relaxed);  // the true count again; w sees it through its wake-up
  w->wake();
}

void gate::lock() noexcept {
  rt::enter_rt();
  while (lock_.exchange(1, std::memory_order_acquire) != 0) rt::cpu_relax();
}

void gate::unlock(void*, void* self) noexcept {
  static_cast<gate*>(self)->lock_.store(0, std::memory_order_release);
  rt::leave_rt();
}

void gate::enter() {
  rt::maybe_preempt();
  lock();
  if (free_ > 0) {
    --free_;
    unlock(nullptr, this);
    return;
  }
  waiter w;
  (first_ == nullptr
       ? first_
       : static_cast<void*&>(reinterpret_cast<void*&>(static_cast<waiter*>(last_)->next))) = &w;
  last_ = &w;
  rt::waits_in(w.g, born_.bubble());
  w.wait(&gate::unlock, this, rt::wait_reason::scope_wait);
}

void gate::leave() noexcept {
  const rt::in_runtime inside;  // as in wake_chain
  lock();
  auto* w = static_cast<waiter*>(first_);
  if (w != nullptr) {
    first_ = w->next;  // the place goes to w
  } else {
    ++free_;
  }
  unlock(nullptr, this);
  if (w != nullptr) w->wake();
}

}  // namespace weft::detail
