// SPDX-License-Identifier: Apache-2.0
// What debug::dump writes.
#pragma once

#include <sstream>
#include <string>

#include "weft/debug.hpp"

namespace weft::test {

inline std::string dumped() {
  std::ostringstream out;
  debug::dump(out);
  return out.str();
}

}  // namespace weft::test
