// SPDX-License-Identifier: Apache-2.0
// Where work comes from when a P has none at hand, and how an M gives up without missing any.
//
// find_work is an ordered list of named sources: the world (stop it if asked), fairness (the global
// queue, each 61st round), local, global, the poller without blocking, steal. If all are dry the M
// gives its P up, takes a second look, and sleeps: in the poller if descriptors are waited for and
// nobody sits there (worker.cc), else on its note.
//
// The second look is the other half of the wake protocol (core/idle.h). A spinner that gives up
// first changes the idle word (P idle, one spinner less), then a full barrier, then looks at every
// queue. A waker enqueues, full barrier, reads the idle word. So one of them sees the other (store
// buffering, forbidden by the two barriers).
//
// How long to spin: waking a thread costs the waker 1–2 µs of system call and the sleeper 3–5 µs,
// so a spinner stays a while after its four passes, looking rarely enough not to take the victims'
// cache lines from them. It does not stay when there are more Ps than CPUs: there it would take the
// CPU from those with work.
//
// Rejected: staying longer if it was woken at once each time it went to sleep, and in vain (two
// goroutines that pass values to and fro on another P call for help all the time and need none). It
// gains nothing there, and where several share a channel it keeps two cores at its lock.
//
// Runs on g0 only. No allocation.
#include "base/chaos.h"
#include "core/steal_order.h"
#include "os/clock.h"
#include "sched/netpoll.h"
#include "sched/sched.h"
#include "sched/timers.h"
#include "sched/tracing.h"

