// SPDX-License-Identifier: Apache-2.0
// The workloads in Boost.Fiber. By default it runs all fibers on one thread (round_robin), and that
// is the cheapest way to do what has no use for two; fork and join runs on all CPUs
// (work_stealing).
//
// Left out: select, which it does not have; a million sleepers, whose stacks do not fit; sockets,
// for which it has no waits of its own; loops beside a sleeper, which would keep the thread.
#include <boost/fiber/all.hpp>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "../protocol.h"

namespace {

namespace fibers = boost::fibers;
using bench::clock;

constexpr std::size_t stack_size = 16 * 1024;

// Stacks used again, on one thread.
fibers::pooled_fixedsize_stack& stacks() {
  static fibers::pooled_fixedsize_stack all(stack_size);
  return all;
}

template <class F>
fibers::fiber go(F f) {
  return fibers::fiber(std::allocator_arg, stacks(), std::move(f));
}

class crew {
 public:
  template <class F>
  void go(F f) {
    all_.push_back(::go(std::move(f)));
  }
  ~crew() {
    for (fibers::fiber& f : all_) f.join();
  }

 private:
  std::vector<fibers::fiber> all_;
};

template <long k>
void yields(long n) {
  crew all;
  for (long g = 0; g < k; ++g) {
    all.go([turns = n / k + (g < n % k)] {
      for (long i = 0; i < turns; ++i) boost::this_fiber::yield();
    });
  }
}

void spawn_join(long n) {
  for (long i = 0; i < n; ++i) go([] {}).join();
}

void spawn_batch(long n) {
  crew all;
  for (long i = 0; i < n; ++i) all.go([] {});
}

// n fibers that wait at a gate.
struct gathering {
  fibers::mutex mu;
  fibers::condition_variable gate;
  long there = 0;
  bool open = false;
  crew all;  // ends first

