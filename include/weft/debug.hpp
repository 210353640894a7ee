// SPDX-License-Identifier: Apache-2.0
// Looking inside the runtime.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

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

struct leak {
  std::uint64_t goid = 0;
  std::string name;
  std::string reason;  // what it waits for, in the words of the dump
  std::string trace;   // its stack and where it was started
};
// Goroutines that nothing can ever wake: they wait on channels and sync objects that only they
// themselves and others like them can reach. No false alarm: whoever is in doubt is not in the
// list. They are marked: ` (leaked)` in dumps, `leaked` in the stats. The world stands still while
// all memory of the process is looked through, about 0.3 s a GiB. From any thread.
WEFT_API std::vector<leak> find_leaks();
// The same in the text form of Go's profiles: `goroutineleak profile: total N`, then each place
// where some of them stand, with how many.
WEFT_API void dump_leaks(std::ostream& out);

// Stops the world and checks every invariant of the scheduler. Returns the number that are broken;
// each one is printed to standard error with its name.
WEFT_API int audit();

}  // namespace weft::debug
