// SPDX-License-Identifier: Apache-2.0
// Channels: typed queues between goroutines, plain threads and any mixture of them.
//
//   weft::chan<int> c(16);
//   weft::go([c] { for (int i = 0; i < 3; ++i) c.send(i); c.close(); });
//   for (int v : c) use(v);
//
// A chan is a counted handle: copies are the same channel. A sender and a receiver that meet pass
// the value directly; waiters are served in order of arrival.
//
// T's move, its assignment and its destructor run inside the channel, under its lock: they must not
// park, and must not use the same channel, not even by a try_send. The same goes for the destructor
// of what try_recv or recv_for overwrites.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>

#include <weft/detail/chan_core.hpp>
#include <weft/detail/event.hpp>

namespace weft {

enum class recv_status { ok, empty, closed, timeout };
enum class send_status { ok, timeout };

// What Go panics with.
struct closed_channel : std::logic_error {
  using std::logic_error::logic_error;
};
struct nil_channel : std::logic_error {
  using std::logic_error::logic_error;
};

template <class T>
class chan;
template <class T>
class send_chan;
template <class T>
class recv_chan;

namespace detail {

template <class T>
using element_of = std::conditional_t<std::is_void_v<T>, nothing, T>;

template <class T>
concept channel_element = std::is_void_v<T> ||
    (std::is_object_v<T>&& std::is_same_v<T, std::remove_cv_t<T>> && !std::is_array_v<T> &&
     std::is_move_constructible_v<T>);
// Called where a channel is made or used, not in the class: there a T may still be incomplete that
// has a channel of its own kind as a member.
template <class T>
constexpr void check_element() noexcept {
  static_assert(channel_element<T>,
                "chan<T>: void, or an object type that is movable and neither const nor an array");
}

inline recv_status to_recv_status(op_result r) noexcept {
  switch (r) {
    case op_result::ok:
      return recv_status::ok;
    case op_result::closed:
      return recv_status::closed;
    case op_result::timeout:
      return recv_status::timeout;
    case op_result::would_block:
      break;
  }
  return recv_status::empty;
}

// What the three handles share.
class chan_handle {
 public:
  std::size_t len() const noexcept { return c_.get() != nullptr ? c_->len() : 0; }
  std::size_t cap() const noexcept { return c_.get() != nullptr ? c_->cap() : 0; }
  bool closed() const noexcept { return c_.get() != nullptr && c_->closed(); }
  explicit operator bool() const noexcept { return c_.get() != nullptr; }  // not nil

 protected:
  constexpr chan_handle() noexcept = default;
  explicit chan_handle(chan_ref c) noexcept : c_(std::move(c)) {}

 private:
  friend struct chan_access;
  chan_ref c_;
};

struct chan_access {
  static chan_core* core(const chan_handle& h) noexcept { return h.c_.get(); }
  static const chan_ref& ref(const chan_handle& h) noexcept { return h.c_; }
  static chan_ref take(chan_handle& h) noexcept { return std::move(h.c_); }
  template <class H>
  static H adopt(chan_ref c) noexcept {
    return H(std::move(c));
  }
};

template <class H>
concept channel = std::derived_from<H, chan_handle> && requires {
  typename H::element_type;
};

// -- the operations on a core that may be null

inline void send_to(chan_core* c, void* value) {
  if (c == nullptr) block_for_ever(blocked_on::nil_send);
  if (c->send(value) == op_result::closed) throw_send_on_closed();
}
inline bool try_send_to(chan_core* c, void* value) {
  if (c == nullptr) return false;
  const op_result r = c->try_send(value);
  if (r == op_result::closed) throw_send_on_closed();
  return r == op_result::ok;
}
template <class D>
send_status send_to_for(chan_core* c, void* value, D d) {
  const std::int64_t deadline = deadline_in(d);
  if (c == nullptr) {
    block_until(blocked_on::nil_send, deadline);
    return send_status::timeout;
  }
  const op_result r = c->send_until(value, deadline);
  if (r == op_result::closed) throw_send_on_closed();
  return r == op_result::ok ? send_status::ok : send_status::timeout;
}
inline op_result recv_from(chan_core* c, sink to) {
  if (c == nullptr) block_for_ever(blocked_on::nil_receive);
  return c->recv(to);
}
inline recv_status try_recv_from(chan_core* c, sink to) {
  return c == nullptr ? recv_status::empty : to_recv_status(c->try_recv(to));
}
template <class D>
recv_status recv_from_for(chan_core* c, sink to, D d) {
  const std::int64_t deadline = deadline_in(d);
  if (c != nullptr) return to_recv_status(c->recv_until(to, deadline));
  block_until(blocked_on::nil_receive, deadline);
  return recv_status::timeout;
}
inline void close_of(chan_core* c) {
  if (c == nullptr) throw_close_of_nil();
  if (!c->close()) throw_close_of_closed();
}

// A value that only looks moved from: the bytes of trivial types are copied.
template <class T>
class outgoing {
 public:
  explicit outgoing(const T& v) : copy_(v) {}
  void* at() noexcept { return std::addressof(copy_); }

