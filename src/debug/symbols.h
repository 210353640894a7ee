// SPDX-License-Identifier: Apache-2.0
// Names for addresses of this process, in the words of a trace: each address is looked up once, and
// its lines are kept ready to be written.
//
// Not while the world is stopped: it opens files. Memory comes from the arena; only where the
// caller allows it is malloc used, for names of code without debug information that our own
// demangler does not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "debug/arena.h"
#include "debug/dwarf.h"

namespace weft::rt {

class demangler;

// What a trace says of one address.
struct place {
  std::string_view lines;       // "f()\n\t/path/file.cc:42 +0x1f\n", inlined calls first
  std::string_view all_lines;   // with the runtime's own functions too
  std::string_view creator;     // the innermost function that is not ours: "f"
  std::string_view created_at;  // and its line: "\t/path/file.cc:42 +0x1f\n"
};

class symbols {
 public:
  symbols(arena& memory, bool may_allocate) noexcept;
  ~symbols();
  symbols(const symbols&) = delete;
  symbols& operator=(const symbols&) = delete;

  // exact: an instruction; else a return address, and the call before it is meant.
  const place& at(std::uintptr_t pc, bool exact) noexcept;

 private:
  struct module;
  struct known;
  class text_buffer;
  module* module_at(std::uintptr_t pc) noexcept;
  void describe(std::uintptr_t pc, std::uintptr_t look, place* out) noexcept;
  const char* demangled(const char* name) noexcept;

  arena& memory_;
  bool may_allocate_;
  module* modules_ = nullptr;
  static constexpr std::size_t buckets = 4096;
  known** table_;
  text_buffer* scratch_;
  demangler* demangler_ = nullptr;  // made when it is needed
};

}  // namespace weft::rt
