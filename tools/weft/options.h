// SPDX-License-Identifier: Apache-2.0
// The command line.
#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace weft::tool {

enum class command { help, version, dump, stats, trace, top, list };

struct options {
  command what = command::help;
  pid_t pid = 0;
  std::string output;       // of trace
  double seconds = 5;       // of trace
  double interval = 1;      // of top, in seconds
  double timeout = 30;      // for an answer, in seconds
  bool prometheus = false;  // stats
  bool once = false;        // top
};

extern const std::string_view help_text;

// Without the name of the program. Throws failure, status::usage.
options parse(const std::vector<std::string>& words);

}  // namespace weft::tool
