// SPDX-License-Identifier: Apache-2.0
// Runs in quick succession while plain threads start goroutines, wake the forgotten ones of runs
// that are over, and ask for other numbers of Ps; each run is ended at a random moment. Nothing of
// one run may show up in the next.
#include "stress/support.h"

namespace weft::stress {
namespace {

using test::sanitized;

class RunChurn : public Procs {};

// What the goroutines of one run share, and nobody of another may touch. Never freed: they may be
// in it for good.
struct epoch {
  std::atomic<bool> over{false};
  event wake;
};

TEST_P(RunChurn, NothingShowsUpInTheNextRun) {
  checker check;
  std::atomic<std::uint64_t> runs{0}, late{0}, foreign{0};
  std::atomic<bool> stop{false};
  std::atomic<epoch*> last{nullptr};
  watchdog dog(runs, "runs");
  const auditor audits;
  const std::int64_t until = nanotime() + duration_ns(3);

  std::thread wakes([&] {  // the goroutines of runs that are over
    rt::random r(7);
    while (!stop) {
      if (epoch* e = last.exchange(nullptr)) e->wake.set();
      if (r.below(20) == 0) set_procs(1 + static_cast<int>(r.below(8)));
      std::this_thread::sleep_for(std::chrono::microseconds(r.below(200)));
    }
  });
  std::thread spawns(
      [&] {  // goroutines that end by themselves, in whatever run, or are left behind
        rt::random r(8);
        while (!stop) {
          go([&foreign] { ++foreign; });
          std::this_thread::sleep_for(std::chrono::microseconds(r.below(200)));
        }
      });
  const auto one_run = [&](std::uint64_t seed) {
    rt::random r(seed);
    static std::vector<std::unique_ptr<epoch>> all;
    all.push_back(std::make_unique<epoch>());
    epoch* e = all.back().get();
    config c = test::with_procs(procs());
    c.stack_size = (1U + r.below(3)) * 128 * 1024;
    const int result = run(c, [&, e] {
      for (std::uint32_t i = r.below(30); i > 0; --i) {
        go([&check, &late, e, kind = r.below(4)] {
          for (std::uint32_t k = 0;; ++k) {
            if (kind == 0) e->wake.wait();  // parked when the run ends
            if (kind == 1)
              (void)set_procs(1 + static_cast<int>(k % 5));  // stopping the world, or waiting to
            yield();
            if (e->over) {
              ++late;
              check(false, "a goroutine of a run that is over");
              return;
            }
            if (kind == 2 && k > 10) return;
          }
        });
      }
      for (std::uint32_t i = r.below(10); i > 0; --i) yield();
      return 7;
    });
    e->over = true;
    check(result == 7, "main's result");
    last = e;
    ++runs;
  };
  for (std::uint64_t i = 1; nanotime() < until; ++i) {
    if (i % 2 == 0) {
      one_run(i);
    } else {
      std::thread(one_run, i).join();
    }
  }
  stop = true;
  wakes.join();
  spawns.join();
  check.report();
  // Those that plain threads have started since run now, and then nobody is left on the books.
  test::run_clean(test::with_procs(procs()), [] {});
  std::printf("  %llu runs, %llu goroutines from plain threads\n",
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(foreign));
}
WEFT_STRESS_PROCS(RunChurn);

}  // namespace
}  // namespace weft::stress
