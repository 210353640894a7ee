// SPDX-License-Identifier: Apache-2.0
// Fork and join.
//   fib       fib(n), a goroutine for one of the two halves, in sequence from 12 down
//   matmul    the product of two n × n matrices, split in halves down to 8 × 8 × 8; rows and
//             columns are halved in parallel, the sum in sequence
#include "bench.h"

#include <vector>

namespace {

using clock = std::chrono::steady_clock;

double ms_since(clock::time_point start) {
  return std::chrono::duration<double, std::milli>(clock::now() - start).count();
}

long fib_sequential(long n) { return n < 2 ? n : fib_sequential(n - 1) + fib_sequential(n - 2); }

long fib_forked(long n) {
  if (n <= 12) return fib_sequential(n);
  auto left = weft::async(fib_forked, n - 1);
  const long right = fib_forked(n - 2);
  return left.get() + right;
}

void fib(const char* name, long n) {
  const long expected = fib_sequential(n);
  fib_forked(n - 5);  // fills the caches of stacks
  const auto start = clock::now();
  if (fib_forked(n) != expected) std::abort();
  bench::report(name, ms_since(start), "ms");
}

struct matrices {
  long n;
  std::vector<double> a, b, c;
  explicit matrices(long size) : n(size) {
    const auto cells = static_cast<std::size_t>(size * size);
    a.assign(cells, 1);
    b.assign(cells, 2);
    c.assign(cells, 0);
  }
};

struct range {
  long from, to;
  long size() const { return to - from; }
  range low() const { return {from, from + size() / 2}; }
  range high() const { return {from + size() / 2, to}; }
};

void multiply(matrices& m, range rows, range columns, range sum) {
  constexpr long least = 8;
  if (rows.size() >= columns.size() && rows.size() >= sum.size() && rows.size() > least) {
    auto half = weft::async([&m, rows, columns, sum] { multiply(m, rows.low(), columns, sum); });
    multiply(m, rows.high(), columns, sum);
    half.wait();
  } else if (columns.size() >= sum.size() && columns.size() > least) {
    auto half = weft::async([&m, rows, columns, sum] { multiply(m, rows, columns.low(), sum); });
    multiply(m, rows, columns.high(), sum);
    half.wait();
  } else if (sum.size() > least) {
    multiply(m, rows, columns, sum.low());
    multiply(m, rows, columns, sum.high());
  } else {
    const double *a = m.a.data(), *b = m.b.data();
    double* c = m.c.data();
    for (long i = rows.from; i < rows.to; ++i)
      for (long k = sum.from; k < sum.to; ++k)
        for (long j = columns.from; j < columns.to; ++j)
          c[i * m.n + j] += a[i * m.n + k] * b[k * m.n + j];
  }
}

void matmul(const char* name, long n) {
  matrices m(n);
  const range all{0, n};
  const auto start = clock::now();
  multiply(m, all, all, all);
  bench::report(name, ms_since(start), "ms");
  if (m.c.front() != 2 * static_cast<double>(n) || m.c.back() != m.c.front()) std::abort();
}

constexpr bench::workload workloads[] = {{"fib", fib}, {"matmul", matmul}};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