  explicit gathering(long n) {
    for (long i = 0; i < n; ++i) {
      all.go([this] {
        std::unique_lock lock(mu);
        ++there;
        gate.wait(lock, [&] { return open; });
      });
    }
    while (there < n) boost::this_fiber::yield();
  }
  ~gathering() {
    const std::lock_guard lock(mu);
    open = true;
    gate.notify_all();
  }
};

void parked(const char*, long n) {
  const double before = bench::memory(), count = static_cast<double>(n);
  auto start = clock::now();
  std::optional<gathering> g(std::in_place, n);
  bench::report("parked_spawn", bench::ns_since(start) / count, "ns");
  bench::report("parked_bytes", (bench::memory() - before) / count, "B");
  start = clock::now();
  g.reset();
  bench::report("parked_wake", bench::ns_since(start) / count, "ns");
}

void close_wakes(const char* name, long n) {
  std::optional<gathering> g(std::in_place, n);
  const auto start = clock::now();
  g.reset();
  bench::report(name, bench::ns_since(start) / static_cast<double>(n), "ns");
}

void idle(const char* name, long milliseconds) {
  const gathering g(1000);
  const double before = bench::cpu_microseconds();
  boost::this_fiber::sleep_for(std::chrono::milliseconds(milliseconds));
  bench::report(
      name, (bench::cpu_microseconds() - before) * 1e3 / static_cast<double>(milliseconds), "us/s");
}

using unbuffered = fibers::unbuffered_channel<long>;
using buffered = fibers::buffered_channel<long>;
constexpr auto ok = fibers::channel_op_status::success;

void pingpong(long n) {
  unbuffered there, back;
  fibers::fiber other = go([&] {
    for (long v; there.pop(v) == ok;) back.push(v);
  });
  for (long i = 0, v; i < n; ++i) {
    there.push(i);
    back.pop(v);
  }
  there.close();
  other.join();
}

template <long k, class Channel>
void through(Channel& c, long n) {
  crew consumers;
  for (long i = 0; i < k; ++i) {
    consumers.go([&] {
      for (long v; c.pop(v) == ok;) {
      }
    });
  }
  {
    crew producers;
    for (long i = 0; i < k; ++i) {
      producers.go([&] {
        for (long j = 0; j < n / k; ++j) c.push(j);
      });
    }
  }
  c.close();
}

template <long k>
void through_buffered(long n) {
  buffered c(128);
  through<k>(c, n);
}

void through_unbuffered(long n) {
  unbuffered c;
  through<4>(c, n);
}

void sieve(const char* name, long n) {
  const auto start = clock::now();
  auto c = std::make_shared<unbuffered>();
  go([c] {
    for (long i = 2; c->push(i) == ok; ++i) {
    }
  }).detach();
  for (long k = 0, prime = 0; k < n; ++k) {
    c->pop(prime);
    auto next = std::make_shared<unbuffered>();
    go([in = c, out = next, prime] {
      for (long i; in->pop(i) == ok;)
        if (i % prime != 0 && out->push(i) != ok) break;
    }).detach();
    c = next;
  }
  bench::report(name, bench::ns_since(start) / 1e6, "ms");
  std::fflush(stdout);
  std::_Exit(0);  // the chain goes on; the library would wait for it
}

template <long k>
void locks(long n) {
  fibers::mutex mu;
  long count = 0;
  {
    crew all;
    for (long g = 0; g < k; ++g) {
      all.go([&, turns = n / k + (g < n % k)] {
        for (long i = 0; i < turns; ++i) {
          const std::lock_guard lock(mu);
          ++count;
        }
      });
    }
  }
  if (count != n) std::abort();
}

// Runs f on this thread and lets the other CPUs' threads steal from it.
template <class F>
void on_all_cpus(F f) {
  const char* procs = std::getenv("BENCH_PROCS");
  const auto threads = procs != nullptr ? static_cast<unsigned>(std::atoi(procs))
                                        : std::thread::hardware_concurrency();
  fibers::mutex mu;
  fibers::condition_variable over;
  bool done = false;
  std::vector<std::thread> others;
  const auto steal = [threads] {
    fibers::use_scheduling_algorithm<fibers::algo::work_stealing>(threads, true);
  };
  for (unsigned i = 1; i < threads; ++i) {
    others.emplace_back([&] {
      steal();
      std::unique_lock lock(mu);
      over.wait(lock, [&] { return done; });
    });
  }
  if (threads > 1) steal();
  f();
  {
    const std::lock_guard lock(mu);
    done = true;
    over.notify_all();
  }
  for (std::thread& t : others) t.join();
}

template <class F, class... A>
auto fork(F f, A... a) {
  return fibers::async(fibers::launch::post, std::allocator_arg,
                       fibers::fixedsize_stack(stack_size), f, a...);
}

long fib_forked(long n) {
  if (n <= 12) return bench::fib_sequential(n);
  auto left = fork(fib_forked, n - 1);
  const long right = fib_forked(n - 2);
  return left.get() + right;
}

void fib(const char* name, long n) {
  on_all_cpus([=] {
    const long expected = bench::fib_sequential(n);
    fib_forked(n - 5);
    const auto start = clock::now();
    if (fib_forked(n) != expected) std::abort();
    bench::report(name, bench::ns_since(start) / 1e6, "ms");
  });
}

// A child runs at once, on this thread: depth first, few stacks. Posted and stolen, it takes three
// times as long.
void skynet_node(buffered* out, long number, long size) {
  if (size == 1) {
    out->push(number);
    return;
  }
  buffered c(16);
  for (long i = 0; i < 10; ++i) {
    fibers::fiber(fibers::launch::dispatch, std::allocator_arg, stacks(), skynet_node, &c,
                  number + i * (size / 10), size / 10)
        .detach();
  }
  long sum = 0;
  for (int i = 0; i < 10; ++i) {
    long v = 0;
    c.pop(v);
    sum += v;
  }
  out->push(sum);
}

void skynet(const char* name, long n) {
  for (int round = 0; round < 2; ++round) {
    buffered c(2);
    const auto start = clock::now();
    fibers::fiber(skynet_node, &c, 0L, n).detach();
    long sum = 0;
    c.pop(sum);
    if (sum != n * (n - 1) / 2) std::abort();
    if (round == 1) bench::report(name, bench::ns_since(start) / 1e6, "ms");
  }
}

constexpr bench::workload workloads[] = {
    {"yield1", bench::ns_per_op<yields<1>>},
    {"yield2", bench::ns_per_op<yields<2>>},
    {"yield100", bench::ns_per_op<yields<100>>},
    {"yield10000", bench::ns_per_op<yields<10'000>>},
    {"spawn_join", bench::ns_per_op<spawn_join>},
    {"spawn_batch", bench::ns_per_op<spawn_batch>},
    {"parked", parked},
    {"idle1000", idle},
    {"chan_pingpong", bench::ns_per_op<pingpong>},
    {"chan_buffered", bench::ns_per_op<through_buffered<1>>},
    {"chan_buffered_4x4", bench::ns_per_op<through_buffered<4>>},
    {"chan_unbuffered_4x4", bench::ns_per_op<through_unbuffered>},
    {"close_wakes", close_wakes},
    {"skynet", skynet},
    {"sieve", sieve},
    {"fib", fib},
    {"mutex1", bench::ns_per_op<locks<1>>},
    {"mutex2", bench::ns_per_op<locks<2>>},
    {"mutex100", bench::ns_per_op<locks<100>>},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
