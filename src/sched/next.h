// SPDX-License-Identifier: Apache-2.0
// What every park, ready, spawn and exit does to a P's queue; inline, for these are the hottest
// lines of the runtime. The rest is in schedule.cc. All of it inside the runtime, with a P that
// hold_p has given out.
//
// Calls out of a hot path stand at its end, with nothing to keep for afterwards: then the compiler
// saves no registers around it, and the common case is loads, stores and one exchange.
#pragma once

#include "base/chaos.h"
#include "sched/sched.h"

namespace weft::rt {

G* pick_fairly(M* m, P* p) noexcept;      // the 61st round: those of the global queue come first
G* take_local(M* m, P* p) noexcept;       // the ring's head, with a slice of its own; or null
void put_shuffled(P* p, G* g) noexcept;   // into the ring, for a shuffled order
void put_displaced(P* p, G* g) noexcept;  // from runnext to the ring, and wakes

// One that is locked to another thread: g0 hands the P over.
[[gnu::always_inline]] inline G* unless_bound(M* m, G* g) noexcept {
  if (!g->bound) [[likely]]
    return g;
  m->handed = g;
  return nullptr;
}

// What is at hand on this P, or null: ask g0.
[[gnu::always_inline]] inline G* pick_next(M* m, P* p) noexcept {
  if (p->preempt.load(memory_order_relaxed) != 0) [[unlikely]]
    return nullptr;  // g0 knows why
  if (--p->until_global == 0) [[unlikely]]
    return pick_fairly(m, p);
  if (G* g = p->owner().take_next()) return unless_bound(m, g);
  return take_local(m, p);
}

// Where any P may take it.
inline void put_global(G* g) noexcept {
  sched.lock.lock();
  sched.runq.push(g);
  sched.lock.unlock();
  fence_and_wake();
}

// Into runnext, and wakes (ready, spawn).
[[gnu::always_inline]] inline void put_next(P* p, G* g) noexcept {
  if (chaos::flip("force.preempt") && sched.preempt.load(memory_order_relaxed))
    p->preempt.store(1, memory_order_relaxed);
  if (chaos::flip("force.migrate")) {
    put_global(g);
    return;
  }
  if (sched.shuffle && (p->rng.next() & 1) != 0) [[unlikely]] {
    put_shuffled(p, g);
    return;
  }
  if (G* old = p->owner().put_next(g)) {
    put_displaced(p, old);
  } else {
    wake();
  }
}

}  // namespace weft::rt
