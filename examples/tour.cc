// SPDX-License-Identifier: Apache-2.0
// A tour of the runtime in the terminal: each station does the real thing and prints what it
// measured. Ends by itself, with status 0 only if every station held what it says.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <weft/weft.hpp>

namespace {

using clock_type = std::chrono::steady_clock;
int failures = 0;

double seconds_since(clock_type::time_point t) {
  return std::chrono::duration<double>(clock_type::now() - t).count();
}

void station(const char* title) { std::printf("\n\033[1m%s\033[0m\n", title); }

void expect(bool ok, const char* what) {
  if (ok) return;
  ++failures;
  std::printf("  NOT HELD: %s\n", what);
}

std::uint64_t memory_kib(const char* key) {
  std::ifstream f("/proc/self/status");
  for (std::string line; std::getline(f, line);) {
    if (line.rfind(key, 0) == 0) return std::stoull(line.substr(line.find(':') + 1));
  }
  return 0;
}

// 1. Goroutines are cheap: a million of them, one after the other through warm stacks.
void spawn_a_million() {
  station("1. spawn a million goroutines");
  constexpr int n = 1'000'000;
  std::atomic<int> ran{0};
  const auto t = clock_type::now();
  weft::scope s;
  for (int i = 0; i < n; ++i) s.go([&] { ran.fetch_add(1, std::memory_order_relaxed); });
  s.wait();
  const double d = seconds_since(t);
  std::printf("  %d ran in %.3f s: %.0f ns each, spawn to exit\n", ran.load(), d, d * 1e9 / n);
  expect(ran == n, "every goroutine ran once");
}

// 2. ... and parked, all at once: a page of stack each, and the guard below it costs nothing.
void park_many() {
  station("2. park a hundred thousand at once");
  constexpr int n = 100'000;
  const std::uint64_t before = memory_kib("VmRSS") + memory_kib("VmPTE");
  weft::promise<void> gate;
  const weft::task<void> open = gate.get_task();
  std::atomic<int> woken{0};
  {
    weft::scope s;
    for (int i = 0; i < n; ++i) {
      s.go([&] {
        open.wait();
        woken.fetch_add(1, std::memory_order_relaxed);
      });
    }
    while (weft::debug::runtime_stats().waiting < n) weft::yield();
    const std::uint64_t grown = memory_kib("VmRSS") + memory_kib("VmPTE") - before;
    std::printf(
        "  %zu goroutines alive, %llu KiB more memory (page tables counted): %.2f KiB each\n",
        weft::num_goroutines(), static_cast<unsigned long long>(grown),
        static_cast<double>(grown) / n);
    const auto t = clock_type::now();
    gate.set_value();
    s.wait();
    std::printf("  all woken and gone in %.0f ns each\n", seconds_since(t) * 1e9 / n);
  }
  expect(woken == n, "every parked goroutine was woken");
}

// 3. Work is stolen: one P gets all of it, the others take their share. As many as its ring holds:
// what is beyond that goes to the global queue, and who finds it there need not steal.
void watch_steals() {
  station("3. watch Ps steal");
  const auto before = weft::debug::runtime_stats();
  std::atomic<std::uint64_t> sum{0};
  weft::scope s;
  for (int i = 0; i < 200; ++i) {
    s.go([&] {
      std::uint64_t x = 88172645463325252ULL;
      for (int k = 0; k < 200'000; ++k) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      sum.fetch_add(x, std::memory_order_relaxed);
    });
  }
  const auto t = clock_type::now();
  s.wait();
  const auto after = weft::debug::runtime_stats();
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  std::printf("  200 computations of ~0.4 ms on %d Ps: %.0f ms, %llu steals\n", weft::procs(),
              seconds_since(t) * 1e3,
              static_cast<unsigned long long>(after.steals - before.steals));
  expect(weft::procs() == 1 || after.steals > before.steals, "somebody stole");
}

// 4. The number of Ps changes under load, and nothing is lost.
void resize_under_load() {
  station("4. resize under load");
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> turns{0};
  const int old = weft::procs();
  weft::scope s;
  for (int i = 0; i < 1'000; ++i) {
    s.go([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        turns.fetch_add(1, std::memory_order_relaxed);
        weft::yield();
      }
    });
  }
  int broken = 0;
  std::printf("  procs:");
  for (const int n : {1, 2, 4, 8, 16, 64, 3, 1}) {
    weft::set_procs(n);
    const std::uint64_t from = turns.load();
    while (turns.load() < from + 20'000) weft::yield();
    broken += weft::debug::audit();
    std::printf(" %d", weft::procs());
    std::fflush(stdout);
  }
  stop = true;
  s.wait();
  weft::set_procs(old);
  std::printf("\n  %llu turns taken meanwhile; audit of all invariants at each step: %d broken\n",
              static_cast<unsigned long long>(turns.load()), broken);
  expect(broken == 0, "the invariants hold at every step");
}

// 5. Exceptions belong to the goroutine: parked inside a catch block, woken on whatever thread,
// thrown on.
void exceptions_travel() {
  station("5. an exception survives a park and a migration");
  constexpr int n = 1'000;
  int right = 0;
  std::vector<weft::task<int>> tasks;
  for (int i = 0; i < n; ++i) {
    tasks.push_back(weft::async([i]() -> int {
      try {
        throw i;
      } catch (int) {
        for (int k = 0; k < 10; ++k)
          weft::yield();  // other goroutines throw meanwhile, here and elsewhere
        throw;
      }
    }));
  }
  for (int i = 0; i < n; ++i) {
    try {
      tasks[static_cast<std::size_t>(i)].get();
    } catch (int got) {
      right += got == i;
    }
  }
  std::printf("  %d of %d rethrown exceptions arrived where they belong\n", right, n);
  expect(right == n, "each goroutine keeps its own exception");
}

}  // namespace

int main() {
  const int result = weft::run([] {
    std::printf("weft: goroutine %llu on %d Ps (%d CPUs)\n",
                static_cast<unsigned long long>(weft::goid()), weft::procs(), weft::num_cpu());
    spawn_a_million();
    park_many();
    watch_steals();
    resize_under_load();
    exceptions_travel();
    const auto s = weft::debug::runtime_stats();
    station("in all");
    std::printf("  %llu goroutines, %llu parks, %llu steals, %llu threads, %llu stacks\n",
                static_cast<unsigned long long>(s.created),
                static_cast<unsigned long long>(s.parks), static_cast<unsigned long long>(s.steals),
                static_cast<unsigned long long>(s.threads),
                static_cast<unsigned long long>(s.stacks));
    return failures == 0 ? 0 : 1;
  });
  return result;
}
