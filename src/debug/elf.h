// SPDX-License-Identifier: Apache-2.0
// An ELF file of this process: its sections and its symbol table. The file is mapped, not read;
// nothing is allocated and no lock is taken (the loader's lock-free table names the module).
#pragma once

#include <cstddef>
#include <cstdint>

#include "debug/reader.h"

namespace weft::rt {

enum class section : unsigned {
  info,
  abbrev,
  line,
  str,
  line_str,
  ranges,
  rnglists,
  addr,
  str_offsets,
  count,
};

class elf_file {
 public:
  elf_file() noexcept = default;
  elf_file(const elf_file&) = delete;
  elf_file& operator=(const elf_file&) = delete;
  ~elf_file();

  bool open(const char* path) noexcept;
  // Empty if it is not there, or compressed.
  cursor of(section s) const noexcept { return sections_[static_cast<unsigned>(s)]; }
  // The function that an address of the file belongs to; its mangled name and where it begins.
  const char* symbol(std::uint64_t addr, std::uint64_t* start) const noexcept;

 private:
  const std::uint8_t* base_ = nullptr;
  std::size_t bytes_ = 0;
  cursor sections_[static_cast<unsigned>(section::count)];
  cursor symbols_, strings_;
};

// What the process has loaded at this address: the file's name and where it lies. False: nothing.
struct loaded {
  const char* path;
  std::uintptr_t bias;  // what to take off an address to get the file's
  const void* id;       // the same for all addresses of one module
};
bool find_loaded(std::uintptr_t pc, loaded* out) noexcept;

}  // namespace weft::rt
