// SPDX-License-Identifier: Apache-2.0
// Timers of goroutines: armed on the P they run on, fired by whoever schedules.
//
// A plain timer lies on the stack of the goroutine that waits. fire(t) runs under the heap's lock,
// on an M with a P: it may make goroutines ready, or return one that is made ready after the lock
// (nobody else may wake that one then), and nothing else; it must not arm or disarm.
// Because of the lock, when disarm() has returned, t is neither pending nor being fired: its memory
// may go.
//
// A durable timer lies on the heap and may outlast the goroutine and the run it was armed in, and a
// plain thread may arm it. Those armed without a P, and those that a run leaves behind, are fired
// by a service thread. fired() runs outside the heap's lock, on g0 or on the service thread: it may
// take locks, wake and start goroutines, arm again; it must not park or run user code. It may
// therefore come late, after a disarm: the owner numbers its armings and ignores a stale one. The
// owner's own lock orders arm and disarm of one timer.
#pragma once

#include "sched/sched.h"

namespace weft::rt {

struct durable_timer : timer {
  // Under the heap's lock, when it is due: keeps it alive until fired() has run. False: it is being
  // destroyed, leave it.
  bool (*keep)(durable_timer*) noexcept = nullptr;
  void (*fired)(durable_timer*, std::uint64_t seq, std::int64_t now) noexcept = nullptr;
  // Instead, if its bubble is over: gives up what keep() has counted. On a goroutine's stack,
  // without a lock.
  void (*dropped)(durable_timer*) noexcept = nullptr;
  std::uint64_t seq = 0;  // of the arming; under the heap's lock
  // Made in this bubble: counts virtual time, and is armed and disarmed there only. 0: in none.
  const std::uint32_t bubble;

  explicit durable_timer(std::uint32_t of_bubble = 0) noexcept : bubble(of_bubble) {
    durable = true;
  }
};
// From anywhere; it must not be armed.
void arm(durable_timer* t, std::int64_t when, std::uint64_t seq) noexcept;
bool disarm(durable_timer* t) noexcept;  // true: it had not come to be fired

// For g, which is the caller or has just been parked by it; t is not armed.
void arm(timer* t, std::int64_t when, const G* g) noexcept;
bool disarm(timer* t) noexcept;  // true: it had not fired

// Parks until then (never: for ever); a plain thread sleeps.
void sleep_until(std::int64_t deadline, wait_reason why);

// -- for the scheduler
bool run_timers(
    P* p,
    std::int64_t now) noexcept;  // fires what is due on p, from any M with a P; true: something was
std::int64_t earliest_timer() noexcept;     // over all Ps
bool timers_pending() noexcept;             // any at all, the service's too
std::uint32_t service_firings() noexcept;   // begun and ended ones: odd while it fires
bool sleeps_for_ever(const G* g) noexcept;  // g is in sleep_until
void move_timers(P* from, P* to) noexcept;  // world stopped
void drop_timers(P* p) noexcept;            // the run is over

}  // namespace weft::rt
