// SPDX-License-Identifier: Apache-2.0
// context/context.h: what a switch keeps, when the commit runs, and that exceptions work on a fresh
// stack; the same for weft_start and leave_stack. Long because registers are checked in assembly,
// for two architectures.
#include <cfenv>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>

#include "unit/context/fiber_stack.h"
#include "unit/support.h"

namespace weft::rt {
namespace {

using namespace context_test;

// Here and there, and what the two sides want to tell each other.
struct pair {
  thread_side here;
  fresh_stack there;
  explicit pair(entry_fn fn) : there(fn, this) {}
  void enter(weft_commit commit = nullptr, void* a = nullptr, void* b = nullptr) {
    switch_between(here, there, commit, a, b);
  }
  void leave(weft_commit commit = nullptr, void* a = nullptr, void* b = nullptr,
             bool last = false) {
    switch_between(there, here, commit, a, b, last);
  }
  // First thing in fn.
  static pair& entered(void* arg) {
    auto* p = static_cast<pair*>(arg);
    p->there.fiber.entered();
    return *p;
  }

  int steps = 0;
  std::uint64_t count = 0;
  std::string text;
  const void* address = nullptr;
  std::uintptr_t entry_alignment = 1;
};

TEST(Switch, GoesThereAndBack) {
  pair p([](void* arg, void*, void*) {
    pair& self = pair::entered(arg);
    for (;;) {
      int local = 0;
      self.address = &local;
      ++self.steps;
      self.leave();
    }
  });
  EXPECT_EQ(p.steps, 0);
  for (int i = 1; i <= 5; ++i) {
    p.enter();
    EXPECT_EQ(p.steps, i);
    EXPECT_TRUE(p.there.contains(p.address));
  }
}

TEST(Switch, AFreshStackIsAligned) {
  pair p([](void* arg, void*, void*) {
    pair& self = pair::entered(arg);
    self.entry_alignment = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) % 16;
    self.leave();
  });
  p.enter();
  EXPECT_EQ(p.entry_alignment, 0U);  // call, then push of the frame pointer
}

TEST(Switch, HandsThreeArgumentsToTheEntry) {
  thread_side here;
  struct seen {
    thread_side* back;
    fresh_stack* own = nullptr;
    void* b = nullptr;
    void* c = nullptr;
  } s{&here};
  int x = 0, y = 0;
  fresh_stack there(
      [](void* a, void* b, void* c) {
        auto* to = static_cast<seen*>(a);
        to->own->fiber.entered();
        to->b = b;
        to->c = c;
        switch_between(*to->own, *to->back);
      },
      &s, &x, &y);
  s.own = &there;
  switch_between(here, there);
  EXPECT_EQ(s.b, &x);
  EXPECT_EQ(s.c, &y);
}

TEST(Switch, AMillionTimes) {
  constexpr int rounds = unit_test::scaled(1'000'000) / 2;
  pair p([](void* arg, void*, void*) {
    pair& self = pair::entered(arg);
    for (std::uint64_t local = 1;; ++local) {  // its own count, on its own stack
      self.count = local;
      self.leave();
    }
  });
  for (int i = 1; i <= rounds; ++i) {
    p.enter();
    ASSERT_EQ(p.count, static_cast<std::uint64_t>(i));
  }
}

// The order of the contract: saved, switched, committed, resumed.
struct commit_log {
  pair* p = nullptr;
  void* sp_before = nullptr;
  bool saved = false;
  bool on_arriving_stack = false;
  int resumed_before = 0;
  void* second = nullptr;
};

TEST(Switch, CommitRunsOnTheFreshStackAfterTheOldOneIsSaved) {
  pair p([](void* arg, void*, void*) {
    pair& self = pair::entered(arg);
    ++self.steps;
    self.leave();
  });
  commit_log log{&p, p.here.sp, false, false, 0, nullptr};
  int token = 0;
  p.enter(
      [](void* a, void* b) {
        auto* l = static_cast<commit_log*>(a);
        l->saved = l->p->here.sp != l->sp_before;
        l->on_arriving_stack = l->p->there.contains(__builtin_frame_address(0));
        l->resumed_before = l->p->steps;
        l->second = b;
      },
      &log, &token);
  EXPECT_TRUE(log.saved);
  EXPECT_TRUE(log.on_arriving_stack);
  EXPECT_EQ(log.resumed_before, 0);
  EXPECT_EQ(log.second, &token);
  EXPECT_EQ(p.steps, 1);
}

TEST(Switch, CommitRunsOnAResumedStackToo) {
  pair p([](void* arg, void*, void*) {
    pair& self = pair::entered(arg);
    for (;;) {
      static commit_log log;
      log = {&self, self.there.sp, false, false, 0, nullptr};
      self.leave(
          [](void* a, void* b) {
            auto* l = static_cast<commit_log*>(a);
            l->saved = l->p->there.sp != l->sp_before;
            l->on_arriving_stack = !l->p->there.contains(__builtin_frame_address(0));
            *static_cast<commit_log**>(b) = l;
          },
          &log, &self.address);
      ++self.steps;
    }
  });
  p.enter();
  const auto* log = static_cast<const commit_log*>(p.address);
  ASSERT_NE(log, nullptr);
  EXPECT_TRUE(log->saved);
  EXPECT_TRUE(log->on_arriving_stack);
  EXPECT_EQ(p.steps, 0);  // it has not gone on
  p.enter();
  EXPECT_EQ(p.steps, 1);
}

TEST(Switch, CommitMayFreeTheStackThatWasLeft) {
  for (int i = 0; i < 100; ++i) {
    pair p([](void* arg, void*, void*) {
      pair& self = pair::entered(arg);
      self.steps = 1;
      self.leave(
          [](void* a, void*) {
            auto* s = static_cast<fresh_stack*>(a);
#if defined(WEFT_ASAN)
            ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(s->lo), fresh_stack::bytes);
#endif
            unmap({s->lo, fresh_stack::bytes});
            s->forget();
          },
          &self.there, nullptr, true);
    });
    p.enter();
    EXPECT_EQ(p.steps, 1);
    EXPECT_EQ(p.there.lo, 0U);
  }
}

