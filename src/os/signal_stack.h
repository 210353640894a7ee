// SPDX-License-Identifier: Apache-2.0
// A stack for signal handlers (SA_ONSTACK), with a guard below it. Every thread that runs runtime
// code has one: a fault in a goroutine's guard has no other stack to be handled on, and a preempted
// thread sleeps on it (DESIGN 3, 4).
//
// Belongs to one thread at a time: install() and restore() are called by the thread itself. What
// the thread had before (its own sigaltstack, or ASan's, which ASan unmaps at the thread's end) is
// kept and put back, so that nobody notices that we were there (FRN-07). The memory stays with the
// object, for the next thread that it is lent to.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>

namespace weft::rt {

class signal_stack {
 public:
  static constexpr std::size_t usable = 64 * 1024;  // beside the largest frame the CPU may need
  static constexpr std::size_t guard = 16 * 1024;

  // Makes this the calling thread's signal stack. Not from a signal handler. Ends the process with
  // a message if there is no memory.
  void install() noexcept;
  // Gives the thread back the one that it had. Nothing happens if install() was not called.
  void restore() noexcept;
  // The memory goes back to the kernel; after restore().
  void release() noexcept;

  bool installed() const noexcept { return installed_; }
  // Also says yes for the guard, where an overflow of the signal stack itself ends up.
  bool contains(std::uintptr_t addr) const noexcept {
    return addr >= base_ && addr < base_ + bytes_;
  }
  std::uintptr_t lo() const noexcept { return base_; }
  std::uintptr_t hi() const noexcept { return base_ + bytes_; }
  bool in_guard(std::uintptr_t addr) const noexcept {
    return addr >= base_ && addr < base_ + guard;
  }

 private:
  std::uintptr_t base_ = 0;  // of the guard
  std::size_t bytes_ = 0;    // guard included
  stack_t before_{};
  bool installed_ = false;
};

}  // namespace weft::rt
