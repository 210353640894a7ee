// SPDX-License-Identifier: Apache-2.0
// What the files of the DWARF reader share: numbers, and the walk over address ranges.
#pragma once

#include "debug/dwarf.h"

namespace weft::rt {

inline constexpr std::uint64_t dw_form_implicit_const = 0x21;

// Calls f(low, high) for each range of d, in addresses of the file.
template <class F>
void dwarf::each_range(const dwarf_unit& u, const die& d, F f) noexcept {
  if (!d.has_ranges) {
    if (d.has_low && d.high != 0) f(d.low, d.high_is_size ? d.low + d.high : d.high);
    return;
  }
  std::uint64_t base = u.base;
  if (u.version < 5) {
    cursor c = file_.of(section::ranges);
    c.skip(d.ranges);
    while (!c.done()) {
      const std::uint64_t low = c.fixed<std::uint64_t>(), high = c.fixed<std::uint64_t>();
      if (low == 0 && high == 0) return;
      if (low == ~std::uint64_t{0}) {
        base = high;
      } else {
        f(base + low, base + high);
      }
    }
    return;
  }
  cursor c = file_.of(section::rnglists);
  std::uint64_t offset = d.ranges;
  if (d.ranges_indexed) {
    cursor table = c;
    table.skip(u.rnglists_base + d.ranges * u.offset_size);
    offset = u.rnglists_base + table.uint(u.offset_size);
  }
  c.skip(offset);
  while (!c.done()) {
    std::uint64_t low = 0, high = 0;
    switch (c.fixed<std::uint8_t>()) {
      case 0:  // the end
        return;
      case 1:  // base address, by index
        base = indexed_address(u, c.uleb());
        continue;
      case 2:  // both by index
        low = indexed_address(u, c.uleb());
        high = indexed_address(u, c.uleb());
        break;
      case 3:  // start by index, length
        low = indexed_address(u, c.uleb());
        high = low + c.uleb();
        break;
      case 4:  // a pair of offsets
        low = base + c.uleb();
        high = base + c.uleb();
        break;
      case 5:
        base = c.uint(u.address_size);
        continue;
      case 6:
        low = c.uint(u.address_size);
        high = c.uint(u.address_size);
        break;
      case 7:
        low = c.uint(u.address_size);
        high = low + c.uleb();
        break;
      default:
        return;
    }
    if (c.failed()) return;
    f(low, high);
  }
}

}  // namespace weft::rt
