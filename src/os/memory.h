// SPDX-License-Identifier: Apache-2.0
// What the runtime asks of Linux about memory: reserve, allow, forbid, advise, give back, and an
// explanation when the kernel says no. Thin and typed: errors come back as values (0 or an errno
// number), errno itself stays as it was, nothing is a cancellation point, nothing allocates or
// locks.
//
// Runs on any stack; `is_readable` and `page_size` in signal handlers too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/print.h"

namespace weft::rt {

// Advice that the C library's headers may be too old to name.
inline constexpr int advice_dontneed_locked = 24;  // MADV_DONTNEED_LOCKED, Linux 5.18
inline constexpr int advice_guard_install = 102;   // MADV_GUARD_INSTALL, Linux 6.13

struct mapping {
  std::uintptr_t addr = 0;
  int err = 0;  // an errno number when addr is 0
  explicit operator bool() const noexcept { return addr != 0; }
};

struct memory_range {
  std::uintptr_t addr = 0;
  std::size_t bytes = 0;
};

std::size_t page_size() noexcept;

mapping map_memory(std::size_t bytes) noexcept;  // private, zeroed, readable and writable
mapping map_reserved(
    std::size_t bytes) noexcept;  // address space for stacks only: no access, nothing committed
int unmap(memory_range r) noexcept;
int allow_access(memory_range r) noexcept;   // readable and writable
int forbid_access(memory_range r) noexcept;  // neither
int unlock_memory(memory_range r) noexcept;  // undoes mlockall for the range
int advise(memory_range r, int advice) noexcept;

// The same advice for n ranges, in as few system calls as this kernel allows. *done says how many
// succeeded; the result is the error of the range after them, 0 when there is none.
int advise_ranges(const memory_range* r, std::size_t n, int advice, std::size_t* done) noexcept;

// How many pages of the range are in memory. Swapped pages do not count.
std::size_t resident_pages(memory_range r) noexcept;

// Would a load from here succeed? Asks the kernel, so it never faults.
bool is_readable(std::uintptr_t addr) noexcept;

std::size_t count_mappings() noexcept;  // of this process; reads all of /proc/self/maps
std::size_t max_map_count() noexcept;   // vm.max_map_count; Linux' default where it cannot be read

// Prints which limit refused `bytes` more of memory with error `err`, as the end of a sentence, no
// full stop. For the fatal path: it reads /proc and may take milliseconds.
void explain_exhaustion(printer& out, std::size_t bytes, int err) noexcept;

}  // namespace weft::rt
