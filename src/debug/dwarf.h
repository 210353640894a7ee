// SPDX-License-Identifier: Apache-2.0
// From an address of an ELF file to functions, files and lines, inlined calls included, by its
// DWARF (4 and 5). Ours, because libdw and addr2line allocate by malloc, which a dying or stopped
// goroutine may hold the lock of. Reads what GCC and Clang write for a program: no split DWARF, no
// supplementary files, no compressed sections.
//
// Costs are those of an unhurried reader: one unit's tree is read once an address, some hundred
// microseconds; callers keep the answers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "debug/arena.h"
#include "debug/elf.h"
#include "debug/reader.h"

namespace weft::rt {

struct source_frame {
  const char* function = nullptr;  // qualified; null: unknown
  const char* file = nullptr;      // null: unknown
  std::uint32_t line = 0;
  bool inlined = false;  // into the next frame
};

// The values of the attributes that we want of one entry.
struct die {
  std::uint64_t offset = 0;  // in .debug_info
  std::uint16_t tag = 0;     // 0: the end of a list of children
  bool children = false;
  std::uint64_t sibling = 0, low = 0, high = 0, ranges = 0, origin = 0;
  bool has_low = false, high_is_size = false, has_ranges = false, ranges_indexed = false;
  bool declaration = false;
  const char* name = nullptr;
  std::uint64_t call_file = 0, call_line = 0;
  bool has_line = false;
  std::uint64_t line_offset = 0;
  const char* comp_dir = nullptr;
};

struct abbrev {
  std::uint16_t tag = 0;
  bool children = false;
  const std::uint8_t* attributes = nullptr;
};

// A compilation unit, as far as it has been read.
struct dwarf_unit {
  std::uint64_t begin = 0, end = 0, first = 0;  // header, end, root entry; in .debug_info
  std::uint64_t abbrev_offset = 0;
  unsigned version = 0, offset_size = 4, address_size = 8;
  std::uint64_t base = 0;  // low pc
  std::uint64_t str_offsets_base = 8, addr_base = 8, rnglists_base = 12;
  std::uint64_t line_offset = 0;
  bool has_line = false;
  const char* comp_dir = "";
};

class dwarf {
 public:
  dwarf(const elf_file& file, arena& memory) noexcept : file_(file), memory_(memory) {}

  // The frames at an address, innermost first; 0 if nothing is known.
  std::size_t frames(std::uint64_t addr, source_frame* out, std::size_t max) noexcept;

 private:
  struct span {
    std::uint64_t low = 0, high = 0, unit = 0;
  };
  struct value {
    std::uint64_t u = 0;
    const char* s = nullptr;
  };

  // dwarf_unit.cc
  void index() noexcept;
  bool open_unit(std::uint64_t begin, dwarf_unit* u) noexcept;
  void load_abbrevs(std::uint64_t offset) noexcept;
  bool read(cursor& c, const dwarf_unit& u, die* d) noexcept;
  value attribute(cursor& c, const dwarf_unit& u, std::uint64_t form,
                  std::int64_t constant) noexcept;
  const char* text_at(section s, std::uint64_t offset) const noexcept;
  std::uint64_t indexed_address(const dwarf_unit& u, std::uint64_t i) const noexcept;
  bool covers(const dwarf_unit& u, const die& d, std::uint64_t addr) noexcept;
  template <class F>
  void each_range(const dwarf_unit& u, const die& d, F f) noexcept;
  cursor at(std::uint64_t offset, const dwarf_unit& u) const noexcept;

  // dwarf_frames.cc
  std::size_t find_function(const dwarf_unit& u, std::uint64_t addr, bool deep) noexcept;
  const char* qualified_name(const dwarf_unit& u, std::uint64_t offset, int nesting) noexcept;

  // dwarf_line.cc
  struct line_header;
  bool open_lines(const dwarf_unit& u, line_header* h) noexcept;
  const char* file_name(const dwarf_unit& u, const line_header& h, std::uint64_t wanted) noexcept;
  bool find_line(const line_header& h, std::uint64_t addr, std::uint64_t* file,
                 std::uint32_t* line) noexcept;
  std::uint64_t table_value(cursor& c, const line_header& h, std::uint64_t form,
                            const char** text) noexcept;

  const elf_file& file_;
  arena& memory_;
  bool indexed_ = false;
  die *parents_ = nullptr, *chain_ = nullptr;  // scratch of dwarf_frames.cc
  arena_list<span> spans_;
  // The abbreviations of the unit read last.
  abbrev* abbrevs_ = nullptr;  // by code
  std::size_t abbrevs_room_ = 0, abbrevs_n_ = 0;
  std::uint64_t abbrevs_of_ = ~std::uint64_t{0};
};

struct dwarf::line_header {
  unsigned version = 0, offset_size = 4, address_size = 8;
  std::uint8_t min_instruction = 1, line_range = 1, opcode_base = 1;
  std::int8_t line_base = 0;
  bool default_is_stmt = false;
  const std::uint8_t* lengths = nullptr;
  cursor directories, files, program;  // directories, files: from their first byte on
};

}  // namespace weft::rt
