// SPDX-License-Identifier: Apache-2.0
// SPN-05: main ends by goexit and the process goes on. Then goexit where it cannot be: outside a
// goroutine, and in a destructor that an unwind is running (SPN-04), from which C++ lets nothing
// unwind.
#include <cstdio>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "weft/weft.hpp"

namespace {

struct leaver {
  ~leaver() noexcept(false) { weft::goexit(); }
};

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  const std::string_view how = argc > 1 ? argv[1] : "";
  if (how == "plain-thread") std::thread([] { weft::goexit(); }).join();
  if (how == "before-run") weft::goexit();
  weft::run([how] {
    if (how == "while-an-exception-unwinds") {
      try {
        const leaver l;
        throw std::runtime_error("in flight");
      } catch (...) {
        std::puts("caught");
      }
    }
    if (how == "while-goexit-unwinds") {
      const leaver l;
      weft::goexit();
    }
    struct cleanup {
      ~cleanup() { std::puts("main is gone"); }
    } c;
    weft::go([how] {
      while (weft::num_goroutines() > 1) weft::yield();
      std::puts("alone");
      if (how == "status") weft::exit(7);
      if (how == "zero") weft::exit(0);
      weft::go([] { weft::exit(8); });  // "later": a goroutine that main has never known
    });
    weft::goexit();
  });
  std::puts("run has returned");
  return 1;
}
