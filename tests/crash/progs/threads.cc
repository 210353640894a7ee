// SPDX-License-Identifier: Apache-2.0
// SYS-01, SYS-04: the fuse, and signals that end the process or do not.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <sys/resource.h>
#include <unistd.h>

#include "weft/chan.hpp"
#include "weft/debug.hpp"
#include "weft/go.hpp"
#include "weft/run.hpp"
#include "weft/sync.hpp"
#include "weft/thread.hpp"
#include "weft/time.hpp"

namespace {

weft::config ten_threads() {
  weft::config c;
  c.procs = 2;
  c.max_threads = 10;
  return c;
}

// A hundred that need a thread each.
template <class F>
void exhaust(F f) {
  weft::run(ten_threads(), [f] {
    for (int i = 0; i < 100; ++i) weft::go(f);
    for (;;) weft::sleep_for(std::chrono::seconds(1));
  });
}

// The kernel makes no more threads for this user; root's it would.
void no_more_threads() {
  if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(9);
  const rlimit one{1, 1};
  if (::setrlimit(RLIMIT_NPROC, &one) != 0) ::_exit(9);
}

void compute(std::chrono::nanoseconds how_long) {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < how_long) {
  }
}

// At the limit, but they come to an end.
void hogs_that_end() {
  weft::config c = ten_threads();
  c.max_threads = 3;  // the thread of run, and one for each P
  weft::run(c, [] {
    for (int i = 0; i < 6; ++i) weft::go(compute, std::chrono::milliseconds(500));
    weft::sleep_for(std::chrono::milliseconds(20));
    std::puts("had its turn");
  });
}

// At the limit, where those in place take turns, and nobody else wants to run for longer than it
// takes to call that a shortage.
void hogs_alone() {
  weft::config c = ten_threads();
  c.max_threads = 4;
  weft::run(c, [] {
    weft::wait_group wg;
    for (int i = 0; i < 3; ++i) {
      wg.go([] {
        while (weft::debug::runtime_stats().waiting == 0) weft::yield();  // main is in wait()
        compute(std::chrono::seconds(7));
      });
    }
    wg.wait();
    std::puts("had its turn");
  });
}

void large() {
  weft::run([] {
    const auto before = weft::set_max_threads(std::size_t{1} << 31);
    std::printf("%zu %zu\n", before, weft::set_max_threads(10'000));
    weft::go([] {});
    weft::sleep_for(std::chrono::milliseconds(1));
  });
}

}  // namespace

int main(int, char** argv) {
  const std::string_view how = argv[1];
  if (how == "locked") {
    exhaust([] {
      weft::lock_os_thread();
      weft::chan<int>(nullptr).recv();
    });
  }
  if (how == "blocking") exhaust([] { weft::blocking([] { ::sleep(1000); }); });
  if (how == "asleep") exhaust([] { ::sleep(1000); });
  if (how == "hogs") exhaust([] { compute(std::chrono::hours(1)); });
  if (how == "hogs_that_end") hogs_that_end();
  if (how == "hogs_alone") hogs_alone();
  if (how == "large") large();
  if (how == "none-at-start") {
    no_more_threads();
    weft::run([] {});
  }
  if (how == "none-for-timers") {
    no_more_threads();
    weft::timer(std::chrono::milliseconds(1)).c.recv();
  }
  if (how == "none-later") {
    weft::run([] {
      no_more_threads();
      for (int i = 0; i < 10; ++i) {
        weft::go([] {
          weft::lock_os_thread();
          weft::sleep_for(std::chrono::seconds(10));
        });
      }
      weft::sleep_for(std::chrono::seconds(10));
    });
  }
  if (how == "sigterm") {
    weft::run([] {
      ::kill(::getpid(), SIGTERM);
      for (;;) weft::sleep_for(std::chrono::seconds(1));
    });
  }
  if (how == "sigtrap") {
    std::signal(SIGTRAP, SIG_IGN);
    weft::run([] {
      ::kill(::getpid(), SIGTRAP);
      weft::sleep_for(std::chrono::milliseconds(20));
      std::puts("ignored");
    });
  }
}
