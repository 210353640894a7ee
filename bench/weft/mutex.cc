// SPDX-License-Identifier: Apache-2.0
// n times lock, count, unlock, shared evenly by k goroutines on one mutex; main is parked
// meanwhile.
#include <weft/sync.hpp>

#include "bench.h"

namespace {

template <long k>
void locks(long n) {
  weft::mutex mu;
  long count = 0;
  weft::scope s;
  for (long g = 0; g < k; ++g) {
    s.go([&mu, &count, turns = n / k + (g < n % k ? 1 : 0)] {
      for (long i = 0; i < turns; ++i) {
        mu.lock();
        ++count;
        mu.unlock();
      }
    });
  }
  s.wait();
  if (count != n) std::abort();
}

constexpr bench::workload workloads[] = {
    {"mutex1", bench::ns_per_op<locks<1>>},
    {"mutex2", bench::ns_per_op<locks<2>>},
    {"mutex100", bench::ns_per_op<locks<100>>},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