// -- floating point

TEST(Switch, EachSideKeepsItsRoundingMode) {
  pair p([](void* arg, void*, void*) {
    pair& self = pair::entered(arg);
    self.steps = std::fegetround() == FE_TONEAREST ? 1 : -1;  // whatever the creator has set
    std::fesetround(FE_DOWNWARD);
    self.leave();
    self.steps = std::fegetround() == FE_DOWNWARD ? 2 : -2;
    self.leave();
  });
  const int before = std::fegetround();
  std::fesetround(FE_UPWARD);
  p.enter();
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  EXPECT_EQ(p.steps, 1);
  p.enter();
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  EXPECT_EQ(p.steps, 2);
  std::fesetround(before);
}

#if defined(__x86_64__)
std::uint32_t mxcsr() {
  std::uint32_t w;
  asm volatile("stmxcsr %0" : "=m"(w));
  return w;
}
void set_mxcsr(std::uint32_t w) { asm volatile("ldmxcsr %0" ::"m"(w)); }
std::uint16_t x87_control() {
  std::uint16_t w;
  asm volatile("fnstcw %0" : "=m"(w));
  return w;
}
void set_x87_control(std::uint16_t w) { asm volatile("fldcw %0" ::"m"(w)); }

TEST(Switch, EachSideKeepsItsControlWords) {
  constexpr std::uint32_t flush_to_zero = 0x8000, standard_mxcsr = 0x1f80;
  constexpr std::uint16_t single_precision = 0x007f, standard_x87 = 0x037f;
  pair p([](void* arg, void*, void*) {
    pair& self = pair::entered(arg);
    const bool standard = (mxcsr() & ~0x3fU) == standard_mxcsr && x87_control() == standard_x87;
    set_x87_control(single_precision);
    self.steps = standard ? 1 : -1;
    self.leave();
    const bool kept = (mxcsr() & flush_to_zero) == 0 && x87_control() == single_precision;
    self.steps = kept ? 2 : -2;
    self.leave();
  });
  const std::uint32_t before = mxcsr();
  set_mxcsr(before | flush_to_zero);
  p.enter();
  EXPECT_EQ(p.steps, 1);
  EXPECT_NE(mxcsr() & flush_to_zero, 0U);
  EXPECT_EQ(x87_control(), standard_x87);
  p.enter();
  EXPECT_EQ(p.steps, 2);
  EXPECT_NE(mxcsr() & flush_to_zero, 0U);
  set_mxcsr(before);
}
#endif

// -- registers

