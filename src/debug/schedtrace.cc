// SPDX-License-Identifier: Apache-2.0
// WEFT_DEBUG=schedtrace=1000,scheddetail=1: a line about the scheduler so often, in Go's form, and
// one for each P, M and G. Fields that we have no like of keep Go's value for 'nothing'.
//
// Taken without stopping anybody, as in Go: each figure is right for some moment.
//
// Runs on sysmon's stack; takes the scheduler lock; no allocation.
#include "base/print.h"
#include "debug/cfi.h"
#include "sched/sched.h"

namespace weft::rt {
namespace {

constinit std::int64_t started = 0;  // sysmon's

const char* yes(bool b) noexcept { return b ? "true" : "false"; }

// The number of something that may not be there.
template <class T, class F>
void id_or(printer& out, const T* p, const char* none, F id) {
  if (p == nullptr) {
    out << none;
  } else {
    out << id(*p);
  }
}

std::uint64_t id_of_m(const M& m) noexcept { return m.id; }
// A hint, too: it may be on its way to its next life.
WEFT_READS_STACKS std::uint64_t id_of_g(const G& g) noexcept {
  return *const_cast<const volatile std::uint64_t*>(&g.goid);
}

void print_p(printer& out, const P& p) noexcept {
  out << "  P" << p.id
      << ": status=" << static_cast<std::uint32_t>(p.status.load(memory_order_relaxed))
      << " schedtick=" << p.schedtick.load(memory_order_relaxed) << " syscalltick=0 m=";
  id_or(out, p.m.load(memory_order_acquire), "nil", id_of_m);  // with acquire_p
  out << " runqsize=" << p.rq.size() << " gfreecnt=0 timerslen="
      << (p.timers.earliest.load(memory_order_relaxed) != never ? 1U : 0U) << "\n";
}

WEFT_READS_STACKS void print_m(printer& out, const M& m) noexcept {
  // p and curg belong to the M; they are read as hints, and what they point at is never unmapped.
  const P* p = *const_cast<P* const volatile*>(&m.p);
  const G* g = *const_cast<G* const volatile*>(&m.curg);
  out << "  M" << m.id << ": p=";
  id_or(out, p, "nil", [](const P& x) { return std::uint64_t{x.id}; });
  out << " curg=";
  id_or(out, g, "nil", id_of_g);
  out << " mallocing=0 throwing=0 preemptoff= locks=0 dying=0 spinning="
      << yes(m.spinning.load(memory_order_relaxed)) << " blocked=" << yes(m.on_idle_list)
      << " lockedg=";
  id_or(out, m.locked_g, "nil", id_of_g);
  out << "\n";
}

WEFT_READS_STACKS void print_g(printer& out, const G& g) noexcept {
  const g_status s = g.state();
  if (s == g_status::idle || s == g_status::dead ||
      g.run_id != sched.run_id.load(memory_order_relaxed))
    return;
  out << "  G" << g.goid << ": status=" << static_cast<std::uint32_t>(s) << "("
      << (s == g_status::waiting ? to_string(g.reason) : "") << ") m=";
  id_or(out, g.m.load(memory_order_relaxed), "nil", id_of_m);
  out << " lockedm=";
  id_or(out, g.locked_m(), "nil", id_of_m);
  out << "\n";
}

}  // namespace

void print_sched(std::int64_t now, bool detail) noexcept {
  if (started == 0) started = now;
  printer out(2);
  const idle_counts c = sched.idle.load();
  sched.lock.lock();
  const std::uint32_t idle_ms = sched.nmidle, stop_wait = sched.stop_wait;
  sched.lock.unlock();
  const std::uint32_t n = nprocs();
  out << "SCHED " << (now - started) / 1'000'000 << "ms: gomaxprocs=" << n
      << " idleprocs=" << c.idle_ps << " threads=" << sched.mcount.load(memory_order_relaxed)
      << " spinningthreads=" << c.spinning << " needspinning=" << (c.need ? 1U : 0U)
      << " idlethreads="
      << idle_ms
      // Those that wait in place are runnable and on no P's queue.
      << " runqueue=" << sched.runq.size_hint() + sched.kept.size_hint();
  if (!detail) {
    out << " [ ";
    for (std::uint32_t i = 0; i < n; ++i) {
      if (const P* p = p_at(i)) out << p->rq.size() << " ";
    }
    out << "] schedticks=[ ";
    for (std::uint32_t i = 0; i < n; ++i) {
      if (const P* p = p_at(i)) out << p->schedtick.load(memory_order_relaxed) << " ";
    }
    out << "]\n";
    return;
  }
  out << " gcwaiting=" << yes(sched.stopping.load(memory_order_relaxed))
      << " nmidlelocked=0 stopwait=" << stop_wait
      << " sysmonwait=" << yes(sched.sysmon_waits.load(memory_order_relaxed)) << "\n";
  for (std::uint32_t i = 0; i < n; ++i) {
    if (const P* p = p_at(i)) print_p(out, *p);
  }
  for (const M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next)
    print_m(out, *m);
  sched.gs.for_each([&](const G& g) { print_g(out, g); });
}

}  // namespace weft::rt
