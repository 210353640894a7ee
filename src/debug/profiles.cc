// SPDX-License-Identifier: Apache-2.0
// The profiles: where all goroutines stand now (goroutine_profile), and where they have waited for
// how long (block_profile).
//
// Blocking is counted by the goroutine itself when it goes on (sched/park.cc, park_timed). A wait
// of at least `rate` is always counted; a shorter one with the probability time / rate, and then
// counts as `rate`, and as so many waits that their mean is right. So the sums are unbiased, and
// short waits cost only a random number.
//
// The table is open addressing over whole stacks, in memory of our own, and never shrinks; the
// stacks that find no place are counted together, without one.
//
// count_blocked runs on the goroutine's stack, inside the runtime: no malloc, one leaf lock. The
// rest on the caller's stack; allocates.
#include <algorithm>
#include <cstring>
#include <new>
#include <ostream>
#include <vector>

#include "base/random.h"
#include "debug/block_profile.h"
#include "debug/leaks.h"
#include "debug/profile_text.h"
#include "os/memory.h"
#include "sched/procs.h"
#include "sched/tracing.h"
#include "weft/debug.hpp"

namespace weft::rt {
namespace {

struct place_blocked {
  std::uint64_t times = 0, ns = 0;
  std::uint32_t n = 0;  // of pcs; 0: free
  std::uint64_t pcs[max_frames] = {};
};

constexpr std::size_t places = 4096;

struct {
  mutex lock{lock_rank::leaf};
  place_blocked* table = nullptr;
  place_blocked others;  // no room, or no stack
} constinit blocked;

place_blocked& place_of(const std::uint64_t* pcs, unsigned n) noexcept {
  if (blocked.table == nullptr || n == 0) return blocked.others;
  std::uint64_t hash = n;
  for (unsigned i = 0; i < n; ++i) hash = random(hash ^ pcs[i]).next();
  for (std::size_t i = 0; i < places; ++i) {
    place_blocked& p = blocked.table[(hash + i) % places];
    if (p.n == n && std::memcmp(p.pcs, pcs, n * sizeof *pcs) == 0) return p;
    if (p.n != 0) continue;
    std::memcpy(p.pcs, pcs, n * sizeof *pcs);
    p.n = n;
    return p;
  }
  return blocked.others;
}

// 0: this one is not taken. Else what a wait of ns counts for.
std::uint64_t weight(std::uint64_t ns) noexcept {
  static constinit atomic<std::uint64_t> drawn{0};
  const std::uint64_t rate = sched.block_rate.load(memory_order_relaxed);
  if (ns >= rate) return ns;
  const std::uint64_t draw = random(drawn.fetch_add(1, memory_order_relaxed)).next();
  return draw % rate < ns ? rate : 0;
}

void count(const std::uint64_t* pcs, unsigned n, std::uint64_t ns, std::uint64_t counts) noexcept {
  blocked.lock.lock();
  place_blocked& p = place_of(pcs, n);
  p.ns += counts;
  p.times += (counts + ns / 2) / ns;
  blocked.lock.unlock();
}

}  // namespace

void count_blocked(const std::uint64_t* pcs, unsigned n, std::uint64_t ns) noexcept {
  if (ns == 0) ns = 1;
  if (const std::uint64_t counts = weight(ns)) count(pcs, n, ns, counts);
}

void note_blocked(wait_reason why, std::int64_t since) noexcept {
  if (!waits_for_others(why)) return;
  const std::int64_t took = nanotime() - since;
  const std::uint64_t ns = took > 0 ? static_cast<std::uint64_t>(took) : 1;
  const std::uint64_t counts = weight(ns);
  if (counts == 0) return;
  const in_runtime in;
  std::uint64_t pcs[max_frames];
  count(pcs, trace_walk(pcs, max_frames), ns, counts);
}

blocked_total blocked_so_far() noexcept {
  blocked.lock.lock();
  blocked_total sum{blocked.others.times, blocked.others.ns};
  for (std::size_t i = 0; blocked.table != nullptr && i < places; ++i) {
    sum.times += blocked.table[i].times;
    sum.ns += blocked.table[i].ns;
  }
  blocked.lock.unlock();
  return sum;
}

void take_goroutines(arena& memory, arena_list<g_record>& out) {
  trace_collector collector(memory);
  const stopped_world w;
  const G* self = current_g();
  if (self != nullptr) {
    const registers here = registers_here();
    out.push(memory, collector.record(*self, &here, false));
  }
  collector.all(out, self);
  wipe_stack();
}

}  // namespace weft::rt

namespace weft::debug {

using namespace rt;

void goroutine_profile(std::ostream& out) {
  arena memory;
  arena_list<g_record> all;
  take_goroutines(memory, all);
  symbols names(memory, true);
  out << rt::goroutine_profile("goroutine profile", all, memory, names);
}

void set_block_profile_rate(std::chrono::nanoseconds rate) {
  const auto ns = static_cast<std::uint64_t>(rate.count() > 0 ? rate.count() : 0);
  if (ns != 0) {
    blocked.lock.lock();
    if (blocked.table == nullptr) {
      const mapping m = map_memory(places * sizeof(place_blocked));
      if (m) blocked.table = ::new (reinterpret_cast<void*>(m.addr)) place_blocked[places];
    }
    blocked.lock.unlock();
  }
  sched.block_rate.store(ns, memory_order_relaxed);
}

void block_profile(std::ostream& out) {
  arena memory;
  arena_list<place_blocked> seen;
  blocked.lock.lock();
  if (blocked.others.times != 0) seen.push(memory, blocked.others);
  for (std::size_t i = 0; blocked.table != nullptr && i < places; ++i) {
    if (blocked.table[i].times != 0) seen.push(memory, blocked.table[i]);
  }
  blocked.lock.unlock();
  std::vector<const place_blocked*> sorted;
  seen.for_each([&](const place_blocked& p) { sorted.push_back(&p); });
  std::stable_sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->ns > b->ns; });
  symbols names(memory, true);
  std::string text = "--- contention:\ncycles/second=1000000000\n";
  for (const place_blocked* p : sorted) {
    rt::trace t;
    t.pcs = p->pcs;
    t.n = p->n;
    t = visible(t, memory, names);
    text.append(std::to_string(p->ns)).append(" ").append(std::to_string(p->times));
    append_stack(text, t, names);
  }
  out << text;
}

}  // namespace weft::debug
