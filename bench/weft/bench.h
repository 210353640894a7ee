// SPDX-License-Identifier: Apache-2.0
// What the weft programs share: the protocol of bench/README.md and the clock.
#pragma once

#include <weft/weft.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

namespace bench {

struct workload {
  const char* name;
  void (*run)(const char* name, long n);
};

inline void report(const char* metric, double value, const char* unit) {
  std::printf("RESULT %s %.4f %s\n", metric, value, unit);
}

// f(n) does n operations. The tenth that goes before fills the caches of stacks, so that the steady
// state is timed.
template <void (*f)(long)>
void ns_per_op(const char* name, long n) {
  f(n / 10 + 1);
  const auto start = std::chrono::steady_clock::now();
  f(n);
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  report(name, took.count() / static_cast<double>(n), "ns");
}

inline int main(int argc, char** argv, std::span<const workload> workloads) {
  if (argc == 2 && std::string_view(argv[1]) == "--list") {
    for (const workload& w : workloads) std::puts(w.name);
    return 0;
  }
  const long n = argc == 3 ? std::atol(argv[2]) : 0;
  if (n > 0) {
    for (const workload& w : workloads) {
      if (std::string_view(w.name) == argv[1]) return weft::run([&] { w.run(w.name, n); });
    }
  }
  std::fprintf(stderr, "usage: %s --list | WORKLOAD N\n", argv[0]);
  return 2;
}

}  // namespace bench
