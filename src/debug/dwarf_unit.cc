// SPDX-License-Identifier: Apache-2.0
// See dwarf.h. Units, entries, attributes, address ranges: the tree of .debug_info as a stream.
//
// Runs on any stack; memory from the arena only.
#include "debug/dwarf_unit.h"

namespace weft::rt {

cursor dwarf::at(std::uint64_t offset, const dwarf_unit& u) const noexcept {
  const cursor info = file_.of(section::info);
  if (offset >= u.end || u.end > info.left()) return {};
  return {info.at() + offset, info.at() + u.end};
}

const char* dwarf::text_at(section s, std::uint64_t offset) const noexcept {
  cursor c = file_.of(s);
  c.skip(offset);
  return c.text();
}

bool dwarf::open_unit(std::uint64_t begin, dwarf_unit* u) noexcept {
  cursor c = file_.of(section::info);
  const std::uint8_t* origin = c.at();
  c.skip(begin);
  *u = dwarf_unit{};
  u->begin = begin;
  std::uint64_t length = c.fixed<std::uint32_t>();
  if (length == 0xffffffff) {
    u->offset_size = 8;
    length = c.fixed<std::uint64_t>();
  }
  if (c.failed() || length > c.left()) return false;
  u->end = static_cast<std::uint64_t>(c.at() - origin) + length;
  u->version = c.fixed<std::uint16_t>();
  std::uint8_t type = 1;
  if (u->version >= 5) {
    type = c.fixed<std::uint8_t>();
    u->address_size = c.fixed<std::uint8_t>();
    u->abbrev_offset = c.uint(u->offset_size);
    if (type == 2 || type == 6) c.skip(8 + u->offset_size);  // a type unit
    if (type == 4 || type == 5) c.skip(8);                   // split DWARF
  } else {
    u->abbrev_offset = c.uint(u->offset_size);
    u->address_size = c.fixed<std::uint8_t>();
  }
  u->first = static_cast<std::uint64_t>(c.at() - origin);
  return !c.failed() && u->version >= 2 && u->version <= 5;
}

void dwarf::load_abbrevs(std::uint64_t offset) noexcept {
  if (abbrevs_of_ == offset) return;
  abbrevs_of_ = offset;
  // Twice: to count, and to fill in.
  for (const bool fill : {false, true}) {
    cursor c = file_.of(section::abbrev);
    c.skip(offset);
    std::uint64_t most = 0;
    while (!c.done()) {
      const std::uint64_t code = c.uleb();
      if (code == 0) break;
      abbrev a;
      a.tag = static_cast<std::uint16_t>(c.uleb());
      a.children = c.fixed<std::uint8_t>() != 0;
      a.attributes = c.at();
      for (;;) {
        const std::uint64_t name = c.uleb(), form = c.uleb();
        if (form == dw_form_implicit_const) c.sleb();
        if (name == 0 && form == 0) break;
        if (c.failed()) break;
      }
      if (code > most) most = code;
      if (fill && code < abbrevs_n_) abbrevs_[code] = a;
    }
    if (fill) return;
    abbrevs_n_ = most + 1 < (1U << 20) ? most + 1 : 0;
    if (abbrevs_n_ > abbrevs_room_) {
      abbrevs_room_ = abbrevs_n_ * 2;
      abbrevs_ = memory_.array<abbrev>(abbrevs_room_);
      if (abbrevs_ == nullptr) abbrevs_n_ = abbrevs_room_ = 0;
    }
    for (std::size_t i = 0; i < abbrevs_n_; ++i) abbrevs_[i] = abbrev{};
  }
}

std::uint64_t dwarf::indexed_address(const dwarf_unit& u, std::uint64_t i) const noexcept {
  cursor c = file_.of(section::addr);
  c.skip(u.addr_base + i * u.address_size);
  return c.uint(u.address_size);
}

dwarf::value dwarf::attribute(cursor& c, const dwarf_unit& u, std::uint64_t form,
                              std::int64_t constant) noexcept {
  value v;
  const auto indexed_text = [&](std::uint64_t i) {
    cursor table = file_.of(section::str_offsets);
    table.skip(u.str_offsets_base + i * u.offset_size);
    v.s = text_at(section::str, table.uint(u.offset_size));
  };
  switch (form) {
    case 0x01:  // addr
      v.u = c.uint(u.address_size);
      break;
    case 0x03:  // block2
      c.skip(c.fixed<std::uint16_t>());
      break;
    case 0x04:  // block4
      c.skip(c.fixed<std::uint32_t>());
      break;
    case 0x09:  // block
    case 0x18:  // exprloc
      c.skip(c.uleb());
      break;
    case 0x0a:  // block1
      c.skip(c.fixed<std::uint8_t>());
      break;
    case 0x0b:  // data1
    case 0x0c:  // flag
      v.u = c.fixed<std::uint8_t>();
      break;
    case 0x05:  // data2
      v.u = c.fixed<std::uint16_t>();
      break;
    case 0x06:  // data4
      v.u = c.fixed<std::uint32_t>();
      break;
    case 0x07:  // data8
      v.u = c.fixed<std::uint64_t>();
      break;
    case 0x1e:  // data16
      c.skip(16);
      break;
    case 0x0d:  // sdata
      v.u = static_cast<std::uint64_t>(c.sleb());
      break;
    case 0x0f:  // udata
    case 0x22:  // loclistx
    case 0x23:  // rnglistx
      v.u = c.uleb();
      break;
    case 0x08:  // string
      v.s = c.text();
      break;
    case 0x0e:  // strp
      v.s = text_at(section::str, c.uint(u.offset_size));
      break;
    case 0x1f:  // line_strp
      v.s = text_at(section::line_str, c.uint(u.offset_size));
      break;
    case 0x10:  // ref_addr
      v.u = c.uint(u.version <= 2 ? u.address_size : u.offset_size);
      break;
    case 0x11:  // ref1
      v.u = u.begin + c.fixed<std::uint8_t>();
      break;
    case 0x12:  // ref2
      v.u = u.begin + c.fixed<std::uint16_t>();
      break;
    case 0x13:  // ref4
      v.u = u.begin + c.fixed<std::uint32_t>();
      break;
    case 0x14:  // ref8
      v.u = u.begin + c.fixed<std::uint64_t>();
      break;
    case 0x15:  // ref_udata
      v.u = u.begin + c.uleb();
      break;
    case 0x20:  // ref_sig8
    case 0x24:  // ref_sup8
      c.skip(8);
      break;
    case 0x1c:  // ref_sup4
      c.skip(4);
      break;
    case 0x17:    // sec_offset
    case 0x1d:    // strp_sup
    case 0x1f20:  // GNU_ref_alt
    case 0x1f21:  // GNU_strp_alt
      v.u = c.uint(u.offset_size);
      break;
    case 0x19:  // flag_present
      v.u = 1;
      break;
    case dw_form_implicit_const:
      v.u = static_cast<std::uint64_t>(constant);
      break;
    case 0x1a:  // strx
      indexed_text(c.uleb());
      break;
    case 0x25:
    case 0x26:
    case 0x27:
    case 0x28:  // strx1 to strx4
      indexed_text(c.uint(static_cast<unsigned>(form - 0x24)));
      break;
    case 0x1b:  // addrx
      v.u = indexed_address(u, c.uleb());
      break;
    case 0x29:
    case 0x2a:
    case 0x2b:
    case 0x2c:  // addrx1 to addrx4
      v.u = indexed_address(u, c.uint(static_cast<unsigned>(form - 0x28)));
      break;
    case 0x16:  // indirect
      return attribute(c, u, c.uleb(), 0);
    default:
      c.fail();
  }
  return v;
}

// The bases that other attributes are relative to stand in the root entry, maybe behind those: they
// are kept here as they come, and the root is read twice (index, frames).
bool dwarf::read(cursor& c, const dwarf_unit& u, die* d) noexcept {
  *d = die{};
  d->offset = static_cast<std::uint64_t>(c.at() - file_.of(section::info).at());
  const std::uint64_t code = c.uleb();
  if (c.failed()) return false;
  if (code == 0) return true;
  if (code >= abbrevs_n_ || abbrevs_[code].attributes == nullptr) return false;
  const abbrev& a = abbrevs_[code];
  d->tag = a.tag;
  d->children = a.children;
  const cursor all = file_.of(section::abbrev);
  for (cursor spec(a.attributes, all.end());;) {
    const std::uint64_t name = spec.uleb(), form = spec.uleb();
    const std::int64_t constant = form == dw_form_implicit_const ? spec.sleb() : 0;
    if (name == 0 && form == 0) break;
    const value v = attribute(c, u, form, constant);
    if (c.failed() || spec.failed()) return false;
    switch (name) {
      case 0x01:
        d->sibling = v.u;
        break;
      case 0x03:
        d->name = v.s;
        break;
      case 0x10:
        d->has_line = true;
        d->line_offset = v.u;
        break;
      case 0x11:
        d->has_low = true;
        d->low = v.u;
        break;
      case 0x12:
        d->high = v.u;
        d->high_is_size = form != 0x01 && form != 0x1b && (form < 0x29 || form > 0x2c);
        break;
      case 0x1b:
        d->comp_dir = v.s;
        break;
      case 0x31:
      case 0x47:
        d->origin = v.u;
        break;
      case 0x3c:
        d->declaration = v.u != 0;
        break;
      case 0x55:
        d->has_ranges = true;
        d->ranges = v.u;
        d->ranges_indexed = form == 0x23;
        break;
      case 0x58:
        d->call_file = v.u;
        break;
      case 0x59:
        d->call_line = v.u;
        break;
      case 0x72:
        const_cast<dwarf_unit&>(u).str_offsets_base = v.u;
        break;
      case 0x73:
        const_cast<dwarf_unit&>(u).addr_base = v.u;
        break;
      case 0x74:
        const_cast<dwarf_unit&>(u).rnglists_base = v.u;
        break;
      default:
        break;
    }
  }
  return true;
}

bool dwarf::covers(const dwarf_unit& u, const die& d, std::uint64_t addr) noexcept {
  bool found = false;
  each_range(u, d, [&](std::uint64_t low, std::uint64_t high) {
    found = found || (addr >= low && addr < high);
  });
  return found;
}

// Which unit has which addresses: once a file.
void dwarf::index() noexcept {
  if (indexed_) return;
  indexed_ = true;
  const std::uint64_t size = file_.of(section::info).left();
  dwarf_unit u;
  for (std::uint64_t at_offset = 0; at_offset < size && open_unit(at_offset, &u);
       at_offset = u.end) {
    load_abbrevs(u.abbrev_offset);
    die root;
    for (int twice = 0; twice < 2; ++twice) {
      cursor c = at(u.first, u);
      if (!read(c, u, &root)) break;
      u.base = root.low;
    }
    each_range(u, root, [&](std::uint64_t low, std::uint64_t high) {
      spans_.push(memory_, {low, high, u.begin});
    });
  }
}

}  // namespace weft::rt