namespace weft::rt {

steal_order steal_ways;  // rebuilt by resize()

namespace {

constexpr std::int64_t spin_ns = 50'000;
constexpr int looks_apart = 24;  // pauses between two looks of a spinner, about 0.6 µs
constexpr std::int64_t runnext_wait_ns = 3'000;
constexpr std::uint32_t runnext_look = 12;  // each so many looks
constexpr std::uint32_t poll_look = 16;     // a system call: about every 10 µs

void count_slice(P* p) noexcept {
  p->schedtick.store(p->schedtick.load(memory_order_relaxed) + 1, memory_order_relaxed);
}

// The slice is over, or a stop of the world has come and gone: runnext loses its privilege. So it
// does when the P goes to one that waits in place, who has a slice of its own: two that pass values
// to and fro would come back to it each time, and those in the ring would wait for ever.
void end_privilege(P* p) noexcept {
  if (G* g = p->owner().take_next()) put_local(p, g);
}

void end_of_slice(P* p) noexcept {
  // seq_cst, then `stopping` is read: partner of set_preempt_all, which writes them in the other
  // order.
  const std::uint32_t why = p->preempt.exchange(0, memory_order_seq_cst);
  if (why == preempt_leave_m0) return;  // main has parked there: nobody's slice is over
  if (why == preempt_for_global) p->until_global = 1;
  end_privilege(p);
}

// Our own due timers; what they make ready lands in our ring.
void due_timers(P* p) noexcept {
  if (p->timers.earliest.load(memory_order_relaxed) != never) run_timers(p, nanotime());
}

G* from_local(P* p) noexcept {
  auto own = p->owner();
  if (G* g = own.take_next()) return g;
  G* g = own.take();
  if (g != nullptr) count_slice(p);
  return g;
}

// For a spinner: its own timers come due while it looks elsewhere.
G* from_timers(P* p) noexcept {
  due_timers(p);
  return from_local(p);
}

G* from_global(P* p) noexcept {
  if (sched.runq.size_hint() == 0) return nullptr;
  refill_from_global(p);
  return from_local(p);
}

// Whom the kernel has something for. Also while an M sits in the poller: its thread takes longer to
// wake than this call takes.
G* from_poller(P* p) noexcept { return poll_if_any() != 0 ? from_local(p) : nullptr; }

// Before our P goes to somebody who will only compute: no timer of anybody's is overdue.
G* from_late_timers(P* p) noexcept {
  if (sched.kept.size_hint() == 0) return nullptr;
  const std::int64_t now = nanotime();
  if (earliest_timer() > now) return nullptr;
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    if (P* other = p_at(i)) run_timers(other, now);
  }
  return from_local(p);
}

// Our P to the one that has waited longest in place for one. True: m has none now.
bool from_kept(M* m) noexcept {
  if (sched.kept.size_hint() == 0) return false;
  sched.lock.lock();
  M* other = sched.stopping.load(memory_order_relaxed) ? nullptr : sched.kept.pop_front();
  sched.lock.unlock();
  if (other == nullptr) return false;
  chaos::point("find.kept");
  end_privilege(m->p);
  if (m->spinning.exchange(false, memory_order_relaxed)) {
    sched.idle.stop_spinning();
    wake();  // as in stop_spinning
  }
  // Who was runnext was nowhere to be seen for a moment, and will not be run from here.
  if (!m->p->rq.empty()) fence_and_wake();
  // It will not come here of its own accord: whoever has to wake for a timer is sysmon. Seq_cst:
  // with nap, which says that it naps and then looks at the timers.
  if (sched.sysmon_naps.load(memory_order_seq_cst) &&
      earliest_timer() < sched.sysmon_until.load(memory_order_relaxed))
    wake_sysmon();
  give_p(other, release_p(m));
  return true;
}

// Each 61st round those of the global queue and those that wait in place have the first turn, in
// turns; but nobody in place who has waited for less than a slice, which is what it will cost the
// others.
bool is_turn_of_kept(P* p) noexcept {
  if (p->kept_first) {  // promised by yield
    p->kept_first = false;
    return true;
  }
  if (p->until_global > 1 || sched.kept.size_hint() == 0) return false;
  sched.lock.lock();
  const M* first = sched.kept.front();
  const std::int64_t since = first != nullptr ? first->kept_since : never;
  sched.lock.unlock();
  if (since > nanotime() - sched.quantum_ns.load(memory_order_relaxed)) return false;
  p->kept_turn = !p->kept_turn || sched.runq.size_hint() == 0;
  if (p->kept_turn) p->until_global = 61;
  return p->kept_turn;
}

G* fairness(P* p) noexcept {
  if (p->until_global > 1) {
    --p->until_global;
    return nullptr;
  }
  p->until_global = 61;
  if (sched.runq.size_hint() == 0) return nullptr;
  G* g = nullptr;
  sched.lock.lock();
  sched.runq.pop(&g, 1);
  sched.lock.unlock();
  if (g != nullptr) count_slice(p);
  return g;
}

// Takes a running P's runnext only if it is still there after a while: its owner is most likely
// about to run it, and taking it away would only bounce the two between cores.
G* steal_runnext(P* victim) noexcept {
  G* g = victim->thief().peek_next();
  if (g == nullptr) return nullptr;
  if (victim->status.load(memory_order_relaxed) == p_status::running &&
      !chaos::flip("force.runnext")) {
    const std::int64_t until = nanotime() + runnext_wait_ns;
    do {
      for (int i = 0; i < 8; ++i) cpu_relax();
      if (victim->thief().peek_next() != g) return nullptr;
    } while (nanotime() < until);
  }
  return victim->thief().take_next(g) ? g : nullptr;
}

// keeps R3: thieves take at the head, half of the ring.
G* steal_from(P* p, P* victim, bool runnext_too) noexcept {
  const std::uint32_t n = victim->thief().grab_into(p->rq);
  if (n == 0) {
    if (!runnext_too) return nullptr;
    G* g = steal_runnext(victim);
    if (g == nullptr) return nullptr;
    bump(p->count.steals);
    trace_event(trace_kind::steal, victim->id, 1);
    return g;
  }
  chaos::point("runq.grabbed");
  G* g = p->owner().publish_stolen(n);
  bump(p->count.steals);
  trace_event(trace_kind::steal, victim->id, n);
  return g;
}

// One pass over all Ps. In the last one runnext may be taken.
G* steal_pass(M* m, P* p, bool last) noexcept {
  for (auto w = steal_ways.start(static_cast<std::uint32_t>(m->rng.next())); !w.done(); w.next()) {
    if (sched.stopping.load(memory_order_relaxed)) return nullptr;
    if (w.position() == p->id) continue;
    P* victim = p_at(w.position());
    // Timers stay behind on a P that went idle, so those are asked too.
    if (last && victim->timers.earliest.load(memory_order_relaxed) != never &&
        run_timers(victim, nanotime())) {
      if (G* g = from_local(p)) return g;
    }
    if (is_idle(w.position())) continue;
    if (G* g = steal_from(p, victim, last)) return g;
  }
  return nullptr;
}

// The chaos build's: from others, though there may be work at hand. Between the victim's ring and
// ours nobody sees what is stolen, and the last spinner may give up just then. A thief is a spinner
// as a rule, and looks again when it stops to be one (stop_spinning); who is none does it here.
G* forced_steal(M* m, P* p) noexcept {
  if (!chaos::flip("force.steal") || p->owner().room() <= runq::capacity / 2) return nullptr;
  G* g = steal_pass(m, p, true);
  if (g != nullptr && !m->spinning.load(memory_order_relaxed)) fence_and_wake();
  return g;
}

bool work_in_sight(P* p, bool runnext_too) noexcept {
  if (work_queued()) return true;
  if (earliest_timer() <= nanotime()) return true;
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    if (i == p->id || is_idle(i)) continue;
    const runq& q = p_at(i)->rq;
    if (runnext_too ? !q.empty() : !q.ring_empty()) return true;
  }
  return false;
}