// Puts a pattern into every register that the ABI asks a callee to keep, switches, and says by a
// bit for each which of them came back changed. The other side uses the registers as it likes; it
// calls the same function with other patterns.
extern "C" std::uint64_t weft_test_registers_kept(void** from, void* to, std::uint64_t pattern);
#if defined(__x86_64__)
asm(R"(
        .text
        .type   weft_test_registers_kept, @function
        .globl  weft_test_registers_kept
        .hidden weft_test_registers_kept
weft_test_registers_kept:
        pushq   %rbp
        pushq   %rbx
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        pushq   %rdx
        leaq    1(%rdx), %rbx
        leaq    2(%rdx), %rbp
        leaq    3(%rdx), %r12
        leaq    4(%rdx), %r13
        leaq    5(%rdx), %r14
        leaq    6(%rdx), %r15
        xorl    %edx, %edx
        call    weft_switch
        popq    %rdx
        xorl    %eax, %eax
        subq    %rdx, %rbx
        cmpq    $1, %rbx
        je      1f
        orq     $1, %rax
1:      subq    %rdx, %rbp
        cmpq    $2, %rbp
        je      1f
        orq     $2, %rax
1:      subq    %rdx, %r12
        cmpq    $3, %r12
        je      1f
        orq     $4, %rax
1:      subq    %rdx, %r13
        cmpq    $4, %r13
        je      1f
        orq     $8, %rax
1:      subq    %rdx, %r14
        cmpq    $5, %r14
        je      1f
        orq     $16, %rax
1:      subq    %rdx, %r15
        cmpq    $6, %r15
        je      1f
        orq     $32, %rax
1:      popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbx
        popq    %rbp
        ret
        .size   weft_test_registers_kept, .-weft_test_registers_kept
)");
#elif defined(__aarch64__)
asm(R"(
        .text
        .type   weft_test_registers_kept, %function
        .globl  weft_test_registers_kept
        .hidden weft_test_registers_kept
        .macro  weft_test_check reg, n, bit
        sub     x9, \reg, x1
        cmp     x9, #\n
        b.eq    1f
        orr     x0, x0, #(1 << \bit)
1:
        .endm
weft_test_registers_kept:
        stp     x29, x30, [sp, #-192]!
        stp     x19, x20, [sp, #16]
        stp     x21, x22, [sp, #32]
        stp     x23, x24, [sp, #48]
        stp     x25, x26, [sp, #64]
        stp     x27, x28, [sp, #80]
        stp     d8, d9, [sp, #96]
        stp     d10, d11, [sp, #112]
        stp     d12, d13, [sp, #128]
        stp     d14, d15, [sp, #144]
        str     x2, [sp, #160]
        add     x19, x2, #1
        add     x20, x2, #2
        add     x21, x2, #3
        add     x22, x2, #4
        add     x23, x2, #5
        add     x24, x2, #6
        add     x25, x2, #7
        add     x26, x2, #8
        add     x27, x2, #9
        add     x28, x2, #10
        add     x29, x2, #11
        fmov    d8, x19
        fmov    d9, x20
        fmov    d10, x21
        fmov    d11, x22
        fmov    d12, x23
        fmov    d13, x24
        fmov    d14, x25
        fmov    d15, x26
        mov     x2, xzr
        bl      weft_switch
        ldr     x1, [sp, #160]
        mov     x0, xzr
        weft_test_check x19, 1, 0
        weft_test_check x20, 2, 1
        weft_test_check x21, 3, 2
        weft_test_check x22, 4, 3
        weft_test_check x23, 5, 4
        weft_test_check x24, 6, 5
        weft_test_check x25, 7, 6
        weft_test_check x26, 8, 7
        weft_test_check x27, 9, 8
        weft_test_check x28, 10, 9
        weft_test_check x29, 11, 10
        fmov    x10, d8
        weft_test_check x10, 1, 11
        fmov    x10, d9
        weft_test_check x10, 2, 12
        fmov    x10, d10
        weft_test_check x10, 3, 13
        fmov    x10, d11
        weft_test_check x10, 4, 14
        fmov    x10, d12
        weft_test_check x10, 5, 15
        fmov    x10, d13
        weft_test_check x10, 6, 16
        fmov    x10, d14
        weft_test_check x10, 7, 17
        fmov    x10, d15
        weft_test_check x10, 8, 18
        ldp     x19, x20, [sp, #16]
        ldp     x21, x22, [sp, #32]
        ldp     x23, x24, [sp, #48]
        ldp     x25, x26, [sp, #64]
        ldp     x27, x28, [sp, #80]
        ldp     d8, d9, [sp, #96]
        ldp     d10, d11, [sp, #112]
        ldp     d12, d13, [sp, #128]
        ldp     d14, d15, [sp, #144]
        ldp     x29, x30, [sp], #192
        ret
        .size   weft_test_registers_kept, .-weft_test_registers_kept
)");
#endif

// Without the sanitizers' help: the assembly above calls weft_switch itself, and nothing here
// throws.
struct register_pair {
  void* here = nullptr;
  void* there = nullptr;
  std::uint64_t changed_there = 0;
};

__attribute__((no_sanitize("address", "thread", "undefined"))) void registers_there(void* arg,
                                                                                    void*, void*) {
  auto* p = static_cast<register_pair*>(arg);
  for (std::uint64_t i = 0;; ++i) {
    p->changed_there |=
        weft_test_registers_kept(&p->there, p->here, 0xaaaa000000000000U + (i << 16));
  }
}

TEST(Switch, KeepsTheRegistersOfTheAbi) {
  fresh_stack s(&registers_there, nullptr);
  register_pair p;
  p.there = make_context(s.hi, &registers_there, &p);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(weft_test_registers_kept(&p.here, p.there, 0x5555000000000000U + (i << 16)), 0U)
        << "round " << i;
    ASSERT_EQ(p.changed_there, 0U) << "round " << i;
  }
}

// -- begin and end

// What weft_start and leave_stack do between them. Sanitizers want to be told of every switch, so
// their builds use weft_switch for this too.
#if !defined(WEFT_TSAN) && !defined(WEFT_ASAN)
struct start_and_leave {
  void* here = nullptr;
  std::uintptr_t lo = 0, hi = 0;
  int committed_there = 0, committed_here = 0;
  bool on_the_stack = false, aligned = false, standard = false, empty_arguments = false;
  const void* committed_on = nullptr;

  bool contains(const void* p) const {
    const auto a = reinterpret_cast<std::uintptr_t>(p);
    return a >= lo && a < hi;
  }
};

bool has_standard_environment() {
#if defined(__x86_64__)
  return (mxcsr() & ~0x3fU) == 0x1f80 && x87_control() == 0x037f;
#else
  std::uint64_t fpcr;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr == 0;
#endif
}
// Rounding towards zero, on both architectures.
void set_other_environment(bool other) {
#if defined(__x86_64__)
  set_mxcsr(other ? 0x7f80 : 0x1f80);
  set_x87_control(other ? 0x0f7f : 0x037f);
#else
  const std::uint64_t fpcr = other ? 3U << 22 : 0;
  asm volatile("msr fpcr, %0" : : "r"(fpcr));
#endif
}

void begin_and_end(void* arg, void* b, void* c) {
  auto* p = static_cast<start_and_leave*>(arg);
  alignas(16) volatile char here = 0;
  p->on_the_stack = p->contains(const_cast<const char*>(&here));
  p->aligned = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) % 16 == 0;
  p->empty_arguments = b == nullptr && c == nullptr;
  p->standard = has_standard_environment();
  leave_stack(
      p->here,
      [](void* a, void* n) {
        auto* self = static_cast<start_and_leave*>(a);
        self->committed_here = *static_cast<int*>(n);
        self->committed_on = __builtin_frame_address(0);
      },
      p, &p->committed_there);
}

TEST(Start, RunsOnAFreshStackAndLeaveComesBack) {
  fresh_stack s(&begin_and_end, nullptr);
  for (int i = 1; i <= 1000; ++i) {
    start_and_leave p;
    p.lo = s.lo;
    p.hi = s.hi;
    weft_start(
        &p.here, s.hi,
        [](void* a, void* n) {
          static_cast<start_and_leave*>(a)->committed_there = *static_cast<int*>(n);
        },
        &p, &i, &begin_and_end, &p);
    ASSERT_TRUE(p.on_the_stack && p.aligned && p.standard && p.empty_arguments) << "round " << i;
    ASSERT_EQ(p.committed_there, i);
    ASSERT_EQ(p.committed_here, i);
    ASSERT_FALSE(p.contains(p.committed_on)) << "the second commit ran on the stack that was left";
  }
}

TEST(Start, WithoutACommit) {
  fresh_stack s(&begin_and_end, nullptr);
  start_and_leave p;
  p.lo = s.lo;
  p.hi = s.hi;
  p.committed_there = 7;
  weft_start(&p.here, s.hi, nullptr, nullptr, nullptr, &begin_and_end, &p);
  EXPECT_TRUE(p.on_the_stack && p.aligned);
  EXPECT_EQ(p.committed_here, 7);
}

TEST(Start, EachSideHasItsOwnFloatingPointEnvironment) {
  fresh_stack s(&begin_and_end, nullptr);
  start_and_leave p;
  set_other_environment(true);
  weft_start(&p.here, s.hi, nullptr, nullptr, nullptr, &begin_and_end, &p);
  const bool standard_here = has_standard_environment();
  set_other_environment(false);
  EXPECT_TRUE(p.standard);
  EXPECT_FALSE(standard_here);
}

#if defined(__x86_64__)
// Starts with a pattern in every register that a callee must keep; the new side notes what it finds
// there. What it found would lie in its frames for all its life.
struct registers_at_start {
  std::uint64_t found[4];  // r13, r14, r15, rbp
  void* here = nullptr;
};
extern "C" void weft_test_start_with_pattern(void** from, std::uintptr_t top, void* arg);
extern "C" void weft_test_note_registers(void* arg, void*, void*);
extern "C" __attribute__((visibility("hidden"), used)) void weft_test_registers_noted(void* arg) {
  leave_stack(static_cast<registers_at_start*>(arg)->here, nullptr, nullptr, nullptr);
}
asm(R"(
        .text
        .type   weft_test_note_registers, @function
        .globl  weft_test_note_registers
        .hidden weft_test_note_registers
weft_test_note_registers:
        movq    %r13, (%rdi)
        movq    %r14, 8(%rdi)
        movq    %r15, 16(%rdi)
        movq    %rbp, 24(%rdi)
        jmp     weft_test_registers_noted
        .size   weft_test_note_registers, .-weft_test_note_registers
        .type   weft_test_start_with_pattern, @function
        .globl  weft_test_start_with_pattern
        .hidden weft_test_start_with_pattern
weft_test_start_with_pattern:
        pushq   %rbp
        pushq   %rbx
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        subq    $8, %rsp
        movabsq $0x5555aaaa5555aaaa, %rax
        movq    %rax, %r13
        movq    %rax, %r14
        movq    %rax, %r15
        movq    %rax, %rbp
        pushq   %rdx
        xorl    %edx, %edx
        leaq    weft_test_note_registers(%rip), %r9
        pushq   (%rsp)
        call    weft_start
        addq    $24, %rsp
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbx
        popq    %rbp
        ret
        .size   weft_test_start_with_pattern, .-weft_test_start_with_pattern
)");

TEST(Start, TheNewSideFindsNothingInItsRegisters) {
  fresh_stack s(&begin_and_end, nullptr);
  registers_at_start p;
  weft_test_start_with_pattern(&p.here, s.hi, &p);
  for (const std::uint64_t r : p.found) EXPECT_EQ(r, 0U);
}
#endif

TEST(Start, OneThatHasBegunSwitchesLikeAnyOther) {
  struct both {
    void *here = nullptr, *there = nullptr;
    int steps = 0;
  } p;
  fresh_stack s(&begin_and_end, nullptr);
  weft_start(
      &p.here, s.hi, nullptr, nullptr, nullptr,
      [](void* arg, void*, void*) {
        auto* self = static_cast<both*>(arg);
        for (; self->steps < 10; ++self->steps)
          weft_switch(&self->there, self->here, nullptr, nullptr, nullptr);
        leave_stack(self->here, nullptr, nullptr, nullptr);
      },
      &p);
  for (int i = 1; i <= 10; ++i) {
    weft_switch(&p.here, p.there, nullptr, nullptr, nullptr);
    ASSERT_EQ(p.steps, i);
  }
}

#endif

// -- exceptions

__attribute__((noinline)) int throw_at(int depth) {
  if (depth == 0) throw std::runtime_error("from below");
  volatile char room[100] = {};
  return throw_at(depth - 1) + room[0];
}

TEST(Switch, ExceptionsAreThrownAndCaughtOnAFreshStack) {
  pair p([](void* arg, void*, void*) {
    pair& self = pair::entered(arg);
    for (;;) {
      struct cleanup {
        pair& s;
        ~cleanup() { ++s.count; }
      };
      try {
        cleanup c{self};
        throw_at(50);
      } catch (const std::exception& e) {
        self.text = e.what();
        try {
          throw_at(3);
        } catch (const std::runtime_error&) {
          ++self.steps;
        }
      }
      self.leave();
    }
  });
  for (int i = 1; i <= 10; ++i) {
    p.text.clear();
    p.enter();
    EXPECT_EQ(p.text, "from below");
    EXPECT_EQ(p.steps, i);
    EXPECT_EQ(p.count, static_cast<std::uint64_t>(i));
    EXPECT_THROW(throw_at(5), std::runtime_error);  // and here as before
  }
}

}  // namespace
}  // namespace weft::rt
