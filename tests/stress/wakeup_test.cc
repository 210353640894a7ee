// SPDX-License-Identifier: Apache-2.0
// No lost wake-up: hand-offs to a goroutine for which a P must be found, most of the Ps idle or
// about to be. A wake-up that got lost shows as a stall; one that the machine cannot be blamed for
// (machine_watch) may not reach 10 ms.
#include "os/note.h"
#include "sched/park.h"
#include "sched/sched.h"
#include "stress/support.h"

namespace weft::stress {
namespace {

using test::sanitized;

constexpr std::int64_t limit = 10 * ms;

// Collects how long hand-offs take.
class stalls {
 public:
  void add(std::int64_t from, std::int64_t to) {
    worst_ = std::max(worst_, to - from);
    if (to - from >= limit) {
      const std::int64_t blame = machine_.explains(from, to);
      worst_unexplained_ = std::max(worst_unexplained_, to - from - blame);
      ++long_ones_;
    }
  }
  void report(std::uint64_t handoffs, std::int64_t took) {
    std::printf(
        "  %llu hand-offs in %.1f s, %.2f us each; longest %.3f ms; %d of 10 ms and more, of which "
        "the machine "
        "does not explain at most %.3f ms\n",
        static_cast<unsigned long long>(handoffs), static_cast<double>(took) / second,
        static_cast<double>(took) / 1e3 / static_cast<double>(handoffs),
        static_cast<double>(worst_) / ms, long_ones_, static_cast<double>(worst_unexplained_) / ms);
    EXPECT_LT(worst_unexplained_, limit);
  }

 private:
  machine_watch machine_;
  std::int64_t worst_ = 0, worst_unexplained_ = 0;
  int long_ones_ = 0;
};

// Where one goroutine waits until it is called.
class seat {
 public:
  void sit() {
    rt::park(
        [](void* g, void* self) {
          static_cast<seat*>(self)->g_.store(static_cast<rt::G*>(g), std::memory_order_release);
        },
        this, rt::wait_reason::internal);
  }
  bool taken() const { return g_.load(std::memory_order_acquire) != nullptr; }
  // The sitter must be there.
  void call() { rt::ready(g_.exchange(nullptr, std::memory_order_acquire)); }

