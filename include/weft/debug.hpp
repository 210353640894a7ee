// SPDX-License-Identifier: Apache-2.0
// Looking inside the runtime.
#pragma once

#include <cstdint>
#include <iosfwd>

#include <weft/detail/spawn.hpp>

namespace weft::debug {

// Writes every goroutine: id, name, state, why and how many minutes it has waited, stack trace,
// creation site; the caller's own first. The world stands still while the traces are taken (some
// milliseconds for 100 000 goroutines), and runs again while they are written. From any thread.
WEFT_API void dump(std::ostream& out);

struct stats {
  std::uint64_t goroutines = 0;  // alive now
  std::uint64_t created = 0;     // since the process started
  std::uint64_t runnable = 0, running = 0, syscall = 0, waiting = 0, leaked = 0;
  std::uint64_t threads = 0, idle_threads = 0, spinning = 0;
  std::uint64_t procs = 0, idle_procs = 0;
  std::uint64_t steals = 0, parks = 0, preemptions = 0, handoffs = 0;  // since the process started
  std::uint64_t stops = 0, stopped_ns = 0;  // of the world, since the process started
  std::uint64_t global_queue = 0;           // runnable in the global queue
  std::uint64_t stacks = 0;                 // stacks ever carved
  std::uint64_t free_stacks = 0;            // of them cached for the next goroutine
};
WEFT_API stats runtime_stats();

// Stops the world and checks every invariant of the scheduler. Returns the number that are broken;
// each one is printed to standard error with its name.
WEFT_API int audit();

}  // namespace weft::debug
