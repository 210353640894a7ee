// SPDX-License-Identifier: Apache-2.0
// The monitor: a thread of its own, without a P, that sees to it that nobody is forgotten.
//
// Each round it looks at every P:
//   - in an announced system call for more than one round: takes it, if somebody wants to run, and
//     after 10 ms anyway (syscall.cc);
//   - computing beyond its slice, or past the deadline of a timer: sets its preempt flag, which
//   calls
//     that may park honour; if that has not helped within `patience` and somebody is waiting for a
//     P, sends the signal (preempt.cc);
//   - asleep in the kernel without having told us, while somebody waits: takes it (detach.cc). A
//     thread sleeps if its CPU clock stands still over two samples and the kernel says so. The
//     first sample comes after 50 µs, the next ones at growing intervals: a long computation costs
//     nothing.
// Once threads are being stopped it keeps some idle Ms in reserve, and if the thread-maker does not
// get on, lets those that are stopped have short turns: one of them may hold the lock it waits for.
// At the limit of threads, where those who compute cannot be stopped for others, it ends the
// program (watch_fuse).
// It also polls if nobody has for too long (netpoll.h), follows the CPU limit once a second, gives
// back stack pages that deep calls have touched, and lets threads go that have been idle for a
// minute.
//
// It sleeps 20 µs between rounds while calls come and go, doubling after 50 rounds without one, or
// after the first that sees no P in a call and none that stands still while somebody waits; 10 ms
// at most (0.5 ms while somebody waits for a P), but never past the moment at which a P is due for
// something: the end of its slice or of our patience, its next sample. So a computation with
// others waiting behind it costs a dozen rounds a slice, each of which is some 20 µs of CPU on a
// virtual machine. After a long round it rests for longer (rest_after). It sleeps for good while
// every P is idle or the world is stopped: an idle program uses no CPU. take_idle_p and start_ps
// wake it, and wake_slow from a long nap.
//
// Runs on its own thread's stack; takes the scheduler lock; never allocates.
#include <cerrno>
#include <cstring>
#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/chaos.h"
#include "base/print.h"
#include "os/thread.h"
#include "sched/netpoll.h"
#include "sched/procs.h"
#include "sched/sched.h"
#include "sched/timers.h"
#include "sched/tracing.h"

