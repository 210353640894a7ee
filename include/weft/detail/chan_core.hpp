// SPDX-License-Identifier: Apache-2.0
// The type-erased half of channels and select: buffer, queues, waiting. Values pass through a few
// function pointers a type, so the code that parks is compiled once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include <weft/detail/bubble.hpp>
#include <weft/detail/spawn.hpp>

namespace weft::rt {
enum class wait_reason : std::uint8_t;
}

namespace weft::detail {

struct nothing {};  // the element of chan<void>

struct elem_ops {
  std::size_t size, align;
  bool nothrow;                        // neither move below nor a sink's put throws
  void (*move)(void* to, void* from);  // constructs *to from *from; null: copy `size` bytes
  void (*destroy)(void*) noexcept;     // null: nothing to do
};

template <class T>
inline constexpr elem_ops ops_of{
    std::is_same_v<T, nothing> ? 0 : sizeof(T), alignof(T),
    std::is_nothrow_move_constructible_v<T>&& std::is_nothrow_move_assignable_v<T>,
    std::is_trivially_copyable_v<T>
        ? nullptr
        : +[](void* to, void* from) { ::new (to) T(std::move(*static_cast<T*>(from))); },
    std::is_trivially_destructible_v<T> ? nullptr
                                        : +[](void* p) noexcept { static_cast<T*>(p)->~T(); }};

// Where a received value goes. The value is moved once, straight to its place: if that move throws
// it is still where it was.
struct sink {
  void* to = nullptr;
  void (*put)(void* to, void* from) = nullptr;  // null: copy the element's bytes
};
// Two names, because an element may be an optional itself.
template <class T>
sink into_optional(std::optional<T>& out) noexcept {
  return {&out, [](void* to, void* from) {
            static_cast<std::optional<T>*>(to)->emplace(std::move(*static_cast<T*>(from)));
          }};
}
template <class T>
sink into_element(T& out) noexcept {
  if constexpr (std::is_trivially_copyable_v<T>) {
    return {std::addressof(out), nullptr};
  } else {
    return {std::addressof(out),
            [](void* to, void* from) { *static_cast<T*>(to) = std::move(*static_cast<T*>(from)); }};
  }
}

// Of a send in a select whose value is converted only when it is taken: sink::to points at one, and
// put makes the element from the caller's value and says where it is. Not of elements that are
// copied as bytes: the short ways of send and recv do not ask.
struct converted {
  void* element = nullptr;
};

enum class op_result : std::uint8_t { ok, would_block, closed, timeout };

struct chan_wait;
struct select_case;
class chan_core;

// Of a channel that is part of something else: a timer's (src/time). It looks unbuffered, and while
// it is `timed` these know when its value comes.
struct chan_owner {
  void (*last_rites)(chan_core*) noexcept;    // before the end
  bool (*is_due)(const chan_core*) noexcept;  // without the lock: a hint
  bool (*take_due)(chan_core*) noexcept;      // under it; true: now there is a value
  void (*before_wait)(chan_core*) noexcept;   // under it: somebody is about to queue
};

// First in, first out; under the channel's lock. `first` is read outside it as a hint.
struct wait_queue {
  std::atomic<chan_wait*> first{nullptr};
  chan_wait* last = nullptr;
};

class chan_core {
 public:
  // Throws std::length_error "makechan: size out of range", std::bad_alloc.
  static chan_core* make(std::size_t capacity, const elem_ops& ops) {
    return make(capacity, ops, bubble_here());
  }
  // In a bubble that the caller need not be in.
  static chan_core* make(std::size_t capacity, const elem_ops& ops, std::uint32_t bubble) {
    return make(capacity, ops, bubble, 0, nullptr);
  }
  void retain() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release(std::uint64_t n = 1) noexcept {
    // With the others' release: what they did with the channel happened before its end.
    if (refs_.fetch_sub(n, std::memory_order_acq_rel) == n) last_handle_gone();
  }

  // A deadline is nanoseconds of the steady clock, or:
  static constexpr std::int64_t forever = INT64_MAX;
  // *value is moved from only if the result is ok. What a move throws leaves the call, and the
  // value is then where it was.
  WEFT_API op_result send(void* value);
  WEFT_API op_result send_until(void* value, std::int64_t deadline);
  op_result try_send(void* value) {
    return looks_full() && bubble_ == 0 ? op_result::would_block : try_send_slow(value);
  }
  WEFT_API op_result recv(sink to);
  WEFT_API op_result recv_until(sink to, std::int64_t deadline);
  op_result try_recv(sink to) {
    return looks_empty() && bubble_ == 0 ? op_result::would_block : try_recv_slow(to);
  }
  WEFT_API bool close();               // false: it was closed already
  WEFT_API bool close_now() noexcept;  // the same, and no place to give way

