// SPDX-License-Identifier: Apache-2.0
// Contexts: cancellation, deadlines and values that go down a tree of calls.
//
//   auto [ctx, cancel] = weft::with_timeout(weft::background(), 2s);
//   weft::go([ctx = ctx] {
//     weft::select(weft::recv(ctx.done(), [&] { log(ctx.err().message()); }),
//                  weft::recv(jobs, [&](std::optional<job> j) { … }));
//   });
//   cancel();   // everything below ctx is done when this returns
//
// Cancelling never blocks and may be done from anywhere, a std::stop_callback included. A context
// whose last handle goes without having been cancelled just goes; what was had from it before,
// done() or stop_token(), still comes from whatever else would have cancelled it.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include <weft/chan.hpp>
#include <weft/detail/clock.hpp>
#include <weft/detail/context_node.hpp>
#include <weft/detail/errc.hpp>

namespace weft {

class context;

namespace detail {

// Null for a nil context, whose answers are those of background().
WEFT_API chan_ref context_done(const context_node* n);
WEFT_API std::exception_ptr context_cause(const context_node* n) noexcept;
WEFT_API std::int64_t context_deadline(const context_node* n) noexcept;  // no_deadline: none
WEFT_API std::stop_token context_stop_token(const context_node* n);

inline constexpr std::int64_t no_context_deadline = INT64_MAX;
// These return two references: the context's and the cancel_fn's.
WEFT_API context_node* make_cancel_node(context_node* parent);
WEFT_API context_node* make_token_node(context_node* parent, std::stop_token token);
WEFT_API context_node* make_deadline_node(context_node* parent, std::int64_t when,
                                          std::exception_ptr cause);
WEFT_API context_node* make_without_cancel_node(context_node* parent);  // one reference
WEFT_API context_node* background_node() noexcept;
WEFT_API void cancel_context(context_node* n, std::exception_ptr cause) noexcept;
// Takes over a reference to e.
WEFT_API void add_after(context_node* n, after_entry* e) noexcept;
WEFT_API bool stop_after(context_node* n, after_entry* e) noexcept;
[[noreturn]] WEFT_API void throw_nil_parent();
[[noreturn]] WEFT_API void throw_nil_key();

// A counted handle.
class node_ref {
 public:
  constexpr node_ref() noexcept = default;
  explicit node_ref(context_node* adopted) noexcept : n_(adopted) {}
  node_ref(const node_ref& o) noexcept : n_(o.n_) {
    if (n_ != nullptr) n_->retain();
  }
  node_ref(node_ref&& o) noexcept : n_(std::exchange(o.n_, nullptr)) {}
  node_ref& operator=(node_ref o) noexcept {
    std::swap(n_, o.n_);
    return *this;
  }
  ~node_ref() {
    if (n_ != nullptr) n_->release();
  }
  context_node* get() const noexcept { return n_; }
  context_node* operator->() const noexcept { return n_; }

 private:
  context_node* n_ = nullptr;
};

struct context_access;

}  // namespace detail

// A counted handle; copies are the same context. The default is nil: never cancelled, without
// values, and no parent.
class context {
 public:
  constexpr context() noexcept = default;

