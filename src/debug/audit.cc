// SPDX-License-Identifier: Apache-2.0
// audit(): checks the numbered invariants of the scheduler against its real state and names each
// that is broken.
//
// Two phases. First, with the world running, under the scheduler lock: the idle lists, which a
// stopped world does not have (P2, P4, P6, M1). Then, with the world stopped and the scheduler lock
// held (plain threads may still enqueue): every G, M and P and every queue.
//
// G1, G3: each goroutine is counted in all queues (audit_mark); runnable ones must be there once,
// others never. R2 to R4 are rules of behaviour; what audit sees of them is their traces: an entry
// at the tail that nobody put (R2), one at the head that was taken before (R3), a slot that was
// published empty (R4).
//
// Runs on the caller's stack. No allocation; prints by write(2).
#include "debug/audit.h"

#include "base/print.h"
#include "sched/bubble.h"
#include "sched/procs.h"
#include "sched/sched.h"
#include "weft/debug.hpp"

namespace weft::rt {
namespace {

class auditor {
 public:
  int broken() const noexcept { return broken_; }

  void idle_lists() noexcept;  // under the scheduler lock
  void stopped() noexcept;     // and with the world stopped
  void let_go() noexcept;      // world stopped, lock not held
  void locks() noexcept;       // the same

 private:
  template <class... T>
  void check(bool ok, const char* rule, T... text) noexcept {
    if (ok) return;
    ++broken_;
    printer out(2);
    out << "audit: " << rule << " broken: ";
    (out << ... << text);
    out << '\n';
  }
  void mark_queues() noexcept;
  void ring(P* p) noexcept;
  void one_g(G& g) noexcept;
  void one_m(M* m) noexcept;
  void one_p(P* p) noexcept;
  void lock_is_free(mutex& m, const char* name) noexcept;