G* steal(M* m, P* p) noexcept {
  std::int64_t until = 0;
  for (;;) {
    for (int pass = 0; pass < 4; ++pass) {
      if (G* g = steal_pass(m, p, pass == 3)) return g;
    }
    if (G* g = from_timers(p)) return g;
    if (G* g = from_global(p)) return g;
    if (sched.kept.size_hint() != 0) return nullptr;
    if (nprocs() > sched.ncpu.load(memory_order_relaxed)) return nullptr;
    if (G* g = from_poller(p)) return g;
    // Stay and look now and then.
    const std::int64_t now = nanotime();
    if (until == 0) until = now + spin_ns;
    std::uint32_t look = 0;
    do {
      if (nanotime() >= until || sched.stopping.load(memory_order_relaxed)) return nullptr;
      for (int i = 0; i < looks_apart; ++i) cpu_relax();
      if (look % poll_look == poll_look - 1) {
        if (G* g = from_poller(p)) return g;
      }
      // runnext is only taken after 3 µs, so looking at it more often would be for nothing.
    } while (!work_in_sight(p, ++look % runnext_look == 0));
  }
}

// A spinner found work. keeps the rule 'the last spinner that finds work wakes the next': what made
// it find something may have been more than one thing.
void stop_spinning(M* m) noexcept {
  m->spinning.store(false, memory_order_relaxed);
  chaos::point("spin.stop");
  sched.idle.stop_spinning();
  wake();
}

// Its run is over and its P nobody's. The next run counts on a spinner as long as it is counted.
[[noreturn]] void leave_for_ever(M* m) noexcept {
  if (m->spinning.load(memory_order_relaxed)) stop_spinning(m);
  sleep_for_good();
}

// After having given up P and spin count.
bool second_look() noexcept {
  // StoreLoad between the change of the idle word and the looks; partner: the waker's barrier
  // (sched.h, wake).
  fence(memory_order_seq_cst);
  chaos::point("idle.second_look");
  if (sched.runq.size() != 0 || sched.kept.size() != 0) return true;
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    P* p = p_at(i);
    if (p != nullptr && !p->rq.empty()) return true;
  }
  return false;
}

// True: the M has its P still (or again) and looks on. False: it has none.
bool give_up(M* m) noexcept {
  P* p = m->p;
  flush_free(p);
  sched.lock.lock();
  // An orphan must not end up on the next run's list of idle Ps (abandon, under this lock).
  if (sched.stopping.load(memory_order_relaxed) || work_queued() ||
      p->orphan.load(memory_order_relaxed)) {
    sched.lock.unlock();
    return true;
  }
  const bool spun = m->spinning.load(memory_order_relaxed);
  if (!sched.idle.give_up_p(spun)) {  // somebody has left a note for us
    m->spinning.store(true, memory_order_relaxed);
    sched.lock.unlock();
    return true;
  }
  m->spinning.store(false, memory_order_relaxed);
  release_p(m);
  put_idle_p(p);
  sched.lock.unlock();
  chaos::point("idle.gave_up");
  if (!spun || !second_look()) return false;
  chaos::point("idle.note");
  // There is work after all. With a P: look on as a spinner. Without one all Ps are busy; leave a
  // note for the next M that wants to give its P up.
  sched.lock.lock();
  P* again = sched.stopping.load(memory_order_relaxed) ? nullptr : take_idle_p();
  if (again != nullptr) {
    sched.idle.take_p(true);
  } else {
    sched.idle.leave_note();
  }
  sched.lock.unlock();
  if (again == nullptr) return false;
  m->spinning.store(true, memory_order_relaxed);
  acquire_p(m, again);
  return true;
}

}  // namespace

G* find_work(M* m) noexcept {
  for (;;) {
    P* p = m->p;
    if (p->orphan.load(memory_order_acquire)) [[unlikely]]  // with abandon
      leave_for_ever(m);
    if (p->preempt.load(memory_order_relaxed) != 0) end_of_slice(p);
    if (sched.stopping.load(memory_order_seq_cst)) {
      stop_p(m);
      continue;
    }
    due_timers(p);
    if (is_turn_of_kept(p) && from_kept(m)) return nullptr;
    G* g = forced_steal(m, p);
    if (g == nullptr) g = fairness(p);
    if (g == nullptr) g = from_local(p);
    if (g == nullptr) g = from_global(p);
    if (g == nullptr) g = from_late_timers(p);
    if (g == nullptr && from_kept(m)) return nullptr;
    if (g == nullptr) g = from_poller(p);
    if (g == nullptr) {
      bool spin = m->spinning.load(memory_order_relaxed);
      if (!spin && sched.idle.try_start_spinning(nprocs())) {
        m->spinning.store(true, memory_order_relaxed);
        chaos::point("spin.start");
        spin = true;
      }
      trace_begin(m, m_doing::spinning);
      if (spin) g = steal(m, p);
      trace_end(m);
    }
    if (g != nullptr) {
      if (m->spinning.load(memory_order_relaxed)) stop_spinning(m);
      return g;
    }
    if (!give_up(m)) return nullptr;
  }
}

}  // namespace weft::rt