  // Closed when the context is cancelled; nil if it never can be. Always the same channel.
  [[nodiscard]] recv_chan<void> done() const {
    return detail::chan_access::adopt<recv_chan<void>>(detail::context_done(n_.get()));
  }
  // None as long as done() is open; afterwards errc::canceled or errc::deadline_exceeded.
  [[nodiscard]] std::error_code err() const noexcept {
    const detail::context_node* c = n_.get() != nullptr ? n_->canceller() : nullptr;
    const int e = c != nullptr ? c->error() : 0;
    return e == 0 ? std::error_code() : make_error_code(static_cast<errc>(e));
  }
  // Null until then; afterwards what the cancellation gave, or a std::system_error of err(), which
  // is one and the same for all contexts.
  [[nodiscard]] std::exception_ptr cause() const noexcept {
    return detail::context_cause(n_.get());
  }
  [[nodiscard]] std::optional<clock::time_point> deadline() const noexcept {
    const std::int64_t t = detail::context_deadline(n_.get());
    if (t == detail::no_context_deadline) return std::nullopt;
    return clock::time_point(clock::duration(t));
  }
  // The value of the nearest key of the same type that is equal; null if there is none or it is no
  // T. Strings of all kinds are one key type. Valid as long as the context.
  template <class T, class K>
  [[nodiscard]] const T* value(const K& key) const noexcept {
    using key_type = std::decay_t<const K>;
    if (n_.get() == nullptr) return nullptr;
    if constexpr (detail::is_string_key<key_type>) {
      if (detail::is_nil_key(static_cast<const key_type&>(key))) return nullptr;
      const std::string_view k(key);
      return find<T>(typeid(std::string), &k);
    } else if constexpr (std::is_array_v<K> || std::is_function_v<K>) {
      const key_type k = key;
      return find<T>(typeid(key_type), &k);
    } else {
      return find<T>(typeid(key_type), std::addressof(key));
    }
  }
  // Requested to stop when the context is cancelled.
  [[nodiscard]] std::stop_token stop_token() const { return detail::context_stop_token(n_.get()); }

  explicit operator bool() const noexcept { return n_.get() != nullptr; }  // not nil
  friend bool operator==(const context& a, const context& b) noexcept {
    return a.n_.get() == b.n_.get();
  }

 private:
  friend struct detail::context_access;
  explicit context(detail::node_ref n) noexcept : n_(std::move(n)) {}
  template <class T>
  const T* find(const std::type_info& key_type, const void* key) const noexcept {
    return static_cast<const T*>(
        detail::find_value(n_.get(), key_type, key, typeid(std::remove_cv_t<T>)));
  }
  detail::node_ref n_;
};

// Cancels a context and all below it. Copyable; only the first call does anything; dropping it
// cancels nothing.
class cancel_fn {
 public:
  constexpr cancel_fn() noexcept = default;  // does nothing
  // When it returns, done() of the context and of all below it is closed.
  void operator()() const noexcept { (*this)(nullptr); }
  void operator()(std::exception_ptr cause) const noexcept {
    if (n_.get() != nullptr) detail::cancel_context(n_.get(), std::move(cause));
  }
  explicit operator bool() const noexcept { return n_.get() != nullptr; }

 private:
  friend struct detail::context_access;
  explicit cancel_fn(detail::node_ref n) noexcept : n_(std::move(n)) {}
  detail::node_ref n_;
};

// Keeps the function of after_cancel from running. Copyable; dropping it stops nothing.
class stop_fn {
 public:
  stop_fn() noexcept = default;
  stop_fn(const stop_fn& o) noexcept : n_(o.n_), e_(o.e_) {
    if (e_ != nullptr) e_->retain();
  }
  stop_fn(stop_fn&& o) noexcept : n_(std::move(o.n_)), e_(std::exchange(o.e_, nullptr)) {}
  stop_fn& operator=(stop_fn o) noexcept {
    std::swap(n_, o.n_);
    std::swap(e_, o.e_);
    return *this;
  }
  ~stop_fn() {
    if (e_ != nullptr) e_->release();
  }

  // True: this call has seen to it that f never runs. False: f has been started, or was stopped
  // before.
  bool operator()() const noexcept { return e_ != nullptr && detail::stop_after(n_.get(), e_); }
  // Until f has returned, if it was started; not from f itself.
  void wait() const {
    if (e_ != nullptr && e_->has_started()) e_->finished.wait();
  }

