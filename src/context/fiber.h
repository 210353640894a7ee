// SPDX-License-Identifier: Apache-2.0
// What the sanitizers and Valgrind must be told about stacks and switches; everything here is empty
// in a plain build.
//
// ASan keeps the bounds of the current stack: it is told before a switch where we go and after it
// that we have arrived. TSan keeps a fiber object a stack; the switch call must come from a
// function that is not itself instrumented (DESIGN 2.5), and it gives a happens-before edge from
// the goroutine that leaves to the one that enters: runtime data that belongs to 'the M' or 'the P'
// would otherwise look raced on. Valgrind wants each stack registered.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(WEFT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(WEFT_TSAN)
#include <sanitizer/tsan_interface.h>
#endif
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif

#include "context/context.h"

namespace weft::rt {

// Per stack; lives in the G.
struct fiber {
#if defined(WEFT_TSAN) || defined(WEFT_ASAN)
  void* handle = nullptr;  // TSan's fiber, or ASan's fake stack while switched away
  std::uintptr_t lo = 0, hi = 0;
#endif

  // The calling thread's own stack (g0).
  void adopt_thread() noexcept;
  // A goroutine gets a stack. Also wipes ASan's shadow of whatever the stack's last owner left
  // there.
  void assign([[maybe_unused]] std::uintptr_t stack_lo,
              [[maybe_unused]] std::uintptr_t stack_hi) noexcept {
#if defined(WEFT_ASAN)
    lo = stack_lo;
    hi = stack_hi;
    handle = nullptr;
    ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(lo), hi - lo);
#elif defined(WEFT_TSAN)
    handle = take_handle();
#endif
  }
  // Its stack goes back; it is not the current one.
  void retire() noexcept {
#if defined(WEFT_TSAN)
    if (handle != nullptr) put_handle(handle);
    handle = nullptr;
#endif
  }
#if defined(WEFT_TSAN)
  // TSan has 8128 of them and no more, so they are recycled.
  static void* take_handle() noexcept;
  static void put_handle(void* h) noexcept;
#endif
  // First thing on a fresh stack.
  void entered() noexcept {
#if defined(WEFT_ASAN)
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  }
};

// Before an unwind that ends every frame on this stack: ASan forgets what the frames had poisoned.
inline void no_return_ahead() noexcept {
#if defined(WEFT_ASAN)
  __asan_handle_no_return();
#endif
}

inline void register_stack([[maybe_unused]] std::uintptr_t lo,
                           [[maybe_unused]] std::uintptr_t hi) noexcept {
#if defined(VALGRIND_STACK_REGISTER)
  // Stacks are recycled, never unmapped, so the id is not kept.
  (void)VALGRIND_STACK_REGISTER(reinterpret_cast<void*>(lo), reinterpret_cast<void*>(hi));
#endif
}

#if defined(WEFT_TSAN) || defined(WEFT_ASAN)
// `last`: the leaving stack will not be entered again.
void fiber_switch(fiber& from, fiber& to, bool last, void** from_sp, void* to_sp,
                  weft_commit commit, void* a, void* b) noexcept;
constexpr bool fibers_are_tracked = true;
#else
constexpr bool fibers_are_tracked = false;
[[gnu::always_inline]] inline void fiber_switch(fiber&, fiber&, bool, void** from_sp, void* to_sp,
                                                weft_commit commit, void* a, void* b) noexcept {
  weft_switch(from_sp, to_sp, commit, a, b);
}
#endif

// fn(arg) on `on`'s stack, below sp, for the same goroutine.
#if defined(WEFT_ASAN)
void fiber_call_on(fiber& on, void* sp, void (*fn)(void*), void* arg);
#else
inline void fiber_call_on(fiber&, void* sp, void (*fn)(void*), void* arg) {
  weft_call_on(sp, fn, arg);
}
#endif

}  // namespace weft::rt
