// SPDX-License-Identifier: Apache-2.0
// n yields, shared evenly by k goroutines; main is parked meanwhile.
#include "bench.h"

namespace {

template <long k>
void yields(long n) {
  weft::scope s;
  for (long g = 0; g < k; ++g) {
    s.go([turns = n / k + (g < n % k ? 1 : 0)] {
      for (long i = 0; i < turns; ++i) weft::yield();
    });
  }
  s.wait();
}

constexpr bench::workload workloads[] = {
    {"yield1", bench::ns_per_op<yields<1>>},
    {"yield2", bench::ns_per_op<yields<2>>},
    {"yield100", bench::ns_per_op<yields<100>>},
    {"yield10000", bench::ns_per_op<yields<10'000>>},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
