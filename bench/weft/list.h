// SPDX-License-Identifier: Apache-2.0
// For the workloads that Go's own tests have (list_*.cc, go_list_*.go): f(turns) in procs() ×
// factor goroutines, which share n turns.
#pragma once

#include "bench.h"

namespace bench {

template <class F>
void parallel(long n, F f, long factor = 1) {
  const long k = weft::procs() * factor;
  weft::scope s;
  for (long i = 0; i < k; ++i) s.go([&f, turns = n / k + (i < n % k ? 1 : 0)] { f(turns); });
  s.wait();
}

// A little to do, which the compiler cannot drop.
inline void work(long units) {
  long x = units;
  for (long i = 0; i < units; ++i) {
    x = x * 2 + 1;
    asm volatile("" : "+r"(x));
  }
}

inline void spin(std::chrono::microseconds d) {
  const auto end = std::chrono::steady_clock::now() + d;
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace bench
