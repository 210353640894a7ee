// SPDX-License-Identifier: Apache-2.0
// Goroutines and the threads they run on: locking the two together, calls that block the thread,
// calls that need a large stack.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <weft/detail/spawn.hpp>

namespace weft {

// From here on, only this thread runs this goroutine, and this thread runs no other, until
// unlock_os_thread has been called as often. A goroutine that ends locked ends its thread (the
// thread that called run sleeps instead). On a plain thread neither does anything.
WEFT_API void lock_os_thread();
WEFT_API void unlock_os_thread();

class [[nodiscard]] os_thread_guard {
 public:
  os_thread_guard() { lock_os_thread(); }
  os_thread_guard(const os_thread_guard&) = delete;
  os_thread_guard& operator=(const os_thread_guard&) = delete;
  ~os_thread_guard() { unlock_os_thread(); }
};

// How many threads may run goroutines; the process ends with "thread exhaustion" when it needs one
// more. Returns the previous value.
WEFT_API std::size_t set_max_threads(std::size_t n);

namespace detail {

WEFT_API void enter_syscall() noexcept;
WEFT_API void exit_syscall();

struct syscall_guard {
  syscall_guard() noexcept { enter_syscall(); }
  syscall_guard(const syscall_guard&) = delete;
  syscall_guard& operator=(const syscall_guard&) = delete;
  ~syscall_guard() { exit_syscall(); }
};

WEFT_API void call_on_system_stack(void (*fn)(void*), void* arg);

}  // namespace detail

// f(), which may block the thread: if it takes long and somebody else wants to run, the goroutine's
// place is given away meanwhile. Costs no more than some nanoseconds where f is quick. f may use
// weft; the announcement then ends with the first call that needs the scheduler.
template <class F>
requires std::invocable<F>
decltype(auto) blocking(F&& f) {
  const detail::syscall_guard guard;
  return std::invoke(std::forward<F>(f));
}

// f() on the thread's own stack (8 MiB as a rule), for a library that needs more stack than a
// goroutine has. f may throw; it may not park: that is fatal.
template <class F>
requires std::invocable<F>
decltype(auto) on_system_stack(F&& f) {
  using R = std::invoke_result_t<F>;
  using callee = std::remove_reference_t<F>*;  // of a function too
  if constexpr (std::is_void_v<R>) {
    callee c = std::addressof(f);
    detail::call_on_system_stack(
        [](void* p) { std::invoke(std::forward<F>(**static_cast<callee*>(p))); }, &c);
  } else if constexpr (std::is_reference_v<R>) {
    struct call {
      callee f;
      std::remove_reference_t<R>* r;
    } c{std::addressof(f), nullptr};
    detail::call_on_system_stack(
        [](void* p) {
          auto* self = static_cast<call*>(p);
          auto&& r = std::invoke(std::forward<F>(*self->f));
          self->r = std::addressof(r);
        },
        &c);
    return static_cast<R>(*c.r);
  } else {
    using V = std::remove_cv_t<R>;
    struct call {
      callee f;
      union {
        V r;
      };
      bool made = false;
      explicit call(callee fn) noexcept : f(fn) {}
      call(const call&) = delete;
      call& operator=(const call&) = delete;
      ~call() {
        if (made) r.~V();
      }
    } c(std::addressof(f));
    detail::call_on_system_stack(
        [](void* p) {
          auto* self = static_cast<call*>(p);
          ::new (static_cast<void*>(std::addressof(self->r)))
              V(std::invoke(std::forward<F>(*self->f)));
          self->made = true;
        },
        &c);
    return R(std::move(c.r));
  }
}

}  // namespace weft
