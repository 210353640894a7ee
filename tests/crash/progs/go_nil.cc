// SPDX-License-Identifier: Apache-2.0
// SPN-02: a null callable given to go, in each way there is to give it. Nothing may catch what
// follows.
#include <chrono>
#include <cstdio>
#include <functional>
#include <string_view>

#include "weft/weft.hpp"

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  const std::string_view how = argc > 1 ? argv[1] : "";
  return weft::run([how] {
    try {
      if (how == "function") weft::go(std::function<void()>());
      if (how == "pointer") weft::go(static_cast<void (*)()>(nullptr));
      if (how == "pointer-with-argument") weft::go(static_cast<void (*)(int)>(nullptr), 1);
      if (how == "options") weft::go({.name = "nil"}, std::function<void()>());
      if (how == "async") {
        const std::function<int()> f;
        auto t = weft::async(f);
        t.wait();
      }
      if (how == "scope") {
        weft::scope s;
        s.go(std::function<void()>());
        s.wait();
      }
      // These only when they fire.
      constexpr auto soon = std::chrono::milliseconds(1);
      const std::function<void()> none;
      if (how == "after-func") weft::after_func(soon, none);
      if (how == "after-func-pointer") weft::after_func(soon, static_cast<void (*)()>(nullptr));
      if (how == "after-cancel") {
        const auto [ctx, cancel] = weft::with_cancel(weft::background());
        weft::after_cancel(ctx, none);
        cancel();
      }
      if (how.starts_with("after")) weft::sleep_for(std::chrono::hours(1));
      if (how == "stopped") {
        const weft::timer t = weft::after_func(std::chrono::hours(1), none);
        const auto [ctx, cancel] = weft::with_cancel(weft::background());
        const weft::stop_fn stop = weft::after_cancel(ctx, none);
        std::printf("%d %d\n", t.stop(), stop());
        cancel();
      }
    } catch (...) {
      std::puts("caught");
    }
    std::puts("behind");
  });
}
