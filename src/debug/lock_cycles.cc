// SPDX-License-Identifier: Apache-2.0
// See lock_cycles.h. A mutex, and a shared_mutex that a writer has, know their owner by its number.
// Whoever waits for one leads to the owner, and if that one waits for a lock too, further; where
// the way comes back to itself is a cycle.
//
// That a reported cycle is one:
//   - the owner's name is written behind the lock and wiped before it is given up, so it is the
//     owner's or nobody's; read with a waiter on the queue and under the queue's lock, so the lock
//     is there;
//   - all who are in it wait, and none of them can have locked or unlocked anything since the first
//     was looked at;
//   - numbers are cut off in a lock, and given anew in each run. So nothing is said once
//     there have been more, or another run: a lock may have been left locked by one who is gone.
// It is a deadlock unless somebody else unlocks one of them, which weft's locks allow.
//
// Runs on the caller's stack, or on the dump thread's in a dying process: it tries locks, and waits
// for none.
#include "debug/lock_cycles.h"

#include <algorithm>

#include "debug/cfi.h"
#include "sched/sched.h"
#include "sync/lock_view.h"
#include "sync/wait_list.h"

namespace weft::rt {
namespace {

struct node {
  lock_wait wait;
  std::uint32_t next = 0;  // the owner's
  std::uint32_t seen = 0;  // in which round; 0: not yet
};

constexpr std::uint32_t none = UINT32_MAX;

bool waits_for_lock(const G& g) noexcept {
  const g_status s = g.state();
  return (s == g_status::waiting || s == g_status::leaked) &&
         (g.reason == wait_reason::sync_mutex_lock || g.reason == wait_reason::sync_rwmutex_lock ||
          g.reason == wait_reason::sync_rwmutex_rlock) &&
         g.run_id == sched.run_id.load(memory_order_relaxed) && !g.bubbled() && g.sp != nullptr;
}

// What its record says, which lies on its stack; false: it has just been taken off, or nobody knows
// who has the lock.
WEFT_READS_STACKS bool read_wait(const G& g, lock_wait& w) noexcept {
  auto* record =
      static_cast<detail::waiting*>(const_cast<void*>(g.waiting_on.load(memory_order_relaxed)));
  if (record == nullptr || !record->mu.try_lock()) return false;
  if (record->list != nullptr) {
    w.who = g.goid;
    w.lock = record->object;
    w.shared = g.reason != wait_reason::sync_mutex_lock;
    w.owner = w.shared ? detail::lock_view::owner(*static_cast<const shared_mutex*>(w.lock))
                       : detail::lock_view::owner(*static_cast<const weft::mutex*>(w.lock));
  }
  record->mu.unlock();
  return w.owner != 0;
}

bool numbers_are_unique() noexcept {
  constexpr std::uint32_t first_run = 0;
  return sched.run_id.load(memory_order_relaxed) == first_run &&
         sched.next_goid.load(memory_order_relaxed) < UINT32_MAX;
}

void put_hex(const text_sink& out, std::uintptr_t v) {
  char digits[2 + 16];
  std::size_t n = sizeof digits;
  do {
    digits[--n] = "0123456789abcdef"[v % 16];
    v /= 16;
  } while (v != 0);
  digits[--n] = 'x';
  digits[--n] = '0';
  out << std::string_view(digits + n, sizeof digits - n);
}

void write_wait(const text_sink& out, const lock_wait& w) {
  out << "\tgoroutine " << w.who << " waits for the " << (w.shared ? "shared_mutex" : "mutex")
      << " at ";
  put_hex(out, reinterpret_cast<std::uintptr_t>(w.lock));
  out << ", locked by " << (w.who == w.owner ? "itself, goroutine " : "goroutine ") << w.owner
      << "\n";
}

constexpr std::string_view title = "cycle of locks:\n";

}  // namespace

void find_lock_cycles(arena& memory, arena_list<lock_wait>& out) noexcept {
  if (!numbers_are_unique()) return;
  std::uint32_t room = 0;
  sched.gs.for_each([&](const G& g) { room += waits_for_lock(g) ? 1 : 0; });
  if (room == 0) return;
  node* nodes = memory.array<node>(room);
  if (nodes == nullptr) return;
  std::uint32_t n = 0;
  sched.gs.for_each([&](const G& g) {
    if (n < room && waits_for_lock(g) && read_wait(g, nodes[n].wait)) ++n;
  });
  std::sort(nodes, nodes + n, [](const node& a, const node& b) { return a.wait.who < b.wait.who; });
  for (std::uint32_t i = 0; i < n; ++i) {
    const node* owner =
        std::lower_bound(nodes, nodes + n, nodes[i].wait.owner,
                         [](const node& a, std::uint64_t goid) { return a.wait.who < goid; });
    nodes[i].next = owner != nodes + n && owner->wait.who == nodes[i].wait.owner
                        ? static_cast<std::uint32_t>(owner - nodes)
                        : none;
  }
  // Each leads to one at most: follow until somebody was seen, and if that was on this very way it
  // is where a cycle begins.
  for (std::uint32_t i = 0; i < n; ++i) {
    std::uint32_t at = i;
    while (at != none && nodes[at].seen == 0) {
      nodes[at].seen = i + 1;
      at = nodes[at].next;
    }
    if (at == none || nodes[at].seen != i + 1) continue;
    const std::uint32_t begin = at;
    do {
      lock_wait w = nodes[at].wait;
      at = nodes[at].next;
      w.ends_cycle = at == begin;
      out.push(memory, w);
    } while (at != begin);
  }
}

void write(const text_sink& out, const arena_list<lock_wait>& cycles) {
  bool begins = true;
  cycles.for_each([&](const lock_wait& w) {
    if (begins) out << "\n" << title;
    begins = w.ends_cycle;
    write_wait(out, w);
  });
}

void write(const text_sink& out, const arena_list<lock_wait>& cycles, std::uint64_t of) {
  std::size_t i = 0, first = 0, found = SIZE_MAX;
  cycles.for_each([&](const lock_wait& w) {
    if (w.who == of) found = first;
    ++i;
    if (w.ends_cycle) first = i;
  });
  if (found == SIZE_MAX) return;
  out << title;
  i = 0;
  bool on = false;
  cycles.for_each([&](const lock_wait& w) {
    if (i++ == found) on = true;
    if (on) write_wait(out, w);
    if (w.ends_cycle) on = false;
  });
}

}  // namespace weft::rt
