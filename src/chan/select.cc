// SPDX-License-Identifier: Apache-2.0
// Select: the first of several sends and receives that can go on.
//
// First a look without locks: of the cases that seem ready one is chosen at random and tried, under
// its own channel's lock. If none is, or it was somebody else's in the end, all channels are
// locked, in the order of their addresses, so that 'none is ready' is the truth of one moment and
// two selects cannot deadlock. Then a record for each case goes into its channel's queue, all
// sharing one claim, and the goroutine parks. Whoever takes the claim (a sender, a receiver, a
// close, the deadline) wakes it. Awake, it takes its other records out, O(1) each, under one lock
// at a time.
//
// The commit unlocks from the highest address down. The one who waits may be woken after the first
// unlock and goes on elsewhere, but it needs every lock once more, and the lowest first: so nothing
// of it is gone before the last unlock, after which the commit touches nothing of it.
//
// The party that woke it may destroy all the channels at once: it knows that the select is over.
// So the select pins them while it waits (chan_core::pins_, a plain count under the lock).
//
// Up to `inline_cases` need no memory beyond the stack. Runs on the caller's stack; the commit on
// the arriving one.
#include <algorithm>
#include <functional>
#include <memory>

#include "base/chaos.h"
#include "base/random.h"
#include "chan/wait.h"
#include "weft/detail/chan_core.hpp"

namespace weft::detail {

using rt::wait_reason;

namespace {

constexpr std::size_t inline_cases = 8;

// From the bubble's generator, or the M's own; plain threads share one.
std::uint64_t random_seed() noexcept {
  static constinit rt::atomic<std::uint64_t> shared{1};
  if (rt::M* m = rt::current_m()) {
    return (m->drives != nullptr ? m->drives->rng : m->rng).next();
  }
  return rt::random(shared.fetch_add(1, rt::memory_order_relaxed)).next();
}

struct alarm : rt::timer {
  claim* shared = nullptr;
  rt::waiter* w = nullptr;

  // Only a goroutine arms it.
  static rt::G* ring(rt::timer* t) noexcept {
    auto* self = static_cast<alarm*>(t);
    return self->shared->expire() ? self->w->g : nullptr;
  }
};

// Of those offered, one with equal chances.
class lottery {
 public:
  void offer(std::size_t i) noexcept {
    if (++n_ == 1) {
      rng_ = rt::random(random_seed());
      won_ = i;
    } else if (rng_.below(n_) == 0) {
      won_ = i;
    }
  }
  bool empty() const noexcept { return n_ == 0; }
  std::size_t winner() const noexcept { return won_; }

 private:
  rt::random rng_;
  std::uint32_t n_ = 0;
  std::size_t won_ = 0;
};

}  // namespace

// One select under way; on the stack of the one who selects.
struct selection {
  const select_case* cases;
  std::size_t n;         // of those with a channel
  std::uint16_t* order;  // their indexes, by address: the order of locking
  chan_wait* records;    // beside `order`
  std::int64_t deadline;
  claim shared;
  rt::waiter w;
  alarm timer;

  static bool looks_ready(const select_case& k) noexcept {
    if (k.is_send) return !k.c->looks_full();
    return !k.c->looks_empty() &&
           (k.c->state_.load(std::memory_order_acquire) != chan_core::state::timed ||
            k.c->count_.load(std::memory_order_acquire) != 0 || k.c->owner_->is_due(k.c));
  }
  chan_core* channel(std::size_t i) const noexcept { return cases[order[i]].c; }
  static wait_queue& queue_of(const select_case& k) noexcept {
    return k.is_send ? k.c->senders_ : k.c->receivers_;
  }

