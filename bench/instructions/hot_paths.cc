// SPDX-License-Identifier: Apache-2.0
// The hot paths, for tools/check_instructions.py, which counts their instructions under callgrind:
//
//   hot_paths --list        the names
//   hot_paths PATH N        goes N times along it
//
// The counts of two N are subtracted, so start-up and end fall away. One P and no preemption: what
// runs is then the same each time, up to sysmon's ticks. Everything runs on goroutines' stacks.
#include <weft/weft.hpp>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <unistd.h>

#include "sched/park.h"

namespace {

void yield_alone(long n) {
  for (long i = 0; i < n; ++i) weft::yield();
}

// n switches, from one goroutine to another and back.
void yield(long n) {
  weft::scope s;
  for (int k = 0; k < 2; ++k) {
    s.go([n] {
      for (long i = 0; i < n / 2; ++i) weft::yield();
    });
  }
  s.wait();
}

// Two wake each other: each step is one ready and one park. With one P the other one runs only
// when this one is parked, so there is nothing to publish.
void park_ready(long n) {
  namespace rt = weft::rt;
  struct pair {
    rt::G* waiting = nullptr;
    long left = 0;
  } both;
  both.left = n;
  const auto step = [](pair& b) {
    while (b.left-- > 0) {
      if (rt::G* other = std::exchange(b.waiting, rt::current_g())) rt::ready(other);
      rt::park([](void*, void*) {}, nullptr, rt::wait_reason::internal);
    }
    if (rt::G* other = std::exchange(b.waiting, nullptr)) rt::ready(other);
  };
  weft::scope s;
  for (int k = 0; k < 2; ++k) s.go([&] { step(both); });
  s.wait();
}

void spawn_join(long n) {
  for (long i = 0; i < n; ++i) weft::async([] {}).wait();
}

void spawn_scope(long n) {
  constexpr long batch = 100;  // fewer than a ring holds
  for (long i = 0; i < n; i += batch) {
    weft::scope s;
    for (long k = 0; k < batch; ++k) s.go([] {});
    s.wait();
  }
}

// A value into the buffer and out again: nobody waits.
void chan_buffered(long n) {
  weft::chan<long> c(1);
  for (long i = 0; i < n; ++i) {
    c.send(i);
    (void)c.recv();
  }
}

// A value handed from one goroutine to another.
void chan_unbuffered(long n) {
  weft::chan<long> c;
  weft::scope s;
  s.go([=] {
    for (long i = 0; i < n; ++i) c.send(i);
  });
  for (long i = 0; i < n; ++i) (void)c.recv();
  s.wait();
}

void select_ready(long n) {
  weft::chan<long> a(1), b(1);
  for (long i = 0; i < n; ++i) {
    a.send(i);
    weft::select(weft::recv(a), weft::recv(b));
  }
}

void select_default(long n) {
  weft::chan<long> c;
  for (long i = 0; i < n; ++i) weft::select(weft::recv(c), weft::otherwise([] {}));
}

void mutex_lock(long n) {
  weft::mutex mu;
  for (long i = 0; i < n; ++i) {
    mu.lock();
    mu.unlock();
  }
}

void wait_group(long n) {
  weft::wait_group wg;
  for (long i = 0; i < n; ++i) {
    wg.add(1);
    wg.done();
  }
  wg.wait();
}

void timer_stop(long n) {
  for (long i = 0; i < n; ++i) weft::timer(std::chrono::hours(1)).stop();
}

void blocking(long n) {
  for (long i = 0; i < n; ++i) weft::blocking([] { ::getppid(); });
}

struct path {
  const char* name;
  void (*run)(long n);
};
constexpr path paths[] = {
    {"yield", yield},
    {"yield_alone", yield_alone},
    {"park_ready", park_ready},
    {"spawn_join", spawn_join},
    {"spawn_scope", spawn_scope},
    {"chan_buffered", chan_buffered},
    {"chan_unbuffered", chan_unbuffered},
    {"select_ready", select_ready},
    {"select_default", select_default},
    {"mutex_lock", mutex_lock},
    {"wait_group", wait_group},
    {"timer_stop", timer_stop},
    {"blocking", blocking},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--list") {
    for (const path& p : paths) std::puts(p.name);
    return 0;
  }
  const long n = argc == 3 ? std::atol(argv[2]) : 0;
  for (const path& p : paths) {
    if (n > 0 && std::string_view(p.name) == argv[1])
      return weft::run({.procs = 1, .preempt = false}, [&] { p.run(n); });
  }
  std::fprintf(stderr, "usage: %s --list | PATH N\n", argv[0]);
  return 2;
}
