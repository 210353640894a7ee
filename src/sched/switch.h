// SPDX-License-Identifier: Apache-2.0
// The scheduler's inner entrances to the switch (park.cc); only src/sched uses them.
#pragma once

#include "sched/sched.h"

namespace weft::rt {

void run_on(M* m, G* to) noexcept;  // from g0; returns when some goroutine comes back to g0
void leave_for(M* m, G* g, G* next, weft_commit commit, void* a, void* b) noexcept;
void leave_for_g0(M* m, G* g, weft_commit commit, void* a, void* b) noexcept;
// keeps G2: the status of `to` and the pointers change together, on the M that runs it.
inline void begin_running(M* m, G* to) noexcept {
  to->move_status(g_status::runnable, g_status::running);
  to->m.store(m, memory_order_relaxed);
  m->curg = to;
}
// The end of g, and on to `next`, or g0 if that is null.
G* prepare_to_leave(M* m, G* g, G* next) noexcept;
[[noreturn, gnu::always_inline]] inline void leave_for_good(M* m, G* g, G* next, weft_commit commit,
                                                            void* a, void* b) noexcept {
  next = prepare_to_leave(m, g, next);
  if constexpr (fibers_are_tracked) {
    no_return_ahead();  // the next owner of this stack may write to it before it begins
    fiber_switch(g->fiber, next->fiber, true, &g->sp, next->sp, commit, a, b);
    __builtin_unreachable();
  } else {
    leave_stack(next->sp, commit, a, b);
  }
}

}  // namespace weft::rt