namespace weft::rt {
namespace {

constexpr std::int64_t microsecond = 1'000, millisecond = 1'000'000, second = 1'000'000'000;
constexpr std::int64_t min_sleep = 20 * microsecond, max_sleep = 10 * millisecond;
constexpr std::int64_t max_sleep_waited = millisecond / 2, long_nap = 200 * microsecond;
constexpr int rounds_until_slower = 50;
constexpr std::int64_t patience = millisecond;            // from the flag to the signal
constexpr std::int64_t timer_patience = millisecond / 4;  // the same for a timer that is due
constexpr std::int64_t first_sample = 50 * microsecond, sample_apart = 30 * microsecond;
constexpr std::int64_t longest_call = 10 * millisecond;
constexpr std::uint32_t reserve = 3;  // idle Ms, once threads are being stopped

struct watched {
  std::uint32_t tick = 0;
  std::uint64_t calls = 0;
  std::int64_t since = 0;    // tick and calls are as they were then
  std::int64_t flagged = 0;  // preempt was set
  std::uint64_t steps = 0;   // goroutines that came and went on it
  std::int64_t next_sample = 0, interval = 0;
  std::int64_t cpu = -1;  // at the last sample
  bool late = false;      // a descriptor was ready and nobody looked
};
constinit watched seen[max_procs];
constinit std::int64_t due = 0;  // when a P wants the next look; of this round

// -- who waits

bool timer_is_due(std::int64_t now) noexcept { return earliest_timer() <= now; }

// Somebody wants an M that is free, and not only a P.
bool queues_wait(std::int64_t now) noexcept {
  if (sched.runq.size_hint() != 0 || timer_is_due(now)) return true;
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    const P* p = p_at(i);
    if (p != nullptr && !p->rq.empty()) return true;
  }
  return false;
}

// Somebody could run if there were a P.
bool work_waits(std::int64_t now) noexcept {
  if (sched.idle.load().idle_ps != 0) return false;  // whoever has one is looking, or being woken
  return work_queued() || queues_wait(now);
}

std::uint64_t steps_of(const P* p) noexcept {
  return p->count.created.load(memory_order_relaxed) + p->count.exited.load(memory_order_relaxed) +
         p->count.parks.load(memory_order_relaxed);
}

// -- asleep?

// The number of the system call that the thread sleeps in, or that it runs, or that nobody can
// tell.
long sleeps_in(const M* m) noexcept { return where_asleep(m->tid.load(memory_order_relaxed)).call; }

// The next look decides whether it sleeps. Not put off by a second call before that look.
void watch_closely(const M* m, watched& w, std::int64_t now) noexcept {
  if (w.cpu >= 0 && w.next_sample <= now + sample_apart) return;
  w.cpu = thread_cpu_ns(m->tid.load(memory_order_relaxed));
  w.interval = sample_apart;
  w.next_sample = now + sample_apart;
}

// Its P to others, if it is asleep. After a futex wait first to the one that was stopped last: it
// may be the one who holds the lock (DESIGN 4.2). Every second time at most: with enough hogs at
// one lock there is always one that was stopped last, and the queues must have their turn.
constinit bool holder_was_last = false;
bool sample(M* m, watched& w, std::int64_t now) noexcept {
  if (w.next_sample == 0) w.next_sample = w.since + first_sample;
  if (now < w.next_sample) return false;
  const std::int64_t cpu = thread_cpu_ns(m->tid.load(memory_order_relaxed));
  const auto later = [&w, now](std::int64_t interval) noexcept {
    w.interval = interval < longest_call ? interval : longest_call;
    w.next_sample = now + w.interval;
  };
  if (w.cpu < 0 || cpu - w.cpu > microsecond) {
    later(w.cpu < 0 ? sample_apart : w.interval * 2);
    w.cpu = cpu;
    return false;
  }
  const long nr = sleeps_in(m);
  if (nr == -1) {  // it waits for a CPU, and would wait longer if we asked at every turn
    later(w.interval * 2);
    return false;
  }
  w.next_sample = now + w.interval;
  // Where nobody can tell, a thread that waits for a CPU looks asleep too: only long sleep counts.
  if (nr == asleep_in::unknown && now - w.since < 2 * millisecond) return false;
  P* taken = take_from_sleeper(m);
  if (taken == nullptr) return false;
  if (sched.preempt.load(memory_order_relaxed)) arm_cpu_timer(m, 2 * millisecond);
  M* holder = nullptr;
  if (nr == SYS_futex && !holder_was_last && sched.kept.size_hint() != 0) {
    sched.lock.lock();
    if (!sched.stopping.load(memory_order_relaxed)) holder = sched.kept.pop_back();
    sched.lock.unlock();
  }
  holder_was_last = holder != nullptr;
  if (holder != nullptr) {
    bump(taken->count.handoffs);
    give_p(holder, taken);
  } else {
    hand_off(taken);
  }
  return true;
}

constinit std::int64_t promised_since = 0;

// -- one P

// True: there was something to do.
bool look_at_call(P* p, M* m, watched& w, std::int64_t now, bool waited) noexcept {
  const std::uint64_t calls = m->syscalls.load(memory_order_relaxed);
  if (w.calls != calls && !chaos::flip("force.retake")) {
    w.calls = calls;
    w.since = now;
    return true;
  }
  if (!waited && p->rq.empty() && now - w.since < longest_call && !chaos::flip("force.retake"))
    return false;
  if (P* taken = take_from_syscall(m)) hand_off(taken);
  return true;
}

std::uint32_t idle_ms() noexcept {
  sched.lock.lock();
  const std::uint32_t n = sched.nmidle;
  sched.lock.unlock();
  return n;
}

std::uint32_t in_queues() noexcept {
  std::uint32_t sum = sched.runq.size_hint();
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    if (const P* p = p_at(i)) sum += p->rq.size();
  }
  return sum;
}

