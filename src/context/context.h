// SPDX-License-Identifier: Apache-2.0
// The context switch: the contract; one .S file an architecture keeps it.
//
// weft_switch(from, to, commit, a, b)
//   1. saves what the ABI asks a callee to keep (integer registers, the floating-point control
//   words) on the
//      current stack and stores the stack pointer in *from;
//   2. loads `to`, a pointer stored by an earlier weft_switch or made by make_context, and restores
//   from there;
//   3. if commit is not null, jumps to commit(a, b) in such a way that commit *returns into the
//   resumed frame*.
// So commit runs on the arriving stack, after the old one is completely saved: it may publish the
// old goroutine to other threads, unlock what it held, or free its stack. This is the deferred
// commit of DESIGN 1. commit must not switch, throw, or use the old stack once it has published it.
//
// Why not a call to the switch and an indirect jump out of it: the return-address predictor would
// then be off by one for every frame above. As it stands, call and ret stay paired, a callee that
// switches as its last act is itself a tail jump, and two goroutines parked at the same place
// predict each other's returns. Rejected: inline assembly that clobbers every register. It measures
// the same once the callers are ordinary functions (they save the same six registers in their
// prologues) and puts assembly into string literals.
//
// weft_start and weft_leave are for goroutines that begin and end: the first makes do without a
// frame on the fresh stack, the second saves nothing. Between them they neither pop nor push a
// return address more than they should, so one who starts a goroutine and waits for it comes back
// to a predictor that still knows its frames; with weft_switch both ways each of them was guessed
// wrongly (spawn and join: 92 ns against 70).
//
// Runs on the stack it leaves, then on the one it enters. No allocation, no TLS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unwind.h>

extern "C" {
using weft_commit = void (*)(void* a, void* b);
void weft_switch(void** from, void* to, weft_commit commit, void* a, void* b) noexcept;
// The same onto a fresh stack that ends at `top` (16-byte aligned): fn(arg, null, null) there,
// which never returns, with the default floating-point environment.
void weft_start(void** from, std::uintptr_t top, weft_commit commit, void* a, void* b,
                void (*fn)(void*, void*, void*), void* arg) noexcept;
// First frame of every goroutine: calls fn(a, b, c) on the fresh stack; the unwinder and gdb stop
// here.
// Calls fn(arg) on the stack whose top is `sp`; returns to this one, also by an exception.
void weft_call_on(void* sp, void (*fn)(void*), void* arg) __attribute__((visibility("hidden")));
void weft_entry() noexcept;
// fn(arg). An exception that nobody in there catches is shown to weft_uncaught, this frame's
// personality routine, while the stack still stands as it was thrown; then it goes on outwards.
void weft_guarded_call(void (*fn)(void*), void* arg);
_Unwind_Reason_Code weft_uncaught(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                  _Unwind_Exception* exception, _Unwind_Context* context);
}

namespace weft::rt {

// Words that weft_switch keeps on the stack, lowest address first; the .S files rely on it.
#if defined(__x86_64__)
struct switch_frame {
  std::uint32_t mxcsr;
  std::uint32_t x87_cw;
  void* r15;
  void* r14;  // weft_entry: c
  void* r13;  // weft_entry: fn
  void* r12;  // weft_entry: a
  void* rbx;  // weft_entry: b
  void* rbp;
  void* rip;
};
static_assert(sizeof(switch_frame) == 64 && offsetof(switch_frame, r15) == 8 &&
              offsetof(switch_frame, r13) == 24 && offsetof(switch_frame, rip) == 56);
#elif defined(__aarch64__)
struct switch_frame {
  void* x[10];  // x19 … x28; weft_entry: fn, a, b, c in the first four
  void* fp;     // x29
  void* lr;     // x30
  std::uint64_t d[8];
  std::uint64_t fpcr;
  std::uint64_t pad;
};
static_assert(sizeof(switch_frame) == 176 && offsetof(switch_frame, fp) == 80 &&
              offsetof(switch_frame, d) == 96 && offsetof(switch_frame, fpcr) == 160);
#else
#error "weft runs on x86-64 and aarch64"
#endif

using entry_fn = void (*)(void* a, void* b, void* c);

// A new goroutine 'returns' behind weft_entry's first instruction (4 bytes on both architectures):
// unwinders look a return address up one byte before it, and that byte must belong to weft_entry.
inline void* entry_address() noexcept { return reinterpret_cast<char*>(&weft_entry) + 4; }

// Lays a frame below `top` (16-byte aligned) from which weft_switch starts fn(a, b, c). Returns
// what to switch to. A new goroutine starts with the default floating-point environment, whatever
// its creator has set.
inline void* make_context(std::uintptr_t top, entry_fn fn, void* a, void* b = nullptr,
                          void* c = nullptr) noexcept {
  auto* f = reinterpret_cast<switch_frame*>(top - sizeof(switch_frame));
#if defined(__x86_64__)
  *f = switch_frame{0x1f80, 0x037f,  nullptr,        c, reinterpret_cast<void*>(fn), a,
                    b,      nullptr, entry_address()};
#else
  *f = switch_frame{};
  f->x[0] = reinterpret_cast<void*>(fn);
  f->x[1] = a;
  f->x[2] = b;
  f->x[3] = c;
  f->lr = entry_address();
#endif
  return f;
}

// weft_switch for one who will not come back: nothing is saved. A jump, not a call (see above).
[[noreturn, gnu::always_inline]] inline void leave_stack(void* to, weft_commit commit, void* a,
                                                         void* b) noexcept {
#if defined(__x86_64__)
  register void* b_in asm("r8") = b;
  asm volatile("jmp weft_leave" : : "S"(to), "d"(commit), "c"(a), "r"(b_in) : "memory");
#else
  register void* to_in asm("x1") = to;
  register weft_commit commit_in asm("x2") = commit;
  register void* a_in asm("x3") = a;
  register void* b_in asm("x4") = b;
  asm volatile("b weft_leave" : : "r"(to_in), "r"(commit_in), "r"(a_in), "r"(b_in) : "memory");
#endif
  __builtin_unreachable();
}

// What make_context gives a new goroutine, for one that takes over a stack without a switch.
inline void reset_fp_environment() noexcept {
#if defined(__x86_64__)
  constexpr std::uint32_t mxcsr = 0x1f80;
  constexpr std::uint16_t x87_cw = 0x037f;
  asm volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(mxcsr), "m"(x87_cw));
#else
  asm volatile("msr fpcr, xzr");
#endif
}

}  // namespace weft::rt
