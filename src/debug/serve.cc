// SPDX-License-Identifier: Apache-2.0
// debug::serve: a page about the running program, over plain HTTP/1.1.
//
// Served by threads of its own, not by goroutines: it answers while every P is busy. They sleep in
// accept as plain threads do, count as ours (os/thread.h), and so do not keep a deadlock from being
// reported. One request a connection; a head of 8 KiB and ten seconds are all that a client gets.
//
// GET only, and nothing in it changes the program but /trace, which records one for a while.
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "os/thread.h"
#include "weft/debug.hpp"
#include "weft/net.hpp"
#include "weft/time.hpp"

namespace weft::debug {
namespace {

using namespace std::chrono_literals;

constexpr int threads = 4;
constexpr std::size_t longest_head = 8192;
constexpr auto patience = 10s;

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

struct answer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

const char* reason(int status) noexcept {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Internal Server Error";
  }
}

answer refusal(int status, std::string text) {
  return {status, "text/plain", std::move(text) + "\n"};
}

// A file of ours that has no name any more by the time it is read.
std::string read_whole(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::unlink(path.c_str());
  if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
  std::string all;
  char some[65536];
  for (ssize_t n; (n = ::read(fd, some, sizeof some)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    all.append(some, static_cast<std::size_t>(n));
  }
  ::close(fd);
  return all;
}

// /trace?seconds=N, one second without; what the recorder holds, if it is on.
answer record_trace(std::string_view query) {
  double seconds = 1;
  if (query.starts_with("seconds=")) {
    query.remove_prefix(8);
    const auto [end, err] = std::from_chars(query.data(), query.data() + query.size(), seconds);
    if (err != std::errc() || end != query.data() + query.size() || !(seconds > 0) || seconds > 60)
      return refusal(400, "seconds: more than 0, at most 60");
  }
  std::string path = "/tmp/weft-trace-XXXXXX";
  const int fd = ::mkstemp(path.data());
  if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
  ::close(fd);
  try {
    try {
      trace::start(path);
      sleep_for(std::chrono::duration<double>(seconds));
      trace::stop();
    } catch (const std::logic_error&) {
      trace::write(path);
    }
    return {200, "application/octet-stream", read_whole(path)};
  } catch (const std::logic_error&) {
    ::unlink(path.c_str());
    return refusal(409, "a trace is being written to a file");
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
}

answer answer_to(std::string_view method, std::string_view target) {
  if (method != "GET") return refusal(405, "GET only");
  const std::size_t mark = target.find('?');
  const std::string_view path = target.substr(0, mark);
  const std::string_view query =
      mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
  if (path == "/") return {200, "text/html; charset=utf-8", std::string(page)};
  if (path == "/metrics") return {200, "text/plain; version=0.0.4; charset=utf-8", metrics()};
  if (path == "/goroutines") {
    std::ostringstream text;
    dump(text);
    return {200, "text/plain; charset=utf-8", text.str()};
  }
  if (path == "/trace") return record_trace(query);
  return refusal(404, "there are: /, /metrics, /goroutines, /trace");
}

// The line of a request: method, target, HTTP/1.x.
answer answer_to(std::string_view head) {
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const std::size_t a = line.find(' '), b = line.rfind(' ');
  if (a == std::string_view::npos || a == b || line[a + 1] != '/' ||
      !line.substr(b + 1).starts_with("HTTP/1."))
    return refusal(400, "not HTTP/1.1");
  try {
    return answer_to(line.substr(0, a), line.substr(a + 1, b - a - 1));
  } catch (const std::exception& e) {
    return refusal(500, e.what());
  }
}

void handle(const net::conn& c) {
  std::error_code ec;
  c.set_read_deadline(clock::now() + patience, ec);
  std::string head;
  char some[1024];
  while (head.find("\r\n\r\n") == std::string::npos) {
    if (head.size() > longest_head) break;
    const std::size_t n = c.read_some(std::span<char>(some), ec);
    if (ec || n == 0) return;
    head.append(some, n);
  }
  const answer a = head.size() > longest_head ? refusal(431, "too long") : answer_to(head);
  c.set_write_deadline(clock::now() + patience, ec);
  c.write_all("HTTP/1.1 " + std::to_string(a.status) + ' ' + reason(a.status) +
                  "\r\nContent-Type: " + a.type +
                  "\r\nContent-Length: " + std::to_string(a.body.size()) +
                  "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
              ec);
  if (!ec) c.write_all(std::string_view(a.body), ec);
  c.close_write(ec);
}

void serve_for_ever(void* of) {
  const auto* l = static_cast<net::listener*>(of);
  for (;;) {
    std::error_code ec;
    net::conn c = l->accept(ec);
    if (ec) {  // out of descriptors, most likely
      sleep_for(10ms);
      continue;
    }
    try {
      handle(c);
    } catch (const std::exception&) {  // no memory: this client gets no answer
    }
  }
}

}  // namespace

std::string serve(std::string_view addr) {
  // Lives as long as the process does.
  auto* l = new net::listener(net::listen("tcp", addr));
  for (int i = 0; i < threads; ++i) {
    if (const int err = rt::start_service_thread(serve_for_ever, l, "weft-serve");
        err != 0 && i == 0) {
      delete l;
      throw std::system_error(err, std::generic_category(), "debug::serve: no thread");
    }
  }
  return l->addr().to_string();
}

}  // namespace weft::debug
