// SPDX-License-Identifier: Apache-2.0
// The type-erased half of `go`: the runtime lends a piece of the new goroutine's own stack, the
// template builds the closure there, and the runtime runs it. No allocation.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#define WEFT_API __attribute__((visibility("default")))
// Functions through which a goroutine is started are part of their caller, so that the return
// address seen by spawn_begin is the line that says `go`.
#define WEFT_STARTS [[gnu::always_inline]] inline

namespace weft::detail {

struct spawn_ticket {
  void* storage;    // uninitialised, of the size and alignment asked for
  void* goroutine;  // opaque
};

WEFT_API spawn_ticket spawn_begin(std::size_t size, std::size_t align);
WEFT_API spawn_ticket spawn_begin(std::size_t size, std::size_t align, std::size_t stack_size,
                                  std::string_view name);
// run(storage) calls the closure and destroys it.
WEFT_API void spawn_commit(spawn_ticket t, void (*run)(void*)) noexcept;
WEFT_API void spawn_cancel(spawn_ticket t) noexcept;
// Both in one, for a closure that may be moved as bytes: largest_in_line of them are. (Not const:
// the compiler would ask that all of them mean something.)
WEFT_API void spawn_bytes(void* closure, void (*run)(void*));
[[noreturn]] WEFT_API void go_of_nil() noexcept;

// Blocks for what goroutines and their starters share; from any thread, to any thread.
inline constexpr std::size_t block_size = 64;
WEFT_API void* block_alloc();
WEFT_API void block_free(void* p) noexcept;

// f(a...) with everything decay-copied. The arguments are moved into the call, as std::thread does.
template <class F, class... A>
struct closure {
  [[no_unique_address]] F f;
  [[no_unique_address]] std::tuple<A...> args;

  template <class F2, class... A2>
  explicit closure(F2&& f2, A2&&... a2) : f(std::forward<F2>(f2)), args(std::forward<A2>(a2)...) {}
  decltype(auto) operator()() {
    return std::apply(
        [this](auto&... a) -> decltype(auto) { return std::invoke(std::move(f), std::move(a)...); },
        args);
  }
};
template <class F>
struct closure<F> {
  [[no_unique_address]] F f;
  template <class F2>
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint keeps it from copies
  requires(!std::same_as<std::remove_cvref_t<F2>, closure>) explicit closure(F2&& f2)
      : f(std::forward<F2>(f2)) {}
  decltype(auto) operator()() { return std::invoke(std::move(f)); }
};

template <class F>
bool is_nil(const F& f) {
  if constexpr (std::is_function_v<F>) {
    return false;  // a function has an address; comparing it would only draw a warning
  } else if constexpr (std::is_pointer_v<F> || std::is_member_pointer_v<F>) {
    return f == nullptr;
  } else if constexpr (requires {
                         { f == nullptr } -> std::convertible_to<bool>;
                         static_cast<bool>(f);
                       }) {
    return f == nullptr;  // std::function and its like
  } else {
    return false;
  }
}

// Builds a C in the new goroutine and starts it: in its descriptor if it is small, else on its
// stack, and what is too big for that on the heap. In the last two cases the runtime or we hand a
// pointer to run.
inline constexpr std::size_t largest_in_line = 40;
inline constexpr std::size_t largest_on_stack = 16 * 1024;

template <class C>
void run_closure(void* p) {
  struct guard {
    C* c;
    ~guard() { std::destroy_at(c); }
  } g{static_cast<C*>(p)};
  (*g.c)();
}
template <class C>
void run_on_stack(void* p) {
  run_closure<C>(*static_cast<void**>(p));
}
template <class C>
void run_boxed(void* p) {
  std::unique_ptr<C> c(*static_cast<C**>(p));
  (*c)();
}

// Whether a C may be moved as bytes and the original be forgotten. Ours say so themselves.
template <class C>
inline constexpr bool relocatable = std::is_trivially_copyable_v<C>;
template <class C>
requires requires { C::moves_as_bytes; }
inline constexpr bool relocatable<C> = C::moves_as_bytes;

template <class C, class Begin, class... A>
WEFT_STARTS void spawn_with(Begin begin, A&&... a) {
  if constexpr (sizeof(C) <= largest_on_stack) {
    const spawn_ticket t = begin(sizeof(C), alignof(C));
    if constexpr (std::is_nothrow_constructible_v<C, A...>) {
      ::new (t.storage) C(std::forward<A>(a)...);
    } else {
      try {
        ::new (t.storage) C(std::forward<A>(a)...);
      } catch (...) {
        spawn_cancel(t);
        throw;
      }
    }
    if constexpr (sizeof(C) <= largest_in_line && alignof(C) <= alignof(std::max_align_t)) {
      spawn_commit(t, &run_closure<C>);
    } else {
      spawn_commit(t, &run_on_stack<C>);
    }
  } else {
    auto c = std::make_unique<C>(std::forward<A>(a)...);
    const spawn_ticket t = begin(sizeof(C*), alignof(C*));
    ::new (t.storage) C*(c.release());
    spawn_commit(t, &run_boxed<C>);
  }
}

template <class C, class... A>
WEFT_STARTS void spawn(A&&... a) {
  if constexpr (sizeof(C) <= largest_in_line && alignof(C) <= alignof(std::max_align_t) &&
                relocatable<C>) {
    alignas(std::max_align_t) std::byte closure[largest_in_line];
    ::new (static_cast<void*>(closure)) C(std::forward<A>(a)...);
    spawn_bytes(closure, &run_closure<C>);
  } else {
    spawn_with<C>(
        [](std::size_t size, std::size_t align)
            __attribute__((always_inline)) { return spawn_begin(size, align); },
        std::forward<A>(a)...);
  }
}

}  // namespace weft::detail
