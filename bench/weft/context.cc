// SPDX-License-Identifier: Apache-2.0
// Contexts: made and cancelled.
#include <weft/context.hpp>

#include "bench.h"

namespace {

void context_cancel(long n) {
  for (long i = 0; i < n; ++i) {
    auto [ctx, cancel] = weft::with_cancel(weft::background());
    cancel();
    if (!ctx.err()) std::abort();
  }
}

constexpr bench::workload workloads[] = {
    {"context_cancel", bench::ns_per_op<context_cancel>},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
