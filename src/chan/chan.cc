// SPDX-License-Identifier: Apache-2.0
// Channels.
//
// A channel is a lock, a ring of cells and two queues of waiters. A sender that finds a receiver
// waiting moves its value straight into the receiver's place, and the other way round; only when
// nobody waits does a value go through the ring. So at most one queue is in use (but for a select
// that stands in both), and the ring is full while senders wait and empty while receivers do.
//
// Waiters are records on the stacks of those who wait (wait.h): nothing is allocated. One that can
// be woken by several parties shares a claim between its records. Queues are doubly linked, so that
// leaving one is O(1).
//
// Moves that throw. A move is made before anything is changed, so an exception leaves everything as
// it was: the waiter stays in its queue and its claim is given back, the value stays where it was.
// The one place with two moves is a receive from a full ring while a sender waits: first the
// sender's value goes into a spare cell behind the ring, then the oldest goes out; if the second
// move throws, the sender is done and the ring holds one more than its capacity until the next
// receive.
//
// Waiting: the commit of park unlocks, on the arriving stack. A deadline is armed there too, before
// the unlock: nobody can fire it before the goroutine is completely parked, and nobody can wake the
// goroutine before it is armed. The alarm takes the claim and no lock, so the order of the
// channel's lock and the timers' is always this one.
//
// The lock is held for tens of nanoseconds (and a user's move). It is a word that is spun on and
// then slept on; its unlock is a plain store (lock_slow says why that is enough).
//
// The channel of a timer is `timed` while the timer runs: an empty one is not simply empty then, it
// may have fallen due. recv_now asks its owner (src/time/timer.cc), and so does who is about to
// wait. Whoever finds another state than `open` comes that way, so other channels pay nothing.
//
// Long because every way in and out works on the same queues, under the same lock.
//
// A user's move is code of his that runs under the lock, inside the runtime, where nobody stops it.
// It may sleep: a vector that gives its memory back waits for malloc's lock, which a goroutine may
// have that was stopped and waits for a P. So the P is lent meanwhile (rt::p_lent), and so it is by
// those who sleep on the lock or wait for a claim that such a move holds.
//
// Runs on the caller's stack; commits on the arriving one. Only make() allocates.
#include <cstring>
#include <stdexcept>

#include "base/chaos.h"
#include "chan/wait.h"
#include "os/clock.h"
#include "os/futex.h"
#include "weft/chan.hpp"

