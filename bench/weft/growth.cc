// SPDX-License-Identifier: Apache-2.0
// For `make bench-growth`: n is how many there are at once, and each does the same little.
//   yield_of    n goroutines, 20 yields each; time of a yield
//   pairs_of    n / 2 pairs, 20 unbuffered round trips each; time of a round trip
//   mutex_of    n goroutines, 20 times one lock; time of a lock and unlock
//   timers_of   n timers set, then stopped; time of both
#include "bench.h"

#include <vector>

namespace {

using clock = std::chrono::steady_clock;
constexpr long turns = 20;

void each(const char* name, clock::time_point start, long operations) {
  const std::chrono::duration<double, std::nano> took = clock::now() - start;
  bench::report(name, took.count() / static_cast<double>(operations), "ns");
}

// n goroutines of f, twice; the second time counts.
template <class F>
void crew(const char* name, long n, long operations, F f) {
  for (int round = 0; round < 2; ++round) {
    const auto start = clock::now();
    weft::scope s;
    for (long i = 0; i < n; ++i) s.go(f);
    s.wait();
    if (round == 1) each(name, start, operations);
  }
}

void yield_of(const char* name, long n) {
  crew(name, n, n * turns, [] {
    for (long i = 0; i < turns; ++i) weft::yield();
  });
}

void mutex_of(const char* name, long n) {
  weft::mutex mu;
  crew(name, n, n * turns, [&] {
    for (long i = 0; i < turns; ++i) {
      mu.lock();
      mu.unlock();
    }
  });
}

void pairs_of(const char* name, long n) {
  crew(name, n / 2, n / 2 * turns, [] {
    weft::chan<long> there, back;
    weft::go([=] {
      for (long i = 0; i < turns; ++i) back.send(*there.recv());
    });
    for (long i = 0; i < turns; ++i) {
      there.send(i);
      (void)back.recv();
    }
  });
}

void timers_of(const char* name, long n) {
  std::vector<weft::timer> all;
  all.reserve(static_cast<std::size_t>(n));
  const auto start = clock::now();
  for (long i = 0; i < n; ++i) all.emplace_back(std::chrono::hours(1) + std::chrono::seconds(i));
  for (weft::timer& t : all) t.stop();
  each(name, start, n);
}

constexpr bench::workload workloads[] = {
    {"yield_of", yield_of},
    {"pairs_of", pairs_of},
    {"mutex_of", mutex_of},
    {"timers_of", timers_of},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
