// SPDX-License-Identifier: Apache-2.0
// docs/tool.md: a program that lets the tool `weft` look at it.
#include <cassert>
#include <cstdio>
#include <string>
#include <unistd.h>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    const std::string socket = weft::debug::attach();
    std::printf("weft top %d\n", static_cast<int>(::getpid()));
    assert(::access(socket.c_str(), R_OK | W_OK) == 0);
    assert(weft::debug::attach() == socket);  // once is enough
  });
}
