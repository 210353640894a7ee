// SPDX-License-Identifier: Apache-2.0
// One request over a connection to a process (process.h), and its answer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "process.h"

namespace weft::tool {

struct answer_head {
  int status = 0;
  std::uint64_t length = 0;
  std::string trace_source;  // `Weft-Trace`: recorded, recorder
};

// The lines up to the empty one. Nothing: it is not HTTP.
std::optional<answer_head> parse_head(std::string_view text);

// Asks for `target` and gives the body to `sink`, piece by piece. Anything but 200 is a failure
// with the program's own words. extra: seconds that the answer takes by its nature.
answer_head get(connection& c, const std::string& target,
                const std::function<void(std::string_view)>& sink, double extra = 0);
std::string get(connection& c, const std::string& target);

}  // namespace weft::tool
