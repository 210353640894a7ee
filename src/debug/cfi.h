// SPDX-License-Identifier: Apache-2.0
// Walks stacks by their call frame information (.eh_frame), from any saved registers.
//
// Rejected: libgcc's _Unwind_Backtrace, which starts only from where it is called (for a parked
// goroutine that would mean running on its stack, and touching a second page of each of 100 000);
// libunwind, one more library, which reads /proc and allocates; frame pointers, which users' code
// need not have. Ours needs 30 ns a frame once its rules are cached, takes no lock (the loader's
// lock-free _dl_find_object names the module), allocates nothing, and cannot fault: every load is
// checked against the bounds of the stack.
//
// Runs anywhere, signal handlers and stopped worlds included.
#pragma once

#include <cstddef>
#include <cstdint>

// For functions that look at what others may be writing, or at frames with a sanitizer's red zones.
#define WEFT_READS_STACKS __attribute__((no_sanitize("address"), no_sanitize("thread")))

namespace weft::rt {

#if defined(__x86_64__)
inline constexpr unsigned cfi_registers = 17;  // DWARF's numbers; the last is the return address
inline constexpr unsigned cfi_sp = 7, cfi_fp = 6, cfi_pc = 16;
#else
inline constexpr unsigned cfi_registers = 33;
inline constexpr unsigned cfi_sp = 31, cfi_fp = 29, cfi_pc = 32;
#endif

struct registers {
  std::uintptr_t r[cfi_registers] = {};
  std::uintptr_t pc() const noexcept { return r[cfi_pc]; }
  std::uintptr_t sp() const noexcept { return r[cfi_sp]; }
};

// Where the caller stands: registers as they will be when this function has returned.
registers registers_here() noexcept;
// Of a goroutine that was switched away from (context.h, switch_frame).
registers registers_saved(const void* sp) noexcept;
// Of whatever a signal has interrupted; context is the handler's third argument.
registers registers_in_signal(const void* context) noexcept;

// Rules for a pc, ready to apply. Direct-mapped; one walk at a time uses it.
struct cfi_row {
  static constexpr unsigned max_saved = 12;
  std::uintptr_t pc = 0;
  std::int32_t cfa_offset = 0;
  std::uint8_t cfa_register = 0;
  bool ends = false;  // the return address is undefined: the outermost frame
  std::uint8_t saved = 0;
  std::uint8_t reg[max_saved] = {};
  std::int32_t at[max_saved] = {};  // CFA-relative
};
struct cfi_cache {
  static constexpr std::size_t size = 2048;
  cfi_row rows[size];
};

class stack_walk {
 public:
  // lo, hi: the stack that may be read. exact: pc is an instruction that was interrupted, not a
  // return address.
  stack_walk(const registers& from, std::uintptr_t lo, std::uintptr_t hi, bool exact,
             cfi_cache* cache) noexcept
      : regs_(from), lo_(lo), hi_(hi), exact_(exact), cache_(cache) {}

  // The stack that its outermost function was called from.
  void then(std::uintptr_t lo, std::uintptr_t hi) noexcept {
    next_lo_ = lo;
    next_hi_ = hi;
  }
  std::uintptr_t pc() const noexcept { return regs_.pc(); }
  std::uintptr_t sp() const noexcept { return regs_.sp(); }
  bool exact() const noexcept { return exact_; }
  // To the caller. False: this was the outermost frame, or nobody knows how to go on.
  bool up() noexcept;
  // It was the outermost, and every step to it was by a rule: no frame was left out.
  bool came_to_the_end() const noexcept { return ended_ && by_rules_; }

 private:
  bool may_go_to(std::uintptr_t cfa) noexcept;
  bool load(std::uintptr_t at, std::uintptr_t* to) const noexcept;
  bool apply(const cfi_row& row) noexcept;
  bool by_frame_pointer() noexcept;
  bool out_of_fault() noexcept;

  registers regs_;
  std::uintptr_t lo_, hi_;
  std::uintptr_t next_lo_ = 0, next_hi_ = 0;
  bool exact_;
  bool by_rules_ = true, ended_ = false;
  cfi_cache* cache_;
};

}  // namespace weft::rt