  // What a try_ would find, without the lock: true is the truth of some moment in the call. Closed
  // is read last: a channel that is open then was open when there was nothing, or nobody. The other
  // way round a close in between, which empties the queues, would look like an open channel with
  // nobody there. And first, for one that was a timer's until then: its value came before.
  bool looks_empty() const noexcept {
    return state_.load(std::memory_order_acquire) == state::open &&
           (capacity_ == 0 ? senders_.first.load(std::memory_order_acquire) == nullptr
                           : count_.load(std::memory_order_acquire) == 0) &&
           state_.load(std::memory_order_acquire) == state::open;
  }
  bool looks_full() const noexcept {
    return (capacity_ == 0 ? receivers_.first.load(std::memory_order_acquire) == nullptr
                           : count_.load(std::memory_order_acquire) >= capacity_) &&
           state_.load(std::memory_order_acquire) == state::open;
  }

  std::size_t len() const noexcept {
    if (owner_ != nullptr) return 0;
    const std::size_t n = count_.load(std::memory_order_relaxed);
    return n < capacity_ ? n : capacity_;  // for a moment it may hold one more, see chan.cc
  }
  std::size_t cap() const noexcept { return owner_ != nullptr ? 0 : capacity_; }
  bool closed() const noexcept { return state_.load(std::memory_order_acquire) == state::closed; }