 private:
  friend struct detail::context_access;
  stop_fn(detail::node_ref n, detail::after_entry* adopted) noexcept
      : n_(std::move(n)), e_(adopted) {}
  detail::node_ref n_;  // the entry stands in its list
  detail::after_entry* e_ = nullptr;
};

namespace detail {

struct context_access {
  static context_node* node(const context& c) noexcept { return c.n_.get(); }
  static const node_ref& ref(const context& c) noexcept { return c.n_; }
  static context adopt(context_node* n) noexcept { return context(node_ref(n)); }
  static std::pair<context, cancel_fn> adopt_pair(context_node* n) noexcept {
    return {context(node_ref(n)), cancel_fn(node_ref(n))};
  }
  static std::pair<context, cancel_fn> adopt_pair(context_node* n,
                                                  context_node* cancelled) noexcept {
    return {context(node_ref(n)), cancel_fn(node_ref(cancelled))};
  }
  static stop_fn make_stop(const context& c, after_entry* adopted) noexcept {
    return stop_fn(c.n_, adopted);
  }
  static context_node* parent(const context& c) {
    if (c.n_.get() == nullptr) throw_nil_parent();
    return c.n_.get();
  }
};

}  // namespace detail

// The root: never cancelled, no deadline, no values.
inline context background() noexcept {
  return detail::context_access::adopt(detail::background_node());
}

// All of these throw std::invalid_argument "cannot create context from nil parent".

[[nodiscard]] inline std::pair<context, cancel_fn> with_cancel(const context& parent) {
  using access = detail::context_access;
  return access::adopt_pair(detail::make_cancel_node(access::parent(parent)));
}
// The token cancels it too.
[[nodiscard]] inline std::pair<context, cancel_fn> with_cancel(const context& parent,
                                                               std::stop_token token) {
  using access = detail::context_access;
  return access::adopt_pair(detail::make_token_node(access::parent(parent), std::move(token)));
}
// Cancelled with errc::deadline_exceeded at tp, or earlier by its parent's deadline. The cause is
// for the deadline only.
template <class Clock, class Duration>
[[nodiscard]] std::pair<context, cancel_fn> with_deadline(
    const context& parent, const std::chrono::time_point<Clock, Duration>& tp,
    std::exception_ptr cause = {}) {
  using access = detail::context_access;
  return access::adopt_pair(detail::make_deadline_node(access::parent(parent),
                                                       detail::deadline_at(tp), std::move(cause)));
}
template <class Rep, class Period>
[[nodiscard]] std::pair<context, cancel_fn> with_timeout(
    const context& parent, const std::chrono::duration<Rep, Period>& d,
    std::exception_ptr cause = {}) {
  using access = detail::context_access;
  return access::adopt_pair(
      detail::make_deadline_node(access::parent(parent), detail::deadline_in(d), std::move(cause)));
}

// Key and value are decay-copied; the key's type should be one of your own. A null pointer as key
// throws std::invalid_argument "nil key".
template <class K, class V>
requires std::equality_comparable<std::decay_t<K>> || std::is_null_pointer_v<std::decay_t<K>>
[[nodiscard]] context with_value(const context& parent, K&& key, V&& value) {
  using access = detail::context_access;
  using key_type = std::decay_t<K>;
  detail::context_node* p = access::parent(parent);
  if constexpr (std::is_null_pointer_v<key_type>) {
    detail::throw_nil_key();
  } else {
    if constexpr (std::is_pointer_v<key_type> || std::is_member_pointer_v<key_type>) {
      const key_type k = key;
      if (detail::is_nil_key(k)) detail::throw_nil_key();
    }
    using node = detail::value_node<detail::stored_key<key_type>, std::decay_t<V>>;
    return access::adopt(new node(p, p->canceller(), std::forward<K>(key), std::forward<V>(value)));
  }
}
// The parent's values and nothing else of it.
[[nodiscard]] inline context without_cancel(const context& parent) {
  using access = detail::context_access;
  return access::adopt(detail::make_without_cancel_node(access::parent(parent)));
}

// When ctx is cancelled f runs in a goroutine of its own; at once if it has been cancelled already.
// Without a function that is fatal, then, as in Go.
template <class F>
requires std::invocable<std::decay_t<F>> stop_fn after_cancel(const context& ctx, F&& f) {
  using access = detail::context_access;
  detail::context_node* n = access::parent(ctx);
  auto* e = new detail::after_call<std::decay_t<F>>(std::in_place, std::forward<F>(f));
  e->retain();
  stop_fn stop = access::make_stop(ctx, e);
  detail::add_after(n, e);
  return stop;
}

}  // namespace weft

template <>
struct std::hash<weft::context> {
  std::size_t operator()(const weft::context& c) const noexcept {
    return std::hash<void*>()(weft::detail::context_access::node(c));
  }
};
