// SPDX-License-Identifier: Apache-2.0
// Select: the first of several sends and receives that can go on.
//
//   weft::select(weft::recv(jobs, [&](std::optional<job> j) { … }),
//                weft::send(results, r, [&] { … }),
//                weft::timeout(10ms, [&] { … }));
//
// Of those that are ready one is chosen at random. Nothing polls. `selector` is the form for cases
// known only at run time.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/chan.hpp>

namespace weft {
namespace detail {

struct no_handler {};

// An lvalue handle is referred to, a temporary is kept.
template <class H>
class held_handle {
 public:
  explicit held_handle(const H& h) noexcept : h_(h) {}
  chan_core* core() const noexcept { return chan_access::core(h_); }

 private:
  const H& h_;
};
template <class H>
class held_handle<H&&> {
 public:
  explicit held_handle(H&& h) noexcept : h_(std::move(h)) {}
  chan_core* core() const noexcept { return chan_access::core(h_); }

 private:
  H h_;
};
template <class C>  // as deduced for C&&
using held_as = held_handle<std::conditional_t<std::is_lvalue_reference_v<C>,
                                               std::remove_cvref_t<C>, std::remove_cvref_t<C>&&>>;

template <class C>
concept receives = channel<std::remove_cvref_t<C>> && std::derived_from < std::remove_cvref_t<C>,
        recv_half < std::remove_cvref_t<C>,
typename std::remove_cvref_t<C>::element_type >> ;
template <class C>
concept sends = channel<std::remove_cvref_t<C>> && std::derived_from < std::remove_cvref_t<C>,
        send_half < std::remove_cvref_t<C>,
typename std::remove_cvref_t<C>::element_type >> ;
template <class C>
using element_in = typename std::remove_cvref_t<C>::element_type;

// A generic handler is compiled with what it is asked for: each kind of channel asks for its own
// argument and for no other.
template <class F>
concept void_recv_handler = std::invocable<F&> || std::invocable<F&, bool>;
template <class F, class T>
concept value_recv_handler = requires(F& f, std::optional<T> (*v)()) {
  f(v());
};
template <class F, class T>
concept recv_handler = std::same_as<F, no_handler> ||(std::is_void_v<T>&& void_recv_handler<F>) ||
                       (!std::is_void_v<T> && value_recv_handler<F, element_of<T>>);
template <class F>
concept plain_handler = std::same_as<F, no_handler> || std::invocable<F&>;

struct case_base {
  static constexpr bool is_channel = false, is_timeout = false, is_otherwise = false;
  static constexpr bool converts = false;  // a send's value, and only if it fires
};
template <class K>
concept some_case = std::derived_from<std::remove_cvref_t<K>, case_base>;

// Not inlined: GCC would warn each handler that uses *v without asking, though it may know better.
template <class T>
[[gnu::noinline]] std::optional<T> take(std::optional<T>& value) {
  std::optional<T> v(std::move(value));
  value.reset();  // NOLINT(bugprone-use-after-move): it is still engaged
  return v;
}

template <class F>
void call(F& f) {
  if constexpr (!std::same_as<F, no_handler>) (void)std::invoke(f);
}

template <class T, class H, class F>
class recv_case : public case_base {
 public:
  static constexpr bool is_channel = true;
  template <class C, class F2>
  recv_case(C&& c, F2&& f) : c_(std::forward<C>(c)), f_(std::forward<F2>(f)) {}
  select_case prepare() noexcept {
    sink to;
    if constexpr (!std::is_void_v<T>) to = into_optional(value_);
    return {c_.core(), nullptr, to, false};
  }
  void fire(op_result r) {
    if constexpr (std::same_as<F, no_handler>) {
    } else if constexpr (!std::is_void_v<T>) {
      (void)f_(take(value_));
    } else if constexpr (std::invocable<F&, bool>) {
      (void)std::invoke(f_, r == op_result::ok);
    } else {
      (void)std::invoke(f_);
    }
  }

 private:
  H c_;
  [[no_unique_address]] F f_;
  std::optional<element_of<T>> value_;
};

// The value: a reference to the caller's rvalue, or one made for the case.
template <class T, class H, class V, class F>
class send_case : public case_base {
 public:
  static constexpr bool is_channel = true;
  template <class C, class V2, class F2>
  send_case(C&& c, V2&& v, F2&& f)
      : c_(std::forward<C>(c)), value_(std::forward<V2>(v)), f_(std::forward<F2>(f)) {}
  select_case prepare() noexcept {
    return {
        c_.core(), const_cast<void*>(static_cast<const void*>(std::addressof(value_))), {}, true};
  }
  void fire(op_result r) {
    if (r == op_result::closed) throw_send_on_closed();
    call(f_);
  }

