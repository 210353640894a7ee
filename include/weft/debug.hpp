// SPDX-License-Identifier: Apache-2.0
// Looking inside the runtime.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include <weft/detail/spawn.hpp>

namespace weft::debug {

// Writes every goroutine: id, name, state, why and how many minutes it has waited, stack trace,
// creation site; the caller's own first. The world stands still while the traces are taken (some
// milliseconds for 100 000 goroutines), and runs again while they are written. From any thread.
WEFT_API void dump(std::ostream& out);

// How long something took, by powers of two: count[i] is how often less than 2^i ns, and no less
// than half of that; the last one takes all that is longer.
struct histogram {
  static constexpr std::size_t buckets = 40;
  std::uint64_t count[buckets] = {};
  std::uint64_t sum_ns = 0;
};

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
  std::uint64_t mutex_wait_ns = 0;          // spent waiting for mutexes, by all
  std::uint64_t switches = 0;  // times that a goroutine left its P, since the process started
  std::uint64_t syscalls = 0;  // calls of blocking(), since the process started
  histogram latency;           // from runnable to running; one wake-up in 64 is timed, for all
  histogram pauses, stopping;  // how long the world stood, and how long until it did
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

// Where all goroutines stand, in the text form of Go's profiles: `goroutine profile: total N`, then
// each place with how many have the same stack and the same name, the most frequent first. One
// look at all of them: whoever is in it, all older ones that live are too.
WEFT_API void goroutine_profile(std::ostream& out);

// Where goroutines have waited for channels, selects and sync objects, and for how long. Of the
// waits one is counted for every `rate` that goroutines spend waiting, on average; 1 ns: all of
// them; 0, as at the start: none, and a wait costs nothing more. The profile has what was counted
// since the process began: nanoseconds and how often, by the stack that waited.
WEFT_API void set_block_profile_rate(std::chrono::nanoseconds rate);
WEFT_API void block_profile(std::ostream& out);

// runtime_stats() as Prometheus reads it, under the names that Go's own collector has.
WEFT_API std::string metrics();

// Serves a page about this program over HTTP: /, /metrics, /goroutines, /trace?seconds=1. By
// threads of its own, as long as the process lives. It tells a lot: let it listen where only you
// can reach it.
WEFT_API void serve(std::string_view addr);
// Where, in the order of the calls: "127.0.0.1:8080". For who has asked for port 0.
WEFT_API std::vector<std::string> served();

// Lets the command-line tool `weft` look at this process (docs/tool.md): the same answers, over a
// Unix socket that only the same user, and root, can open. Returns its path; called again, the same
// one. Stays as long as the process lives. Throws std::system_error if there is no safe place for
// it, std::logic_error in the child of a fork. WEFT_DEBUG=attach=1 and config::attach do so at run.
WEFT_API std::string attach();

// Stops the world and checks every invariant of the scheduler. Returns the number that are broken;
// each one is printed to standard error with its name.
WEFT_API int audit();

// A record of what the scheduler does: every change of a goroutine, a processor, a thread; steals,
// hand-offs, preemptions, system calls, timers, the network, and what the program adds. The file
// opens in ui.perfetto.dev. One trace at a time, to a file or to memory. From any thread, inside
// and outside a run; a trace outlives the run that it was started in.
namespace trace {

struct options {
  bool stacks = false;  // where each goroutine blocks, wakes another, starts one
  std::size_t buffer =
      64 * 1024 * 1024;  // records that wait to be written; beyond it they are lost
};
// Throws std::logic_error if there is a trace already, std::system_error if the file cannot be
// made.
WEFT_API void start(const std::string& path, const options& o = {});
// When it returns the file is complete. Nothing to stop: does nothing. Throws std::system_error if
// the file could not be written.
WEFT_API void stop();
WEFT_API bool enabled() noexcept;

// The flight recorder: the last seconds, in memory. stop() ends it too.
struct recorder_options {
  std::chrono::nanoseconds age = std::chrono::seconds(5);  // at least so much of the past
  std::size_t bytes = 16 * 1024 * 1024;                    // but no more memory than about that
  bool stacks = false;
  std::string on_fatal = {};  // written there if the process dies of a fatal error
};
WEFT_API void record(const recorder_options& o = {});  // throws as start
// What the recorder holds, to a file. Throws std::logic_error if it is not on.
WEFT_API void write(const std::string& path);

// A stretch of a goroutine's life, on a track of its own; nests.
class region {
 public:
  WEFT_API explicit region(std::string_view name) noexcept;  // cut off after 128 characters
  WEFT_API ~region();
  region(const region&) = delete;
  region& operator=(const region&) = delete;

 private:
  bool on_;
};
WEFT_API void log(std::string_view text) noexcept;

}  // namespace trace

}  // namespace weft::debug
