// SPDX-License-Identifier: Apache-2.0
// How a command fails: what is said, and the exit status, which docs/tool.md lists.
#pragma once

#include <string>
#include <utility>

namespace weft::tool {

enum class status : int {
  ok = 0,
  failed = 1,         // anything else: the program's answer makes no sense
  usage = 2,          // the command line
  no_process = 3,     // there is no such process
  not_attached = 4,   // it is not a weft program, or attach is off
  not_permitted = 5,  // it is another user's
  went_away = 6,      // it ended before it had answered
  no_answer = 7,      // not in time
  cannot_write = 8,   // the output
};

struct failure {
  status code;
  std::string text;
};

// The user has had enough: ^C, q.
struct interrupted {};

}  // namespace weft::tool
