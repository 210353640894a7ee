// SPDX-License-Identifier: Apache-2.0
// One wakes another and computes on: how long until the other runs, on a P that has nothing to do.
#include <weft/chan.hpp>

#include "bench.h"

namespace {

void handoff(long n) {
  weft::chan<long> c;
  std::atomic<long> seen{-1};
  weft::scope s;
  s.go([&] {
    while (auto i = c.recv()) seen.store(*i, std::memory_order_release);
  });
  for (long i = 0; i < n; ++i) {
    c.send(i);
    while (seen.load(std::memory_order_acquire) != i) {
    }
  }
  c.close();
  s.wait();
}

constexpr bench::workload workloads[] = {
    {"handoff", bench::ns_per_op<handoff>},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
