// SPDX-License-Identifier: Apache-2.0
// One function a command and a table of them. Texts of errors are Redis's: clients compare them.
// Runs in the connection's goroutine; only the shards' locks can make it wait.
#include "kv/commands.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iterator>
#include <optional>
#include <string>
#include <unistd.h>

#include <weft/debug.hpp>
#include <weft/go.hpp>

namespace kv {

namespace {

using std::chrono::milliseconds;
using arguments = std::span<const std::string_view>;

constexpr std::string_view not_integer = "ERR value is not an integer or out of range";
constexpr std::string_view syntax = "ERR syntax error";

std::optional<std::int64_t> integer(std::string_view s) {
  std::int64_t n = 0;
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (ec != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return n;
}

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
bool same(std::string_view given, std::string_view name) {
  return std::ranges::equal(given, name, [](char a, char b) { return upper(a) == b; });
}

// In `n` units from now; nullopt: farther than the clock goes.
std::optional<store::time_point> from_now(std::int64_t n, std::int64_t unit_ms) {
  std::int64_t ns = 0, at = 0;
  const std::int64_t now = weft::clock::now().time_since_epoch().count();
  if (__builtin_mul_overflow(n, unit_ms * 1'000'000, &ns) || __builtin_add_overflow(now, ns, &at))
    return std::nullopt;
  return store::time_point(store::time_point::duration(at));
}

void get(service& s, arguments a, reply& out) {
  if (!s.keys.read(a[1], [&](std::string_view v) { out.bulk(v); })) out.nil();
}

void mget(service& s, arguments a, reply& out) {
  out.array(a.size() - 1);
  for (const std::string_view key : a.subspan(1)) {
    if (!s.keys.read(key, [&](std::string_view v) { out.bulk(v); })) out.nil();
  }
}

void set(service& s, arguments a, reply& out) {
  store::when when = store::when::always;
  std::optional<store::time_point> expires = store::never;
  bool timed = false;
  for (std::size_t i = 3; i < a.size(); ++i) {
    const bool nx = same(a[i], "NX"), ex = same(a[i], "EX");
    if (nx || same(a[i], "XX")) {
      if (when != store::when::always) return out.error(syntax);
      when = nx ? store::when::absent : store::when::present;
    } else if ((ex || same(a[i], "PX")) && i + 1 < a.size() && !timed) {
      const auto n = integer(a[++i]);
      if (!n) return out.error(not_integer);
      if (*n > 0) expires = from_now(*n, ex ? 1000 : 1);
      if (*n <= 0 || !expires) return out.error("ERR invalid expire time in 'set' command");
      timed = true;
    } else if (same(a[i], "KEEPTTL") && !timed) {
      expires = std::nullopt;
      timed = true;
    } else {
      return out.error(syntax);
    }
  }
  if (s.keys.set(a[1], a[2], when, expires)) {
    out.simple("OK");
  } else {
    out.nil();
  }
}

void del(service& s, arguments a, reply& out) {
  std::int64_t n = 0;
  for (const std::string_view key : a.subspan(1)) n += s.keys.erase(key);
  out.integer(n);
}

void exists(service& s, arguments a, reply& out) {
  std::int64_t n = 0;
  for (const std::string_view key : a.subspan(1)) n += s.keys.contains(key);
  out.integer(n);
}

void add(service& s, std::string_view key, std::int64_t by, reply& out) {
  std::int64_t n = 0;
  switch (s.keys.add(key, by, n)) {
    case store::add_result::ok:
      return out.integer(n);
    case store::add_result::not_integer:
      return out.error(not_integer);
    case store::add_result::overflow:
      return out.error("ERR increment or decrement would overflow");
  }
}
void incr(service& s, arguments a, reply& out) { add(s, a[1], 1, out); }
void decr(service& s, arguments a, reply& out) { add(s, a[1], -1, out); }
void incrby(service& s, arguments a, reply& out) {
  const auto n = integer(a[2]);
  n ? add(s, a[1], *n, out) : out.error(not_integer);
}
void decrby(service& s, arguments a, reply& out) {
  const auto n = integer(a[2]);
  if (!n) return out.error(not_integer);
  if (*n == INT64_MIN) return out.error("ERR decrement would overflow");
  add(s, a[1], -*n, out);
}

void expire_in(service& s, arguments a, std::int64_t unit_ms, reply& out) {
  const auto n = integer(a[2]);
  if (!n) return out.error(not_integer);
  if (*n <= 0) return out.integer(s.keys.erase(a[1]));  // past already
  const auto at = from_now(*n, unit_ms);
  if (!at) return out.error("ERR invalid expire time in '" + std::string(a[0]) + "' command");
  out.integer(s.keys.expire(a[1], *at));
}
void expire(service& s, arguments a, reply& out) { expire_in(s, a, 1000, out); }
void pexpire(service& s, arguments a, reply& out) { expire_in(s, a, 1, out); }

// -2: no such key, -1: it stays for ever.
void time_left(service& s, arguments a, std::int64_t unit_ms, reply& out) {
  const auto at = s.keys.expiry(a[1]);
  if (!at || *at == store::never) return out.integer(at ? -1 : -2);
  const auto left = std::chrono::ceil<milliseconds>(*at - weft::clock::now()).count();
  out.integer((std::max<std::int64_t>(left, 0) + unit_ms / 2) / unit_ms);
}
void ttl(service& s, arguments a, reply& out) { time_left(s, a, 1000, out); }
void pttl(service& s, arguments a, reply& out) { time_left(s, a, 1, out); }

void ping(service&, arguments a, reply& out) {
  if (a.size() > 2) return out.error("ERR wrong number of arguments for 'ping' command");
  a.size() == 2 ? out.bulk(a[1]) : out.simple("PONG");
}
void echo(service&, arguments a, reply& out) { out.bulk(a[1]); }
void quit(service&, arguments, reply& out) { out.simple("OK"); }
void dbsize(service& s, arguments, reply& out) {
  out.integer(static_cast<std::int64_t>(s.keys.size()));
}
void flushall(service& s, arguments, reply& out) {
  s.keys.clear();
  out.simple("OK");
}

void info(service& s, arguments, reply& out) {
  const auto up = std::chrono::duration_cast<std::chrono::seconds>(weft::clock::now() - s.started);
  const weft::debug::stats rt = weft::debug::runtime_stats();
  std::string t = "# Server\r\nserver:weft-kv\r\nprocess_id:" + std::to_string(::getpid());
  const auto line = [&t](std::string_view name, auto value) {
    t.append("\r\n").append(name).append(":").append(std::to_string(value));
  };
  line("uptime_in_seconds", up.count());
  t += "\r\n\r\n# Clients";
  line("connected_clients", s.clients());
  t += "\r\n\r\n# Stats";
  line("total_commands_processed", s.commands.load(std::memory_order_relaxed));
  t += "\r\n\r\n# Runtime";
  line("procs", rt.procs);
  line("threads", rt.threads);
  line("goroutines", rt.goroutines);
  line("steals", rt.steals);
  t += "\r\n\r\n# Keyspace";
  line("keys", s.keys.size());
  out.bulk(t += "\r\n");
}

void command(service& s, arguments a, reply& out);

struct entry {
  std::string_view name;
  int arity;  // with the name; negative: at least so many
  void (*run)(service&, arguments, reply&);
  int first_key, last_key, step;
  bool writes;
};

constexpr entry table[] = {
    // sorted by name
    {"COMMAND", -1, command, 0, 0, 0, false}, {"DBSIZE", 1, dbsize, 0, 0, 0, false},
    {"DECR", 2, decr, 1, 1, 1, true},         {"DECRBY", 3, decrby, 1, 1, 1, true},
    {"DEL", -2, del, 1, -1, 1, true},         {"ECHO", 2, echo, 0, 0, 0, false},
    {"EXISTS", -2, exists, 1, -1, 1, false},  {"EXPIRE", 3, expire, 1, 1, 1, true},
    {"FLUSHALL", 1, flushall, 0, 0, 0, true}, {"GET", 2, get, 1, 1, 1, false},
    {"INCR", 2, incr, 1, 1, 1, true},         {"INCRBY", 3, incrby, 1, 1, 1, true},
    {"INFO", -1, info, 0, 0, 0, false},       {"MGET", -2, mget, 1, -1, 1, false},
    {"PEXPIRE", 3, pexpire, 1, 1, 1, true},   {"PING", -1, ping, 0, 0, 0, false},
    {"PTTL", 2, pttl, 1, 1, 1, false},        {"QUIT", -1, quit, 0, 0, 0, false},
    {"SET", -3, set, 1, 1, 1, true},          {"TTL", 2, ttl, 1, 1, 1, false},
};
static_assert(std::ranges::is_sorted(table, {}, &entry::name));

void command(service&, arguments a, reply& out) {
  if (a.size() > 1 && same(a[1], "COUNT")) return out.integer(std::size(table));
  if (a.size() > 1 && same(a[1], "DOCS")) return out.array(0);
  if (a.size() > 1) return out.error("ERR unknown subcommand. Try COMMAND, COMMAND COUNT.");
  out.array(std::size(table));
  for (const entry& e : table) {
    std::string name(e.name);
    for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    out.array(6);
    out.bulk(name);
    out.integer(e.arity);
    out.array(1);
    out.simple(e.writes ? "write" : "readonly");
    out.integer(e.first_key);
    out.integer(e.last_key);
    out.integer(e.step);
  }
}

const entry* find(std::string_view name) {
  char up[16];
  if (name.size() > sizeof up) return nullptr;
  std::ranges::transform(name, up, upper);
  const std::string_view key(up, name.size());
  const entry* e = std::ranges::lower_bound(table, key, {}, &entry::name);
  return e != std::end(table) && e->name == key ? e : nullptr;
}

}  // namespace

bool execute(service& s, std::span<const std::string_view> args, reply& out) {
  const entry* e = find(args[0]);
  const auto shown = [&args] { return std::string(args[0].substr(0, 128)); };
  if (e == nullptr) {
    out.error("ERR unknown command '" + shown() + "'");
    return true;
  }
  const auto n = static_cast<int>(args.size());
  if (e->arity > 0 ? n != e->arity : n < -e->arity) {
    out.error("ERR wrong number of arguments for '" + shown() + "' command");
    return true;
  }
  out.begin();
  try {
    e->run(s, args, out);
  } catch (const reply::too_big&) {
    out.take_back();
    out.error("ERR reply exceeds the limit");
  }
  return e->run != quit;
}

}  // namespace kv
