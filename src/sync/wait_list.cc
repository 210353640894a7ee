// SPDX-License-Identifier: Apache-2.0
// See wait_list.h.
#include "sync/wait_list.h"

#include <cstddef>

#include "sched/sched.h"

namespace weft::detail {
namespace {

struct alignas(64) stripe {
  rt::mutex mu{rt::lock_rank::waiters};
  waiting* threads = nullptr;  // see list_thread
};
constexpr std::size_t stripes = 256;
constinit stripe table[stripes];

stripe& stripe_of(const void* object) noexcept {
  // Fibonacci hashing: objects of one array spread over the table.
  const auto a = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(object)) >> 3;
  return table[(a * 0x9e3779b97f4a7c15U) >> 56];
}

static_assert(stripes == 1U << 8);

}  // namespace

rt::mutex& lock_of(const void* object) noexcept { return stripe_of(object).mu; }

// A goroutine whose run is over never runs again: it must not be given anything.
static bool left_behind(const waiting* w) noexcept {
  const rt::G* g = w->w.g;
  return g != nullptr && g->run_id != rt::sched.run_id.load(rt::memory_order_relaxed);
}

waiting* wait_list::front() noexcept {
  while (first_ != nullptr && left_behind(first_)) remove(first_);
  return first_;
}

void wake_chain::take(waiting* ring) noexcept {
  if (ring == nullptr) return;
  ring->prev->next = nullptr;
  while (ring != nullptr) {
    waiting* w = std::exchange(ring, ring->next);
    w->list = nullptr;
    if (!left_behind(w)) push(w);
  }
}

void wait_list::push_back(waiting* w) noexcept {
  w->list = this;
  if (first_ == nullptr) {
    w->next = w->prev = w;
    first_ = w;
    return;
  }
  w->next = first_;
  w->prev = first_->prev;
  w->prev->next = w->next->prev = w;
}

void wait_list::push_front(waiting* w) noexcept {
  push_back(w);
  first_ = w;
}

void wait_list::remove(waiting* w) noexcept {
  w->list = nullptr;
  if (w->next == w) {
    first_ = nullptr;
    return;
  }
  w->prev->next = w->next;
  w->next->prev = w->prev;
  if (first_ == w) first_ = w->next;
}

void waiting::block(rt::wait_reason why, std::int64_t deadline) {
  if (w.g != nullptr) {
    if (deadline != no_deadline) rt::waits_until(w.g);  // of this park: a wake-up ends it
    rt::park([](void*, void* me) { static_cast<waiting*>(me)->mu.unlock(); }, this, why);
    return;
  }
  if (run_over == nullptr) {
    mu.unlock();
    sleep_thread(deadline);
    return;
  }
  list_thread();
  mu.unlock();
  sleep_thread(deadline);
  mu.lock();
  unlist_thread();
  mu.unlock();
}

void waiting::list_thread() noexcept {
  waiting*& first = stripe_of(object).threads;
  next_thread_ = first;
  back_thread_ = &first;
  if (first != nullptr) first->back_thread_ = &next_thread_;
  first = this;
}

void waiting::unlist_thread() noexcept {
  *back_thread_ = next_thread_;
  if (next_thread_ != nullptr) next_thread_->back_thread_ = back_thread_;
}

void waiting::block_unlocked(rt::wait_reason why, std::int64_t deadline) {
  const auto meet = [](void*, void* arg) {
    auto* me = static_cast<waiting*>(arg);
    if (me->met.exchange(1, rt::memory_order_acq_rel) != 0) me->w.wake();  // with wake()
  };
  if (w.g != nullptr) {
    rt::park(meet, this, why);
    return;
  }
  meet(nullptr, this);
  sleep_thread(deadline);
}

void waiting::sleep_thread(std::int64_t deadline) noexcept {
  if (deadline == no_deadline) {
    w.asleep.sleep();
    return;
  }
  if (w.asleep.sleep_until(deadline)) return;
  if (!give_up()) w.asleep.sleep();  // whoever took us off is about to wake us
}

// False: it is not in the list any more.
bool waiting::give_up() noexcept {
  wake_chain others;
  mu.lock();
  const bool ours = list != nullptr;
  if (ours) {
    expired = thrown_out = true;
    list->remove(this);
    if (left != nullptr) left(this, others);
  }
  mu.unlock();
  others.wake_all();
  return ours;
}

void waiting::expire() noexcept {
  wake_chain go;
  mu.lock();
  expired = true;
  if (list != nullptr) {
    thrown_out = true;
    list->remove(this);
    if (left != nullptr) left(this, go);
    go.push(this);
  }
  mu.unlock();
  go.wake_all();
}

bool spinner::can() const noexcept {
  if (rounds_ >= max_rounds || rt::sched.ncpu.load(rt::memory_order_relaxed) < 2) return false;
  rt::M* m = rt::current_m();
  if (m == nullptr || m->curg == nullptr) return true;  // a plain thread
  if (m->drives != nullptr) return false;               // who has it cannot run meanwhile
  const rt::idle_counts idle = rt::sched.idle.peek();
  if (rt::nprocs() <= idle.idle_ps + idle.spinning + 1) return false;
  const rt::P* p = m->p;  // a hint: Ps are type-stable
  return p != nullptr && p->rq.empty();
}

void preempt_point() { rt::maybe_preempt(); }

std::uint32_t lock_owner() noexcept {
  const rt::M* m = rt::current_m();
  const rt::G* g = m != nullptr ? m->curg : nullptr;
  // The numbers of a bubble are its own.
  return g != nullptr && !g->bubbled() ? static_cast<std::uint32_t>(g->goid) : 0;
}

namespace {
[[gnu::noinline]] std::uint32_t lock_point_slow() {
  rt::preempt_slow();
  return lock_owner();
}
}  // namespace

// As maybe_preempt; a member of a bubble always wants attention. The number is in the line that is
// looked at anyway.
std::uint32_t lock_point() {
  const rt::M* m = rt::current_m();
  const rt::G* g = m != nullptr ? m->curg : nullptr;
  if (g == nullptr) return 0;
  if (m->hold.load(rt::memory_order_relaxed) != rt::hold_state::owned || m->p == nullptr ||
      m->p->preempt.load(rt::memory_order_relaxed) != 0 || g->wants_attention()) [[unlikely]]
    return lock_point_slow();
  return static_cast<std::uint32_t>(g->goid);
}

}  // namespace weft::detail

// keeps S4. By way of the threads, not of those left behind: an object that has one of ours on its
// list is alive. Who queues after us finds the number of the run changed.
void weft::rt::sync_end_run() noexcept {
  using namespace weft::detail;
  for (stripe& s : table) {
    wake_chain go;
    s.mu.lock();
    for (waiting* w = s.threads; w != nullptr; w = w->next_thread_) {
      if (w->list != nullptr) w->run_over(w, go);
    }
    s.mu.unlock();
    go.wake_all();
  }
}
