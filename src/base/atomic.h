// SPDX-License-Identifier: Apache-2.0
// The atomics seam: every atomic of the runtime is a weft::rt::atomic, so that the systematic tests
// can put their own header in the place of this one and decide each interleaving and each stale
// read (tests/systematic/seam). Nothing else in src/ names std::atomic.
//
// Also the two things that are not C++ atomics but belong beside them: the spin hint and the
// compiler barrier.
#pragma once

#include <atomic>

namespace weft::rt {

template <class T>
using atomic = std::atomic<T>;

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

// Tells the core that this is a spin-wait: it saves power and leaves the pipeline to its sibling.
inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::
                   : "memory");  // `yield` is a no-op on most cores; `isb` really waits a little
#endif
}

inline void fence(std::memory_order o) noexcept { std::atomic_thread_fence(o); }

inline void compiler_barrier() noexcept { asm volatile("" ::: "memory"); }

}  // namespace weft::rt
