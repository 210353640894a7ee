// SPDX-License-Identifier: Apache-2.0
// weft: looks at running programs that use weft. docs/tool.md is its manual.
#include <string>
#include <unistd.h>
#include <vector>

#include "commands.h"
#include "failure.h"

namespace {

using namespace weft::tool;

void run(const options& o) {
  switch (o.what) {
    case command::help:
      return say(help_text);
    case command::version:
      return say("weft " WEFT_VERSION "\n");
    case command::dump:
      return dump(o);
    case command::stats:
      return stats(o);
    case command::trace:
      return trace(o);
    case command::top:
      return top(o);
    case command::list:
      return list();
  }
}

int complain(status code, const std::string& text) {
  const std::string line = "weft: " + text + '\n';
  // There is nobody to tell if this fails.
  [[maybe_unused]] const ssize_t n = ::write(2, line.data(), line.size());
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse({argv + 1, argv + argc}));
    return 0;
  } catch (const failure& f) {
    return complain(f.code, f.text);
  } catch (const std::exception& e) {
    return complain(status::failed, e.what());
  }
}
