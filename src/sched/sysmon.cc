// SPDX-License-Identifier: Apache-2.0
// The monitor: a thread of its own, without a P, that sees to it that nobody is forgotten.
//
// Each round: ends slices that are over (sets the P's preempt flag; calls that may park honour it),
// polls if nobody has for too long (netpoll.h), follows the CPU limit once a second, gives back
// stack pages that deep calls have touched. It sleeps 20 µs between rounds, doubling after 50
// rounds in which nothing was to be done, 10 ms at most, and for good while every P is idle or the
// world is stopped: an idle program uses no CPU. take_idle_p and start_ps wake it.
//
// Runs on its own thread's stack; takes the scheduler lock; never allocates.
#include <ctime>

#include "sched/netpoll.h"
#include "sched/procs.h"
#include "sched/sched.h"
#include "sched/timers.h"

namespace weft::rt {
namespace {

constexpr std::int64_t second = 1'000'000'000;
constexpr std::int64_t min_sleep = 20'000, max_sleep = 10'000'000;
constexpr int rounds_until_slower = 50;

struct watched {
  std::uint32_t tick = 0;
  std::int64_t since = 0;
};
constinit watched seen[max_procs];

void sleep_ns(std::int64_t ns) noexcept {
  const timespec ts{ns / second, ns % second};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, nullptr);
}

// True if some slice was ended.
bool end_slices(std::int64_t now) noexcept {
  bool any = false;
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    P* p = p_at(i);
    if (p == nullptr || p->status.load(memory_order_relaxed) != p_status::running) continue;
    const std::uint32_t tick = p->schedtick.load(memory_order_relaxed);
    if (seen[i].tick != tick) {
      seen[i] = {tick, now};
    } else if (now - seen[i].since >= sched.quantum_ns.load(memory_order_relaxed) &&
               sched.preempt.load(memory_order_relaxed)) {
      p->preempt.store(1, memory_order_relaxed);
      seen[i].since = now;
      any = true;
    }
  }
  return any;
}

// A timer is overdue though Ps run: send one through find_work. (While all are idle, the watcher
// sees to it.)
bool kick_for_timers(std::int64_t now) noexcept {
  if (earliest_timer() > now) return false;
  if (sched.idle.load().idle_ps != 0) {
    wake();
  }
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    P* p = p_at(i);
    if (p == nullptr || p->timers.earliest.load(memory_order_relaxed) > now) continue;
    if (p->status.load(memory_order_relaxed) == p_status::running) {
      p->preempt.store(1, memory_order_relaxed);
    }
  }
  return true;
}

// Goroutines have become ready in the global queue and every P is busy: the one that has run
// longest gives way, and looks there first.
void make_way() noexcept {
  if (!sched.preempt.load(memory_order_relaxed) || sched.idle.load().idle_ps != 0) return;
  P* oldest = nullptr;
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    P* p = p_at(i);
    if (p == nullptr || p->status.load(memory_order_relaxed) != p_status::running) continue;
    if (oldest == nullptr || seen[i].since < seen[oldest->id].since) oldest = p;
  }
  if (oldest != nullptr) oldest->preempt.store(preempt_for_global, memory_order_relaxed);
}

std::int64_t nap(std::int64_t wish, std::int64_t now) noexcept {  // not past the next deadline
  if (const std::int64_t most = poll_patience(); most < wish) wish = most;
  const std::int64_t t = earliest_timer();
  if (t == never || t - now >= wish) return wish;
  return t - now > min_sleep ? t - now : min_sleep;
}

bool all_idle() noexcept {
  return sched.stopping.load(memory_order_seq_cst) || sched.idle.load().idle_ps == nprocs();
}

// keeps 'an idle program uses no CPU'. The flag is set under the lock under which Ps leave the idle
// list.
void deep_sleep() noexcept {
  trim_free_stacks();
  sched.lock.lock();
  const bool idle = all_idle();
  if (idle) {
    sched.sysmon_note.clear();
    sched.sysmon_waits.store(true, memory_order_seq_cst);
  }
  sched.lock.unlock();
  if (idle) sched.sysmon_note.sleep();
}

}  // namespace

void wake_sysmon() noexcept {
  if (sched.sysmon_waits.exchange(false, memory_order_seq_cst)) sched.sysmon_note.wake();
}

void sysmon_main() noexcept {
  std::int64_t sleep = min_sleep, last_limit = 0;
  int quiet = 0;
  for (;;) {
    sleep_ns(nap(sleep, nanotime()));
    if (all_idle()) {
      deep_sleep();
      sleep = min_sleep;
      quiet = 0;
    }
    const std::int64_t now = nanotime();
    if (now - last_limit >= second) {
      last_limit = now;
      follow_cpu_limit();
      trim_free_stacks();
    }
    const bool kicked = kick_for_timers(now);
    quiet = end_slices(now) || kicked ? 0 : quiet + 1;
    // No reason to come more often: under load it finds something each time.
    if (poll_overdue(now) != 0) make_way();
    if (quiet == 0) {
      sleep = min_sleep;
    } else if (quiet > rounds_until_slower && sleep < max_sleep) {
      sleep = sleep * 2 < max_sleep ? sleep * 2 : max_sleep;
    }
  }
}

}  // namespace weft::rt
