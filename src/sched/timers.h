// SPDX-License-Identifier: Apache-2.0
// Timers of goroutines: armed on the P they run on, fired by whoever schedules.
//
// fire(t) runs under the heap's lock, on an M with a P: it may make goroutines ready and nothing
// else; it must not arm or disarm. Because of the lock, when disarm() has returned, t is neither
// pending nor being fired: its memory may go.
#pragma once

#include "sched/sched.h"

namespace weft::rt {

void arm(timer* t, std::int64_t when) noexcept;  // on a goroutine; t is not armed
bool disarm(timer* t) noexcept;                  // true: it had not fired

// Parks until then (never: for ever); a plain thread sleeps.
void sleep_until(std::int64_t deadline, wait_reason why);

// -- for the scheduler
bool run_timers(
    P* p,
    std::int64_t now) noexcept;  // fires what is due on p, from any M with a P; true: something was
std::int64_t earliest_timer() noexcept;     // over all Ps
void move_timers(P* from, P* to) noexcept;  // world stopped
void drop_timers(P* p) noexcept;            // the run is over

}  // namespace weft::rt
