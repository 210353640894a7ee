// SPDX-License-Identifier: Apache-2.0
// Bubbles: the same scheduler with one thread, an order that a seed decides, and virtual time
// (weft/testing.hpp).
//
// A bubble has an M of its own, the one that its carrier goroutine is locked to. While the carrier
// is parked that M drives the bubble: on g0 it takes one member after the other from the bubble's
// own order and runs it (next_in_bubble), and nobody else's goroutine. A member is bound, so
// whatever it does, park, yield or end, leads back to g0; and whoever wakes or starts one puts it
// into the bubble's order and not into a P's queue. So no hot path knows of bubbles but by a bit
// of the goroutine that it has at hand anyway, or by M::drives.
//
// Durably blocked is a member that only its bubble can wake: it sleeps, or waits on an object that
// was made in the bubble. When nobody is runnable and all are durably blocked, the one in
// testing::wait() goes on; failing that the clock jumps to the next timer; failing that it is over.
// Timers that are due at the same moment fire in an order of the seed.
// If some are blocked otherwise (a mutex, a descriptor, a channel from outside), the M sleeps
// without a P as the M of any locked goroutine does, and is woken by way of the carrier. But a wait
// for a mutex that ends at a time does not hold the clock up: it would never end.
//
// What is not the seed's: a call that blocks blocks the whole bubble; the end of a slice and the
// preemption signal stop the thread, but the same member goes on (resume).
//
//   B1  a member runs on the bubble's M only, and is in no queue but the bubble's order.
//   B2  members = those that have not ended; active = those of them that are not durably blocked;
//       timed = those of these that wait for a mutex, until some time.
//   B3  now, order and rng depend on nothing but the seed and what the members do.
//
// Members that are still blocked when it is over are left behind, as by the end of a run.
//
// A plain thread that has one made beside somebody's run waits with a bubble_wait, which the end of
// that run ends: the carrier is left behind then, and would never tell.
#pragma once

#include <cstdint>

#include "base/page_array.h"
#include "base/random.h"
#include "base/slab.h"
#include "core/current.h"
#include "core/seeded_order.h"
#include "os/clock.h"
#include "os/mutex.h"
#include "sched/sched.h"
#include "sched/waiter.h"

namespace weft::rt {

struct bubble {
  struct due_timer {
    timer* t;
    std::uint64_t seq;  // of a durable one
  };

  // -- constant while it lives.
  std::uint32_t id = 0;
  G* carrier = nullptr;

  // -- its M's only.
  random rng;
  std::int64_t now = 0;  // virtual nanoseconds
  G* root = nullptr;     // runs the user's function; null: it has ended
  G* waiter = nullptr;   // in testing::wait
  G* resume = nullptr;   // was interrupted, so it goes on before anybody else
  std::uint64_t goids = 0;
  bool spoiled = false;  // a member has ended locked to its thread: the thread ends with the bubble
  page_array<due_timer> due;
  void* network = nullptr;  // net/memory.h's; null: the machine's
  void (*drop_network)(void* network) noexcept = nullptr;

  // -- under the lock: outsiders may wake a member that is not durably blocked.
  mutex lock{lock_rank::bubble};
  seeded_order order;                   // runnable members, but `resume`
  std::size_t members = 0, active = 0;  // B2
  std::size_t timed = 0;                // of the active ones
  bool asleep = false;                  // its M waits for an outsider

  timer_home timers;  // has its own lock: a handle may be dropped outside

  // -- under the lock of the cells.
  bool live = false;       // counted in live_bubbles
  bubble* next = nullptr;  // free cells
};

// -- for the scheduler
void join_bubble(bubble* b, G* g) noexcept;  // a new goroutine; dead → runnable
void leave_bubble(G* g) noexcept;            // it ends
void park_in_bubble(G* g) noexcept;          // it waits, and nobody knows it yet
// waiting → runnable. Returns the carrier if it is to be queued, to wake the M that sleeps.
G* ready_in_bubble(G* g) noexcept;
void yield_in_bubble(M* m, G* g) noexcept;  // inside the runtime
// At a call that may park: the seed may let somebody else go first. over: somebody wants the P.
void pass_in_bubble(bool over) noexcept;
// On g0: a member, or the carrier at the end; null: the run is over.
G* next_in_bubble(M* m) noexcept;

// -- for what is built on the scheduler
inline bubble* bubble_of(const M* m) noexcept { return m != nullptr ? m->drives : nullptr; }
inline std::uint32_t current_bubble() noexcept {
  const bubble* b = bubble_of(current_m());
  return b != nullptr ? b->id : 0;
}
// weft::clock's time.
inline std::int64_t clock_now() noexcept {
  const bubble* b = bubble_of(current_m());
  return b != nullptr ? b->now : nanotime();
}
inline std::int64_t clock_at(std::int64_t real) noexcept {  // the same, read already
  const bubble* b = bubble_of(current_m());
  return b != nullptr ? b->now : real;
}
// A deadline of that clock, for what happens in the real time wherever it is asked for:
// descriptors.
inline std::int64_t real_deadline(std::int64_t when) noexcept {
  const bubble* b = bubble_of(current_m());
  return b == nullptr || when == never ? when : nanotime() + (when - b->now);
}
// Just before g parks, for reasons that depend on an object: it belongs to bubble `id`, 0 is none.
inline void waits_in(G* g, std::uint32_t id) noexcept {
  if (id != 0 && g != nullptr && g->bubbled() && g->its_bubble()->id == id) [[unlikely]]
    g->durable = true;
}
// The same if the wait ends at a time.
inline void waits_until(G* g) noexcept {
  if (g != nullptr && g->bubbled()) [[unlikely]]
    g->timed = true;
}
void fire_due_here() noexcept;  // inside a bubble: what is due now, without waiting for anybody

// For audits, with the world stopped: outsiders may still wake a member, but not without the
// scheduler lock, which the caller holds.
extern constinit slab<bubble> bubbles;
template <class F>
void for_each_bubble(F f) noexcept {
  bubbles.for_each([&f](bubble& b) {
    b.lock.lock();
    f(static_cast<const bubble&>(b));
    b.lock.unlock();
  });
}

// -- for src/testing, on the carrier
bubble* open_bubble(std::uint64_t seed) noexcept;  // and this M drives it
void drive_bubble(bubble* b);                      // until it is over
// Members that are left; they and the bubble's timers are gone then.
std::size_t close_bubble(bubble* b) noexcept;
bool wait_in_bubble(bubble* b);  // testing::wait; false: another one waits

// -- for src/testing, on a plain thread
struct bubble_wait {
  enum class stage : std::uint8_t { begun, carried, done, over };
  // -- under the scheduler lock.
  stage at = stage::begun;
  bool carried_in_vain = false;  // it is over, and had begun
  bubble_wait* next = nullptr;
  thread_note woken;  // when it is done, or the run over
};
bool begin_wait(bubble_wait* w) noexcept;  // false: no run is on, or one that nobody may join
// On the carrier. False: it was wanted in a run that is over.
bool carry_for(bubble_wait* w) noexcept;
void end_wait(bubble_wait* w) noexcept;

// A run that is there for the bubble of a plain thread alone. Bubbles of other threads may join it
// until that one is over, and it ends when they are over too. A run() beside it is not the user's
// mistake: it waits.
int run_for_bubble(int (*fn)(void*), void* arg);  // run.cc; throws beside_another_run
void close_to_joiners();                          // by its main: returns when they are gone
void open_to_joiners() noexcept;                  // it has ended

// -- for run, under the scheduler lock: those that are there end with it, wherever they stand.
void end_bubbles() noexcept;

}  // namespace weft::rt
