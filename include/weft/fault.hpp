// SPDX-License-Identifier: Apache-2.0
// Faults as exceptions. Go turns the use of a nil pointer into a panic that can be recovered; here
// that is a choice, because the compiler has to know: an exception that comes out of an instruction
// finds its handler only in code that GCC has compiled with -fnon-call-exceptions, or if it comes
// out of a function that the compiler cannot see into. Elsewhere it ends in std::terminate.
#pragma once

#include <cstdint>
#include <stdexcept>

#include <weft/detail/spawn.hpp>

namespace weft {

// what(): "runtime error: invalid memory address or nil pointer dereference".
class WEFT_API memory_fault : public std::runtime_error {
 public:
  memory_fault(std::uintptr_t address, std::uintptr_t pc, int code);
  ~memory_fault() override;
  std::uintptr_t address() const noexcept { return address_; }
  std::uintptr_t pc() const noexcept { return pc_; }
  int code() const noexcept { return code_; }  // siginfo_t's si_code

 private:
  std::uintptr_t address_, pc_;
  int code_;
};

// From now on, a goroutine's access to the first page of memory throws memory_fault there, instead
// of ending the process or reaching the program's handler of SIGSEGV. All other faults do as
// before. The previous value. On aarch64: false, and nothing changes.
WEFT_API bool throw_on_fault(bool on) noexcept;

}  // namespace weft
