// SPDX-License-Identifier: Apache-2.0
// debug::dump: the world is stopped while the traces are taken; symbols are looked up and the text
// is written when it runs again. It is never stopped for longer than a slice or two: of very many
// goroutines the traces are taken in several stops, and one that comes or goes between two of them
// may be missing or be shown though it has ended.
//
// Runs on the caller's stack, a goroutine's or a plain thread's.
#include <ostream>

#include "debug/lock_cycles.h"
#include "debug/traces.h"
#include "sched/procs.h"
#include "sched/sched.h"
#include "weft/debug.hpp"

namespace weft::debug {

using namespace rt;

namespace {
constexpr std::int64_t longest_stop_ns = 20'000'000;
}

void dump(std::ostream& out) {
  arena memory;
  trace_collector collector(memory);
  arena_list<g_record> others;
  arena_list<lock_wait> cycles;
  g_record own;
  bool have_own = false;
  std::size_t next = 0;
  do {
    stopped_world w;
    const G* self = current_g();
    if (self != nullptr && !have_own) {
      const registers here = registers_here();
      own = collector.record(*self, &here, false);
      have_own = true;
    }
    next = collector.all(others, self, next, nanotime() + longest_stop_ns);
    if (next == 0) find_lock_cycles(memory, cycles);
    wipe_stack();
  } while (next != 0);
  symbols names(memory, true);
  const text_sink sink{[](void* to, const char* text, std::size_t n) {
                         static_cast<std::ostream*>(to)->write(text,
                                                               static_cast<std::streamsize>(n));
                       },
                       &out};
  bool first = true;
  const auto block = [&](const g_record& g) {
    if (!first) sink << "\n";
    first = false;
    rt::write(sink, g, names);
  };
  if (have_own) block(own);
  oldest_first(memory, others).for_each(block);
  rt::write(sink, cycles);
}

}  // namespace weft::debug
