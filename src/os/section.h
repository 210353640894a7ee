// SPDX-License-Identifier: Apache-2.0
// What a thread keeps of itself where a signal handler and the monitor can see it: its M, how deep
// it is inside the runtime (in_rt), whether somebody wants its attention at the way out, and
// whether its P may be taken all the same (lent).
//
// A thread is inside the runtime while it holds a runtime lock or uses its P. There nobody stops it
// and nobody takes its P away (DESIGN 4.5, 5): others would spin on its lock for ever, or own the P
// beside it. Outside, it is in user code and may be stopped at any instruction. So every lock of
// the runtime counts in_rt up and its unlock counts it down, and so does everything that touches
// M::p (sched/sched.h, hold_p).
//
// The count goes with the thread, not with the goroutine: one that parks has counted up, and the
// one that arrives counts down for it. On g0 it is never 0.
//
// Some stretches inside may sleep in the kernel while they hold a lock: an element of the user's is
// moved, and its move waits for malloc, whose lock a goroutine has that waits for a P; or another
// one waits for the lock that is held meanwhile. Nobody stops the thread there either, but its P
// may be taken as if it were outside (p_lent): whoever comes back from such a stretch asks hold_p
// anew.
//
// Who reads them: the thread itself, its signal handler, and the monitor, which asks for a
// membarrier(2) between announcing that it wants the P and reading the two. So plain stores do;
// those that give something up are releases (partner: the monitor's acquire loads in
// sched/detach.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/atomic.h"

namespace weft::rt {

struct M;

struct thread_words {
  M* m = nullptr;  // null on a thread that runs no goroutines
  atomic<std::uint32_t> in_rt{0};
  atomic<std::uint32_t> attention{0};  // a signal came while in_rt was not 0
  atomic<std::uint32_t> lent{0};       // at this depth of in_rt the P may be taken; 0: outside
  bool keeps_p() const noexcept {      // acquire: with leave_rt and p_lent
    return in_rt.load(memory_order_acquire) != lent.load(memory_order_acquire);
  }
};

}  // namespace weft::rt

extern "C" {
extern thread_local constinit weft::rt::thread_words weft_tls
    __attribute__((visibility("hidden"), tls_model("initial-exec")));
}

namespace weft::rt {

// Defined by the scheduler (preempt.cc): the thread has left the runtime and was asked to stop.
// Always 0: so that the register of the result does not carry a thread's address out of it, which
// tools/check_tls.py would have to take for one.
int attend() noexcept;

// No compiler may keep the address over a switch (core/current.h), hence the assembly.
[[gnu::always_inline]] inline thread_words* own_words() noexcept {
  thread_words* t;
#if defined(__x86_64__)
  asm volatile(
      "movq weft_tls@gottpoff(%%rip), %0\n\t"
      "addq %%fs:0, %0"
      : "=r"(t)::"cc");
#elif defined(__aarch64__)
  void* off;
  asm volatile(
      "mrs %0, tpidr_el0\n\t"
      "adrp %1, :gottprel:weft_tls\n\t"
      "ldr %1, [%1, #:gottprel_lo12:weft_tls]\n\t"
      "add %0, %0, %1"
      : "=&r"(t), "=&r"(off));
#endif
  return t;
}

[[gnu::always_inline]] inline void enter_rt() noexcept {
#if defined(__x86_64__) && !defined(WEFT_TSAN)
  void* off;
  asm volatile(
      "movq weft_tls@gottpoff(%%rip), %0\n\t"
      "incl %%fs:8(%0)"
      : "=&r"(off)::"memory", "cc");
#else
  thread_words* t = own_words();
  t->in_rt.store(t->in_rt.load(memory_order_relaxed) + 1, memory_order_relaxed);
  compiler_barrier();
#endif
}

[[gnu::always_inline]] inline void leave_rt() noexcept {
#if defined(__x86_64__) && !defined(WEFT_TSAN)
  std::uint64_t called;
  asm volatile(
      "movq weft_tls@gottpoff(%%rip), %0\n\t"
      "decl %%fs:8(%0)\n\t"
      "movl %%fs:12(%0), %k0"
      : "=&r"(called)::"memory", "cc");
#else
  thread_words* t = own_words();
  compiler_barrier();
  t->in_rt.store(t->in_rt.load(memory_order_relaxed) - 1, memory_order_release);
  const std::uint32_t called = t->attention.load(memory_order_relaxed);
#endif
  if (called != 0) [[unlikely]]
    attend();
}

// A stretch of code inside the runtime.
class in_runtime {
 public:
  in_runtime() noexcept { enter_rt(); }
  in_runtime(const in_runtime&) = delete;
  in_runtime& operator=(const in_runtime&) = delete;
  ~in_runtime() { leave_rt(); }
};

static_assert(offsetof(thread_words, in_rt) == 8 && offsetof(thread_words, attention) == 12,
              "the assembly counts on it");

}  // namespace weft::rt