 private:
  H c_;
  V value_;
  [[no_unique_address]] F f_;
};

// A value of another type that the conversion may move from: made when the case fires, under the
// channel's lock, as a move is.
template <class T, class H, class V, class F>
class converting_case : public case_base {
 public:
  static constexpr bool is_channel = true, converts = true;
  template <class C, class F2>
  converting_case(C&& c, V&& v, F2&& f)
      : c_(std::forward<C>(c)), from_(std::addressof(v)), f_(std::forward<F2>(f)) {}
  select_case prepare() noexcept {
    return {c_.core(), from_, {static_cast<converted*>(&to_), &convert}, true};
  }
  void fire(op_result r) {
    if (r == op_result::closed) throw_send_on_closed();
    call(f_);
  }

 private:
  struct place : converted {
    std::optional<T> value;
  };
  static void convert(void* to, void* from) {
    auto* p = static_cast<place*>(static_cast<converted*>(to));
    p->element = std::addressof(p->value.emplace(std::move(*static_cast<V*>(from))));
  }
  H c_;
  V* from_;
  place to_;
  [[no_unique_address]] F f_;
};
// What a conversion cannot change, and what becomes bytes, is converted at once.
template <class T, class V>  // V as deduced for V&&
inline constexpr bool converts_late =
    !std::is_reference_v<V> && !std::is_const_v<V> && !std::is_same_v<V, T> &&
    !std::is_trivially_copyable_v<V> && !std::is_trivially_copyable_v<T>;

template <class F>
class timeout_case : public case_base {
 public:
  static constexpr bool is_timeout = true;
  template <class F2>
  timeout_case(std::int64_t when, F2&& f) : deadline(when), f_(std::forward<F2>(f)) {}
  void fire(op_result) { call(f_); }
  std::int64_t deadline;

 private:
  [[no_unique_address]] F f_;
};

template <class F>
class otherwise_case : public case_base {
 public:
  static constexpr bool is_otherwise = true;
  template <class F2>
  otherwise_case(std::in_place_t, F2&& f) : f_(std::forward<F2>(f)) {}
  void fire(op_result) { call(f_); }

