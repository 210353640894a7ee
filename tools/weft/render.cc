// SPDX-License-Identifier: Apache-2.0
// Figures as people read them: the table of `weft stats` and the pictures of `weft top`.
#include "render.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <vector>

namespace weft::tool {
namespace {

// Characters, not bytes: there is a µ.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}
std::string right(const std::string& text, std::size_t columns) {
  const std::size_t w = width(text);
  return w < columns ? std::string(columns - w, ' ') + text : text;
}
std::string left(const std::string& text, std::size_t columns) {
  const std::size_t w = width(text);
  return w < columns ? text + std::string(columns - w, ' ') : text;
}

std::string cut(const std::string& line, std::size_t columns) {
  if (columns == 0 || width(line) <= columns) return line;
  std::size_t bytes = 0, seen = 0;
  for (; bytes < line.size(); ++bytes) {
    const bool begins = (static_cast<unsigned char>(line[bytes]) & 0xc0) != 0x80;
    if (begins && seen++ == columns) break;
  }
  return line.substr(0, bytes);
}

std::string decimal(double v, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, v);
  return text;
}

std::string bytes(double n) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t u = 0;
  for (; n >= 1024 && u + 1 < std::size(units); ++u) n /= 1024;
  return decimal(n, u == 0 || n >= 100 ? 0 : 1) + ' ' + units[u];
}

struct counter {
  const char* word;
  const char* figure;
};
constexpr counter counters[] = {
    {"spawns", "go_sched_goroutines_created_goroutines_total"},
    {"switches", "weft_sched_switches_total"},
    {"parks", "weft_sched_parks_total"},
    {"steals", "weft_sched_steals_total"},
    {"preemptions", "weft_sched_preemptions_total"},
    {"syscalls", "weft_sched_syscalls_total"},
    {"hand-offs", "weft_sched_handoffs_total"},
};

std::string states(const figures& v) {
  return with_commas(v["go_sched_goroutines_running_goroutines"]) + " running, " +
         with_commas(v["go_sched_goroutines_runnable_goroutines"]) + " runnable, " +
         with_commas(v["go_sched_goroutines_waiting_goroutines"]) + " waiting, " +
         with_commas(v["go_sched_goroutines_not_in_go_goroutines"]) + " in syscalls, " +
         with_commas(v["weft_sched_leaked_goroutines"]) + " leaked";
}
std::string procs(const figures& v) {
  const double all = v["go_sched_gomaxprocs_threads"], idle = v["weft_sched_idle_procs"];
  return with_commas(std::max(0.0, all - idle)) + " busy, " + with_commas(idle) + " idle";
}
std::string threads(const figures& v) {
  return with_commas(v["weft_sched_idle_threads"]) + " idle, " +
         with_commas(v["weft_sched_spinning_threads"]) + " spinning";
}
std::string percentiles(const char* of_what, const histogram& h) {
  std::string text = of_what;
  for (const double q : {0.5, 0.9, 0.99, 1.0}) {
    text += "  ";
    text += q == 1.0 ? std::string("max") : std::string(1, 'p').append(decimal(q * 100, 0));
    text.append(1, ' ').append(duration(h.quantile(q)));
  }
  return text;
}
std::string row(const char* word, const std::string& number, const std::string& rest) {
  return left(word, 14) + right(number, 12) + (rest.empty() ? "" : "  " + rest) + '\n';
}

constexpr const char* latencies = "go_sched_latencies_seconds";
constexpr const char* pauses = "go_sched_pauses_total_other_seconds";

// The figures of now that both tables have.
std::string gauges(const figures& v) {
  return row("Ps", with_commas(v["go_sched_gomaxprocs_threads"]), procs(v)) +
         row("threads", with_commas(v["go_threads"]), threads(v)) +
         row("goroutines", with_commas(v["go_goroutines"]), states(v)) +
         row("global queue", with_commas(v["weft_sched_global_queue_goroutines"]), "");
}