 private:
  std::atomic<rt::G*> g_{nullptr};
};

void pause_for(std::int64_t ns) {
  const std::int64_t until = nanotime() + ns;
  while (nanotime() < until) rt::cpu_relax();
}

// Spins without a runtime call; gives the CPU away now and then, for machines with fewer of them
// than threads.
template <class F>
void spin(F f) {
  for (int i = 0; !f(); ++i) {
    rt::cpu_relax();
    if (i % 4096 == 4095) std::this_thread::yield();
  }
}

// Whether to go on, after n hand-offs: for the wanted number, or a million but 10 s at most; and
// for the wanted time, if one is given.
bool goes_on(std::uint64_t n, std::int64_t begin) {
  static const std::uint64_t asked = from_env("WEFT_STRESS_HANDOFFS", 0);
  static const std::uint64_t number = sanitized ? 30'000 : test::by_effort(1'000'000);
  const std::int64_t took = nanotime() - begin;
  if (asked > 0) return n < asked || took < duration_ns(0);
  if (wanted_seconds() > 0) return took < duration_ns(0);
  return n < number && took < duration_ns(10);
}

// The watch must not find excuses: a sleep that nobody ended earlier is not the machine's fault.
// What the machine takes comes in bursts and is a part of the time, so on a busy one the longer
// sleeps come out clean.
TEST(MachineWatch, FindsNoExcuseForASleep) {
  machine_watch machine;
  std::int64_t unexplained = 0;
  for (int i = 1; i <= 40 && unexplained < limit; ++i) {
    const std::int64_t from = nanotime();
    std::this_thread::sleep_for(i * std::chrono::milliseconds(30));
    const std::int64_t to = nanotime();
    unexplained = std::max(unexplained, to - from - machine.explains(from, to));
  }
  EXPECT_GE(unexplained, limit);
}

class Wakeup : public Procs {};

// One goroutine calls another, which must be run by another P: the caller computes on until it has.
// Between two calls it waits for a random time around the moment at which a P that found nothing
// gives up and goes idle.
TEST_P(Wakeup, FromOnePToAnother) {
  if (procs() == 1) GTEST_SKIP() << "needs two Ps";
  stalls found;
  std::atomic<std::uint64_t> handoffs{0};
  watchdog dog(handoffs, "hand-off from one P to another");
  const std::int64_t begin = nanotime();
  test::run_clean(test::with_procs(procs()), [&] {
    seat there;
    std::atomic<std::int64_t> arrived{0};
    std::atomic<bool> stop{false};
    auto partner = async([&] {
      for (;;) {
        there.sit();
        if (stop) return;
        arrived.store(nanotime(), std::memory_order_release);
      }
    });
    rt::random r(static_cast<std::uint64_t>(procs()));
    while (goes_on(handoffs, begin)) {
      spin([&] { return there.taken(); });
      if (r.below(8) == 0) pause_for(r.below(80'000));
      arrived.store(0, std::memory_order_relaxed);
      const std::int64_t from = nanotime();
      there.call();
      spin([&] { return arrived.load(std::memory_order_acquire) != 0; });
      found.add(from, arrived.load(std::memory_order_relaxed));
      ++handoffs;
      if (handoffs % 1024 == 0) yield();  // the end of a slice, a stop of the world
    }
    while (!there.taken()) yield();
    stop = true;
    there.call();
    partner.get();
  });
  found.report(handoffs, nanotime() - begin);
}

// The same by go: a new goroutine each time.
TEST_P(Wakeup, BySpawning) {
  if (procs() == 1) GTEST_SKIP() << "needs two Ps";
  stalls found;
  std::atomic<std::uint64_t> handoffs{0};
  watchdog dog(handoffs, "spawn for another P");
  const std::int64_t begin = nanotime();
  test::run_clean(test::with_procs(procs()), [&] {
    rt::random r(static_cast<std::uint64_t>(procs()));
    while (goes_on(handoffs * 4, begin)) {
      if (r.below(8) == 0) pause_for(r.below(80'000));
      std::atomic<std::int64_t> arrived{0};
      const std::int64_t from = nanotime();
      go([&] { arrived.store(nanotime(), std::memory_order_release); });
      spin([&] { return arrived.load(std::memory_order_acquire) != 0; });
      found.add(from, arrived.load(std::memory_order_relaxed));
      ++handoffs;
      if (handoffs % 1024 == 0) yield();
    }
  });
  found.report(handoffs, nanotime() - begin);
}

// Two goroutines call each other in turn and wait; the P that one leaves has nothing else to do.
TEST_P(Wakeup, PingPong) {
  stalls found;
  std::atomic<std::uint64_t> handoffs{0};
  watchdog dog(handoffs, "ping-pong");
  const std::int64_t begin = nanotime();
  test::run_clean(test::with_procs(procs()), [&] {
    seat mine, yours;
    std::int64_t called = 0;  // belongs to whoever was called
    bool stop = false;
    auto partner = async([&] {
      for (;;) {
        yours.sit();
        if (stop) return;
        const std::int64_t now = nanotime();
        found.add(called, now);
        ++handoffs;
        while (!mine.taken()) yield();
        called = nanotime();
        mine.call();
      }
    });
    rt::random r(static_cast<std::uint64_t>(procs()));
    while (goes_on(handoffs, begin)) {
      while (!yours.taken()) yield();
      if (r.below(64) == 0) pause_for(r.below(80'000));
      called = nanotime();
      yours.call();
      mine.sit();
      found.add(called, nanotime());
      ++handoffs;
    }
    while (!yours.taken()) yield();
    stop = true;
    yours.call();
    partner.get();
  });
  found.report(handoffs, nanotime() - begin);
}

// A plain thread calls a goroutine while every P is idle, or is just going to be.
TEST_P(Wakeup, FromAPlainThread) {
  stalls found;
  std::atomic<std::uint64_t> handoffs{0};
  watchdog dog(handoffs, "hand-off from a plain thread");
  const std::int64_t begin = nanotime();
  test::run_clean(test::with_procs(procs()), [&] {
    seat there;
    std::atomic<std::int64_t> arrived{0};
    std::atomic<bool> stop{false};
    std::thread caller([&] {
      rt::random r(static_cast<std::uint64_t>(procs()));
      while (goes_on(handoffs * 20, begin)) {
        spin([&] { return there.taken(); });
        if (r.below(2) == 0) pause_for(r.below(100'000));
        arrived.store(0, std::memory_order_relaxed);
        const std::int64_t from = nanotime();
        there.call();
        spin([&] { return arrived.load(std::memory_order_acquire) != 0; });
        found.add(from, arrived.load(std::memory_order_relaxed));
        ++handoffs;
      }
      spin([&] { return there.taken(); });
      stop = true;
      there.call();
    });
    for (;;) {
      there.sit();
      if (stop) break;
      arrived.store(nanotime(), std::memory_order_release);
    }
    caller.join();
  });
  found.report(handoffs, nanotime() - begin);
}
WEFT_STRESS_PROCS(Wakeup);

}  // namespace
}  // namespace weft::stress