 private:
  friend struct selection;
  friend struct chan_view;
  friend struct timer_core;
  struct op;
  enum class home : std::uint8_t { malloc, cell, large_cell };  // whose memory (core/g_pool.h)
  // timed: its timer runs, and may be due though nobody has fired it. Whoever finds anything but
  // `open` takes the long way, which costs the others nothing.
  enum class state : std::uint8_t { open, closed, timed };
  // With `extra` bytes behind the buffer, for its owner.
  WEFT_API static chan_core* make(std::size_t capacity, const elem_ops& ops, std::uint32_t bubble,
                                  std::size_t extra, const chan_owner* owner);
  void* extra() noexcept {
    constexpr std::size_t a = alignof(std::max_align_t);
    return reinterpret_cast<std::byte*>(this) + (buffer_at_ + cells_ * size_ + a - 1) / a * a;
  }
  chan_core(std::size_t capacity, const elem_ops& ops, std::uint32_t bubble) noexcept
      : capacity_(capacity),
        size_(ops.size),
        plain_(bubble == 0 && ops.move == nullptr && ops.destroy == nullptr && ops.nothrow),
        bubble_(bubble),
        ops_(&ops) {}
  WEFT_API void last_handle_gone() noexcept;
  // Under the lock. unpin: true if the caller has to destroy it after the unlock.
  void pin() noexcept {
    pins_.store(pins_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  bool unpin() noexcept {
    const std::uint32_t left = pins_.load(std::memory_order_relaxed) - 1;
    pins_.store(left, std::memory_order_release);  // with last_handle_gone
    return left == 0 && orphan_;
  }
  void destroy() noexcept;
  WEFT_API op_result try_send_slow(void* value);
  WEFT_API op_result try_recv_slow(sink to);
  op_result try_send_slow(const select_case& k);

  void lock() noexcept;  // src/chan/wait.h
  void unlock() noexcept;
  void let_go() noexcept;
  void lock_slow() noexcept;
  void sleep_for_lock() noexcept;
  static void unlock_slow(std::atomic<std::uint32_t>* word) noexcept;
  void check_bubble(
      const char* what) const noexcept;  // fatal if the caller is not in the channel's

  void* cell(std::size_t i) noexcept {
    return reinterpret_cast<std::byte*>(this) + buffer_at_ + (i < cells_ ? i : i - cells_) * size_;
  }
  void copy(void* to, const void* from) const noexcept {
    if (size_ == sizeof(std::uint64_t)) {
      std::memcpy(to, from, sizeof(std::uint64_t));
    } else if (size_ != 0) {
      std::memcpy(to, from, size_);
    }
  }
  void move(void* to, void* from) const;
  void give(sink to, void* from) const;
  void put(sink to, void* from) const;  // what a sink does by itself
  void push(void* value);
  void pop(sink to);
  // Under the lock. would_block: must wait. *woken: whom to wake after the unlock.
  op_result send_now(void* value, chan_wait** woken);
  op_result send_now(const select_case& k, chan_wait** woken);
  template <class Value>
  op_result send_from(Value value, bool sure, chan_wait** woken);
  op_result recv_now(sink to, chan_wait** woken);
  // The common cases; under the lock, without it if `done`. rest: none of them.
  enum class quick : std::uint8_t { done, blocks, rest };
  quick quick_send(void* value);
  quick quick_recv(sink to);
  // The rest of send and recv; under the lock, without it when they return.
  op_result send_rest(void* value);
  op_result recv_rest(sink to);
  op_result send_wait(void* value);
  op_result recv_wait(sink to);
  op_result wait_in(wait_queue& q, chan_wait& me, rt::wait_reason why);
  void hand_over(wait_queue& q, chan_wait* w, sink to, void* from) noexcept;
  std::uint32_t take_waiters(chan_wait** out, std::uint32_t n) noexcept;
  static void enqueue(wait_queue& q, chan_wait* w) noexcept;
  static void dequeue(wait_queue& q, chan_wait* w) noexcept;
  chan_wait* claim_first(wait_queue& q, bool sure) noexcept;
  void* value_of(void* value, sink by) const;

  static constexpr std::uint32_t contended = 2;
  // -- what every operation writes, under the lock: one cache line.
  std::atomic<std::uint32_t> lock_{0};  // 0 free, 1 held, 2 held and somebody sleeps
  std::atomic<state> state_{state::open};
  bool orphan_ = false;  // the last handle is gone: the last pin destroys
  // Selects that wait here; each takes the lock once more when it is woken, perhaps by another
  // channel, so it keeps the channel though nobody may have a handle any more.
  std::atomic<std::uint32_t> pins_{0};
  std::size_t head_ = 0;  // the oldest
  std::atomic<std::size_t> count_{0};
  wait_queue receivers_, senders_;
  // -- constant.
  std::size_t capacity_;
  std::size_t size_;           // of an element
  std::size_t cells_ = 0;      // one more than the capacity if a move may throw
  std::size_t buffer_at_ = 0;  // from `this`
  home home_ = home::malloc;
  bool plain_;            // to move an element is to copy its bytes; and in no bubble
  std::uint32_t bubble_;  // where it was made, and may be used; 0: in none, everywhere
  const elem_ops* ops_;
  const chan_owner* owner_ = nullptr;
  std::size_t from_base_ = 0;  // `this` from where its memory begins
  // -- handles.
  std::atomic<std::uint64_t> refs_{1};
};

// A counted handle.
class chan_ref {
 public:
  constexpr chan_ref() noexcept = default;
  explicit chan_ref(chan_core* adopted) noexcept : c_(adopted) {}
  chan_ref(const chan_ref& o) noexcept : c_(o.c_) {
    if (c_ != nullptr) c_->retain();
  }
  chan_ref(chan_ref&& o) noexcept : c_(std::exchange(o.c_, nullptr)) {}
  chan_ref& operator=(chan_ref o) noexcept {
    std::swap(c_, o.c_);
    return *this;
  }
  ~chan_ref() {
    if (chan_core* c = give_up()) c->release();
  }
  // The caller has to release it.
  chan_core* give_up() noexcept {
    chan_core* c = std::exchange(c_, nullptr);
    // Else memory that is used again would go on looking like a handle to the leak finder. The
    // compiler would drop the store: nobody may read it.
    asm volatile("" : : "m"(c_));
    return c;
  }
  chan_core* get() const noexcept { return c_; }
  chan_core* operator->() const noexcept { return c_; }

 private:
  chan_core* c_ = nullptr;
};

// One case of a select.
struct select_case {
  chan_core* c = nullptr;  // null: never ready
  void* value = nullptr;   // of a send: moved from if it fires
  sink to;                 // of a receive; of a send: see `converted`
  bool is_send = false;
  bool converts() const noexcept { return is_send && to.put != nullptr; }
};

struct select_result {
  int index;         // -1: the deadline came first, or nothing was ready and it must not block
  op_result result;  // ok, closed; timeout, would_block
};
WEFT_API select_result select_cases(const select_case* cases, std::size_t n, std::int64_t deadline,
                                    bool may_block);
// For the plain forms on a nil channel and a select without cases.
enum class blocked_on : std::uint8_t { nil_receive, nil_send, no_cases, nil_cases };
[[noreturn]] WEFT_API void block_for_ever(blocked_on what);
WEFT_API void block_until(blocked_on what, std::int64_t deadline);

[[noreturn]] WEFT_API void throw_send_on_closed();
[[noreturn]] WEFT_API void throw_close_of_closed();
[[noreturn]] WEFT_API void throw_close_of_nil();
[[noreturn]] WEFT_API void throw_bad_size();

}  // namespace weft::detail
