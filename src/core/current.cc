// SPDX-License-Identifier: Apache-2.0
// The definition of the thread-local behind current.h and the few cold functions of the core types.
#include "core/current.h"

#include "base/print.h"

extern "C" {
thread_local constinit weft::rt::thread_words weft_tls;
}

#if defined(WEFT_DEV)
extern "C" __attribute__((visibility("default"))) bool weft_in_scheduler() noexcept {
  weft::rt::M* m = weft::rt::current_m();
  return m != nullptr && m->in_sched != 0;
}
#endif

namespace weft::rt {

__attribute__((noinline)) void set_current_m(M* m) noexcept { weft_tls.m = m; }

void G::bad_status(g_status from, g_status to) const noexcept {
  begin_fatal();
  printer(2) << "runtime: goroutine " << goid << ": status is " << to_string(state()) << ", wanted "
             << to_string(from) << " -> " << to_string(to) << "\nfatal error: bad g->status\n";
  end_fatal();
}

}  // namespace weft::rt
