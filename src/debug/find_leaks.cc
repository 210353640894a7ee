// SPDX-License-Identifier: Apache-2.0
// find_leaks() and its text forms: what the look (leaks.cc) has found, put into words when the
// world runs again. Runs on the caller's stack; allocates.
#include <algorithm>
#include <charconv>
#include <ostream>
#include <string_view>
#include <utility>

#include "base/print.h"
#include "debug/leaks.h"
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

std::string hex(std::uintptr_t v) {
  char digits[16];
  return "0x" + std::string(digits, std::to_chars(digits, digits + sizeof digits, v, 16).ptr);
}

// From "f(...)\n\t/path/file.cc:42 +0x1f\n" to "#\t0xPC\tf+0x1f\t/path/file.cc:42\n", line by line.
void append_profile_lines(std::string& out, std::uintptr_t pc, std::string_view lines) {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    std::string_view name = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    name = name.substr(0, name.rfind('('));
    std::string_view at, offset;
    if (lines.starts_with('\t')) {
      const std::size_t stop = std::min(lines.find('\n'), lines.size());
      at = lines.substr(1, stop - 1);
      lines.remove_prefix(std::min(stop + 1, lines.size()));
      const std::size_t space = at.rfind(" +");
      if (space != std::string_view::npos) {
        offset = at.substr(space + 1);
        at = at.substr(0, space);
      }
    }
    out.append("#\t").append(hex(pc)).append("\t").append(name).append(offset);
    out.append("\t").append(at).append("\n");
  }
}

struct found {
  arena memory;
  arena_list<g_record> leaks;

  explicit found(const void* own_frame) { look_for_leaks(memory, leaks, own_frame); }
};

// Those that stand at the same place are one entry; the most frequent first.
std::string profile(found& all) {
  struct entry {
    const g_record* g;
    std::size_t n;
  };
  std::vector<const g_record*> gs;
  all.leaks.for_each([&](const g_record& g) { gs.push_back(&g); });
  const auto pcs = [](const g_record* g) {
    return std::basic_string_view<std::uintptr_t>(g->stack.pcs, g->stack.n);
  };
  std::stable_sort(gs.begin(), gs.end(), [&](auto* a, auto* b) { return pcs(a) < pcs(b); });
  std::vector<entry> entries;
  for (const g_record* g : gs) {
    if (entries.empty() || pcs(entries.back().g) != pcs(g)) entries.push_back({g, 0});
    ++entries.back().n;
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const entry& a, const entry& b) { return a.n > b.n; });
  symbols names(all.memory, true);
  std::string out = "goroutineleak profile: total " + std::to_string(gs.size()) + "\n";
  for (const entry& e : entries) {
    const trace& t = e.g->stack;
    out.append(std::to_string(e.n)).append(" @");
    for (std::uint32_t i = 0; i < t.n; ++i) out.append(" ").append(hex(t.pcs[i]));
    out.append("\n");
    for (std::uint32_t i = 0; i < t.n; ++i)
      append_profile_lines(out, t.pcs[i], names.at(t.pcs[i], false).lines);
    out.append("\n");
  }
  return out;
}

[[gnu::noinline]] void report(const void* own_frame) {
  found all(own_frame);
  if (all.leaks.size() == 0) return;
  std::string text = profile(all);
  const text_sink out = into(text);
  symbols names(all.memory, true);
  all.leaks.for_each([&](const g_record& g) {
    write(out, g, names);
    out << "\n";
  });
  printer(2) << std::string_view(text);
}

[[gnu::noinline]] void list(std::vector<debug::leak>& out, const void* own_frame) {
  found all(own_frame);
  symbols names(all.memory, true);
  all.leaks.for_each([&](const g_record& g) {
    debug::leak l;
    l.goid = g.goid;
    if (g.name != nullptr) l.name = g.name;
    l.reason = to_string(g.reason);
    write(into(l.trace), g, names);
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
