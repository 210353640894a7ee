// SPDX-License-Identifier: Apache-2.0
// What the peers in C++ share: the protocol of bench/README.md and the clock.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include <sys/resource.h>

namespace bench {

using clock = std::chrono::steady_clock;

struct workload {
  const char* name;
  void (*run)(const char* name, long n);
};

inline void report(const char* metric, double value, const char* unit) {
  std::printf("RESULT %s %.4f %s\n", metric, value, unit);
}

inline double ns_since(clock::time_point start) {
  return std::chrono::duration<double, std::nano>(clock::now() - start).count();
}

// f(n) does n operations. The tenth that goes before is not timed.
template <void (*f)(long)>
void ns_per_op(const char* name, long n) {
  f(n / 10 + 1);
  const auto start = clock::now();
  f(n);
  report(name, ns_since(start) / static_cast<double>(n), "ns");
}

// VmRSS + VmPTE in bytes.
inline double memory() {
  std::ifstream status("/proc/self/status");
  double kib = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:") || line.starts_with("VmPTE:")) kib += std::stod(line.substr(6));
  }
  return kib * 1024;
}

inline double cpu_microseconds() {
  rusage r{};
  getrusage(RUSAGE_SELF, &r);
  const auto us = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec);
  };
  return us(r.ru_utime) + us(r.ru_stime);
}

inline long fib_sequential(long n) {
  return n < 2 ? n : fib_sequential(n - 1) + fib_sequential(n - 2);
}

inline int main(int argc, char** argv, std::span<const workload> workloads) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc == 2 && std::string_view(argv[1]) == "--list") {
    for (const workload& w : workloads) std::puts(w.name);
    return 0;
  }
  const long n = argc == 3 ? std::atol(argv[2]) : 0;
  for (const workload& w : workloads) {
    if (n > 0 && std::string_view(w.name) == argv[1]) {
      w.run(w.name, n);
      return 0;
    }
  }
  std::fprintf(stderr, "usage: %s --list | WORKLOAD N\n", argv[0]);
  return 2;
}

}  // namespace bench
