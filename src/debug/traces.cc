// SPDX-License-Identifier: Apache-2.0
// See traces.h. Collecting is what keeps the world stopped, so it only walks: a frame is a look
// into the cache of rules and two or three loads. What it waits for is memory, the stacks of
// goroutines that have slept for long; so the next ones' are fetched ahead.
//
// collect: in a stopped world, no allocation but from the arena. write: on any stack with 16 KiB
// left.
#include "debug/traces.h"

#include <algorithm>

#include "debug/regions.h"
#include "os/thread.h"
#include "sched/bubble.h"
#include "sched/sched.h"

namespace weft::rt {
namespace {

// The registers of a goroutine that was stopped by a signal and waits in place; null: there are
// none, it waits in a call.
const void* where_stopped(const G& g) noexcept {
  const void* at = nullptr;
  sched.kept.for_each([&](const M* m) {
    if (m->curg == &g) at = m->stopped_at;
  });
  return at;
}

// The same in a process that ends; null: it could not be made to stay.
const void* frozen_at(const G& g) noexcept {
  const M* m = g.m.load(memory_order_relaxed);
  return m != nullptr && m->frozen.load(memory_order_acquire) ? m->stopped_at : nullptr;
}

// Of one that sleeps in the kernel, which tells two of its registers. The frames of functions that
// find theirs by another one cannot be followed.
asleep_in where_asleep(const G& g) noexcept {
  const M* m = g.m.load(memory_order_relaxed);
  const pid_t tid = m != nullptr ? m->tid.load(memory_order_relaxed) : 0;
  if (tid == 0) return {};
  const asleep_in a = rt::where_asleep(tid);
  return a.call >= 0 && a.sp >= g.stk.lo && a.sp < g.stk.hi ? a : asleep_in{};
}

// Where a goroutine's saved registers and innermost frames lie.
WEFT_READS_STACKS void prefetch_stack(const G& g) noexcept {
  const char* sp = static_cast<const char*>(g.sp);
  if (sp == nullptr) return;
  for (std::size_t i = 0; i < 8; ++i) __builtin_prefetch(sp + i * 64);
}

bool is_alive(g_status s) noexcept {
  return s != g_status::idle && s != g_status::dead && s != g_status::deadextra;
}

// The frames below a goroutine's function are the same for all, and hidden anyway.
bool is_bottom(std::uintptr_t pc) noexcept {
  return pc - reinterpret_cast<std::uintptr_t>(&weft_guarded_call) < 32;
}

// A plain thread's stack has no bounds that could be had cheaply: as far as can be read. One that
// has run over its end has its stack pointer below, by a frame.
span readable_from(std::uintptr_t sp) noexcept {
  constexpr std::size_t large_frame = 64 * 1024;
  const std::size_t page = page_size();
  std::uintptr_t at = sp & ~(page - 1);
  while (at < sp + large_frame && !is_readable(at)) at += page;
  std::uintptr_t end = at;
  for (int i = 0; i < 256 && is_readable(end); ++i) end += page;
  return {std::max(at, sp), end};
}

}  // namespace

bool trace_collector::same_as_last(const std::uintptr_t* pcs, std::uint32_t n) const noexcept {
  return last_.n == n && last_.elided == 0 && std::memcmp(last_.pcs, pcs, n * sizeof *pcs) == 0;
}

trace trace_collector::of_thread(const registers& here, bool exact) noexcept {
  const span s = readable_from(here.sp());
  return walk({here, s.lo, s.hi, exact, cache_}, exact);
}

trace trace_collector::of_running(const G& g, const registers& here, bool exact) noexcept {
  if (here.sp() >= g.stk.base && here.sp() <= g.stk.hi)  // its guard included: an overflow
    return walk({here, here.sp(), g.stk.hi, exact, cache_}, exact);
  // Inside on_system_stack: what is below stands on its own stack.
  const span s = readable_from(here.sp());
  stack_walk w(here, s.lo, s.hi, exact, cache_);
  w.then(g.stk.lo, g.stk.hi);
  return walk(w, exact);
}

trace trace_collector::walk(stack_walk w, bool exact) noexcept {
  std::uintptr_t head[trace::inner], tail[trace::outer];
  std::uint32_t n = 0;
  do {
    if (n < trace::inner) {
      head[n] = w.pc();
    } else {
      tail[(n - trace::inner) % trace::outer] = w.pc();
    }
    ++n;
  } while (w.up() && !is_bottom(w.pc()));
  if (n <= trace::inner && !exact && same_as_last(head, n)) return last_;
  trace t;
  t.exact = exact;
  constexpr std::uint32_t most = trace::inner + trace::outer;
  t.n = n < most ? n : most;
  t.elided = n - t.n;
  auto* pcs = memory_.array<std::uintptr_t>(t.n);
  if (pcs == nullptr) return {};
  for (std::uint32_t i = 0; i < t.n; ++i) {
    pcs[i] = i < trace::inner ? head[i] : tail[(i - trace::inner + t.elided) % trace::outer];
  }
  t.pcs = pcs;
  if (!exact) last_ = t;
  return t;
}

WEFT_READS_STACKS g_record trace_collector::record(const G& g, const registers* here,
                                                   bool exact) noexcept {
  g_record r;
  r.goid = g.goid;
  r.parent = g.parent;
  r.created_at = g.created_at;
  r.status = here != nullptr ? g_status::running : g.state();
  r.locked = g.locks != 0;
  if (const bubble* b = g.its_bubble()) r.bubble = b->id;
  if (g.named.load(memory_order_relaxed)) r.name = memory_.copy(g.name);
  if (here != nullptr) {
    r.stack = of_running(g, *here, exact);
    return r;
  }
  if (r.status == g_status::waiting || r.status == g_status::leaked) {
    r.reason = g.reason;
    r.durable = g.durable;
    if (now_s_ > g.eh.since) r.minutes = (now_s_ - g.eh.since) / 60;
  } else if (r.status != g_status::runnable || g.kept) {
    // In a system call, or computing on without a P: the thread goes its own way, and may be about
    // to queue up. It has when it is runnable (queue_kept).
    const void* at = r.status == g_status::runnable ? where_stopped(g) : frozen_at(g);
    if (at != nullptr) {
      r.stack = of_running(g, registers_in_signal(at), true);
    } else if (const asleep_in a = where_asleep(g); a.pc != 0) {
      registers regs;
      regs.r[cfi_pc] = a.pc;
      regs.r[cfi_sp] = a.sp;
      r.stack = of_running(g, regs, true);
      r.elsewhere = where_asleep(g) != a;  // it has gone on meanwhile
    } else {
      r.elsewhere = true;
    }
    return r;
  }
  const auto sp = reinterpret_cast<std::uintptr_t>(g.sp);
  if (sp == 0 || !g.stk) return r;  // not begun: no stack yet
  if (sp < g.stk.lo || sp > g.stk.hi - sizeof(switch_frame)) return r;
  r.stack = walk({registers_saved(g.sp), sp, g.stk.hi, false, cache_}, false);
  return r;
}

WEFT_READS_STACKS std::size_t trace_collector::all(arena_list<g_record>& out, const G* except,
                                                   std::size_t from, std::int64_t until) noexcept {
  const std::size_t n = sched.gs.size();
  const std::uint32_t run = sched.run_id.load(memory_order_relaxed);
  constexpr std::size_t ahead = 8, look_at_clock = 128;
  for (std::size_t i = from; i < n; ++i) {
    if (i % look_at_clock == 0) {
      const std::int64_t now = nanotime();
      now_s_ = static_cast<std::uint32_t>(now / 1'000'000'000);
      if (until >= 0 && now >= until && i > from) return i;
    }
    if (i + 2 * ahead < n) {
      const G* later = sched.gs.at(i + 2 * ahead);
      __builtin_prefetch(later);
      __builtin_prefetch(&later->parent);
      __builtin_prefetch(&later->stk);
    }
    if (i + ahead < n) prefetch_stack(*sched.gs.at(i + ahead));
    const G& g = *sched.gs.at(i);
    if (&g == except || !is_alive(g.state()) || g.run_id != run) continue;
    out.push(memory_, record(g, nullptr, false));
  }
  return 0;
}

constinit bool show_runtime_frames = false;

oldest_first::oldest_first(arena& memory, const arena_list<g_record>& list) noexcept
    : list_(list), sorted_(memory.array<const g_record*>(list.size())) {
  if (sorted_ == nullptr) return;
  std::size_t n = 0;
  list.for_each([&](const g_record& g) { sorted_[n++] = &g; });
  std::sort(sorted_, sorted_ + n,
            [](const g_record* a, const g_record* b) { return a->goid < b->goid; });
}

[[gnu::noinline]] void wipe_stack() noexcept {
  volatile char used[8 * 1024];
  for (volatile char& c : used) c = 0;
}

const text_sink& text_sink::operator<<(std::uint64_t v) const {
  char tmp[20];
  std::size_t n = sizeof tmp;
  do {
    tmp[--n] = static_cast<char>('0' + v % 10);
    v /= 10;
  } while (v != 0);
  return *this << std::string_view(tmp + n, sizeof tmp - n);
}

namespace {

// Of the text of a place, which has two lines for each function.
std::uint64_t functions_in(std::string_view lines) noexcept {
  return static_cast<std::uint64_t>(std::count(lines.begin(), lines.end(), '\n')) / 2;
}

// Without its first n.
std::string_view from_function(std::string_view lines, std::uint64_t n) noexcept {
  for (std::uint64_t i = 0; i < 2 * n; ++i) lines.remove_prefix(lines.find('\n') + 1);
  return lines;
}

}  // namespace

void write(const text_sink& out, const trace& t, symbols& names) {
  const auto place_of = [&](std::uint32_t i) -> const place& {
    return names.at(t.pcs[i], i == 0 && t.exact);
  };
  bool all = true;
  for (std::uint32_t i = 0; i < t.n && all; ++i) all = place_of(i).lines.empty();
  const auto lines_of = [&](std::uint32_t i) {
    return all || show_runtime_frames ? place_of(i).all_lines : place_of(i).lines;
  };
  std::uint64_t known = 0;
  for (std::uint32_t i = 0; i < t.n; ++i) known += functions_in(lines_of(i));
  const bool elides = known + t.elided > 2 * trace::shown && known >= 2 * trace::shown;
  const std::uint64_t last_begin = elides ? known - trace::shown : 0;
  std::uint64_t at = 0;
  for (std::uint32_t i = 0; i < t.n; ++i) {
    std::string_view lines = lines_of(i);
    const std::uint64_t n = functions_in(lines);
    if (!elides) {
      out << lines;
      if (t.elided != 0 && i + 1 == trace::inner)
        out << "..." << std::uint64_t{t.elided} << " frames elided...\n";
      continue;
    }
    if (at < trace::shown) {
      const std::uint64_t first = std::min(n, trace::shown - at);
      const std::string_view rest = from_function(lines, first);
      out << lines.substr(0, lines.size() - rest.size());
      if (at + n >= trace::shown)
        out << "..." << known - 2 * trace::shown + t.elided << " frames elided...\n";
    }
    if (at + n > last_begin) out << from_function(lines, at < last_begin ? last_begin - at : 0);
    at += n;
  }
}

void write(const text_sink& out, const g_record& g, symbols& names) {
  out << "goroutine " << g.goid;
  if (g.name != nullptr) out << " \"" << std::string_view(g.name) << "\"";
  const bool waits = g.status == g_status::waiting || g.status == g_status::leaked;
  const std::string_view why = waits ? to_string(g.reason) : std::string_view();
  out << " [" << (why.empty() ? to_string(g.status) : why);
  if (g.status == g_status::leaked) out << " (leaked)";
  if (g.durable) out << " (durable)";
  if (g.minutes != 0) out << ", " << std::uint64_t{g.minutes} << " minutes";
  if (g.locked) out << ", locked to thread";
  if (g.bubble != 0) out << ", synctest bubble " << std::uint64_t{g.bubble};
  out << "]:\n";
  if (g.elsewhere) {
    out << "\tgoroutine running on other thread; stack unavailable\n";
  } else {
    write(out, g.stack, names);
  }
  if (g.created_at != nullptr) {
    const place& p = names.at(reinterpret_cast<std::uintptr_t>(g.created_at), false);
    out << "created by " << p.creator;
    if (g.parent != 0) out << " in goroutine " << g.parent;
    out << "\n" << p.created_at;
  }
}

}  // namespace weft::rt