 private:
  T copy_;
};
template <class T>
requires std::is_trivially_copyable_v<T>
class outgoing<T> {
 public:
  explicit outgoing(const T& v) noexcept : v_(const_cast<T*>(std::addressof(v))) {}
  void* at() noexcept { return v_; }

 private:
  T* v_;
};

// -- the two halves of the interface

template <class Self, class T>
class send_half {
 public:
  // Blocks while nobody receives and the buffer is full. Throws closed_channel. v is moved from
  // only if it is taken.
  void send(T&& v) const { send_to(core(), std::addressof(v)); }
  template <class U = T>  // so that clang 14 asks at the call: T may be incomplete in the class
  requires std::copy_constructible<U>
  void send(const T& v) const {
    outgoing<T> o(v);
    send_to(core(), o.at());
  }
  bool try_send(T&& v) const { return try_send_to(core(), std::addressof(v)); }
  template <class U = T>
  requires std::copy_constructible<U>
  bool try_send(const T& v) const {
    chan_core* c = core();
    if (c == nullptr || c->looks_full()) return false;
    outgoing<T> o(v);
    return try_send_to(c, o.at());
  }
  template <class D>
  send_status send_for(T&& v, D d) const {
    return send_to_for(core(), std::addressof(v), d);
  }
  template <class D, class U = T>
  requires std::copy_constructible<U> send_status send_for(const T& v, D d)
  const {
    outgoing<T> o(v);
    return send_to_for(core(), o.at(), d);
  }
  // Receivers get what is in the buffer and then nothing more; blocked senders throw.
  void close() const { close_of(core()); }

 private:
  chan_core* core() const noexcept {
    check_element<T>();
    return chan_access::core(static_cast<const Self&>(*this));
  }
};

template <class Self>
class send_half<Self, void> {
 public:
  void send() const { send_to(core(), nullptr); }
  bool try_send() const { return try_send_to(core(), nullptr); }
  template <class D>
  send_status send_for(D d) const {
    return send_to_for(core(), nullptr, d);
  }
  void close() const { close_of(core()); }

 private:
  chan_core* core() const noexcept { return chan_access::core(static_cast<const Self&>(*this)); }
};

// for (auto& v : ch): single pass. It is a handle too: the channel lives as long as the loop.
template <class T>
class chan_iterator {
 public:
  using value_type = std::conditional_t<std::is_void_v<T>, std::monostate, T>;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::input_iterator_tag;

  chan_iterator() = default;
  explicit chan_iterator(const chan_ref& c) : c_(c) { next(); }
  value_type& operator*() const noexcept { return *value_; }
  value_type* operator->() const noexcept { return std::addressof(*value_); }
  chan_iterator& operator++() {
    next();
    return *this;
  }
  void operator++(int) { next(); }
  friend bool operator==(const chan_iterator& i, std::default_sentinel_t) noexcept {
    return !i.value_.has_value();
  }