// Rule 2 of preempt.cc. Kept threads alone could take turns for ever and leave the queues to
// nobody: so one that is free is made in any case; and some in reserve, because a stopped thread
// may hold the lock that making one needs. The more are stopped and the more wait for a first turn,
// who may have to be stopped too, the more in reserve: with a hundred stopped in malloc the maker
// has its lock for a moment every other second, and must make the most of it.
bool somebody_can_take() noexcept {
  const std::uint32_t idle = idle_ms(), kept = sched.kept.size_hint();
  std::uint32_t more = kept / 2;
  if (more != 0) {
    const std::uint32_t queued = in_queues();
    if (queued < more) more = queued;
  }
  if (idle < reserve + more) request_spares(reserve + more - idle);
  return idle != 0 || kept != 0;
}

// Somebody waits and no M is free: those who compute have every P, or take turns in place, and a
// thread more, to stop them for good, there may not be. That is past the fuse, unless somebody gets
// through the queues all the same: whoever computes may come to an end.
constexpr std::int64_t fuse_patience = 5 * second;
struct fuse {
  std::int64_t since = 0;
  std::int64_t last = 0;     // look; the time in which we were stopped (SIGSTOP) does not count
  std::uint64_t steps = 0;   // goroutines that came and went
  std::uint64_t slices = 0;  // and those that yielded; by one a P too many while a P changes hands
};
constinit fuse seen_out;

void watch_fuse(std::int64_t now) noexcept {
  sched.lock.lock();
  const bool out = sched.nmidle == 0 && threads_are_out() && queues_wait(now);
  sched.lock.unlock();
  fuse f{now, now, 0, 0};
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; out && i < n; ++i) {
    const P* p = p_at(i);
    if (p == nullptr) continue;
    f.steps += steps_of(p);
    f.slices += p->schedtick.load(memory_order_relaxed);
  }
  f.slices -= sched.kept_turns.load(memory_order_relaxed);
  // Unsigned: both bounds in one.
  if (!out || seen_out.since == 0 || f.steps != seen_out.steps ||
      f.slices - seen_out.slices + n > 2 * n) {
    if (!out) f.since = 0;
    seen_out = f;
    return;
  }
  if (now - seen_out.last > 100 * millisecond) seen_out.since += now - seen_out.last;
  seen_out.last = now;
  if (now - seen_out.since >= fuse_patience) thread_exhaustion();
}

// A P waits for a thread that is being made, and the maker perhaps for a lock of one that is
// stopped: that one goes first.
void relieve_maker(std::int64_t now) noexcept {
  if (!p_is_promised() || sched.kept.size_hint() == 0) {
    promised_since = 0;
  } else if (promised_since == 0) {
    promised_since = now;
  } else if (now - promised_since >= millisecond) {
    promised_since = 0;
    sched.lock.lock();
    M* m = sched.stopping.load(memory_order_relaxed) ? nullptr : sched.kept.pop_front();
    P* p = m != nullptr ? take_promised_p() : nullptr;
    if (m != nullptr && p == nullptr) sched.kept.push_front(m);
    sched.lock.unlock();
    if (p != nullptr) give_p(m, p);
  }
}

// Somebody came or went since the last look: no call has lasted that long.
bool moves(const P* p, watched& w, std::int64_t now) noexcept {
  const std::uint64_t steps = steps_of(p);
  if (w.steps == steps) return false;
  w.steps = steps;
  w.cpu = -1;
  w.next_sample = now + first_sample;
  return true;
}

