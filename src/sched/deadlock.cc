// SPDX-License-Identifier: Apache-2.0
// Nobody can ever run again: says so and ends the process.
//
// A look is taken when the last M goes idle, when m0 begins to wait, when a plain thread falls
// asleep inside weft and when one of an ended run stops for good; once threads that are not ours
// have been seen, by sysmon alone, now and then while all Ps are idle (a thread that ends tells
// nobody). It is fatal only if
//   - all Ps are idle, every M sleeps, nothing is queued (so no G is running, runnable, in a
//     system call, preempted or detached: each of those has an M that does not sleep),
//   - no timer is pending, no descriptor is waited for, no signal is wanted, and no thread of ours
//     is on an errand,
//   - the process has no thread but ours and those that sleep in a weft call without a deadline.
// The last is a count: of the threads that there are at one moment (os/tasks.h) we take away those
// that we have started, m0, and blocked_threads.
//
// No false alarm. The moment of the count lies between two looks. Both must find the world quiet,
// no M may have gone idle in between (rests), so none has run, and no plain thread may have fallen
// asleep or been woken (blocked_threads). Hence at that moment the sleepers were exactly those, the
// count left nobody over, and since only a thread that runs can wake or make another, nobody has
// since. A waker takes a sleeper off the count before it wakes it (waiter.h), a plain thread that
// wakes a goroutine queues it under the lock, and both are still threads of their own meanwhile.
//
// Runs on g0, or on a plain thread's stack; takes the scheduler lock; no allocation.
#include <cerrno>

#include "base/chaos.h"
#include "base/print.h"
#include "os/tasks.h"
#include "os/thread.h"
#include "sched/netpoll.h"
#include "sched/sched.h"
#include "sched/timers.h"
#include "sched/waiter.h"

namespace weft::rt {

constinit atomic<std::uint64_t> blocked_threads{0};
constinit atomic<std::uint32_t> errands{0};
constinit atomic<std::uint32_t> errands_begun{0};
constinit atomic<std::uint32_t> awaited{0};
constinit atomic<std::uint64_t> threads_still{0};

namespace {

// Goroutines that wait for a descriptor: the count is lowered by the goroutine itself, when it
// runs.
std::int32_t poller_waiters() noexcept { return netpoll.waiters.load(); }

// Under the lock.
bool quiet() noexcept {
  if (!sched.active.load(memory_order_relaxed) || sched.stopping.load(memory_order_seq_cst))
    return false;
  const idle_counts c = sched.idle.load();
  if (c.idle_ps != nprocs() || c.spinning != 0) return false;
  const std::uint32_t asleep =
      sched.nmidle + sched.locked_asleep + sched.ms_gone.load(memory_order_relaxed) +
      sched.in_poller.load(memory_order_seq_cst) +  // for nobody, if it comes to that below
      (sched.m0.load(memory_order_seq_cst) == sched_state::m0_rests ? 1 : 0);
  if (asleep != sched.mcount.load(memory_order_relaxed)) return false;
  if (sched.runq.size() != 0 || sched.kept.size() != 0 || timers_pending() || poller_waiters() != 0)
    return false;
  // In this order: an errand may end what it was that somebody waited for.
  if (awaited.load(memory_order_seq_cst) != 0 || errands.load(memory_order_seq_cst) != 0)
    return false;
  for (std::uint32_t i = 0; i < nprocs(); ++i) {
    if (!p_at(i)->rq.empty()) return false;
  }
  return true;
}

#if defined(WEFT_TSAN)
constexpr std::uint32_t sanitizer_threads = 1;  // TSan has one of its own
#else
constexpr std::uint32_t sanitizer_threads = 0;
#endif

[[noreturn]] void report() noexcept {
  begin_fatal();
  printer(2) << "fatal error: "
             << (goroutine_count() == 0 ? "no goroutines (main called runtime.Goexit) - deadlock!\n"
                                        : "all goroutines are asleep - deadlock!\n");
  end_fatal(true);
}

}  // namespace

void check_dead() noexcept {
  if (sched.forked || sched.embedded.load(memory_order_relaxed)) return;
  std::uint32_t threads = 0, known = 0;
  for (bool counted = false; !counted;) {
    sched.lock.lock();
    const bool first_look = quiet();
    const std::uint32_t moves = thread_moves();
    const std::uint32_t rests = sched.rests, started = started_threads();
    const std::uint64_t blocked = blocked_threads.load(memory_order_seq_cst);
    sched.lock.unlock();
    if (!first_look) return;

    known = started + 1 + static_cast<std::uint32_t>(blocked) + sanitizer_threads;  // 1: m0
    const int saved = errno;
    threads = count_threads(known);
    errno = saved;
    chaos::point("dead.counted");

    // Who has been idle in between takes a look of its own. A thread of ours that began or ended
    // takes none: so we look again. Nor does a plain thread that was woken and ends: it is as good
    // as somebody else's.
    sched.lock.lock();
    const bool same = quiet() && sched.rests == rests;
    counted = thread_moves() == moves;
    if (blocked_threads.load(memory_order_seq_cst) != blocked) known = 0;
    sched.lock.unlock();
    if (!same || threads == 0) return;
  }
  if (threads == known) report();
  // Somebody else is there, who may end one day: from now on it is sysmon that looks.
  if (!sched.suspect.exchange(true, memory_order_relaxed)) wake_sysmon();
}

void look_if_idle() noexcept {
  if (sched.active.load(memory_order_relaxed) && !sched.suspect.load(memory_order_relaxed) &&
      sched.idle.load().idle_ps == nprocs())
    check_dead();
}

void end_errand() noexcept {
  errands.fetch_sub(1, memory_order_seq_cst);
  look_if_idle();
}

bool knows_all_threads(std::uint32_t callers) noexcept {
  const int saved = errno;
  const std::uint32_t started = started_threads();
  const auto still = static_cast<std::uint32_t>(threads_still.load(memory_order_seq_cst));
  const std::uint32_t known = started + 1 + still + callers + sanitizer_threads;  // 1: m0
  const std::uint32_t threads = count_threads(known);
  errno = saved;
  return threads == known;
}

// Not inline: the address of errno, which futex_wait uses, must not be kept in a caller that may
// switch before it comes here.
bool thread_note::sleep_until(std::int64_t deadline) noexcept {
  __builtin_unwind_init();
  const standing_still here;
  if (deadline >= 0) return note_.sleep_until(deadline);
  std::uint32_t none = 0;
  // Relaxed: blocked_threads is one word, and who counts is settled by this exchange and the
  // waker's.
  if (counted_.compare_exchange_strong(none, 1, memory_order_relaxed)) {
    blocked_threads.fetch_add(change + 1, memory_order_seq_cst);
    look_if_idle();
  }
  note_.sleep();
  return true;
}

}  // namespace weft::rt
