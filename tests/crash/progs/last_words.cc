// SPDX-License-Identifier: Apache-2.0
// A fatal error where little is left: of the stack (so many bytes), of the descriptors.
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <string_view>
#include <sys/resource.h>

#include "weft/weft.hpp"

namespace {

void fail() {
  weft::mutex m;
  m.unlock();
}

// Down to `left` bytes above the end of a stack whose guard begins at lo.
[[gnu::noinline]] void descend(std::uintptr_t lo, std::uintptr_t left) {
  volatile char frame[64] = {};
  if (reinterpret_cast<std::uintptr_t>(&frame) > lo + left) {
    descend(lo, left);
  } else {
    fail();
  }
  frame[1] = 2;
}

// A stack of the default size lies at a multiple of it, with the guard inside.
void at_the_end_of_the_stack(std::uintptr_t left) {
  constexpr std::uintptr_t size = 256 * 1024, guard = 64 * 1024;
  char here;
  descend((reinterpret_cast<std::uintptr_t>(&here) & ~(size - 1)) + guard, left);
}

void without_descriptors() {
  const rlimit few{32, 32};
  ::setrlimit(RLIMIT_NOFILE, &few);
  while (::open("/dev/null", O_RDONLY) >= 0) {
  }
  fail();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argv[1];
  return weft::run([&] {
    if (how == "descriptors") without_descriptors();
    const auto left = static_cast<std::uintptr_t>(argc > 2 ? std::atol(argv[2]) : 0);
    weft::go(at_the_end_of_the_stack, left);
    (void)weft::chan<int>().recv();
  });
}
