// SPDX-License-Identifier: Apache-2.0
// Runs in quick succession while plain threads start goroutines, wake the forgotten ones of runs
// that are over, and ask for other numbers of Ps; each run is ended at a random moment. Nothing of
// one run may show up in the next.
#include <array>

#include "sched/waiter.h"
#include "stress/support.h"
#include "weft/chan.hpp"
#include "weft/sync.hpp"

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

// -- wake-ups at the end of a run

// Plain threads wait behind goroutines; another goroutine wakes them all just when its run ends,
// for which it may be stopped at any instruction. Either it has begun, and wakes all of them, or it
// has not, and they wait on for the next one.
struct permits : semaphore {
  permits() : semaphore(0) {}
};
using large = std::array<char, 32 * 1024>;  // its copy takes a while, under the lock

constexpr int threads_waiting = 8;

template <class Object>
class end_of_run {
 public:
  using fn = void (*)(Object&);
  end_of_run(fn wait, fn wake, int before) : wait_(wait), wake_(wake), before_(before) {
    for (std::thread& t : threads_) t = std::thread([this] { wait_for_each(); });
  }
  ~end_of_run() {
    offer(nullptr);
    for (std::thread& t : threads_) t.join();
  }
  void round(int procs, std::int64_t delay) {
    all_.push_back(std::make_unique<Object>());
    Object* o = all_.back().get();
    awake_ = 0;
    run(test::with_procs(procs), [&] {
      std::atomic<int> queued{0};
      for (int i = 0; i < before_; ++i) {
        go([&queued, o, this] {
          ++queued;
          wait_(*o);
        });
      }
      while (queued != before_) yield();
      offer(o);
      while ((rt::blocked_threads.load() & 0xffff'ffffU) != threads_waiting) yield();
      std::atomic<bool> started{false};
      go([&started, o, delay, wake = wake_] {
        started = true;
        for (const std::int64_t begin = nanotime(); nanotime() - begin < delay;) {
        }
        wake(*o);
      });
      while (!started) yield();
    });
    wake_(*o);  // those who wait on
    for (int n = awake_; n != threads_waiting; n = awake_) awake_.wait(n);
  }

 private:
  void offer(Object* o) {
    current_ = o;
    current_.notify_all();
  }
  void wait_for_each() {
    Object* last = nullptr;
    for (;;) {
      current_.wait(last);
      last = current_;
      if (last == nullptr) return;
      wait_(*last);
      ++awake_;
      awake_.notify_one();
    }
  }

  fn wait_, wake_;
  int before_;  // goroutines
  std::atomic<Object*> current_{nullptr};
  std::atomic<int> awake_{0};
  std::thread threads_[threads_waiting];
  static inline std::vector<std::unique_ptr<Object>> all_;  // some are in it for good
};

template <class Object>
void expect_all_woken(int procs, void (*wait)(Object&), void (*wake)(Object&), int before = 48) {
  std::atomic<std::uint64_t> rounds{0};
  watchdog dog(rounds, "wake-ups at the end of a run");
  end_of_run<Object> end(wait, wake, before);
  rt::random r(5);
  // A stop sends its first signals after 100 µs: the waker is to be at it by then.
  // TSan knows 8128 threads in all, those that have ended included.
  const std::uint64_t n = test::under_tsan ? 25 : test::by_effort(200, 20);
  for (; rounds < n; ++rounds) end.round(procs, 60'000 + r.below(120'000));
}

class EndOfRun : public Procs {};

TEST_P(EndOfRun, ThreadsAtAChannel) {
  expect_all_woken<chan<large>>(
      procs(), [](chan<large>& c) { (void)c.recv(); },
      [](chan<large>& c) {
        static const large value{};
        while (c.try_send(value)) {
        }
      });
}
TEST_P(EndOfRun, ThreadsAtAChannelThatIsClosed) {
  expect_all_woken<chan<int>>(
      procs(), [](chan<int>& c) { (void)c.recv(); },
      [](chan<int>& c) { detail::chan_access::core(c)->close_now(); },  // does not mind a second
      150);  // more than it takes at a time
}
TEST_P(EndOfRun, ThreadsAtAnEvent) {
  expect_all_woken<event>(
      procs(), [](event& e) { e.wait(); }, [](event& e) { e.set(); });
}
TEST_P(EndOfRun, ThreadsAtASemaphore) {
  expect_all_woken<permits>(
      procs(), [](permits& s) { s.acquire(); },
      [](permits& s) { s.release(threads_waiting + 48); });
}
INSTANTIATE_TEST_SUITE_P(Procs, EndOfRun, ::testing::Values(2, 3, 16),  // one for main, who ends it
                         [](const auto& i) { return std::to_string(i.param); });

}  // namespace
}  // namespace weft::stress
