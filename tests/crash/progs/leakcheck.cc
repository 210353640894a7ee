// SPDX-License-Identifier: Apache-2.0
// LEK: a program that leaks one goroutine, or none, and returns.
#include <string_view>

#include "weft/weft.hpp"

namespace {

[[gnu::noinline]] void forgotten() {
  weft::chan<int> c;
  weft::go({.name = "lost"}, [c] { (void)c.recv(); });
}

}  // namespace

#if defined(WEFT_ASAN)
// What the goroutines own that are left behind is never destroyed.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();  // NOLINT
extern "C" int __lsan_is_turned_off() { return 1; }                            // NOLINT
#endif

int main(int argc, char** argv) {
  const bool leaks = argc > 1 && std::string_view(argv[1]) == "leak";
  return weft::run([leaks] {
    static weft::chan<int> known;
    weft::go([] { (void)known.recv(); });
    if (leaks) forgotten();
    while (weft::debug::runtime_stats().waiting != (leaks ? 2 : 1)) weft::yield();
    return 7;
  });
}