 private:
  [[no_unique_address]] F f_;
};

}  // namespace detail

// -- cases

// The handler takes std::optional<T>, empty if the channel is closed; for void nothing, or a bool.
template <detail::receives C, class F = detail::no_handler>
requires detail::recv_handler<std::decay_t<F>, detail::element_in<C>>
[[nodiscard]] auto recv(C&& c, F&& f = {}) {
  return detail::recv_case<detail::element_in<C>, detail::held_as<C>, std::decay_t<F>>(
      std::forward<C>(c), std::forward<F>(f));
}

template <detail::sends C, class V = detail::element_of<detail::element_in<C>>,
          class F = detail::no_handler>
requires(!std::is_void_v<detail::element_in<C>> &&
         std::convertible_to<V, detail::element_of<detail::element_in<C>>> &&
         detail::plain_handler<std::decay_t<F>>) [[nodiscard]] auto send(C&& c, V&& v, F&& f = {}) {
  using T = detail::element_in<C>;
  // An rvalue is referred to, and moved from or converted if the case fires; anything else is
  // converted now, and so is what a move does not change: such a case may be kept.
  if constexpr (detail::converts_late<T, V>) {
    return detail::converting_case<T, detail::held_as<C>, V, std::decay_t<F>>(
        std::forward<C>(c), std::forward<V>(v), std::forward<F>(f));
  } else {
    using held =
        std::conditional_t<std::is_same_v<V, T> && !std::is_trivially_copyable_v<T>, T&&, T>;
    return detail::send_case<T, detail::held_as<C>, held, std::decay_t<F>>(
        std::forward<C>(c), std::forward<V>(v), std::forward<F>(f));
  }
}
template <detail::sends C, class F = detail::no_handler>
requires(std::is_void_v<detail::element_in<C>>&& detail::plain_handler<std::decay_t<F>>)
    [[nodiscard]] auto send(C&& c, F&& f = {}) {
  return detail::send_case<void, detail::held_as<C>, detail::nothing, std::decay_t<F>>(
      std::forward<C>(c), detail::nothing{}, std::forward<F>(f));
}

// Fires d from now if nothing else does.
template <class Rep, class Period, class F = detail::no_handler>
requires detail::plain_handler<std::decay_t<F>>
[[nodiscard]] auto timeout(std::chrono::duration<Rep, Period> d, F&& f = {}) {
  return detail::timeout_case<std::decay_t<F>>(detail::deadline_in(d), std::forward<F>(f));
}

// Go's default: fires if nothing is ready now.
template <class F = detail::no_handler>
requires detail::plain_handler<std::decay_t<F>>
[[nodiscard]] auto otherwise(F&& f = {}) {
  return detail::otherwise_case<std::decay_t<F>>(std::in_place, std::forward<F>(f));
}

// -- select

// Returns the index of the case that ran.
template <detail::some_case... K>
int select(K&&... ks) {
  using namespace detail;
  constexpr int count = static_cast<int>(sizeof...(K));
  constexpr int channels = (0 + ... + static_cast<int>(std::remove_cvref_t<K>::is_channel));
  constexpr bool late = (false || ... || std::remove_cvref_t<K>::converts);
  constexpr int others = (0 + ... + static_cast<int>(std::remove_cvref_t<K>::is_otherwise));
  static_assert(others <= 1, "select: more than one otherwise");
  if constexpr (count == 0) {
    block_for_ever(blocked_on::no_cases);
  } else {
    std::array<select_case, sizeof...(K)> cases;
    std::int64_t deadline = chan_core::forever;
    int index = 0, timeout_index = -1, otherwise_index = -1;
    const auto prepare = [&](auto& k) {
      using case_type = std::remove_cvref_t<decltype(k)>;
      if constexpr (case_type::is_channel) {
        cases[static_cast<std::size_t>(index)] = k.prepare();
      } else if constexpr (case_type::is_timeout) {
        if (timeout_index < 0 || k.deadline < deadline) {
          deadline = k.deadline;
          timeout_index = index;
        }
      } else {
        otherwise_index = index;
      }
      ++index;
    };
    (prepare(ks), ...);
    select_result r{-1, op_result::would_block};
    if constexpr (channels == 1 && others == 1 &&
                  !late) {  // no view to be kept consistent: no locks
      for (int i = 0; i < count; ++i) {
        const select_case& k = cases[static_cast<std::size_t>(i)];
        if (k.c == nullptr) continue;
        r.result = k.is_send ? k.c->try_send(k.value) : k.c->try_recv(k.to);
        if (r.result != op_result::would_block) r.index = i;
      }
    } else {
      r = select_cases(cases.data(), cases.size(), deadline, others == 0);
    }
    const int chosen = r.index >= 0 ? r.index : others == 1 ? otherwise_index : timeout_index;
    index = 0;
    const auto fire = [&](auto& k) {
      if (index++ == chosen) k.fire(r.result);
    };
    (fire(ks), ...);
    return chosen;
  }
}

// Cases known only at run time; they stay over wait(). Timeouts start anew at each wait, a copyable
// value is sent again each time its case fires, a move-only one once.
class selector {
 public:
  selector() = default;
  selector(selector&&) noexcept = default;
  selector& operator=(selector&& o) noexcept {
    // A vector that is moved to itself may be empty then. The rest is one wait's.
    if (this != &o) entries_ = std::move(o.entries_);
    return *this;
  }

  template <detail::receives C, class F = detail::no_handler>
  requires detail::recv_handler<std::decay_t<F>, detail::element_in<C>> selector& recv(C&& c,
                                                                                       F&& f = {}) {
    using T = detail::element_in<C>;
    add<recv_entry<T, std::decay_t<F>>>(recv_chan<T>(std::forward<C>(c)), std::forward<F>(f));
    return *this;
  }
  template <detail::sends C, class V = detail::element_of<detail::element_in<C>>,
            class F = detail::no_handler>
  requires(!std::is_void_v<detail::element_in<C>> &&
           std::convertible_to<V, detail::element_of<detail::element_in<C>>> &&
           detail::plain_handler<std::decay_t<F>>) selector& send(C&& c, V&& v, F&& f = {}) {
    using T = detail::element_in<C>;
    add<send_entry<T, std::decay_t<F>>>(send_chan<T>(std::forward<C>(c)), T(std::forward<V>(v)),
                                        std::forward<F>(f));
    return *this;
  }
  template <detail::sends C, class F = detail::no_handler>
  requires(std::is_void_v<detail::element_in<C>>&& detail::plain_handler<std::decay_t<F>>)
      selector& send(C&& c, F&& f = {}) {
    add<send_entry<void, std::decay_t<F>>>(send_chan<void>(std::forward<C>(c)), detail::nothing{},
                                           std::forward<F>(f));
    return *this;
  }
  template <class Rep, class Period, class F = detail::no_handler>
  requires detail::plain_handler<std::decay_t<F>> selector& timeout(
      std::chrono::duration<Rep, Period> d, F&& f = {}) {
    add<plain_entry<std::decay_t<F>>>(kind::timeout, detail::to_ns(d), std::forward<F>(f));
    return *this;
  }
  template <class F = detail::no_handler>
  requires detail::plain_handler<std::decay_t<F>> selector& otherwise(F&& f = {}) {
    add<plain_entry<std::decay_t<F>>>(kind::otherwise, 0, std::forward<F>(f));
    return *this;
  }

