// SPDX-License-Identifier: Apache-2.0
// The current M, the one thread-local of the scheduler, through an accessor that no compiler can
// hoist.
//
// A goroutine may wake on another thread, so neither the value nor the *address* of a thread-local
// may be carried over a call that switches (DESIGN 2.1). The compiler knows nothing of that: it may
// compute %fs:0 once and keep it. Hence one read in volatile assembly: it can be neither merged
// with an earlier one nor moved over a switch. tools/check_tls.py proves on the disassembly that
// nobody else slips.
#pragma once

#include "core/m.h"
#include "os/section.h"

namespace weft::rt {

static_assert(offsetof(thread_words, m) == 0);

[[gnu::always_inline]] inline M* current_m() noexcept {
  M* m;
#if defined(__x86_64__)
  asm volatile(
      "movq weft_tls@gottpoff(%%rip), %0\n\t"
      "movq %%fs:(%0), %0"
      : "=r"(m));
#elif defined(__aarch64__)
  void* off;
  asm volatile(
      "mrs %0, tpidr_el0\n\t"
      "adrp %1, :gottprel:weft_tls\n\t"
      "ldr %1, [%1, #:gottprel_lo12:weft_tls]\n\t"
      "ldr %0, [%0, %1]"
      : "=&r"(m), "=&r"(off));
#endif
  return m;
}

// Null on a plain thread and on g0.
[[gnu::always_inline]] inline G* current_g() noexcept {
  M* m = current_m();
  return m == nullptr ? nullptr : m->curg;
}

void set_current_m(M* m) noexcept;

// Scheduler context, where nothing may allocate (DESIGN 2.3). Dev builds mark it, and the test
// programs' malloc asks weft_in_scheduler(); in release builds there is nothing to mark.
#if defined(WEFT_DEV)
inline std::uint32_t enter_sched(M* m) noexcept {
  const std::uint32_t was = m->in_sched;
  m->in_sched = 1;
  return was;
}
inline void leave_sched(M* m, std::uint32_t was) noexcept { m->in_sched = was; }
inline void leave_sched() noexcept { current_m()->in_sched = 0; }
#else
inline std::uint32_t enter_sched(M*) noexcept { return 0; }
inline void leave_sched(M*, std::uint32_t) noexcept {}
inline void leave_sched() noexcept {}
#endif

}  // namespace weft::rt