 private:
  void next() {
    value_.reset();
    if constexpr (std::is_void_v<T>) {
      if (recv_from(c_.get(), {}) == op_result::ok) value_.emplace();
    } else {
      recv_from(c_.get(), into_optional(value_));
    }
  }
  chan_ref c_;
  mutable std::optional<value_type> value_;
};

template <class Self, class T>
class recv_half {
 public:
  // Blocks while there is nothing; empty: closed and drained.
  std::optional<T> recv() const {
    std::optional<T> out;
    if constexpr (std::is_trivially_copyable_v<T>) {
      union raw {
        raw() noexcept {}
        T v;
      } r;
      if (recv_from(core(), {std::addressof(r.v), nullptr}) == op_result::ok)
        out.emplace(std::move(r.v));
    } else {
      recv_from(core(), into_optional(out));
    }
    return out;
  }
  // out is untouched unless ok.
  recv_status try_recv(T& out) const { return try_recv_from(core(), into_element(out)); }
  recv_status try_recv(std::optional<T>& out) const {
    return try_recv_from(core(), into_optional(out));
  }
  template <class D>
  recv_status recv_for(T& out, D d) const {
    return recv_from_for(core(), into_element(out), d);
  }
  template <class D>
  recv_status recv_for(std::optional<T>& out, D d) const {
    return recv_from_for(core(), into_optional(out), d);
  }
  // Receives until the channel is closed and drained.
  chan_iterator<T> begin() const {
    return chan_iterator<T>(chan_access::ref(static_cast<const Self&>(*this)));
  }
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  chan_core* core() const noexcept {
    check_element<T>();
    return chan_access::core(static_cast<const Self&>(*this));
  }
};

template <class Self>
class recv_half<Self, void> {
 public:
  bool recv() const { return recv_from(core(), {}) == op_result::ok; }  // false: closed
  recv_status try_recv() const { return try_recv_from(core(), {}); }
  template <class D>
  recv_status recv_for(D d) const {
    return recv_from_for(core(), {}, d);
  }
  chan_iterator<void> begin() const {
    return chan_iterator<void>(chan_access::ref(static_cast<const Self&>(*this)));
  }
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  chan_core* core() const noexcept { return chan_access::core(static_cast<const Self&>(*this)); }
};

template <class N>
chan_core* make_chan(N capacity, const elem_ops& ops) {
  if constexpr (std::is_signed_v<N>) {
    if (capacity < 0) throw_bad_size();
  }
  if constexpr (sizeof(N) > sizeof(std::size_t)) {
    if (capacity > static_cast<N>(PTRDIFF_MAX)) throw_bad_size();
  }
  return chan_core::make(static_cast<std::size_t>(capacity), ops);
}

}  // namespace detail

template <class T>
class chan : public detail::chan_handle,
             public detail::send_half<chan<T>, T>,
             public detail::recv_half<chan<T>, T> {
 public:
  using element_type = T;

  chan() : chan(0) {}  // unbuffered
  // Throws std::length_error "makechan: size out of range".
  template <std::integral N>
  requires(!std::same_as<N, bool>) explicit chan(N capacity)
      : chan_handle(
            detail::chan_ref(detail::make_chan(capacity, detail::ops_of<detail::element_of<T>>))) {
    detail::check_element<T>();
  }
  // The nil channel: send and recv block for ever.
  template <std::same_as<std::nullptr_t> N>
  chan(N) noexcept {}  // NOLINT(google-explicit-constructor): c = nullptr

 private:
  friend struct detail::chan_access;
  explicit chan(detail::chan_ref c) noexcept : chan_handle(std::move(c)) {}
};

// One end of a channel.
template <class T>
class send_chan : public detail::chan_handle, public detail::send_half<send_chan<T>, T> {
 public:
  using element_type = T;
  constexpr send_chan() noexcept = default;  // nil
  template <std::same_as<std::nullptr_t> N>
  constexpr send_chan(N) noexcept {}  // NOLINT(google-explicit-constructor)
  // NOLINTNEXTLINE(google-explicit-constructor)
  send_chan(const chan<T>& c) noexcept : chan_handle(detail::chan_access::ref(c)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  send_chan(chan<T>&& c) noexcept : chan_handle(detail::chan_access::take(c)) {}
};

template <class T>
class recv_chan : public detail::chan_handle, public detail::recv_half<recv_chan<T>, T> {
 public:
  using element_type = T;
  constexpr recv_chan() noexcept = default;  // nil
  template <std::same_as<std::nullptr_t> N>
  constexpr recv_chan(N) noexcept {}  // NOLINT(google-explicit-constructor)
  // NOLINTNEXTLINE(google-explicit-constructor)
  recv_chan(const chan<T>& c) noexcept : chan_handle(detail::chan_access::ref(c)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  recv_chan(chan<T>&& c) noexcept : chan_handle(detail::chan_access::take(c)) {}

 private:
  friend struct detail::chan_access;
  explicit recv_chan(detail::chan_ref c) noexcept : chan_handle(std::move(c)) {}
};

// The same channel?
template <detail::channel A, detail::channel B>
requires std::same_as<typename A::element_type, typename B::element_type>
bool operator==(const A& a, const B& b) noexcept {
  return detail::chan_access::core(a) == detail::chan_access::core(b);
}
template <detail::channel A>
bool operator==(const A& a, std::nullptr_t) noexcept {
  return detail::chan_access::core(a) == nullptr;
}

}  // namespace weft

template <weft::detail::channel C>
struct std::hash<C> {
  std::size_t operator()(const C& c) const noexcept {
    return std::hash<void*>()(weft::detail::chan_access::core(c));
  }
};
