// SPDX-License-Identifier: Apache-2.0
// Channels and select. n counts values that pass (round trips in chan_pingpong, rounds in select).
#include <weft/chan.hpp>
#include <weft/select.hpp>

#include "bench.h"

namespace {

void pingpong(long n) {
  weft::chan<long> there, back;
  weft::scope s;
  s.go([=] {
    for (long i = 0; i < n; ++i) back.send(*there.recv());
  });
  for (long i = 0; i < n; ++i) {
    there.send(i);
    (void)back.recv();
  }
  s.wait();
}

// k producers, k consumers, one channel.
template <long k, int capacity>
void through(long n) {
  weft::chan<long> c(capacity);
  weft::scope consumers;
  for (long i = 0; i < k; ++i) {
    consumers.go([c] {
      while (c.recv()) {
      }
    });
  }
  {
    weft::scope producers;
    for (long i = 0; i < k; ++i) {
      producers.go([c, each = n / k] {
        for (long j = 0; j < each; ++j) c.send(j);
      });
    }
    producers.wait();
  }
  c.close();
  consumers.wait();
}

// Each value goes through a select over four channels.
void select4(long n) {
  weft::chan<long> c[4];
  weft::scope s;
  for (int k = 0; k < 4; ++k) {
    s.go([ch = c[k], each = n / 4] {
      for (long i = 0; i < each; ++i) ch.send(i);
    });
  }
  for (long i = 0; i < n / 4 * 4; ++i)
    weft::select(weft::recv(c[0]), weft::recv(c[1]), weft::recv(c[2]), weft::recv(c[3]));
  s.wait();
}

void select_default(long n) {
  weft::chan<long> c;
  long missed = 0;
  for (long i = 0; i < n; ++i) weft::select(weft::recv(c), weft::otherwise([&] { ++missed; }));
  if (missed != n) std::abort();
}

// n goroutines wait; one close wakes them all. The close and all wake-ups are timed.
void close_wakes(const char* name, long n) {
  weft::chan<void> gate;
  std::atomic<long> there{0};
  weft::scope s;
  for (long i = 0; i < n; ++i) {
    s.go([&] {
      there.fetch_add(1, std::memory_order_relaxed);
      gate.recv();
    });
  }
  while (there.load(std::memory_order_relaxed) < n) weft::yield();
  const auto start = std::chrono::steady_clock::now();
  gate.close();
  s.wait();
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  bench::report(name, took.count() / static_cast<double>(n), "ns");
}

void skynet_node(weft::chan<long> out, long number, long size) {
  if (size == 1) {
    out.send(number);
    return;
  }
  weft::chan<long> c;
  for (long i = 0; i < 10; ++i) weft::go(skynet_node, c, number + i * (size / 10), size / 10);
  long sum = 0;
  for (int i = 0; i < 10; ++i) sum += *c.recv();
  out.send(sum);
}

// n leaves: a power of ten.
void skynet(const char* name, long n) {
  for (int round = 0; round < 2; ++round) {  // the first one warms up
    weft::chan<long> c;
    const auto start = std::chrono::steady_clock::now();
    weft::go(skynet_node, c, 0L, n);
    if (*c.recv() != n * (n - 1) / 2) std::abort();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (round == 1) bench::report(name, took.count(), "ms");
  }
}

// The first n primes by a chain of filters, one goroutine each.
void sieve(const char* name, long n) {
  const auto start = std::chrono::steady_clock::now();
  weft::chan<long> c;
  weft::go([c] {
    for (long i = 2;; ++i) c.send(i);
  });
  for (long k = 0; k < n; ++k) {
    const long prime = *c.recv();
    weft::chan<long> next;
    weft::go([in = c, out = next, prime] {
      for (;;) {
        const long i = *in.recv();
        if (i % prime != 0) out.send(i);
      }
    });
    c = next;
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  bench::report(name, took.count(), "ms");
}

constexpr bench::workload workloads[] = {
    {"chan_pingpong", bench::ns_per_op<pingpong>},
    {"chan_buffered", bench::ns_per_op<through<1, 128>>},
    {"chan_buffered_4x4", bench::ns_per_op<through<4, 128>>},
    {"chan_unbuffered_4x4", bench::ns_per_op<through<4, 0>>},
    {"select4", bench::ns_per_op<select4>},
    {"select_default", bench::ns_per_op<select_default>},
    {"close_wakes", close_wakes},
    {"skynet", skynet},
    {"sieve", sieve},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