namespace weft::detail {

using rt::wait_reason;
using rt::waiter;

namespace {
constexpr const char* send_outside = "send on synctest channel from outside bubble";
constexpr const char* receive_outside = "receive on synctest channel from outside bubble";
constexpr const char* close_outside = "close of synctest channel from outside bubble";
}  // namespace

// -- the lock

// unlock() reads the word and then stores 0. If it is interrupted in between and somebody marks the
// word and falls asleep meanwhile, the mark is lost and nobody wakes him. So nobody sleeps for
// longer than this.
constexpr std::int64_t longest_sleep_ns = 1'000'000;

// Looks rarely, each 1 to 3 µs: a look takes the line away from the holder, and who comes back for
// the lock at once finds it in its own cache. Two Ps on one channel then do some hundred operations
// each in turns, at the speed of one alone; looking all the time they spend most of it moving the
// line to and fro (4 to 4: 17 ns an operation against 45).
void chan_core::lock_slow() noexcept {
  for (int i = 0, pauses = 32; i < 8; ++i) {
    for (int k = 0; k < pauses; ++k) rt::cpu_relax();
    if (pauses < 128) pauses *= 2;
    std::uint32_t w = lock_.load(std::memory_order_relaxed);
    if (w == contended) break;
    if (w == 0 &&
        lock_.compare_exchange_weak(w, 1, std::memory_order_acquire, std::memory_order_relaxed))
      return;
  }
  rt::chaos::point("chan.lock");
  if (plain_) {
    sleep_for_lock();
  } else {
    const rt::p_lent lent;  // who has the lock may wait for a P, in its move
    sleep_for_lock();
  }
}

void chan_core::sleep_for_lock() noexcept {
  while (lock_.exchange(contended, std::memory_order_acquire) != 0)
    rt::futex_wait(lock_, contended, rt::nanotime() + longest_sleep_ns);
}

// The channel may be gone: only its address is used.
void chan_core::unlock_slow(std::atomic<std::uint32_t>* word) noexcept { rt::futex_wake(*word, 1); }

// -- life

chan_core* chan_core::make(std::size_t capacity, const elem_ops& ops, std::uint32_t bubble,
                           std::size_t extra, const chan_owner* owner) {
  constexpr std::size_t line = 64, malloc_align = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
  const std::size_t spare = ops.nothrow || capacity == 0 ? 0 : 1;
  const std::size_t align = ops.align > line ? ops.align : line;
  const std::size_t at = (sizeof(chan_core) + ops.align - 1) & ~(ops.align - 1);
  constexpr std::size_t most = std::size_t{1} << 47;  // what an address space has
  std::size_t buffer;
  if (capacity > PTRDIFF_MAX || __builtin_mul_overflow(capacity + spare, ops.size, &buffer) ||
      buffer > most - at - align)
    throw_bad_size();
  if (extra != 0) extra += alignof(std::max_align_t);
  const std::size_t bytes = at + buffer + extra;
#if !defined(WEFT_ASAN)  // which is to see when somebody uses a channel that is gone
  if (bytes <= sizeof(rt::large_chan_cell) && align == line) {
    const bool small = bytes <= sizeof(rt::chan_cell);
    void* cell = small ? static_cast<void*>(rt::take_chan_cell()) : rt::take_large_chan_cell();
    auto* c = ::new (cell) chan_core(capacity, ops, bubble);
    c->cells_ = capacity + spare;
    c->buffer_at_ = at;
    c->owner_ = owner;
    c->home_ = small ? home::cell : home::large_cell;
    return c;
  }
#endif
  // Aligned here: malloc's aligned allocation is several times slower than its plain one.
  void* base = ::operator new(bytes + align - malloc_align);
  const auto a = reinterpret_cast<std::uintptr_t>(base);
  const std::uintptr_t aligned = (a + align - 1) & ~(align - 1);
  auto* c = ::new (reinterpret_cast<void*>(aligned)) chan_core(capacity, ops, bubble);
  c->cells_ = capacity + spare;
  c->buffer_at_ = at;
  c->owner_ = owner;
  c->from_base_ = aligned - a;
  return c;
}

void chan_core::last_handle_gone() noexcept {
  // Without a handle nobody comes any more but those who have it pinned. Who has just taken its pin
  // away holds the lock until it has let go: so the pins are looked at first. Acquire: with unpin's
  // release and unlock's.
  if (pins_.load(std::memory_order_acquire) == 0 && lock_.load(std::memory_order_acquire) == 0) {
    destroy();
    return;
  }
  lock();  // a commit that has not unlocked yet goes first
  const bool pinned = orphan_ = pins_.load(std::memory_order_relaxed) != 0;
  unlock();
  if (!pinned) destroy();
}

void chan_core::destroy() noexcept {
  if (owner_ != nullptr) owner_->last_rites(this);
  if (ops_->destroy != nullptr) {
    for (std::size_t n = count_.load(std::memory_order_relaxed), i = 0; i < n; ++i)
      ops_->destroy(cell(head_ + i));
  }
  void* base = reinterpret_cast<std::byte*>(this) - from_base_;
  const home from = home_;
  this->~chan_core();
  if (from == home::cell) {
    rt::put_cell(static_cast<rt::chan_cell*>(base));
  } else if (from == home::large_cell) {
    rt::put_cell(static_cast<rt::large_chan_cell*>(base));
  } else {
    ::operator delete(base);
  }
}

// -- the ring

void chan_core::move(void* to, void* from) const {
  if (ops_->move != nullptr) {
    const rt::p_lent lent;
    ops_->move(to, from);
  } else {
    copy(to, from);
  }
}

[[gnu::always_inline]] inline void chan_core::give(sink to, void* from) const {
  if (to.put != nullptr) {
    put(to, from);
  } else {
    copy(to.to, from);
  }
}

// What is a copy of bytes sleeps nowhere, wherever it goes.
void chan_core::put(sink to, void* from) const {
  if (plain_) {
    to.put(to.to, from);
  } else {
    const rt::p_lent lent;
    to.put(to.to, from);
  }
}

void chan_core::push(void* value) {
  const std::size_t n = count_.load(std::memory_order_relaxed);
  if (size_ != 0) move(cell(head_ + n), value);
  count_.store(n + 1, std::memory_order_release);  // with looks_empty, looks_full
}

void chan_core::pop(sink to) {
  void* from = cell(head_);
  give(to, from);
  if (ops_->destroy != nullptr) {
    const rt::p_lent lent;
    ops_->destroy(from);
  }
  head_ = head_ + 1 < cells_ ? head_ + 1 : 0;
  count_.store(count_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
}

// -- the queues

// Nobody is told when the move is over, so this long at most; it is one that sleeps itself.
void claim::wait_for_move(std::uint32_t state) noexcept {
  const rt::p_lent lent;
  rt::futex_wait(state_, state, rt::nanotime() + longest_sleep_ns);
}

void chan_core::enqueue(wait_queue& q, chan_wait* w) noexcept {
  w->next = nullptr;
  w->prev = q.last;
  w->queued = true;
  if (q.last == nullptr) {
    q.first.store(w, std::memory_order_release);  // with looks_empty, looks_full
  } else {
    q.last->next = w;
  }
  q.last = w;
}

void chan_core::dequeue(wait_queue& q, chan_wait* w) noexcept {
  if (w->prev == nullptr) {
    q.first.store(w->next, std::memory_order_release);
  } else {
    w->prev->next = w->next;
  }
  (w->next == nullptr ? q.last : w->next->prev) = w->prev;
  w->queued = false;
}

// A sender's element, made now if it is to be converted. That is user code, as a move is.
void* chan_core::value_of(void* value, sink by) const {
  if (by.put == nullptr) return value;
  auto* c = static_cast<converted*>(by.to);
  if (c->element == nullptr) {  // else a move of it has thrown before
    const rt::p_lent lent;
    by.put(c, value);
  }
  return c->element;
}

// The first who can be woken, claimed: for good if it is sure that nothing throws, else held until
// settle or give_back. Those that somebody else has, and goroutines whose run is over, are out of
// this queue for good.
chan_wait* chan_core::claim_first(wait_queue& q, bool sure) noexcept {
  for (;;) {
    chan_wait* w = q.first.load(std::memory_order_relaxed);
    if (w == nullptr) return nullptr;
    if (!w->left_behind()) [[likely]] {
      if (w->shared == nullptr) return w;
      const bool for_good = sure && !(&q == &senders_ && w->converts());
      if (for_good ? w->shared->take() : w->shared->hold()) return w;
    }
    dequeue(q, w);
  }
}

namespace {

// Somebody claimed and not yet served. If the move throws the waiter goes on waiting, or has timed
// out meanwhile.
struct held_waiter {
  chan_wait* w;
  bool sure;  // nothing throws: the claim was for good
  bool served = false;

  void serve(bool success) noexcept {
    served = true;
    w->success = success;
    w->won = true;
    if (w->shared != nullptr && !sure) w->shared->settle();
  }
  ~held_waiter() {
    if (!served && w->shared != nullptr && w->shared->give_back()) w->w->wake();
  }
};

}  // namespace

template <class Value>
inline op_result chan_core::send_from(Value value, bool sure, chan_wait** woken) {
  if (state_.load(std::memory_order_relaxed) == state::closed) return op_result::closed;
  if (chan_wait* r = claim_first(receivers_, sure)) {
    held_waiter h{r, sure};
    give(r->to, value());
    dequeue(receivers_, r);
    h.serve(true);
    *woken = r;
    return op_result::ok;
  }
  if (count_.load(std::memory_order_relaxed) >= capacity_) return op_result::would_block;
  push(value());
  return op_result::ok;
}

op_result chan_core::send_now(void* value, chan_wait** woken) {
  return send_from([value] { return value; }, ops_->nothrow, woken);
}

op_result chan_core::send_now(const select_case& k, chan_wait** woken) {
  if (!k.converts()) return send_now(k.value, woken);
  return send_from([this, &k] { return value_of(k.value, k.to); }, false, woken);
}

op_result chan_core::recv_now(sink to, chan_wait** woken) {
  const std::size_t n = count_.load(std::memory_order_relaxed);
  if (n == 0) {
    if (chan_wait* s = claim_first(senders_, ops_->nothrow)) {  // unbuffered
      held_waiter h{s, ops_->nothrow && !s->converts()};
      give(to, value_of(s->value, s->to));
      dequeue(senders_, s);
      h.serve(true);
      *woken = s;
      return op_result::ok;
    }
    const state s = state_.load(std::memory_order_relaxed);
    if (s != state::timed) return s == state::closed ? op_result::closed : op_result::would_block;
    if (!owner_->take_due(this)) return op_result::would_block;
    pop(to);
    return op_result::ok;
  }
  if (chan_wait* s = n == capacity_ ? claim_first(senders_, ops_->nothrow) : nullptr) {
    held_waiter h{s, ops_->nothrow && !s->converts()};
    void* value = value_of(s->value, s->to);  // while nothing has changed yet
    if (ops_->nothrow) pop(to);
    push(value);  // if moves may throw: into the spare cell
    dequeue(senders_, s);
    h.serve(true);
    *woken = s;
    if (ops_->nothrow) return op_result::ok;
  }
  pop(to);
  return op_result::ok;
}

// -- plain operations

struct already_locked {};

// One operation under the lock. Unlocks and wakes at its end; also when a move throws (on the way a
// sender may have been served whose turn it was).
struct chan_core::op {
  chan_core* c;
  chan_wait* woken = nullptr;

  explicit op(chan_core* core) noexcept : c(core) { c->lock(); }
  op(chan_core* core, already_locked) noexcept : c(core) {}
  op(const op&) = delete;
  op& operator=(const op&) = delete;
  ~op() {
    if (c == nullptr) return;
    c->let_go();
    if (woken != nullptr) woken->w->wake();
    rt::leave_rt();
  }
};

// The common cases first, each a few dozen instructions: a value that is copied, and room, a value
// or one who waits for it. Everything else is the business of send_rest and recv_rest.

// Under the lock; unlocks and wakes. w is claimed and first in q.
[[gnu::always_inline]] inline void chan_core::hand_over(wait_queue& q, chan_wait* w, sink to,
                                                        void* from) noexcept {
  give(to, from);
  chan_wait* next = w->next;
  q.first.store(next, std::memory_order_release);  // with looks_empty, looks_full
  (next == nullptr ? q.last : next->prev) = nullptr;
  w->queued = false;
  w->success = w->won = true;
  waiter* sleeper = w->w;
  let_go();
  rt::chaos::point("chan.hand_over");
  sleeper->wake();
  rt::leave_rt();
}

[[gnu::always_inline]] inline chan_core::quick chan_core::quick_send(void* value) {
  if (!plain_ || state_.load(std::memory_order_relaxed) != state::open) [[unlikely]]
    return quick::rest;
  if (chan_wait* r = receivers_.first.load(std::memory_order_relaxed); r != nullptr) {
    if (!r->claim_for_good()) return quick::rest;
    hand_over(receivers_, r, r->to, value);
    return quick::done;
  }
  const std::size_t n = count_.load(std::memory_order_relaxed);
  if (n >= capacity_) return quick::blocks;
  copy(cell(head_ + n), value);
  count_.store(n + 1, std::memory_order_release);  // with looks_empty, looks_full
  unlock();
  return quick::done;
}

[[gnu::always_inline]] inline chan_core::quick chan_core::quick_recv(sink to) {
  if (!plain_) [[unlikely]]
    return quick::rest;
  const std::size_t n = count_.load(std::memory_order_relaxed);
  chan_wait* s = senders_.first.load(std::memory_order_relaxed);
  if (n == 0) {
    if (s == nullptr)
      return state_.load(std::memory_order_relaxed) == state::open ? quick::blocks : quick::rest;
    if (!s->claim_for_good()) return quick::rest;
    hand_over(senders_, s, to, s->value);
    return quick::done;
  }
  if (s != nullptr) return quick::rest;
  give(to, cell(head_));
  head_ = head_ + 1 < cells_ ? head_ + 1 : 0;
  count_.store(n - 1, std::memory_order_release);  // with looks_empty, looks_full
  unlock();
  return quick::done;
}

op_result chan_core::send(void* value) {
  rt::maybe_preempt();
  lock();
  switch (quick_send(value)) {
    case quick::done:
      return op_result::ok;
    case quick::blocks:
      return send_wait(value);
    case quick::rest:
      break;
  }
  return send_rest(value);
}

op_result chan_core::recv(sink to) {
  rt::maybe_preempt();
  lock();
  switch (quick_recv(to)) {
    case quick::done:
      return op_result::ok;
    case quick::blocks:
      return recv_wait(to);
    case quick::rest:
      break;
  }
  return recv_rest(to);
}

op_result chan_core::send_rest(void* value) {
  op o(this, already_locked{});
  check_bubble(send_outside);
  const op_result r = send_now(value, &o.woken);
  if (r != op_result::would_block) return r;
  o.c = nullptr;  // send_wait unlocks
  return send_wait(value);
}

op_result chan_core::recv_rest(sink to) {
  op o(this, already_locked{});
  check_bubble(receive_outside);
  const op_result r = recv_now(to, &o.woken);
  if (r != op_result::would_block) return r;
  if (state_.load(std::memory_order_relaxed) == state::timed) owner_->before_wait(this);
  o.c = nullptr;  // recv_wait unlocks
  return recv_wait(to);
}

// Under the lock; the commit unlocks.
inline op_result chan_core::wait_in(wait_queue& q, chan_wait& me, wait_reason why) {
  waiter w;
  me.w = &w;
  enqueue(q, &me);
  if (bubble_ != 0) [[unlikely]]
    rt::waits_in(w.g, bubble_);
  w.wait(
      [](void*, void* c) {
        rt::chaos::point("chan.commit");
        static_cast<chan_core*>(c)->unlock();
      },
      this, why);
  return me.success ? op_result::ok : op_result::closed;
}

op_result chan_core::send_wait(void* value) {
  chan_wait me;
  me.value = value;
  return wait_in(senders_, me, wait_reason::chan_send);
}

op_result chan_core::recv_wait(sink to) {
  chan_wait me;
  me.to = to;
  return wait_in(receivers_, me, wait_reason::chan_receive);
}

op_result chan_core::try_send_slow(void* value) {
  check_bubble(send_outside);
  lock();
  const quick q = quick_send(value);
  if (q == quick::done) return op_result::ok;
  op o(this, already_locked{});
  if (q == quick::blocks) return op_result::would_block;
  return send_now(value, &o.woken);
}

op_result chan_core::try_send_slow(const select_case& k) {
  if (!k.converts()) return try_send_slow(k.value);
  check_bubble(send_outside);
  op o(this);
  return send_now(k, &o.woken);
}

op_result chan_core::try_recv_slow(sink to) {
  check_bubble(receive_outside);
  lock();
  const quick q = quick_recv(to);
  if (q == quick::done) return op_result::ok;
  op o(this, already_locked{});
  if (q == quick::blocks) return op_result::would_block;
  return recv_now(to, &o.woken);
}

op_result chan_core::send_until(void* value, std::int64_t deadline) {
  if (deadline == forever) return send(value);
  const select_case k{this, value, {}, true};
  return select_cases(&k, 1, deadline, true).result;
}

op_result chan_core::recv_until(sink to, std::int64_t deadline) {
  if (deadline == forever) return recv(to);
  const select_case k{this, nullptr, to, false};
  return select_cases(&k, 1, deadline, true).result;
}

bool chan_core::close() {
  rt::maybe_preempt();
  return close_now();
}

// Under the lock: up to n of those who wait, claimed, out of their queue. Fewer: there are no more.
std::uint32_t chan_core::take_waiters(chan_wait** out, std::uint32_t n) noexcept {
  std::uint32_t k = 0;
  for (wait_queue* q : {&receivers_, &senders_}) {
    while (k < n) {
      chan_wait* w = q->first.load(std::memory_order_relaxed);
      if (w == nullptr) break;
      __builtin_prefetch(w->next);
      dequeue(*q, w);
      if (w->left_behind() || (w->shared != nullptr && !w->shared->take())) continue;
      w->won = true;
      out[k++] = w;
    }
  }
  return k;
}

// A million may wait, each record on a stack of its own: they are taken and woken in batches, so
// that each is fetched into the cache once, and the first ones run while the last ones still wait.
// The first to be woken may let go of the channel: it is pinned until the last batch is taken.
bool chan_core::close_now() noexcept {
  constexpr std::uint32_t batch = 64;
  chan_wait* list[batch];
  rt::G* gs[batch];
  check_bubble(close_outside);
  lock();
  if (state_.load(std::memory_order_relaxed) == state::closed) {
    unlock();
    return false;
  }
  state_.store(state::closed, std::memory_order_release);  // with closed(), looks_empty, looks_full
  pin();
  for (;;) {
    const std::uint32_t n = take_waiters(list, batch);
    const bool over = n < batch;
    const bool last = over && unpin();
    let_go();
    std::uint32_t k = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      waiter* w = list[i]->w;
      if (w->g != nullptr) {
        gs[k++] = w->g;
      } else {
        w->wake();
      }
    }
    if (k == 1) {
      rt::ready(gs[0]);  // runs next
    } else if (k != 0) {
      rt::ready(gs, k);
    }
    if (!over) {
      lock();
      rt::leave_rt();  // its own count: we stay inside until all are awake, as in wake_chain
      continue;
    }
    rt::leave_rt();
    if (last) destroy();
    return true;
  }
}

// -- for ever

void block_for_ever(blocked_on what) {
  for (;;) block_until(what, chan_core::forever);
}

void block_until(blocked_on what, std::int64_t deadline) {
  constexpr wait_reason reasons[] = {wait_reason::chan_receive_nil, wait_reason::chan_send_nil,
                                     wait_reason::select_no_cases, wait_reason::select_nil_cases};
  rt::maybe_preempt();
  rt::sleep_until(deadline, reasons[static_cast<int>(what)]);
}

// -- errors

void throw_send_on_closed() { throw closed_channel("send on closed channel"); }
void throw_close_of_closed() { throw closed_channel("close of closed channel"); }
void throw_close_of_nil() { throw nil_channel("close of nil channel"); }
void throw_bad_size() { throw std::length_error("makechan: size out of range"); }

}  // namespace weft::detail