std::string per_p(const sample& before, const sample& now, double seconds) {
  const std::vector<double> ran = now.values.per_p("weft_p_switches_total"),
                            had = before.values.per_p("weft_p_switches_total"),
                            queued = now.values.per_p("weft_p_queued_goroutines"),
                            running = now.values.per_p("weft_p_running");
  std::string text =
      right("P", 4) + "  " + left("state", 8) + right("queue", 8) + right("switches/s", 14) + '\n';
  for (std::size_t i = 0; i < std::min({ran.size(), queued.size(), running.size()}); ++i) {
    const double delta = i < had.size() ? std::max(0.0, ran[i] - had[i]) : 0;
    text += right(std::to_string(i), 4) + "  " + left(running[i] != 0 ? "running" : "idle", 8) +
            right(with_commas(queued[i]), 8) + right(with_commas(delta / seconds), 14) + '\n';
  }
  return text;
}

}  // namespace

std::string duration(std::optional<double> seconds) {
  if (!seconds) return "-";
  if (std::isinf(*seconds)) return "> 4 min";
  const double ns = *seconds * 1e9;
  const auto with = [](double v, const char* unit) {
    return decimal(v, v < 9.95 ? 1 : 0) + ' ' + unit;
  };
  if (ns < 999.5) return decimal(ns, 0) + " ns";
  if (ns < 999.5e3) return with(ns / 1e3, "µs");
  if (ns < 999.5e6) return with(ns / 1e6, "ms");
  return with(ns / 1e9, "s");
}

std::string with_commas(double count) {
  std::string digits = decimal(std::max(0.0, count), 0);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

std::string stats_table(const sample& s) {
  const figures& v = s.values;
  std::string text = "process " + std::to_string(s.process.pid) + " (" + s.process.name + "), " +
                     bytes(s.process.memory) + " resident, " + duration(s.process.cpu_seconds) +
                     " of CPU time\n\n" + gauges(v);
  for (const counter& c : counters) text += row(c.word, with_commas(v[c.figure]), "");
  text += row("mutex waits", duration(v["go_sync_mutex_wait_total_seconds_total"]), "by all");
  const histogram h = v.times(latencies), p = v.times(pauses);
  text += row("latency", with_commas(h.count()), percentiles("wake-ups", h));
  text += row("world stopped", with_commas(p.count()), percentiles("times", p));
  text +=
      row("stacks", with_commas(v["weft_stacks"]), with_commas(v["weft_free_stacks"]) + " free");
  return text;
}

std::string top_frame(const sample& before, const sample& now, std::size_t lines,
                      std::size_t columns) {
  const double seconds = std::max(1e-3, now.at - before.at);
  const figures &v = now.values, &old = before.values;
  const double cpu = (now.process.cpu_seconds - before.process.cpu_seconds) / seconds;
  std::string text = "weft top: process " + std::to_string(now.process.pid) + " (" +
                     now.process.name + "), CPU " + decimal(100 * std::max(0.0, cpu), 0) + " %, " +
                     bytes(now.process.memory) + ", over " + duration(seconds) + "\n\n" + gauges(v);
  text += '\n' + left("", 14) + right("per second", 12) + right("total", 18) + '\n';
  for (const counter& c : counters) {
    const double delta = std::max(0.0, v[c.figure] - old[c.figure]);
    text += left(c.word, 14) + right(with_commas(delta / seconds), 12) +
            right(with_commas(v[c.figure]), 18) + '\n';
  }
  const histogram h = v.times(latencies).since(old.times(latencies)),
                  p = v.times(pauses).since(old.times(pauses));
  text += '\n' + row("latency", with_commas(h.count()), percentiles("wake-ups", h));
  text += row("world stopped", with_commas(p.count()), percentiles("times", p));
  text += '\n' + per_p(before, now, seconds);

  std::istringstream in(text);
  std::string out;
  std::size_t n = 0;
  for (std::string line; std::getline(in, line) && (lines == 0 || n < lines); ++n)
    out += cut(line, columns) + '\n';
  return out;
}

}  // namespace weft::tool
