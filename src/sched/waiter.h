// SPDX-License-Identifier: Apache-2.0
// One who waits: a goroutine, which parks, or a plain thread, which sleeps on a futex. Primitives
// put waiters on their lists and need not know which kind they hold.
//
// Lives on the stack of the one who waits. wake() is the last touch: the waiter may be gone before
// it returns.
#pragma once

#include "os/mutex.h"
#include "os/note.h"
#include "sched/park.h"
#include "sched/sched.h"

namespace weft::rt {

// How many plain threads sleep in a weft call without a deadline (low half), and a number that
// changes with each that does or no longer does (high half). For the deadlock detector.
extern constinit atomic<std::uint64_t> blocked_threads;
// What threads of ours are doing for somebody who waits (a lookup of a name): they will wake him.
extern constinit atomic<std::uint32_t> errands;
extern constinit atomic<std::uint32_t> errands_begun;  // the same number: none has come and gone
inline void begin_errand() noexcept {
  errands.fetch_add(1, memory_order_seq_cst);
  errands_begun.fetch_add(1, memory_order_seq_cst);  // in this order: see look_in_stopped_world
}
// One is done, whoever it woke has been woken: looks whether there is anybody left who can run.
void end_errand() noexcept;  // deadlock.cc
// For as long as a block lasts: whoever takes the world for others.
struct errand {
  errand() noexcept { begin_errand(); }
  ~errand() { end_errand(); }
  errand(const errand&) = delete;
  errand& operator=(const errand&) = delete;
};
// What may come from outside at any moment and wake somebody, though nobody is at work for it yet:
// signals that are wanted.
extern constinit atomic<std::uint32_t> awaited;

// How many plain threads stand still in a weft call, with or without a deadline (low half), and a
// number that changes with each that begins or ends to (high half). For the leak finder: one that
// does has all its registers on its stack, so nothing that it knows is hidden. Whoever makes one
// calls __builtin_unwind_init() in the same function.
extern constinit atomic<std::uint64_t> threads_still;
class standing_still {
 public:
  standing_still() noexcept { threads_still.fetch_add(change + 1, memory_order_seq_cst); }
  standing_still(const standing_still&) = delete;
  standing_still& operator=(const standing_still&) = delete;
  ~standing_still() { threads_still.fetch_add(change - 1, memory_order_seq_cst); }

 private:
  static constexpr std::uint64_t change = 1ULL << 32;
};
// Whether the process has no thread but ours, m0, those that stand still, and `callers` plain ones
// that the caller knows of. A thread of ours that has just begun or is about to end is in one of
// the two counts only (threads_on_their_way).
bool knows_all_threads(std::uint32_t callers) noexcept;

// A note on which a plain thread sleeps. The *waker* takes it off the count before it wakes it:
// otherwise the last running thread could wake another, end, and for a moment nobody would seem
// able to run.
class thread_note {
 public:
  void clear() noexcept {
    counted_.store(0, memory_order_relaxed);
    note_.clear();
  }
  void sleep() noexcept { sleep_until(-1); }
  bool sleep_until(std::int64_t deadline) noexcept;  // deadlock.cc
  void wake() noexcept {
    if (counted_.exchange(2, memory_order_relaxed) == 1)
      blocked_threads.fetch_add(change - 1, memory_order_seq_cst);
    note_.wake();
  }

 private:
  static constexpr std::uint64_t change = 1ULL << 32;
  atomic<std::uint32_t> counted_{0};  // 1: by the sleeper; 2: no more, the waker has come
  note note_;
};

struct waiter {
  G* g = current_g();
  waiter* next = nullptr;
  thread_note asleep;

  // commit(g, arg) publishes this waiter (or calls w->refuse()); g is null on a plain thread.
  void wait(park_commit commit, void* arg, wait_reason why) {
    if (g != nullptr) {
      park(commit, arg, why);
      return;
    }
    commit(nullptr, arg);
    asleep.sleep();
  }
  void wake() noexcept {
    if (g != nullptr) {
      ready(g);
    } else {
      asleep.wake();
    }
  }
};

// First in, first out.
class waiter_list {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  void push(waiter* w) noexcept {
    w->next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = w;
    tail_ = w;
  }
  waiter* pop() noexcept {
    waiter* w = head_;
    if (w != nullptr) head_ = w->next;
    return w;
  }

 private:
  waiter* head_ = nullptr;
  waiter* tail_ = nullptr;
};

// A lock on which goroutines park and plain threads sleep; handed over in order of arrival.
class parking_lock {
 public:
  constexpr explicit parking_lock(lock_rank rank = lock_rank::wait_queue) noexcept : mu_(rank) {}
  void lock(wait_reason why) {
    mu_.lock();
    if (!held_) {
      held_ = true;
      mu_.unlock();
      return;
    }
    waiter w;
    waiters_.push(&w);
    w.wait([](void*, void* self) { static_cast<parking_lock*>(self)->mu_.unlock(); }, this, why);
  }
  // The end of a run: goroutines that wait here are left behind, and the lock must not be handed to
  // one of them. Called by the holder, with the world stopped.
  void forget_goroutines() noexcept {
    mu_.lock();
    waiter_list threads;
    while (waiter* w = waiters_.pop()) {
      if (w->g == nullptr) threads.push(w);
    }
    waiters_ = threads;
    mu_.unlock();
  }
  void unlock() noexcept {
    const in_runtime inside;  // until it is awake: one whose run is over may be stopped outside
    mu_.lock();
    waiter* w = waiters_.pop();
    // A goroutine of a run that is over may have come after forget_goroutines, without a P.
    while (w != nullptr && w->g != nullptr &&
           w->g->run_id != sched.run_id.load(memory_order_relaxed))
      w = waiters_.pop();
    held_ = w != nullptr;
    mu_.unlock();
    if (w != nullptr) w->wake();
  }

 private:
  mutex mu_;
  bool held_ = false;
  waiter_list waiters_;
};

}  // namespace weft::rt
