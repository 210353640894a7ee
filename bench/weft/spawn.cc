// SPDX-License-Identifier: Apache-2.0
// spawn_join: one goroutine at a time, waited for before the next. spawn_batch: n of them, then one
// wait for all.
#include "bench.h"

namespace {

void spawn_join(long n) {
  for (long i = 0; i < n; ++i) weft::async([] {}).wait();
}

void spawn_batch(long n) {
  weft::scope s;
  for (long i = 0; i < n; ++i) s.go([] {});
  s.wait();
}

constexpr bench::workload workloads[] = {
    {"spawn_join", bench::ns_per_op<spawn_join>},
    {"spawn_batch", bench::ns_per_op<spawn_batch>},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
