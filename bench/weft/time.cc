// SPDX-License-Identifier: Apache-2.0
// Timers: created and stopped, and a million goroutines asleep at once.
#include <weft/time.hpp>

#include "bench.h"

namespace {

void timer_stop(long n) {
  for (long i = 0; i < n; ++i) weft::timer(std::chrono::hours(1)).stop();
}

// n goroutines sleep 1 … 1000 ms each.
void sleepers(const char* name, long n) {
  const auto start = std::chrono::steady_clock::now();
  weft::scope s;
  for (long i = 0; i < n; ++i)
    s.go([i] { weft::sleep_for(std::chrono::milliseconds(1 + i % 1000)); });
  s.wait();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  bench::report(name, took.count(), "ms");
}

constexpr bench::workload workloads[] = {
    {"timer_stop", bench::ns_per_op<timer_stop>},
    {"sleepers", sleepers},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
