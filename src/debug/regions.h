// SPDX-License-Identifier: Apache-2.0
// All memory of this process that a program may have written a pointer into: its mappings, and a
// way to read them that cannot fault.
//
// Reading goes through the kernel (process_vm_readv on ourselves): a thread of ours that ends
// meanwhile may take its stack with it. Pages that nobody has ever touched hold nothing and are
// passed over, so that reserved address space costs nothing; swapped ones are read.
//
// Runs in a stopped world: no malloc, no libc lock; memory from an arena.
#pragma once

#include <cstddef>
#include <cstdint>

#include "debug/arena.h"

namespace weft::rt {

struct span {
  std::uintptr_t lo, hi;
};

struct region {
  enum class kind : std::uint8_t { other, heap, data };  // heap: the kernel's; data: of a file

  std::uintptr_t lo, hi;
  bool sparse;  // private and of no file: what is not in memory or swapped out was never written
  bool device;  // cannot be read like memory
  kind what = kind::other;
  bool stack = false;  // the first thread's, or with a guard just below it, as other threads' have
};

// Every mapping that can be read and may have been written to. False: nobody knows.
bool list_regions(arena& memory, arena_list<region>& out) noexcept;

// errno for those who call back in between: its address does not live across that call
// (tools/check_tls.py).
[[gnu::noinline]] int errno_now() noexcept;
[[gnu::noinline]] void set_errno(int value) noexcept;

class region_reader {
 public:
  explicit region_reader(arena& memory) noexcept;
  region_reader(const region_reader&) = delete;
  region_reader& operator=(const region_reader&) = delete;
  ~region_reader();

  using see_fn = void (*)(void* to, const std::uintptr_t* words, std::size_t n);
  // Shows the aligned words between lo and hi, piece by piece. False: there is more than anybody
  // could read.
  bool read(const region& r, std::uintptr_t lo, std::uintptr_t hi, see_fn see, void* to) noexcept;
  // The words from `at`, up to `bytes`, and how many bytes there are; until the next call.
  const std::uintptr_t* peek(std::uintptr_t at, std::size_t bytes, std::size_t* got) noexcept;

 private:
  void read_all(std::uintptr_t lo, std::uintptr_t hi, see_fn see, void* to) noexcept;
  long copy(std::uintptr_t from, std::size_t bytes) noexcept;

  static constexpr std::size_t piece = 256 * 1024;
  static constexpr std::size_t pages_at_once = 8192;
  std::uintptr_t* words_;
  std::uint64_t* pages_;
  long pagemap_ = -1;
};

}  // namespace weft::rt