  // Waits for one case, runs its handler and returns its index, in the order in which they were
  // added.
  int wait() {
    // Handlers may add cases, clear, or wait again.
    const std::shared_ptr<entry> chosen = choose();
    const int index = index_;
    chosen->fire(result_);
    return index;
  }
  void clear() noexcept { entries_.clear(); }
  std::size_t size() const noexcept { return entries_.size(); }

 private:
  enum class kind : std::uint8_t { channel, timeout, otherwise };
  struct entry {
    explicit entry(kind k, std::int64_t ns = 0) noexcept : what(k), after_ns(ns) {}
    virtual ~entry() = default;
    virtual detail::select_case prepare() { return {}; }
    virtual void chosen() noexcept {}  // before the handler runs
    virtual void fire(detail::op_result) {}
    kind what;
    std::int64_t after_ns;
  };
  template <class T, class F>
  struct recv_entry final : entry {
    template <class F2>
    recv_entry(recv_chan<T> ch, F2&& fn)
        : entry(kind::channel), c(std::move(ch)), f(std::forward<F2>(fn)) {}
    detail::select_case prepare() override {
      detail::sink to;
      if constexpr (!std::is_void_v<T>) {
        value.reset();
        to = detail::into_optional(value);
      }
      return {detail::chan_access::core(c), nullptr, to, false};
    }
    void fire(detail::op_result r) override {
      if constexpr (std::same_as<F, detail::no_handler>) {
        value.reset();
      } else if constexpr (!std::is_void_v<T>) {
        (void)f(detail::take(value));
      } else if constexpr (std::invocable<F&, bool>) {
        (void)std::invoke(f, r == detail::op_result::ok);
      } else {
        (void)std::invoke(f);
      }
    }
    recv_chan<T> c;
    [[no_unique_address]] F f;
    std::optional<detail::element_of<T>> value;
  };
  template <class T, class F>
  struct send_entry final : entry {
    using element = detail::element_of<T>;
    template <class F2>
    send_entry(send_chan<T> ch, element&& v, F2&& fn)
        : entry(kind::channel), c(std::move(ch)), value(std::move(v)), f(std::forward<F2>(fn)) {}
    detail::select_case prepare() override {
      if (spent) return {};
      if constexpr (std::copy_constructible<element>) {
        if (!copy) copy.emplace(value);
        return {detail::chan_access::core(c), std::addressof(*copy), {}, true};
      } else {
        return {detail::chan_access::core(c), std::addressof(value), {}, true};
      }
    }
    void fire(detail::op_result r) override {
      if (r == detail::op_result::closed) detail::throw_send_on_closed();
      copy.reset();
      spent = !std::copy_constructible<element>;
      detail::call(f);
    }
    send_chan<T> c;
    element value;
    std::optional<std::conditional_t<std::copy_constructible<element>, element, detail::nothing>>
        copy;  // what goes out next
    bool spent = false;
    [[no_unique_address]] F f;
  };
  template <class F>
  struct plain_entry final : entry {
    template <class F2>
    plain_entry(kind k, std::int64_t ns, F2&& fn) : entry(k, ns), f(std::forward<F2>(fn)) {}
    void fire(detail::op_result) override { detail::call(f); }
    [[no_unique_address]] F f;
  };

  template <class E, class... A>
  void add(A&&... a) {
    entries_.push_back(std::make_shared<E>(std::forward<A>(a)...));
  }
  std::shared_ptr<entry> choose() {
    std::int64_t deadline = detail::chan_core::forever;
    int timeout_index = -1, otherwise_index = -1;
    cases_.clear();
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      entry& e = *entries_[i];
      cases_.push_back(e.prepare());
      if (e.what == kind::otherwise) {
        otherwise_index = static_cast<int>(i);
      } else if (e.what == kind::timeout) {
        const std::int64_t at = detail::deadline_after(e.after_ns);
        if (timeout_index < 0 || at < deadline) {
          deadline = at;
          timeout_index = static_cast<int>(i);
        }
      }
    }
    const detail::select_result r =
        detail::select_cases(cases_.data(), cases_.size(), deadline, otherwise_index < 0);
    index_ = r.index >= 0 ? r.index : otherwise_index >= 0 ? otherwise_index : timeout_index;
    result_ = r.result;
    return entries_[static_cast<std::size_t>(index_)];
  }

  std::vector<std::shared_ptr<entry>> entries_;
  std::vector<detail::select_case> cases_;
  int index_ = -1;
  detail::op_result result_{};
};

}  // namespace weft
