// SPDX-License-Identifier: Apache-2.0
// park and ready: the only way anything blocks a goroutine. Channels, sync objects, timers and the
// network include this and nothing else of the scheduler.
//
//   park(commit, arg, why)  takes the current goroutine off its thread. commit(g, arg) runs once
//   the goroutine is
//       completely saved, on somebody else's stack: it publishes g to its wakers (puts it on a
//       list, unlocks the list). Until then nobody can wake it; after that it may be running
//       elsewhere before commit returns, so commit touches neither g nor arg after publishing. If
//       the reason to wait has gone, commit calls refuse(g) instead.
//   ready(g)                makes a parked goroutine runnable, exactly once a park. From any
//   thread.
//   ready(gs, n)            the same for many at once; they queue behind those who are runnable.
//
// A commit must not park, throw or allocate (DESIGN 2.3), and holds no runtime lock when it
// returns.
#pragma once

#include "core/current.h"

namespace weft::rt {

using park_commit = void (*)(void* g, void* arg);

void park(park_commit commit, void* arg, wait_reason why);
void refuse(void* g) noexcept;
void ready(G* g) noexcept;
void ready(G** gs, std::uint32_t n) noexcept;  // gs is scratch afterwards

// Gives way: everybody else who is runnable has a turn first.
void yield_g();
// First thing in every call that may park: waits for a P if the goroutine has lost its own in a
// call that blocked, honours the end of the slice and stop-the-world, and goes on with a goexit
// that was put off. Before any lock is taken or record queued: it may unwind. Inside the runtime (a
// channel moves an element that uses another one) it does nothing.
void preempt_slow();
inline void maybe_preempt() {
  M* m = current_m();
  if (m == nullptr || m->curg == nullptr) return;
  // Outside the runtime: the P may be on its way to another (Ms and Ps are type-stable); if it is
  // gone, that is found out here or by park.
  if (m->hold.load(memory_order_relaxed) != hold_state::owned || m->p == nullptr ||
      m->p->preempt.load(memory_order_relaxed) != 0 || m->curg->wants_attention()) [[unlikely]]
    preempt_slow();
}

// The same before a park that is certain, which ends the slice anyway: whoever is to wake at a time
// does not wait for a turn to go to sleep.
inline void before_certain_park() {
  const M* m = current_m();
  if (m == nullptr || m->curg == nullptr) return;
  if (m->hold.load(memory_order_relaxed) != hold_state::owned || m->p == nullptr ||
      m->curg->wants_attention()) [[unlikely]]
    preempt_slow();
}

}  // namespace weft::rt
