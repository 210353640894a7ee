// SPDX-License-Identifier: Apache-2.0
// SPN-10: exit hooks.
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "weft/weft.hpp"

namespace {

void add(const char* word, bool on_failure_too = false) {
  weft::at_exit([word] { std::printf("%s ", word); }, on_failure_too);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  const int status = weft::run([how] {
    if (how == "return") {
      add("foo");
      add("bar", true);
      add("baz");
    }
    if (how == "return-1") {
      add("foo");
      add("bar", true);
      return 1;
    }
    if (how == "exit-0") {
      add("apple");
      add("orange", true);
      weft::exit(0);
    }
    if (how == "exit-0-goroutine") {
      add("apple");
      add("orange");
      weft::go([] { weft::exit(0); });
      for (;;) weft::yield();
    }
    if (how == "exit-1") {
      add("silent");
      add("blub", true);
      add("silent");
      add("blix", true);
      weft::exit(1);
    }
    if (how == "throws") {
      weft::at_exit([] { throw std::runtime_error("hook"); });
      weft::exit(0);
    }
    if (how == "throws-on-return") weft::at_exit([] { throw 1; });
    if (how == "exits") {
      weft::at_exit([] { weft::exit(1); });
      weft::exit(0);
    }
    if (how == "exits-on-return") weft::at_exit([] { weft::exit(1); });
    if (how == "parks") {  // a hook is ordinary code of a goroutine
      add("after");
      weft::at_exit([] {
        auto t = weft::async([] { return 1; });
        std::printf("task %d ", t.get());
      });
      weft::exit(0);
    }
    if (how == "race") {
      weft::at_exit([] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); });
      for (int i = 0; i < 10; ++i) weft::go([] { weft::exit(0); });
      weft::exit(0);
    }
    if (how == "goexit") {  // main is gone: the one who exits runs them
      add("foo");
      weft::go([] {
        while (weft::num_goroutines() > 1) weft::yield();
        weft::exit(0);
      });
      weft::goexit();
    }
    return 0;
  });
  std::printf("run");
  if (how == "return") weft::run([] {});  // forgotten: they have run
  return status;
}
