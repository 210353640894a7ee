// SPDX-License-Identifier: Apache-2.0
// System calls, and a sleeper beside loops that never call anything.
//   blocking_getppid      an announced call that does not block
//   blocking_over_raw     by how much the announcement makes it dearer
//   sleeps_announced      200 goroutines, each n times nanosleep(5 ms) inside blocking()
//   sleeps_unannounced    the same without a word to the runtime
//   sleeper               n times 1 ms, beside two endless loops: how late, at p50 and p99
#include "bench.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

using clock = std::chrono::steady_clock;

template <class F>
double ns_each(long n, F f) {
  const auto start = clock::now();
  for (long i = 0; i < n; ++i) f();
  return std::chrono::duration<double, std::nano>(clock::now() - start).count() /
         static_cast<double>(n);
}

constexpr auto raw = [] { ::syscall(SYS_getppid); };
constexpr auto announced = [] { weft::blocking(raw); };

void blocking_getppid(long n) {
  for (long i = 0; i < n; ++i) announced();
}

void blocking_over_raw(const char* name, long n) {
  // In turns, and the best of each: what is compared is a few nanoseconds of some hundred.
  double best_raw = 1e9, best = 1e9;
  for (int i = 0; i < 20; ++i) {
    best_raw = std::min(best_raw, ns_each(n / 20 + 1, raw));
    best = std::min(best, ns_each(n / 20 + 1, announced));
  }
  bench::report(name, best - best_raw, "ns");
}

void nap() {
  const timespec ts{0, 5'000'000};
  ::nanosleep(&ts, nullptr);
}

template <bool announce>
void sleeps(const char* name, long n) {
  const auto start = clock::now();
  weft::scope s;
  for (int i = 0; i < 200; ++i) {
    s.go([n] {
      for (long k = 0; k < n; ++k) {
        if constexpr (announce) {
          weft::blocking(nap);
        } else {
          nap();
        }
      }
    });
  }
  s.wait();
  bench::report(name, std::chrono::duration<double, std::milli>(clock::now() - start).count(),
                "ms");
}

void sleeper(const char*, long n) {
  static std::atomic<bool> over{false};
  for (int i = 0; i < 2; ++i) {
    weft::go([] {
      while (!over.load(std::memory_order_relaxed)) {
      }
    });
  }
  std::vector<double> late;
  for (long i = 0; i < n; ++i) {
    const auto start = clock::now();
    weft::sleep_for(std::chrono::milliseconds(1));
    late.push_back(std::chrono::duration<double, std::milli>(clock::now() - start).count() - 1);
  }
  over = true;
  std::ranges::sort(late);
  bench::report("sleeper_p50", late[late.size() / 2], "ms");
  bench::report("sleeper_p99", late[late.size() * 99 / 100], "ms");
}

constexpr bench::workload workloads[] = {
    {"blocking_getppid", bench::ns_per_op<blocking_getppid>},
    {"blocking_over_raw", blocking_over_raw},
    {"sleeps_announced", sleeps<true>},
    {"sleeps_unannounced", sleeps<false>},
    {"sleeper", sleeper},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