  int broken_ = 0;
  static constexpr std::uint32_t most_let_go = 64;
  const G* let_go_[most_let_go] = {};
  std::uint32_t nlet_go_ = 0;
};

bool valid(std::uint32_t raw) noexcept {
  return to_string(static_cast<g_status>(raw & ~std::uint32_t{scan_bit})) != "???";
}

bool forgotten(const G& g) noexcept {
  return g.run_id < sched.run_id.load(memory_order_relaxed) || g.run_id == abandoned_run;
}

// It has lost its P, or runs without one: it is in user code or in a system call, and queues for a
// P when it comes in.
bool is_detached(const M* m) noexcept {
  return m->hold.load(memory_order_acquire) != hold_state::owned ||
         m->strays.load(memory_order_relaxed);  // in this order: with settle_hold
}

void auditor::idle_lists() noexcept {
  if (sched.stopping.load(memory_order_relaxed))
    return;  // somebody else's stop came first: no idle lists now
  std::uint32_t listed = 0;
  for (P* p = sched.idle_p_list; p != nullptr && listed <= max_procs; p = p->idle_next) {
    ++listed;
    check(p->status.load(memory_order_relaxed) == p_status::idle, "P2", "P", p->id,
          " is on the idle list but not idle");
    check(p->m.load(memory_order_relaxed) == nullptr, "P2", "idle P", p->id, " has an M");
    check(is_idle(p->id), "P6", "idle P", p->id, " has no bit in the mask");
    check(p->rq.empty(), "P2", "idle P", p->id, " has goroutines in its queue");
  }
  std::uint32_t bits = 0;
  for (std::uint32_t i = 0; i < max_procs; ++i) bits += is_idle(i) ? 1 : 0;
  check(bits == listed, "P6", bits, " bits in the idle mask, ", listed, " Ps on the idle list");
  check(sched.idle.load().idle_ps == listed, "P6", "idle word counts ", sched.idle.load().idle_ps,
        " Ps, the list has ", listed);
  for (std::uint32_t i = 0; i < nprocs(); ++i) {
    const p_status s = p_at(i)->status.load(memory_order_relaxed);
    check(s != p_status::stopped, "P4", "P", i, " is stopped in a running world");
    check(s != p_status::dead, "P5", "P", i, " is dead but below procs");
  }
  std::uint32_t ms = 0;
  for (M* m = sched.idle_m_list; m != nullptr; m = m->idle_next) {
    ++ms;
    check(m->p == nullptr, "M1", "idle M", m->id, " has a P");
    check(m->curg == nullptr, "M1", "idle M", m->id, " has a goroutine");
    check(!m->spinning.load(memory_order_relaxed), "M2", "idle M", m->id,
          " is spinning without a P");
  }
  check(ms == sched.nmidle, "M1", ms, " Ms on the idle list, counted ", sched.nmidle);
}

void auditor::mark_queues() noexcept {
  sched.gs.for_each([](G& g) { g.audit_mark = 0; });
  const std::uint32_t n = nprocs();
  for (std::uint32_t i = 0; i < n; ++i) {
    P* p = p_at(i);
    if (G* g = p->rq.runnext.load(memory_order_relaxed)) ++g->audit_mark;
    ring(p);
  }
  std::uint32_t queued = 0;
  sched.runq.for_each([&](G* g) {
    ++queued;
    ++g->audit_mark;
    check(g->state() == g_status::runnable, "R7", "goroutine ", g->goid, " in the global queue is ",
          to_string(g->state()));
  });
  std::uint32_t kept = 0;
  sched.kept.for_each([&](M* m) {
    ++kept;
    check(m->curg != nullptr && m->p == nullptr, "M1", "M", m->id,
          " waits in place with a P, or without a goroutine");
    if (m->curg != nullptr) ++m->curg->audit_mark;
  });
  for_each_bubble([&](const bubble& b) {
    b.order.for_each([](G* g) { ++g->audit_mark; });
    if (b.resume != nullptr) ++b.resume->audit_mark;
    check(b.active <= b.members, "B2", "bubble ", b.id, " has ", b.members, " members, ", b.active,
          " of them active");
  });
  check(kept == sched.kept.size(), "G3", "Ms that wait in place: counted ", sched.kept.size(),
        ", there are ", kept);
  check(queued == sched.runq.size(), "R7", "global queue counts ", sched.runq.size(), ", holds ",
        queued);
  check(sched.overflowed == sched.overflows * (runq::capacity / 2 + 1), "R6", sched.overflows,
        " overflows moved ", sched.overflowed, " goroutines");
}

void auditor::ring(P* p) noexcept {
  const std::uint32_t h = p->rq.head.load(memory_order_relaxed),
                      t = p->rq.tail.load(memory_order_relaxed);
  const std::uint32_t n = t - h;
  check(n <= runq::capacity, "R1", "P", p->id, " has ", n, " in its ring");
  if (n > runq::capacity) return;
  G* next = p->rq.runnext.load(memory_order_relaxed);
  for (std::uint32_t i = h; i != t; ++i) {
    G* g = p->rq.slots[i % runq::capacity].load(memory_order_relaxed);
    if (g == nullptr) {
      check(false, "R4", "P", p->id, " has published an empty slot");
      continue;
    }
    check(g != next, "R5", "goroutine ", g->goid, " is runnext and in the ring of P", p->id);
    const bool sound = g->state() == g_status::runnable && g->audit_mark == 0;
    if (!sound && g != next) {
      check(false, i - h < n / 2 ? "R3" : "R2", "P", p->id, i - h < n / 2 ? ": head" : ": tail",
            " covers goroutine ", g->goid, ", which is ", to_string(g->state()),
            g->audit_mark != 0 ? " and queued elsewhere" : "");
    }
    ++g->audit_mark;
  }
}

bool without_m(const G& g) noexcept {
  const M* m = g.m.load(memory_order_relaxed);
  return g.state() == g_status::running && (m == nullptr || (!is_detached(m) && m->curg != &g));
}

// A thread that has come back from a system call without a P lets go of its goroutine, and queues
// it a moment later, for which it needs the lock; it does not stop with the world.
void auditor::let_go() noexcept {
  const std::int64_t until = nanotime() + 1'000'000'000;
  for (std::uint32_t i = 0; i < nlet_go_; ++i) {
    const G& g = *let_go_[i];
    while (without_m(g) && nanotime() < until) cpu_relax();
    check(!without_m(g), "G2", "goroutine ", g.goid, " is running without its M");
  }
}

void auditor::one_g(G& g) noexcept {
  const std::uint32_t raw = g.status.load(memory_order_relaxed);
  if (!valid(raw)) {
    check(false, "G1", "goroutine ", g.goid, " has status ", raw);
    return;
  }
  if ((raw & scan_bit) != 0)
    check(false, "G6", "goroutine ", g.goid, " has its scan bit set, and nobody looks at it");
  const auto s = static_cast<g_status>(raw & ~std::uint32_t{scan_bit});
  if (s == g_status::idle || s == g_status::dead || s == g_status::deadextra) {
    // Plain threads do not stop with the world and may be setting one up: touch nothing else.
    if (g.audit_mark != 0 && !forgotten(g))
      check(false, "G3", "goroutine ", g.goid, " is ", to_string(s), " but queued");
    return;
  }
  if (forgotten(g)) return;
  M* m = g.m.load(memory_order_relaxed);
  // Or may be: a thread without a P does not stop with the world.
  const bool is_parking = m != nullptr && is_detached(m);
  if (s == g_status::runnable) {
    check(g.audit_mark == 1, "G3", "goroutine ", g.goid, " is runnable and in ",
          std::uint32_t{g.audit_mark}, " queues");
  } else {
    check(g.audit_mark == 0, "G3", "goroutine ", g.goid, " is ", to_string(s), " but queued");
  }
  if (s == g_status::running) {
    if (without_m(g)) {
      if (nlet_go_ < most_let_go) let_go_[nlet_go_++] = &g;
    } else if (m != nullptr && !is_detached(m)) {
      check(m->p != nullptr, "G2", "goroutine ", g.goid, " is running without a P");
    }
  } else if (s == g_status::syscall) {
    check(m != nullptr && is_detached(m), "M4", "goroutine ", g.goid,
          " is in a system call on an M that holds a P");
  } else {
    check(m == nullptr || is_parking, "G2", "goroutine ", g.goid, " is ", to_string(s),
          " but has an M");
  }
  const bool waits = s == g_status::waiting || s == g_status::leaked;
  const bool on_a_list = g.waiting_on.load(memory_order_relaxed) != nullptr;
  check(waits == on_a_list || is_parking, "G4", "goroutine ", g.goid, " is ", to_string(s),
        waits ? " but waits for nothing" : " but on a wait list");
  check(g.locked_m() == nullptr || g.locked_m()->locked_g == &g, "M6", "goroutine ", g.goid,
        " is locked to an M that is not locked to it");
}

void auditor::one_m(M* m) noexcept {
  // Threads without a P run on in a stopped world, in system calls, detached, left behind: what is
  // theirs alone may change under our eyes.
  if (is_detached(m)) return;
  // Abandoned by an earlier run: it does not stop with the world, and nobody uses its P again.
  if (m->p != nullptr && m->p->orphan.load(memory_order_acquire)) return;  // with abandon
  const bool spins = m->spinning.load(memory_order_relaxed);
  check(!spins || m->p != nullptr, "M2", "M", m->id, " spins without a P");
  check(!spins || m->p == nullptr || m->p->rq.empty(), "M3", "M", m->id,
        " spins with work in its ring");
  check(m->curg == nullptr || m->kept || m->curg->m.load(memory_order_relaxed) == m, "G2", "M",
        m->id, " runs a goroutine of another M");
  check(m->locked_g == nullptr || m->locked_g->locked_m() == m, "M6", "M", m->id,
        " is locked to a goroutine that is not locked to it");
  check(m->p == nullptr || m->p->m.load(memory_order_relaxed) == m, "P1", "M", m->id,
        " has a P that belongs to another M");
}

void auditor::one_p(P* p) noexcept {
  const p_status s = p->status.load(memory_order_relaxed);
  const std::uint32_t raw = static_cast<std::uint32_t>(s);
  if (p->id >= nprocs()) {
    check(s == p_status::dead, "P5", "P", p->id, " is beyond procs and not dead");
    check(p->rq.empty() && p->free_gs.n == 0 && p->blocks.n == 0 && p->stacks.n == 0, "P5",
          "dead P", p->id, " is not drained");
    check(p->m.load(memory_order_relaxed) == nullptr, "P5", "dead P", p->id, " has an M");
    return;
  }
  check(raw == 0 || raw == 1 || raw == 3 || raw == 4, "P3", "P", p->id, " has status ", raw);
  M* m = p->m.load(memory_order_relaxed);
  // The caller's own P keeps its M; it is stopped like the others.
  check(m == nullptr || m->p == p, "P1", "P", p->id, " has an M with another P");
  check(m == nullptr || m->hold.load(memory_order_acquire) == hold_state::owned, "M5", "P", p->id,
        " belongs to an M that has lost it");
  check(s == p_status::stopped, "P4", "P", p->id, " runs in a stopped world");
}

// G5: with the world stopped nobody is parked holding a lock. Plain threads and sysmon may hold one
// for a moment.
void auditor::lock_is_free(mutex& m, const char* name) noexcept {
  const std::int64_t until = nanotime() + 200'000'000;
  while (!m.try_lock()) {
    if (nanotime() > until) {
      check(false, "G5", name, " lock is held by somebody who does not run");
      return;
    }
    cpu_relax();
  }
  m.unlock();
}

void auditor::locks() noexcept {
  lock_is_free(sched.free_gs.lock, "free list");
  lock_is_free(sched.g_lock, "goroutine table");
}

void auditor::stopped() noexcept {
  mark_queues();
  sched.gs.for_each([this](G& g) { one_g(g); });
  for (M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next) one_m(m);
  for (const auto& slot : sched.allp) {
    if (P* p = slot.load(memory_order_acquire)) one_p(p);
  }
  const idle_counts c = sched.idle.load();
  check(c.idle_ps == 0, "P6", "the world is stopped but the idle word counts ", c.idle_ps,
        " idle Ps");
  check(c.spinning <= (nprocs() + 1) / 2, "M7", c.spinning, " Ms spin with ", nprocs(), " Ps");
}

}  // namespace

int run_audit(const audit_sabotage& s) noexcept {
  auditor a;
  const auto with = [&s](audit_phase phase, auto&& checks) {
    const bool mine = s.break_it != nullptr && s.when == phase;
    if (mine) s.break_it(s.arg);
    checks();
    if (mine) s.mend_it(s.arg);
  };
  if (sched.active.load(memory_order_acquire)) {
    sched.lock.lock();
    with(audit_phase::idle_lists, [&a] { a.idle_lists(); });
    sched.lock.unlock();
  }
  stopped_world w;
  if (!sched.active.load(memory_order_acquire)) return a.broken();  // no world, nothing to check
  sched.lock.lock();
  with(audit_phase::stopped, [&a] {
    a.stopped();
    sched.lock.unlock();
    a.let_go();
    sched.lock.lock();
  });
  sched.lock.unlock();
  with(audit_phase::locks, [&a] { a.locks(); });
  return a.broken();
}

}  // namespace weft::rt

namespace weft::debug {

int audit() { return rt::run_audit({}); }

}  // namespace weft::debug
