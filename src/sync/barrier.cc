// SPDX-License-Identifier: Apache-2.0
// weft::barrier without its completion function: arrivals are counted under the queue's lock. The
// one that fills a phase runs the completion without it (nobody else can arrive meanwhile), then
// begins the next phase; phase_ is the last it touches.
//
// Runs on the caller's stack.
#include "sync/wait_list.h"
#include "weft/sync.hpp"

namespace weft::detail {

bool barrier_base::arrive(std::ptrdiff_t n, std::ptrdiff_t dropped, std::uint64_t& phase) {
  rt::mutex& mu = lock_of(this);
  mu.lock();
  if (n < 0 || n > pending_) {
    mu.unlock();
    throw std::logic_error("weft::barrier: more than expected");
  }
  pending_ -= n;
  expected_ -= dropped;
  phase = phase_.load(std::memory_order_relaxed);
  const bool full = n != 0 && pending_ == 0;
  mu.unlock();
  return full;
}

// Counted and queued in one step: between the two the phase could end, and with it the barrier.
bool barrier_base::arrive_and_wait() {
  preempt_point();
  waiting me(this);
  me.mu.lock();
  if (pending_ == 0) {
    me.mu.unlock();
    throw std::logic_error("weft::barrier: more than expected");
  }
  if (--pending_ == 0) {
    me.mu.unlock();
    return true;
  }
  queue_.push_back(&me);
  rt::waits_in(me.w.g, born_.bubble());
  me.block(rt::wait_reason::semacquire);
  return false;
}

void barrier_base::next_phase() noexcept {
  wake_chain go;
  rt::mutex& mu = lock_of(this);
  mu.lock();
  go.take(queue_.detach());
  pending_ = expected_;
  // Release: with wait_for's acquire.
  phase_.store(phase_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  mu.unlock();
  go.wake_all();
}

void barrier_base::wait_slow(std::uint64_t phase) const {
  waiting me(this);
  me.mu.lock();
  if (phase_.load(std::memory_order_acquire) != phase) {
    me.mu.unlock();
    return;
  }
  queue_.push_back(&me);
  rt::waits_in(me.w.g, born_.bubble());
  me.block(rt::wait_reason::semacquire);
}

}  // namespace weft::detail
