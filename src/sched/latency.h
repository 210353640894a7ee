// SPDX-License-Identifier: Apache-2.0
// How long goroutines wait for a P once they can run. One in `period` of those that a P makes ready
// is timed, so that most wake-ups and switches read no clock; the histogram counts it for all.
//
// The moment is kept in G::traced, which nobody else uses while there is no trace; while there is
// one nothing is sampled, because the trace has it all.
#pragma once

#include "os/clock.h"
#include "sched/sched.h"

namespace weft::rt {

inline constexpr std::uint32_t sample_period = 64;
inline constexpr std::uint64_t sample_mark = 7;  // no state of the trace (trace/event.h)

void begin_sample(P* p, G* g) noexcept;
void end_sample(P* p, G* g) noexcept;

[[gnu::always_inline]] inline void sample_ready(P* p, G* g) noexcept {
  if (--p->until_sample == 0) [[unlikely]]
    begin_sample(p, g);
}
[[gnu::always_inline]] inline void sample_run(P* p, G* g) noexcept {
  if (g->sampled) [[unlikely]]
    end_sample(p, g);
}

}  // namespace weft::rt
