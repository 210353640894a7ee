// SPDX-License-Identifier: Apache-2.0
// Goroutines and system calls, from the benchmarks that Go ships with its runtime.
#include "list.h"

#include <atomic>
#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

using bench::parallel;

// A pair trades a token while a third one asks a channel that never has anything.
void pingpong_hog(long n) {
  weft::chan<void> never, there, back;
  std::atomic<bool> over{false};
  weft::scope s;
  s.go([&] {
    while (!over.load(std::memory_order_relaxed))
      weft::select(weft::recv(never), weft::otherwise());
  });
  s.go([=] {
    for (long i = 0; i < n; ++i) {
      there.recv();
      back.send();
    }
  });
  for (long i = 0; i < n; ++i) {
    there.send();
    back.recv();
  }
  over = true;
  s.wait();
}

// Each starts the next one and ends; the last one tells.
void link(long left, weft::chan<void> done) {
  if (left == 0) return done.send();
  weft::go(link, left - 1, std::move(done));
}

void create_chain(long n) {
  weft::chan<void> done;
  weft::go(link, n, done);
  done.recv();
}

void create_chains(long n) {
  weft::chan<void> done;
  const long k = weft::procs();
  for (long i = 0; i < k; ++i) weft::go(link, n / k, done);
  for (long i = 0; i < k; ++i) done.recv();
}

void create_capture(long n) {
  for (long i = 0; i < n; i += 4) {
    long sums[4] = {};
    weft::wait_group wg;
    for (long k = 0; k < 4; ++k) wg.go([&sums, k, i] { sums[k] = i + k; });
    wg.wait();
  }
}

[[gnu::noinline]] long frames(int depth) {
  volatile char room[1024];
  room[0] = static_cast<char>(depth);
  room[1023] = room[0];
  return depth == 0 ? room[1023] : frames(depth - 1) + room[0];
}

// Recursion on a new stack: frames of 1 KiB.
template <int depth>
void stack_growth(long n) {
  parallel(n, [](long turns) {
    for (long i = 0; i < turns; ++i) {
      weft::chan<void> done;
      weft::go({.stack_size = 4 << 20}, [=] {
        (void)frames(depth);
        done.send();
      });
      done.recv();
    }
  });
}

// Two take turns as sender and receiver; both are busy for a while before they act.
template <long us, bool in_kernel>
void wakeup(long n) {
  constexpr auto busy = [](long d) {
    if constexpr (in_kernel) {
      const timespec ts{0, d * 1000};
      if (d > 0) weft::blocking([&] { ::nanosleep(&ts, nullptr); });
    } else {
      bench::spin(std::chrono::microseconds(d));
    }
  };
  weft::chan<void> ping, pong;
  weft::scope s;
  s.go([=] {
    for (long i = 0; i < n; ++i) {
      busy(us + 5);
      ping.send();
      busy(us);
      pong.recv();
    }
  });
  for (long i = 0; i < n; ++i) {
    busy(us);
    ping.recv();
    busy(us + 5);
    pong.send();
  }
  s.wait();
}

template <long units, long factor>
void syscalls(long n) {
  parallel(
      n,
      [](long turns) {
        for (long i = 0; i < turns; ++i) {
          weft::blocking([] { ::syscall(SYS_getppid); });
          bench::work(units);
        }
      },
      factor);
}

constexpr bench::workload workloads[] = {
    {"list_pingpong_hog", bench::ns_per_op<pingpong_hog>},
    {"list_create_chain", bench::ns_per_op<create_chain>},
    {"list_create_chains", bench::ns_per_op<create_chains>},
    {"list_create_capture", bench::ns_per_op<create_capture>},
    {"list_stack_10", bench::ns_per_op<stack_growth<10>>},
    {"list_stack_1024", bench::ns_per_op<stack_growth<1024>>},
    {"list_wakeup_spin_0", bench::ns_per_op<wakeup<0, false>>},
    {"list_wakeup_spin_10", bench::ns_per_op<wakeup<10, false>>},
    {"list_wakeup_spin_100", bench::ns_per_op<wakeup<100, false>>},
    {"list_wakeup_syscall_10", bench::ns_per_op<wakeup<10, true>>},
    {"list_wakeup_syscall_100", bench::ns_per_op<wakeup<100, true>>},
    {"list_syscall", bench::ns_per_op<syscalls<0, 1>>},
    {"list_syscall_work", bench::ns_per_op<syscalls<100, 1>>},
    {"list_syscall_excess", bench::ns_per_op<syscalls<0, 4>>},
    {"list_syscall_excess_work", bench::ns_per_op<syscalls<100, 4>>},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
