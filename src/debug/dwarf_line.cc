// SPDX-License-Identifier: Apache-2.0
// See dwarf.h. The line table: its header, its file names, and its program, which is run until the
// address has been passed.
//
// Runs on any stack; memory from the arena only, for the names.
#include "debug/dwarf_unit.h"

namespace weft::rt {

bool dwarf::open_lines(const dwarf_unit& u, line_header* h) noexcept {
  if (!u.has_line) return false;
  cursor c = file_.of(section::line);
  c.skip(u.line_offset);
  std::uint64_t length = c.fixed<std::uint32_t>();
  if (length == 0xffffffff) {
    h->offset_size = 8;
    length = c.fixed<std::uint64_t>();
  }
  c = c.part(length);
  h->version = c.fixed<std::uint16_t>();
  if (h->version < 2 || h->version > 5) return false;
  if (h->version >= 5) {
    h->address_size = c.fixed<std::uint8_t>();
    c.skip(1);  // segment selectors
  }
  const std::uint64_t header_length = c.uint(h->offset_size);
  if (header_length > c.left()) return false;
  h->program = cursor(c.at() + header_length, c.end());
  h->min_instruction = c.fixed<std::uint8_t>();
  if (h->version >= 4) c.skip(1);  // VLIW
  h->default_is_stmt = c.fixed<std::uint8_t>() != 0;
  h->line_base = c.fixed<std::int8_t>();
  h->line_range = c.fixed<std::uint8_t>();
  h->opcode_base = c.fixed<std::uint8_t>();
  h->lengths = c.at();
  if (h->opcode_base == 0 || h->line_range == 0) return false;
  c.skip(h->opcode_base - 1U);
  h->directories = h->files = c;
  return !c.failed();
}

std::uint64_t dwarf::table_value(cursor& c, const line_header& h, std::uint64_t form,
                                 const char** text) noexcept {
  dwarf_unit u;  // what attribute() has to know of it
  u.version = 5;
  u.offset_size = h.offset_size;
  u.address_size = h.address_size;
  const value v = attribute(c, u, form, 0);
  if (v.s != nullptr) *text = v.s;
  return v.u;
}

namespace {

// dir/name with a/../ taken out.
const char* join(arena& memory, const char* root, const char* dir, const char* name) noexcept {
  char path[1024];
  std::size_t n = 0;
  const auto add = [&](const char* part) {
    for (; *part != '\0' && n < sizeof path - 1;) {
      if (*part == '/') {
        ++part;
        if (n == 0 || path[n - 1] != '/') path[n++] = '/';
        continue;
      }
      const std::size_t k = std::strcspn(part, "/");
      if (k == 1 && part[0] == '.') {
        // here
      } else if (k == 2 && part[0] == '.' && part[1] == '.' && n > 1) {
        if (path[n - 1] == '/') --n;
        while (n > 0 && path[n - 1] != '/') --n;
      } else {
        const std::size_t fits = k < sizeof path - 1 - n ? k : sizeof path - 1 - n;
        std::memcpy(path + n, part, fits);
        n += fits;
      }
      part += k;
    }
    if (n > 0 && path[n - 1] != '/' && n < sizeof path - 1) path[n++] = '/';
  };
  if (*name != '/') {
    if (*dir != '/') add(root);
    add(dir);
  }
  add(name);
  if (n > 1) --n;  // the slash behind it
  return memory.copy({path, n});
}

}  // namespace

const char* dwarf::file_name(const dwarf_unit& u, const line_header& h,
                             std::uint64_t wanted) noexcept {
  const char* name = nullptr;
  const char* dir = "";
  std::uint64_t dir_index = 0;
  if (h.version < 5) {
    cursor dirs = h.directories, c = dirs;
    while (*c.text() != '\0' && !c.failed()) {
    }
    for (std::uint64_t i = 1; !c.done(); ++i) {
      const char* s = c.text();
      if (*s == '\0') break;
      const std::uint64_t d = c.uleb();
      c.uleb();
      c.uleb();
      if (i == wanted) {
        name = s;
        dir_index = d;
        break;
      }
    }
    for (std::uint64_t i = 1; i <= dir_index; ++i) dir = dirs.text();
    return name == nullptr ? nullptr : join(memory_, u.comp_dir, dir, name);
  }
  // Twice the same table: directories, then files, each behind a description of its columns.
  cursor c = h.directories;
  const auto column = [&](cursor formats, unsigned n, const char** text, std::uint64_t* index) {
    for (unsigned k = 0; k < n; ++k) {
      const std::uint64_t content = formats.uleb(), form = formats.uleb();
      const char* s = nullptr;
      const std::uint64_t v = table_value(c, h, form, &s);
      if (content == 1) *text = s;
      if (content == 2) *index = v;
    }
  };
  const unsigned dir_columns = c.fixed<std::uint8_t>();
  const cursor dir_formats = c;
  for (unsigned k = 0; k < dir_columns * 2; ++k) c.uleb();
  const std::uint64_t dirs = c.uleb();
  const cursor dir_table = c;
  for (std::uint64_t i = 0; i < dirs && !c.failed(); ++i) {
    const char* s;
    std::uint64_t unused;
    column(dir_formats, dir_columns, &s, &unused);
  }
  const unsigned file_columns = c.fixed<std::uint8_t>();
  const cursor file_formats = c;
  for (unsigned k = 0; k < file_columns * 2; ++k) c.uleb();
  const std::uint64_t files = c.uleb();
  for (std::uint64_t i = 0; i < files && i <= wanted && !c.failed(); ++i)
    column(file_formats, file_columns, &name, &dir_index);
  if (name == nullptr || wanted >= files) return nullptr;
  c = dir_table;
  for (std::uint64_t i = 0; i < dirs && i <= dir_index && !c.failed(); ++i) {
    std::uint64_t unused;
    column(dir_formats, dir_columns, &dir, &unused);
  }
  return join(memory_, u.comp_dir, dir, name);
}

bool dwarf::find_line(const line_header& h, std::uint64_t addr, std::uint64_t* file,
                      std::uint32_t* line) noexcept {
  struct row {
    std::uint64_t addr = 0, file = 1, line = 1;
  };
  row now, before;
  bool have_before = false;
  // The row before this one holds up to here.
  const auto emit = [&](bool end_of_sequence) {
    const bool hit = have_before && addr >= before.addr && addr < now.addr;
    if (!hit) {
      before = now;
      have_before = !end_of_sequence;
      if (end_of_sequence) now = row{};
    }
    return hit;
  };
  cursor c = h.program;
  bool hit = false;
  while (!c.done() && !hit) {
    const auto op = c.fixed<std::uint8_t>();
    if (op >= h.opcode_base) {
      const unsigned adjusted = op - h.opcode_base;
      now.addr += adjusted / h.line_range * h.min_instruction;
      now.line += static_cast<std::uint64_t>(std::int64_t{h.line_base} +
                                             static_cast<std::int64_t>(adjusted % h.line_range));
      hit = emit(false);
      continue;
    }
    switch (op) {
      case 0: {
        cursor x = c.part(c.uleb());
        const auto sub = x.fixed<std::uint8_t>();
        if (sub == 1) hit = emit(true);
        if (sub == 2) now.addr = x.uint(static_cast<unsigned>(x.left()));
        break;
      }
      case 1:
        hit = emit(false);
        break;
      case 2:
        now.addr += c.uleb() * h.min_instruction;
        break;
      case 3:
        now.line += static_cast<std::uint64_t>(c.sleb());
        break;
      case 4:
        now.file = c.uleb();
        break;
      case 8:
        now.addr += (255U - h.opcode_base) / h.line_range * h.min_instruction;
        break;
      case 9:
        now.addr += c.fixed<std::uint16_t>();
        break;
      default:
        for (unsigned n = h.lengths[op - 1]; n > 0; --n) c.uleb();
    }
  }
  if (!hit) return false;
  *file = before.file;
  *line = static_cast<std::uint32_t>(before.line);
  return true;
}

}  // namespace weft::rt
