// SPDX-License-Identifier: Apache-2.0
// What debug::dump writes, and who is in a report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "weft/debug.hpp"

namespace weft::test {

inline std::string dumped() {
  std::ostringstream out;
  debug::dump(out);
  return out.str();
}

// Whose blocks these are, in the order of the text.
inline std::vector<std::uint64_t> listed(const std::string& text) {
  const std::string head = "goroutine ";
  std::vector<std::uint64_t> ids;
  for (std::size_t at = 0; (at = text.find(head, at)) != std::string::npos; at += head.size()) {
    if (at != 0 && text[at - 1] != '\n') continue;
    const std::size_t id = at + head.size();
    if (id < text.size() && text[id] >= '0' && text[id] <= '9')
      ids.push_back(std::strtoull(text.c_str() + id, nullptr, 10));
  }
  return ids;
}

}  // namespace weft::test
