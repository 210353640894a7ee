// SPDX-License-Identifier: Apache-2.0
// See dwarf.h. The function at an address, what is inlined there, and their qualified names: the
// unit's tree is read once, entries that cannot hold the address are passed by; a name costs one
// more reading, because an entry does not know its parents.
//
// Runs on any stack that has 8 KiB left.
#include "debug/dwarf_unit.h"

namespace weft::rt {
namespace {

enum : std::uint16_t {
  tag_class = 0x02,
  tag_lexical_block = 0x0b,
  tag_structure = 0x13,
  tag_union = 0x17,
  tag_inlined = 0x1d,
  tag_subprogram = 0x2e,
  tag_namespace = 0x39,
};

constexpr std::size_t max_depth = 64;
constexpr std::size_t max_chain = 32;

bool is_scope(std::uint16_t tag) noexcept {
  return tag == tag_class || tag == tag_structure || tag == tag_union || tag == tag_namespace ||
         tag == tag_subprogram;
}

}  // namespace

const char* dwarf::qualified_name(const dwarf_unit& u, std::uint64_t offset, int nesting) noexcept {
  // To the declaration: it stands where the name belongs.
  for (int i = 0; i < 4; ++i) {
    if (offset < u.begin || offset >= u.end) return nullptr;
    cursor c = at(offset, u);
    die d;
    if (!read(c, u, &d)) return nullptr;
    if (d.origin == 0) break;
    offset = d.origin;
  }
  if (parents_ == nullptr) parents_ = memory_.array<die>(max_depth);
  die* const parents = parents_;
  if (parents == nullptr) return nullptr;
  std::size_t depth = 0;
  bool found = false;
  for (cursor c = at(u.first, u); !c.done();) {
    die d;
    if (!read(c, u, &d)) return nullptr;
    if (d.offset == offset) {
      if (depth == max_depth) return nullptr;
      parents[depth++] = d;
      found = true;
      break;
    }
    if (d.tag == 0) {
      if (depth == 0) break;
      --depth;
      continue;
    }
    if (!d.children) continue;
    if (d.sibling > d.offset && d.sibling <= offset) {
      c = at(d.sibling, u);
      continue;
    }
    if (depth == max_depth) return nullptr;
    parents[depth++] = d;
  }
  if (!found) return nullptr;
  // The scopes that have a name, outermost first; one that is an instance of something declared
  // elsewhere has its own scopes there.
  const char* names[max_depth];
  std::size_t count = 0;
  std::uint64_t prefix = 0;
  for (std::size_t i = 0; i < depth; ++i) {
    const die& d = parents[i];
    const bool last = i + 1 == depth;
    if (!last && !is_scope(d.tag)) continue;
    if (!last && d.origin != 0) {
      prefix = d.origin;
      count = 0;
      continue;
    }
    const bool call = !last && parents[i + 1].name != nullptr &&
                      std::strcmp(parents[i + 1].name, "operator()") == 0;
    names[count++] = d.name != nullptr        ? d.name
                     : d.tag == tag_namespace ? "(anonymous namespace)"
                     : call                   ? "{lambda}"
                                              : "{anonymous}";
  }
  char text[2048];
  std::size_t n = 0;
  const auto add = [&](const char* part) {
    if (n != 0 && n < sizeof text - 1) {
      text[n++] = ':';
      text[n++] = ':';
    }
    for (; *part != '\0' && n < sizeof text; ++part) text[n++] = *part;
  };
  if (prefix != 0 && nesting < 4) {
    const char* outer = qualified_name(u, prefix, nesting + 1);  // overwrites parents_
    if (outer != nullptr) add(outer);
  }
  for (std::size_t i = 0; i < count; ++i) add(names[i]);
  return memory_.copy({text, n});
}

// From the function inwards, into chain_. Entries that have no addresses are gone through; those
// that have, and do not hold this one, are passed by. deep: not before the function is found: that
// of a local class lies where the class does, in a block of another function.
std::size_t dwarf::find_function(const dwarf_unit& u, std::uint64_t addr, bool deep) noexcept {
  std::size_t n = 0, depth = 0;
  std::size_t found_at = 0;  // the depth of the function, once we are in it
  std::size_t skip = 0;      // the depth whose entries are of no interest; 0: none
  for (cursor c = at(u.first, u); !c.done();) {
    die d;
    if (!read(c, u, &d)) break;
    if (d.tag == 0) {
      if (depth == 0 || --depth == found_at) break;
      if (depth < skip) skip = 0;
      continue;
    }
    const bool function = d.tag == tag_subprogram;
    const bool placed = d.has_low || d.has_ranges;
    const bool holds = skip == 0 && depth > 0 && placed && covers(u, d, addr);
    if (holds && (function || d.tag == tag_inlined)) {
      if (function) {
        n = 0;
        found_at = depth;
        if (!d.children) {
          chain_[n++] = d;
          break;
        }
      }
      if (n < max_chain) chain_[n++] = d;
    }
    if (!d.children) continue;
    const bool look = deep && found_at == 0;
    const bool pass = skip != 0 || (depth > 0 && !holds && !look && (function || placed));
    if (pass && d.sibling > d.offset) {
      c = at(d.sibling, u);
      continue;
    }
    ++depth;
    if (pass && skip == 0) skip = depth;
  }
  return n;
}

std::size_t dwarf::frames(std::uint64_t addr, source_frame* out, std::size_t max) noexcept {
  index();
  std::uint64_t where = ~std::uint64_t{0};
  spans_.for_each([&](const span& s) {
    if (addr >= s.low && addr < s.high) where = s.unit;
  });
  dwarf_unit u;
  if (max == 0 || where == ~std::uint64_t{0} || !open_unit(where, &u)) return 0;
  load_abbrevs(u.abbrev_offset);
  die root;
  for (int twice = 0; twice < 2; ++twice) {  // see read
    cursor c = at(u.first, u);
    if (!read(c, u, &root)) return 0;
    u.base = root.low;
  }
  u.has_line = root.has_line;
  u.line_offset = root.line_offset;
  if (root.comp_dir != nullptr) u.comp_dir = root.comp_dir;

  if (chain_ == nullptr) chain_ = memory_.array<die>(max_chain);
  if (chain_ == nullptr) return 0;
  // Functions of local classes lie inside other functions; looking there costs ten times as much.
  std::size_t n = find_function(u, addr, false);
  if (n == 0) n = find_function(u, addr, true);
  const die* const chain = chain_;

  line_header h;
  std::uint64_t file = 0;
  std::uint32_t line = 0;
  const bool lines = open_lines(u, &h);
  const bool known = lines && find_line(h, addr, &file, &line);
  if (n == 0 && !known) return 0;
  std::size_t frames = 0;
  for (std::size_t i = n; frames < max; --i) {
    source_frame& f = out[frames++];
    f = source_frame{};
    f.file = lines && line != 0 ? file_name(u, h, file) : nullptr;
    f.line = line;
    if (i == 0) break;
    const die& d = chain[i - 1];
    f.function = qualified_name(u, d.offset, 0);
    f.inlined = d.tag == tag_inlined;
    if (!f.inlined) break;
    file = d.call_file;
    line = static_cast<std::uint32_t>(d.call_line);
  }
  return frames;
}

}  // namespace weft::rt
