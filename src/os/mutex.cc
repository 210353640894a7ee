// SPDX-License-Identifier: Apache-2.0
// The slow half of os/mutex.h and the dev-build rank check. Runs on whatever stack called lock().
#include "os/mutex.h"

#include "base/chaos.h"
#include "base/fatal.h"
#include "base/print.h"

namespace weft::rt {

void mutex::lock_slow() noexcept {
  // Critical sections are tens of nanoseconds: a short spin nearly always gets the lock. The spin
  // gives up as soon as somebody sleeps (state 2), to keep the queue short.
  chaos::point("lock.slow");
  for (int i = 0; i < 100; ++i) {
    std::uint32_t w = word_.load(memory_order_relaxed);
    if (w == 2) break;
    if (w == 0 && word_.compare_exchange_weak(w, 1, memory_order_acquire, memory_order_relaxed))
      return;
    cpu_relax();
  }
  while (word_.exchange(2, memory_order_acquire) != 0) futex_wait(word_, 2);
}

#if defined(WEFT_DEV)
namespace {
constexpr int max_held = 16;
// Constant-initialised and only used by the thread itself; runtime locks are never held across a
// switch, so the address does not outlive one either.
thread_local lock_rank held[max_held];
thread_local int nheld = 0;
}  // namespace

namespace {
void acquire(lock_rank r, bool beside) noexcept {
  if (nheld > 0 && (held[nheld - 1] > r || (held[nheld - 1] == r && !beside))) {
    begin_fatal();
    printer(2) << "fatal error: lock order: rank " << static_cast<int>(r)
               << " taken while holding rank " << static_cast<int>(held[nheld - 1]) << '\n';
    end_fatal();
  }
  if (nheld == max_held) fatal("lock order: too many locks held");
  held[nheld++] = r;
}
}  // namespace

__attribute__((noinline)) void rank_acquire(lock_rank r) noexcept { acquire(r, false); }
__attribute__((noinline)) void rank_beside(lock_rank r) noexcept { acquire(r, true); }

__attribute__((noinline)) void rank_release(lock_rank r) noexcept {
  for (int i = nheld; i-- > 0;) {
    if (held[i] != r) continue;
    for (int k = i; k + 1 < nheld; ++k) held[k] = held[k + 1];
    --nheld;
    return;
  }
  fatal("lock order: unlock of a lock this thread does not hold");
}

__attribute__((noinline)) int ranks_held() noexcept { return nheld; }
#endif

}  // namespace weft::rt