// True: its thread slept.
bool look_at_runner(P* p, M* m, watched& w, std::int64_t now, bool waited) noexcept {
  const bool late = waited && (w.late || p->timers.earliest.load(memory_order_relaxed) <= now);
  // Short slices if the maker cannot get on: it waits for what a thread that is stopped will give
  // back as soon as it has its turn.
  const std::int64_t slice =
      spare_is_stuck() ? patience : sched.quantum_ns.load(memory_order_relaxed);
  if (sched.preempt.load(memory_order_relaxed)) {
    std::int64_t next = w.since + slice;
    if (now >= next || late) {
      const std::int64_t wait = m->evaded.load(memory_order_relaxed) != 0 ? 0
                                : late                                    ? timer_patience
                                                                          : patience;
      const bool deaf = w.flagged != 0 && waited && now - w.flagged >= wait;
      if (w.flagged == 0 || deaf) {
        w.flagged = now;
        p->preempt.store(1, memory_order_relaxed);
      } else if (waited && idle_ms() == 0) {
        request_spares(1);  // it will have to be stopped: who takes its P should be there by then
      }
      // One that sleeps in the kernel is left alone (DESIGN 5: its call would come back short); the
      // next samples take its P.
      if (deaf && asleep_in_kernel(m)) {
        watch_closely(m, w, now);
      } else if (deaf) {
        watch_fuse(now);
        if (somebody_can_take() && ask_to_stop(m)) trace_event(trace_kind::preempt, p->id);
      }
      next = w.flagged + (wait != 0 ? wait : min_sleep);
    }
    if (waited && next < due) due = next;
  }
  if (!waited || !can_detach() || moves(p, w, now)) return false;
  if (sample(m, w, now)) return true;
  if (w.next_sample < due) due = w.next_sample;
  return false;
}

// The chaos build's: somebody is stopped though nobody waits. Not one that sleeps in the kernel:
// that holds for signals for whatever reason.
void force_stop(P* p, M* m) noexcept {
  if (!chaos::flip("force.signal") || !sched.preempt.load(memory_order_relaxed) ||
      m->hold.load(memory_order_relaxed) == hold_state::syscall || asleep_in_kernel(m) ||
      !somebody_can_take())
    return;
  p->preempt.store(1, memory_order_relaxed);
  ask_to_stop(m);
}

// What a round has seen: nothing that could want us soon; a P in a call, or that stands still while
// somebody waits; calls that come and go.
enum class sight : std::uint8_t { nothing, a_call, changes };

sight look_at_all(std::int64_t now, bool waited) noexcept {
  sight all = sight::nothing;
  due = never;
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    P* p = p_at(i);
    if (p == nullptr || p->status.load(memory_order_relaxed) != p_status::running) continue;
    M* m = p->m.load(memory_order_acquire);  // with acquire_p
    if (m == nullptr) continue;
    force_stop(p, m);
    watched& w = seen[i];
    const std::uint32_t tick = p->schedtick.load(memory_order_relaxed);
    if (w.tick != tick) {
      w = {};
      w.tick = tick;
      w.calls = m->syscalls.load(memory_order_relaxed);
      w.since = now;
      continue;
    }
    const bool in_call = m->hold.load(memory_order_relaxed) == hold_state::syscall;
    const bool changed =
        in_call ? look_at_call(p, m, w, now, waited) : look_at_runner(p, m, w, now, waited);
    const sight here = changed                 ? sight::changes
                       : in_call || w.cpu >= 0 ? sight::a_call
                                               : sight::nothing;
    if (here > all) all = here;
  }
  return all;
}

// A timer is overdue though Ps run: send one through find_work. (While all are idle, the watcher
// sees to it; one who computes and does not hear is look_at_runner's.)
void kick_for_timers(std::int64_t now) noexcept {
  if (!timer_is_due(now)) return;
  if (sched.idle.load().idle_ps != 0) wake();
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    P* p = p_at(i);
    if (p == nullptr || p->timers.earliest.load(memory_order_relaxed) > now) continue;
    if (p->status.load(memory_order_relaxed) == p_status::running)
      p->preempt.store(1, memory_order_relaxed);
  }
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
  if (oldest == nullptr) return;
  oldest->preempt.store(preempt_for_global, memory_order_relaxed);
  watched& w = seen[oldest->id];
  w.late = true;  // if it does not hear: look_at_runner
}

// The least we sleep after a round that took so long. The kernel lets a thread that wakes have the
// CPU at once only if it has not had more than its share of late; one that has waits for the next
// tick, 4 ms at 250 Hz. (A round with a signal takes 50 µs; woken 20 µs later, beside a loop,
// sysmon was held up in one of ten.) No longer than that if it was the round that was held up.
std::int64_t rest_after(std::int64_t round) noexcept {
  return 2 * round < min_sleep ? min_sleep : 2 * round < long_nap ? 2 * round : long_nap;
}

