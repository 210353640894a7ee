// SPDX-License-Identifier: Apache-2.0
// Starting a thread of the runtime. Only the thread-maker calls this once the runtime is up:
// pthread_create takes malloc's and the loader's locks (DESIGN 2.3, 4.1).
#pragma once

#include <cstdint>
#include <ctime>
#include <sys/types.h>

namespace weft::rt {

// A detached thread with every signal blocked but the synchronous ones, named `name` (at most 15
// characters). Returns 0 or an errno value.
int start_thread(void (*fn)(void*), void* arg, const char* name) noexcept;
// The same, with a signal stack while fn runs (os/signal_stack.h); an M brings its own.
int start_service_thread(void (*fn)(void*), void* arg, const char* name) noexcept;
// What they returned, for one that the runtime cannot do without.
[[noreturn]] void no_new_thread(int err) noexcept;
// How many of them there are.
std::uint32_t started_threads() noexcept;
// One may have begun or ended a moment ago, and the kernel's count and ours differ for that.
bool threads_on_their_way() noexcept;
std::uint32_t thread_moves() noexcept;  // another number: one has begun or ended meanwhile
pid_t thread_id() noexcept;
// The calling thread runs little and often: the kernel (6.12 and later) lets it go before those
// that compute. Older ones ignore it.
void prefer_short_slices() noexcept;
clockid_t thread_cpu_clock(pid_t tid) noexcept;
// CPU time that a thread of this process has used, in nanoseconds; 0 if it is gone.
std::int64_t thread_cpu_ns(pid_t tid) noexcept;

// The system call that a thread of this process sleeps in, and where its user code stands.
struct asleep_in {
  static constexpr long runs = -1, unknown = -2;  // unknown: the kernel does not say
  long call = unknown;
  std::uintptr_t sp = 0, pc = 0;
  friend bool operator==(const asleep_in&, const asleep_in&) = default;
};
asleep_in where_asleep(pid_t tid) noexcept;

}  // namespace weft::rt
