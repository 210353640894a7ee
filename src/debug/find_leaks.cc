// SPDX-License-Identifier: Apache-2.0
// find_leaks() and its text forms: what the look (leaks.cc) has found, put into words when the
// world runs again. Runs on the caller's stack; allocates.
#include <ostream>
#include <string_view>
#include <utility>

#include "base/print.h"
#include "debug/leaks.h"
#include "debug/profile_text.h"
#include "sched/sched.h"
#include "weft/debug.hpp"

namespace weft::rt {
namespace {

text_sink into(std::string& s) {
  return {[](void* to, const char* text, std::size_t n) {
            static_cast<std::string*>(to)->append(text, n);
          },
          &s};
}

struct found {
  arena memory;
  arena_list<g_record> leaks;
  arena_list<lock_wait> cycles;

  explicit found(const void* own_frame) { look_for_leaks(memory, leaks, cycles, own_frame); }
};

std::string profile(found& all) {
  symbols names(all.memory, true);
  return goroutine_profile("goroutineleak profile", all.leaks, all.memory, names);
}

[[gnu::noinline]] void report(const void* own_frame) {
  found all(own_frame);
  if (all.leaks.size() == 0) return;
  std::string text = profile(all);
  const text_sink out = into(text);
  symbols names(all.memory, true);
  oldest_first(all.memory, all.leaks).for_each([&](const g_record& g) {
    write(out, g, names);
    out << "\n";
  });
  write(out, all.cycles);
  printer(2) << std::string_view(text);
}

[[gnu::noinline]] void list(std::vector<debug::leak>& out, const void* own_frame) {
  found all(own_frame);
  symbols names(all.memory, true);
  oldest_first(all.memory, all.leaks).for_each([&](const g_record& g) {
    debug::leak l;
    l.goid = g.goid;
    if (g.name != nullptr) l.name = g.name;
    l.reason = to_string(g.reason);
    write(into(l.trace), g, names);
    write(into(l.trace), all.cycles, g.goid);
    out.push_back(std::move(l));
  });
}

[[gnu::noinline]] void dump_to(std::ostream& out, const void* own_frame) {
  found all(own_frame);
  out << profile(all);
}

}  // namespace

// These three only save what their callers keep in registers: see look_for_leaks.

void report_leaks() {
  __builtin_unwind_init();
  report(stack_below());
}

}  // namespace weft::rt

namespace weft::debug {

using namespace rt;

std::vector<leak> find_leaks() {
  __builtin_unwind_init();
  std::vector<leak> out;
  list(out, stack_below());
  return out;
}

void dump_leaks(std::ostream& out) {
  __builtin_unwind_init();
  dump_to(out, stack_below());
}

}  // namespace weft::debug