// Not past the next deadline. Woken early when somebody waits for a P and we are in for a long nap.
void nap(std::int64_t wish, std::int64_t rest, std::int64_t now) noexcept {
  if (const std::int64_t most = poll_patience(); most < wish) wish = most;
  const std::int64_t t = earliest_timer();
  if (const std::int64_t left = t - now; t != never && left < wish) {
    const std::int64_t least = left > 0 ? min_sleep : timer_patience;  // who is late has been told
    wish = left > least ? left : wish < least ? wish : least;
  }
  if (wish < rest) wish = rest;
  if (wish <= long_nap) {
    const timespec ts{0, wish};
    ::clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, nullptr);
    return;
  }
  sched.sysmon_note.clear();
  sched.sysmon_until.store(now + wish, memory_order_relaxed);
  sched.sysmon_naps.store(true, memory_order_seq_cst);
  // A timer armed meanwhile: either we see it here, or who arms it sees us nap (from_kept).
  if (const std::int64_t t2 = earliest_timer(); t2 >= now + wish)
    sched.sysmon_note.sleep_until(now + wish);
  sched.sysmon_naps.store(false, memory_order_seq_cst);
}

bool all_idle() noexcept {
  if (sched.trace_ns.load(memory_order_relaxed) != 0 && sched.active.load(memory_order_relaxed))
    return false;  // whoever wants a line a second wants it of an idle program too
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
  if (!idle) return;
  // Threads that are not ours may still wake somebody; or end, of which nobody tells us.
  std::int64_t wait = second / 5;
  while (sched.suspect.load(memory_order_relaxed)) {
    if (sched.sysmon_note.sleep_until(nanotime() + wait)) return;
    if (wait < 60 * second) wait *= 2;
    check_dead();
  }
  sched.sysmon_note.sleep();
}

void keep_clock(std::int64_t now) noexcept {
  const auto s = static_cast<std::uint32_t>(now / second);
  if (sched.seconds.load(memory_order_relaxed) != s) sched.seconds.store(s, memory_order_relaxed);
}

}  // namespace

bool asleep_in_kernel(const M* m) noexcept { return sleeps_in(m) >= 0; }

void wake_sysmon() noexcept {
  const bool naps = sched.sysmon_naps.exchange(false, memory_order_seq_cst);
  const bool slept = sched.sysmon_waits.exchange(false, memory_order_seq_cst);
  if (slept) keep_clock(nanotime());  // it stood still meanwhile
  if (slept || naps) sched.sysmon_note.wake();
}

void sysmon_main() noexcept {
  prefer_short_slices();
  std::int64_t sleep = min_sleep, last_limit = 0, last_trace = 0;
  int quiet = 0;
  due = never;
  std::int64_t now = nanotime();
  for (;;) {
    const std::int64_t then = nanotime(), left = due - then;
    nap(left < sleep ? left : sleep, rest_after(then - now), then);
    if (all_idle()) {
      deep_sleep();
      sleep = min_sleep;
      quiet = 0;
    }
    now = nanotime();
    keep_clock(now);
    if (now - last_limit >= second) {
      last_limit = now;
      follow_cpu_limit();
      trim_free_stacks();
      let_idle_go(now);
    }
    const std::int64_t every = sched.trace_ns.load(memory_order_relaxed);
    if (every != 0 && now - last_trace >= every && sched.active.load(memory_order_acquire)) {
      last_trace = now;
      print_sched(now, sched.trace_detail.load(memory_order_relaxed));
    }
    kick_for_timers(now);
    // No reason to come more often: under load it finds something each time.
    if (poll_overdue(now) != 0) make_way();
    const bool waited = work_waits(now);
    if (waited) relieve_maker(now);
    const sight s = look_at_all(now, waited);
    quiet = s == sight::changes ? 0 : s == sight::a_call ? quiet + 1 : rounds_until_slower + 1;
    if (quiet == 0) {
      sleep = min_sleep;
    } else if (quiet > rounds_until_slower && sleep < max_sleep) {
      sleep = sleep * 2 < max_sleep ? sleep * 2 : max_sleep;
    }
    if (waited && sleep > max_sleep_waited) sleep = max_sleep_waited;
  }
}

}  // namespace weft::rt
