// SPDX-License-Identifier: Apache-2.0
// See profile_text.h. Runs on the caller's stack; allocates.
#include "debug/profile_text.h"

#include <algorithm>
#include <charconv>
#include <tuple>
#include <vector>

namespace weft::rt {
namespace {

std::string hex(std::uintptr_t v) {
  char digits[16];
  return "0x" + std::string(digits, std::to_chars(digits, digits + sizeof digits, v, 16).ptr);
}

// From "f(...)\n\t/path/file.cc:42 +0x1f\n" to "#\t0xPC\tf+0x1f\t/path/file.cc:42\n", line by line.
void append_lines(std::string& out, std::uintptr_t pc, std::string_view lines) {
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

std::string_view name_of(const g_record& g) {
  return g.name != nullptr ? std::string_view(g.name) : std::string_view();
}

}  // namespace

trace visible(const trace& t, arena& memory, symbols& names) {
  auto* pcs = memory.array<std::uintptr_t>(t.n);
  if (pcs == nullptr) return t;
  trace v;
  v.pcs = pcs;
  for (std::uint32_t i = 0; i < t.n; ++i) {
    const bool exact = i == 0 && t.exact;
    if (names.at(t.pcs[i], exact).lines.empty()) continue;
    if (v.n == 0) v.exact = exact;
    pcs[v.n++] = t.pcs[i];
  }
  return v.n != 0 ? v : t;
}

void append_stack(std::string& out, const trace& t, symbols& names, std::string_view label) {
  out.append(" @");
  for (std::uint32_t i = 0; i < t.n; ++i) out.append(" ").append(hex(t.pcs[i]));
  out.append("\n");
  if (!label.empty()) out.append("# labels: {\"name\":\"").append(label).append("\"}\n");
  for (std::uint32_t i = 0; i < t.n; ++i)
    append_lines(out, t.pcs[i], names.at(t.pcs[i], i == 0 && t.exact).lines);
  out.append("\n");
}

std::string goroutine_profile(std::string_view title, const arena_list<g_record>& gs, arena& memory,
                              symbols& names) {
  struct standing {
    const g_record* g;
    trace stack;
  };
  struct entry {
    const standing* first;
    std::size_t n;
  };
  std::vector<standing> all;
  // Most stand where the one before them does, and share its stack (trace_collector).
  const std::uintptr_t* last = nullptr;
  gs.for_each([&](const g_record& g) {
    all.push_back({&g, last != nullptr && last == g.stack.pcs ? all.back().stack
                                                              : visible(g.stack, memory, names)});
    last = g.stack.pcs;
  });
  const auto place = [](const standing& s) {
    return std::tuple(std::basic_string_view<std::uintptr_t>(s.stack.pcs, s.stack.n),
                      name_of(*s.g));
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const standing& a, const standing& b) { return place(a) < place(b); });
  std::vector<entry> entries;
  for (const standing& s : all) {
    if (entries.empty() || place(*entries.back().first) != place(s)) entries.push_back({&s, 0});
    ++entries.back().n;
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const entry& a, const entry& b) { return a.n > b.n; });
  std::string out;
  out.append(title).append(": total ").append(std::to_string(all.size())).append("\n");
  for (const entry& e : entries)
    append_stack(out.append(std::to_string(e.n)), e.first->stack, names, name_of(*e.first->g));
  return out;
}

}  // namespace weft::rt
