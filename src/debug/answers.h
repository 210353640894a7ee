// SPDX-License-Identifier: Apache-2.0
// What a process says about itself over HTTP/1.1, and the threads that say it: debug::serve does so
// on a TCP socket, debug::attach on a Unix one.
#pragma once

#include <string>
#include <string_view>

namespace weft::debug {

struct answer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::string source = {};  // not empty: a header says where a trace comes from
  int file = -1;            // instead of the body: all of this file; whoever sends it closes it
};

answer refusal(int status, std::string_view text);

// To the head of a request. While a trace is recorded it watches the client, who may hang up.
answer answer_to(std::string_view head, int client);

// Answers on a listening socket from now on, by threads of its own named `name`. Whom `admits`
// (null: everybody) does not let in is told 403. Returns 0, or an errno value if there is no
// thread.
int start_answering(int listening, bool (*admits)(int client) noexcept, const char* name);

}  // namespace weft::debug
