// SPDX-License-Identifier: Apache-2.0
// A small channel over park and ready, for tests of the scheduler: a lock, a buffer and two lists
// of waiters. Any goroutine or thread may use either end.
//
// A value is handed over under the lock, straight into the record of the one who waits, so whoever
// wakes has what it came for.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "sched/waiter.h"
#include "support/spin_lock.h"

namespace weft::test {

template <class T>
class chan {
 public:
  explicit chan(std::size_t capacity = 0) : capacity_(capacity) {}
  chan(const chan&) = delete;
  chan& operator=(const chan&) = delete;

  void send(T v) {
    rt::maybe_preempt();
    lock_.lock();
    if (party* r = pop(receivers_)) {
      r->value.emplace(std::move(v));
      lock_.unlock();
      r->wake();
      return;
    }
    if (buffer_.size() < capacity_) {
      buffer_.push_back(std::move(v));
      lock_.unlock();
      return;
    }
    party self;
    self.value.emplace(std::move(v));
    wait(senders_, self);
  }

  // Empty: closed and drained.
  std::optional<T> recv() {
    rt::maybe_preempt();
    std::optional<T> v;
    lock_.lock();
    if (take(v)) return v;
    party self;
    wait(receivers_, self);
    return std::move(self.value);
  }

  // Empty: nothing there now.
  std::optional<T> try_recv() {
    std::optional<T> v;
    lock_.lock();
    if (!take(v)) lock_.unlock();
    return v;
  }

  void close() {
    lock_.lock();
    closed_ = true;
    rt::waiter_list all = std::exchange(receivers_, {});
    lock_.unlock();
    while (rt::waiter* w = all.pop()) w->wake();
  }

 private:
  struct party : rt::waiter {
    std::optional<T> value;
  };
  static party* pop(rt::waiter_list& list) { return static_cast<party*>(list.pop()); }

  // Under the lock. True: there was something, or the channel is closed; the lock is released.
  bool take(std::optional<T>& v) {
    party* s = nullptr;
    if (!buffer_.empty()) {
      v.emplace(std::move(buffer_.front()));
      buffer_.pop_front();
      s = pop(senders_);
      if (s != nullptr) buffer_.push_back(std::move(*s->value));
    } else if ((s = pop(senders_)) != nullptr) {
      v.emplace(std::move(*s->value));
    } else if (!closed_) {
      return false;
    }
    lock_.unlock();
    if (s != nullptr) s->wake();
    return true;
  }
  void wait(rt::waiter_list& list, party& self) {
    list.push(&self);
    self.wait(spin_lock::unlock_commit, &lock_, rt::wait_reason::internal);
  }

  spin_lock lock_;
  std::size_t capacity_;
  bool closed_ = false;
  std::deque<T> buffer_;
  rt::waiter_list senders_, receivers_;
};

}  // namespace weft::test