  void sort() noexcept {
    const auto before = [this](std::uint16_t a, std::uint16_t b) {
      if (cases[a].c == cases[b].c) return a < b;
      return std::less<>()(cases[a].c, cases[b].c);
    };
    if (n > inline_cases) {
      std::sort(order, order + n, before);
      return;
    }
    for (std::size_t i = 1; i < n; ++i) {
      const std::uint16_t x = order[i];
      std::size_t at = i;
      for (; at > 0 && before(x, order[at - 1]); --at) order[at] = order[at - 1];
      order[at] = x;
    }
  }
  // A channel that stands in several cases is locked once.
  void lock_all() noexcept {
    for (std::size_t i = 0; i < n; ++i) {
      if (i == 0 || channel(i) != channel(i - 1)) channel(i)->lock();
    }
  }
  void unlock_all(const chan_core* but = nullptr) noexcept {
    for (std::size_t i = n; i-- > 0;) {
      chan_core* c = channel(i);
      if ((i == 0 || c != channel(i - 1)) && c != but) c->unlock();
    }
  }
  // Those on one channel are served in the order in which they queue: that has to be random too.
  // From one number for all, and by the case and not by the address: in a bubble the same seed
  // gives the same order on every machine.
  void shuffle_equals() noexcept {
    std::uint64_t seed = 0;
    for (std::size_t i = 0, end = 0; i < n; i = end) {
      for (end = i + 1; end < n && channel(end) == channel(i);) ++end;
      if (end == i + 1) continue;
      if (seed == 0) seed = random_seed();
      rt::random rng(seed + order[i]);
      for (std::size_t k = i; k + 1 < end; ++k)
        std::swap(order[k], order[k + rng.below(static_cast<std::uint32_t>(end - k))]);
    }
  }
  void pin_all() noexcept {
    for (std::size_t i = 0; i < n; ++i) {
      if (i == 0 || channel(i) != channel(i - 1)) channel(i)->pin();
    }
  }
  // Only its bubble can wake one that waits on that one's channels and no other.
  bool is_durable() const noexcept {
    for (std::size_t i = 0; i < n; ++i) {
      if (channel(i)->bubble_ != w.g->its_bubble()->id) return false;
    }
    return true;
  }
  static select_result try_one(const select_case* cases, std::size_t n);
  select_result try_all();
  select_result wait();
  select_result leave_all() noexcept;
};

// Without locks. -1: nothing seemed ready, or it was gone.
select_result selection::try_one(const select_case* cases, std::size_t n) {
  lottery ready;
  for (std::size_t i = 0; i < n; ++i) {
    if (cases[i].c == nullptr) continue;
    cases[i].c->check_bubble("select on synctest channel from outside bubble");
    if (looks_ready(cases[i])) ready.offer(i);
  }
  if (ready.empty()) return {-1, op_result::would_block};
  const select_case& k = cases[ready.winner()];
  const op_result r = k.is_send ? k.c->try_send_slow(k) : k.c->try_recv_slow(k.to);
  return {r == op_result::would_block ? -1 : static_cast<int>(ready.winner()), r};
}

// Under the locks; without them if it returns a case or throws. All of them are needed to know that
// nothing is ready, and only its own for what is: a move of the user's may sleep, and timers and
// cancellations must not wait for it because they share a select with it.
select_result selection::try_all() {
  const rt::in_runtime inside;  // until whoever is taken out of a queue has been woken
  struct guard {
    chan_core* locked = nullptr;
    chan_wait* woken = nullptr;
    ~guard() {
      if (locked != nullptr) locked->unlock();
      if (woken != nullptr) woken->w->wake();
    }
  } g;
  for (;;) {
    lottery ready;
    for (std::size_t i = 0; i < n; ++i) {
      if (looks_ready(cases[order[i]])) ready.offer(order[i]);
    }
    if (ready.empty()) return {-1, op_result::would_block};  // the locks stay
    const select_case& k = cases[ready.winner()];
    g.locked = k.c;
    unlock_all(k.c);
    const op_result r = k.is_send ? k.c->send_now(k, &g.woken) : k.c->recv_now(k.to, &g.woken);
    if (r != op_result::would_block) return {static_cast<int>(ready.winner()), r};
    // All who waited there were somebody else's, and are out of the queue now.
    g.locked = nullptr;
    k.c->unlock();
    lock_all();
  }
}

// Under the locks; without them when it returns.
select_result selection::wait() {
  shuffle_equals();
  pin_all();
  for (std::size_t i = 0; i < n; ++i) {
    const select_case& k = cases[order[i]];
    chan_wait& r = *::new (&records[i]) chan_wait;
    r.w = &w;
    r.value = k.value;
    r.to = k.to;
    r.shared = &shared;
    r.index = order[i];
    if (k.c->state_.load(std::memory_order_relaxed) == chan_core::state::timed) [[unlikely]]
      k.c->owner_->before_wait(k.c);
    chan_core::enqueue(queue_of(k), &r);
  }
  if (w.g != nullptr) {
    timer.shared = &shared;
    timer.w = &w;
    timer.fire = &alarm::ring;
    if (w.g->bubbled()) [[unlikely]]
      w.g->durable = is_durable();
    rt::park(
        [](void*, void* arg) {
          auto* self = static_cast<selection*>(arg);
          rt::chaos::point("select.commit");
          if (self->deadline != chan_core::forever)
            rt::arm(&self->timer, self->deadline, self->w.g);
          self->unlock_all();
        },
        this, wait_reason::select);
    if (deadline != chan_core::forever) rt::disarm(&timer);  // and waits for a ring under way
  } else {
    unlock_all();
    if (!w.asleep.sleep_until(deadline == chan_core::forever ? -1 : deadline) && !shared.expire())
      w.asleep.sleep();  // somebody has us and is about to wake us
  }
  return leave_all();
}

// Awake. One lock at a time: the end of a channel takes its lock too, perhaps inside a move that
// another channel of ours runs under its own.
select_result selection::leave_all() noexcept {
  select_result result{-1, op_result::timeout};
  rt::chaos::point("select.leave");
  for (std::size_t i = 0; i < n;) {
    chan_core* c = channel(i);
    c->lock();
    do {
      chan_wait& r = records[i];
      if (r.queued) chan_core::dequeue(queue_of(cases[order[i]]), &r);
      if (r.won)
        result = {static_cast<int>(r.index), r.success ? op_result::ok : op_result::closed};
    } while (++i < n && channel(i) == c);
    const bool last = c->unpin();
    c->unlock();
    if (last) c->destroy();
  }
  return result;
}

void each_channel(const void* waiting_on, void (*f)(void* arg, const chan_core*),
                  void* arg) noexcept {
  const auto* s = static_cast<const selection*>(waiting_on);
  for (std::size_t i = 0; i < s->n; ++i) f(arg, s->channel(i));
}

// All of them nil: what a dump calls it, as Go's does. A timeout is a case of its own there.
static blocked_on blocks_on(const select_case* cases, std::size_t n,
                            std::int64_t deadline) noexcept {
  if (n == 0 && deadline == chan_core::forever) return blocked_on::no_cases;
  if (n != 1 || deadline != chan_core::forever) return blocked_on::nil_cases;
  return cases[0].is_send ? blocked_on::nil_send : blocked_on::nil_receive;
}

select_result select_cases(const select_case* cases, std::size_t n, std::int64_t deadline,
                           bool may_block) {
  if (may_block) rt::maybe_preempt();
  if (const select_result r = selection::try_one(cases, n); r.index >= 0) return r;
  std::uint16_t few[inline_cases];
  std::unique_ptr<std::uint16_t[]> many;
  std::uint16_t* order = few;
  if (n > inline_cases) {
    if (n > UINT16_MAX) throw std::length_error("select: too many cases");
    many = std::make_unique_for_overwrite<std::uint16_t[]>(n);
    order = many.get();
  }
  std::size_t live = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (cases[i].c != nullptr) order[live++] = static_cast<std::uint16_t>(i);
  }
  if (live == 0) {
    if (!may_block) return {-1, op_result::would_block};
    const blocked_on what = blocks_on(cases, n, deadline);
    if (deadline == chan_core::forever) block_for_ever(what);
    block_until(what, deadline);
    return {-1, op_result::timeout};
  }
  const bool simple = live == 1 && !cases[order[0]].converts();
  if (simple && !may_block) {
    const select_case& k = cases[order[0]];
    const op_result r = k.is_send ? k.c->try_send(k.value) : k.c->try_recv(k.to);
    return {r == op_result::would_block ? -1 : order[0], r};
  }
  if (simple && deadline == chan_core::forever) {
    const select_case& k = cases[order[0]];
    return {order[0], k.is_send ? k.c->send(k.value) : k.c->recv(k.to)};
  }
  static_assert(std::is_trivially_destructible_v<chan_wait>);  // made by wait(), if at all
  alignas(chan_wait) std::byte inline_records[inline_cases * sizeof(chan_wait)];
  std::unique_ptr<std::byte[]> more;
  if (live > inline_cases)
    more = std::make_unique_for_overwrite<std::byte[]>(live * sizeof(chan_wait));
  auto* records = reinterpret_cast<chan_wait*>(more != nullptr ? more.get() : inline_records);
  selection s{cases, live, order, records, deadline, {}, {}, {}};
  if (live > 1) s.sort();
  rt::chaos::point("select.lock");
  s.lock_all();
  const select_result r = s.try_all();
  if (r.index >= 0) return r;
  if (!may_block || (deadline != chan_core::forever && deadline <= rt::clock_now())) {
    s.unlock_all();
    return {-1, may_block ? op_result::timeout : op_result::would_block};
  }
  return s.wait();
}

}  // namespace weft::detail
