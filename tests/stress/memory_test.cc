// SPDX-License-Identifier: Apache-2.0
// Memory: flat over ten million goroutines, and at most 5 KiB, page tables included, for each of a
// million that wait.
#include <fstream>
#include <string>

#include "stress/support.h"

namespace weft::stress {
namespace {

using test::sanitized;

std::size_t available_kib() {
  std::ifstream f("/proc/meminfo");
  std::string name;
  std::size_t v = 0;
  while (f >> name >> v) {
    if (name == "MemAvailable:") return v;
    f.ignore(100, '\n');
  }
  return 0;
}

class Memory : public Procs {};

TEST_P(Memory, FlatOverTenMillionGoroutines) {
  const std::uint64_t total = sanitized ? 200'000 : test::by_effort(10'000'000);
  constexpr int at_once = 1000;
  const std::int64_t begin = nanotime();
  test::run_clean(test::with_procs(procs()), [&] {
    std::atomic<std::uint64_t> ran{0};
    std::uint64_t started = 0;
    const auto wave = [&] {
      scope s;
      for (int i = 0; i < at_once; ++i) {
        s.go([&ran, i] {
          if (i % 16 == 0) yield();
          ran.fetch_add(1, std::memory_order_relaxed);
        });
      }
      started += at_once;
    };
    // What a steady state needs is there after a tenth of them.
    while (started < total / 10) wave();
    const std::size_t before = status_kib("VmRSS"), tables_before = status_kib("VmPTE");
    const std::int64_t until = wanted_seconds() > 0 ? begin + duration_ns(0) : 0;
    while (started < total || nanotime() < until) wave();
    const std::size_t after = status_kib("VmRSS"), tables_after = status_kib("VmPTE");
    EXPECT_EQ(ran, started);
    // TSan's own records of goroutines and memory would be what is measured there.
    if (!test::under_tsan) {
      EXPECT_LT(after, before + 4096 + (sanitized ? before / 4 : 0))
          << "KiB resident after " << started;
      EXPECT_LT(tables_after, tables_before + 512);
    }
    std::printf(
        "  %llu goroutines in %.1f s, %.0f ns each; resident %zu -> %zu KiB\n",
        static_cast<unsigned long long>(started), static_cast<double>(nanotime() - begin) / second,
        static_cast<double>(nanotime() - begin) / static_cast<double>(started), before, after);
  });
}

TEST_P(Memory, FlatWithStacksOfAllSizesAndDeepCalls) {
  constexpr int total = sanitized ? 5'000 : 100'000;
  test::run_clean(test::with_procs(procs()), [&] {
    rt::random r(1);
    const auto wave = [&](int n) {
      for (int done = 0; done < n; done += 50) {
        std::atomic<int> left{50};
        event all;
        for (int i = 0; i < 50; ++i) {
          const std::size_t size = (64U + 64U * r.below(32)) * 1024;
          go({.stack_size = size}, [&, size] {
            volatile char use[24 * 1024];
            use[0] = static_cast<char>(size);
            (void)use[0];
            if (size % 3 == 0) yield();
            if (--left == 0) all.set();
          });
        }
        all.wait();
      }
    };
    wave(total / 5);
    const std::size_t before = status_kib("VmRSS");
    wave(total);
    const std::size_t after = status_kib("VmRSS");
    if (!test::under_tsan) {
      EXPECT_LT(after, before + 16 * 1024 + (sanitized ? before / 2 : 0));
    }
    std::printf("  resident %zu -> %zu KiB\n", before, after);
  });
}

TEST_P(Memory, AMillionWaitInFiveKiBEach) {
  if (sanitized) GTEST_SKIP() << "shadow memory";
  const std::size_t n = test::by_effort(1'000'000);
  if (available_kib() < 8U * n) GTEST_SKIP() << "not enough memory";
  // In a process of its own, as ctest starts it; after an earlier test here the stacks are there
  // already.
  const std::size_t rss_before = status_kib("VmRSS"), tables_before = status_kib("VmPTE");
  test::run_clean(test::with_procs(procs()), [&] {
    event wake;
    std::atomic<std::size_t> there{0}, gone{0};
    const std::int64_t begin = nanotime();
    {
      scope s;
      for (std::size_t i = 0; i < n; ++i) {
        s.go([&] {
          there.fetch_add(1, std::memory_order_relaxed);
          wake.wait();
          gone.fetch_add(1, std::memory_order_relaxed);
        });
      }
      while (there < n) yield();
      while (debug::runtime_stats().waiting < n) yield();
      const std::int64_t parked = nanotime();
      const auto grown = [](const char* name, std::size_t before) {
        const std::size_t now = status_kib(name);
        return now > before ? now - before : 0;
      };
      const std::size_t rss = grown("VmRSS", rss_before), tables = grown("VmPTE", tables_before);
      const auto each = [n](std::size_t kib) {
        return static_cast<double>(kib) / static_cast<double>(n);
      };
      std::printf("  %zu waiting after %.1f s: %.2f KiB each (%.2f resident, %.2f page tables)\n",
                  n, static_cast<double>(parked - begin) / second, each(rss + tables), each(rss),
                  each(tables));
      EXPECT_LE(each(rss + tables), 5.0);
      EXPECT_EQ(gone, 0U);
      wake.set();
    }
    EXPECT_EQ(gone, n);
  });
}
WEFT_STRESS_PROCS(Memory);

}  // namespace
}  // namespace weft::stress
