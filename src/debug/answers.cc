// SPDX-License-Identifier: Apache-2.0
// The answers of debug::serve and debug::attach: a page, /metrics, /goroutines, /trace.
//
// GET only, and nothing in it changes the program but /trace, which records one for a while.
//
// Runs on the threads of answering.cc. They are ours, so the deadlock detector does not wait for
// them; but while one holds the world or the tracer, a goroutine may wait for it, and that is an
// errand (sched/waiter.h). The seconds of a recording are none: a deadlock is reported meanwhile.
#include "debug/answers.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

#include "sched/waiter.h"
#include "weft/debug.hpp"

namespace weft::debug {
namespace {

constexpr std::string_view page = R"(<!doctype html>
<meta charset="utf-8"><title>weft</title>
<style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem; max-width: 60rem }
table { border-collapse: collapse } td { padding: 0 1rem 0 0 } td + td { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; height: 8rem; border: 1px solid #ccc } path { fill: none; stroke-width: 1.5 }
</style>
<h1>weft</h1>
<p><a href="/metrics">/metrics</a> · <a href="/goroutines">/goroutines</a> · <a href="/trace?seconds=1">/trace?seconds=1</a>
(opens in <a href="https://ui.perfetto.dev">ui.perfetto.dev</a>)</p>
<svg viewBox="0 0 120 100" preserveAspectRatio="none"><path id="running" stroke="#2a7"/><path id="runnable" stroke="#c52"/></svg>
<p>running <span style="color:#2a7">■</span>, runnable <span style="color:#c52">■</span>, the last two minutes</p>
<table id="figures"></table>
<script>
const past = { running: [], runnable: [] };
async function look() {
  const rows = (await (await fetch("/metrics")).text()).split("\n")
    .filter(l => l && l[0] != "#" && !l.includes("_bucket")).map(l => l.split(" "));
  figures.replaceChildren(...rows.map(r => {
    const tr = document.createElement("tr");
    for (const c of r) tr.appendChild(document.createElement("td")).textContent = c;
    return tr;
  }));
  for (const k in past) {
    const v = rows.find(r => r[0] == "go_sched_goroutines_" + k + "_goroutines");
    past[k] = [...past[k], v ? +v[1] : 0].slice(-120);
  }
  const top = Math.max(1, ...past.running, ...past.runnable);
  for (const k in past)
    document.getElementById(k).setAttribute("d", past[k].map((v, i) => (i ? "L" : "M") + i + " " + (98 - 96 * v / top)).join(""));
}
setInterval(look, 1000); look();
</script>
)";

// -- helpers

// A file without a name, on disk where that can be had: a trace may be large.
class nameless_file {
 public:
  nameless_file() : fd_(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
    if (fd_ < 0) fd_ = ::memfd_create("weft-trace", MFD_CLOEXEC);
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "no room for a trace");
  }
  ~nameless_file() {
    if (fd_ >= 0) ::close(fd_);
  }
  nameless_file(const nameless_file&) = delete;
  nameless_file& operator=(const nameless_file&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Until the time is over, or the client has gone.
void record_for(double seconds, int client) {
  pollfd gone{client, 0, 0};  // a hang-up is always told
  ::poll(&gone, 1, static_cast<int>(std::ceil(seconds * 1000)));
}

// /trace?seconds=N, one second without; what the recorder holds, if it is on.
answer record_trace(std::string_view query, int client) {
  double seconds = 1;
  if (query.starts_with("seconds=")) {
    query.remove_prefix(8);
    const auto [end, err] = std::from_chars(query.data(), query.data() + query.size(), seconds);
    if (err != std::errc() || end != query.data() + query.size() || !(seconds > 0) || seconds > 60)
      return refusal(400, "seconds: more than 0, at most 60");
  }
  nameless_file to;
  answer a{200, "application/octet-stream", {}};
  try {
    {
      const rt::errand start;
      trace::start(to.path());
    }
    record_for(seconds, client);
    const rt::errand stop;
    trace::stop();
    a.source = "recorded";
  } catch (const std::logic_error&) {  // there is one already
    const rt::errand write;
    try {
      trace::write(to.path());
      a.source = "recorder";
    } catch (const std::logic_error&) {
      return refusal(409, "a trace is being written to a file");
    }
  }
  a.file = to.release();
  return a;
}

std::string goroutines() {
  const rt::errand dumping;
  std::ostringstream text;
  dump(text);
  return text.str();
}

answer answer_to(std::string_view method, std::string_view target, int client) {
  if (method != "GET") return refusal(405, "GET only");
  const std::size_t mark = target.find('?');
  const std::string_view path = target.substr(0, mark);
  const std::string_view query =
      mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
  if (path == "/") return {200, "text/html; charset=utf-8", std::string(page)};
  if (path == "/metrics") return {200, "text/plain; version=0.0.4; charset=utf-8", metrics()};
  if (path == "/goroutines") return {200, "text/plain; charset=utf-8", goroutines()};
  if (path == "/trace") return record_trace(query, client);
  return refusal(404, "there are: /, /metrics, /goroutines, /trace");
}

}  // namespace

answer refusal(int status, std::string_view text) {
  return {status, "text/plain", std::string(text) + "\n"};
}

// The line of a request: method, target, HTTP/1.x.
answer answer_to(std::string_view head, int client) {
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const std::size_t a = line.find(' '), b = line.rfind(' ');
  if (a == std::string_view::npos || a == b || line[a + 1] != '/' ||
      !line.substr(b + 1).starts_with("HTTP/1."))
    return refusal(400, "not HTTP/1.1");
  try {
    return answer_to(line.substr(0, a), line.substr(a + 1, b - a - 1), client);
  } catch (const std::exception& e) {
    return refusal(500, e.what());
  }
}

}  // namespace weft::debug
