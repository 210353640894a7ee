// SPDX-License-Identifier: Apache-2.0
// The pools of free stacks: one per slot size, each with three lists by what a stack still has in
// memory.
//
//   free ──► warm ──stack_trim_pool──► trimmed ──stack_drop_pool──► bare ◄── carved from a chunk
//            (anything)                (one page)                   (nothing)
//
// Allocation takes from warm, then trimmed, then bare, the newest first, and carves only when all
// three are empty; the monitor takes the oldest. So the stacks in daily use stay warm at the heads,
// and what a peak left behind sinks and cools. Links live in side tables (chunk.h); every list
// operation is O(1) and touches no stack.
//
// Slots are carved, and their guards installed, 32 at a time and not a whole chunk: guards need
// page tables, 128 KiB of them for a chunk that a small program would never use.
//
// Two locks. `pools_lock` (rank leaf) covers lists and counters for tens of nanoseconds; no system
// call is made under it. `growth_lock` (rank stack) lets one thread at a time reserve a chunk,
// system calls and all, while others go on taking and giving stacks. Guards are installed under
// neither: carving claims a run of slots under pools_lock, and until they are handed out or pooled
// nobody else knows them.
//
// Rejected: a list per chunk with empty chunks unmapped (O(1) no longer, and the order of warmth is
// lost; the memory goes back by stack_drop_pool, address space is free); links inside the stacks
// (one dirty page each).
//
// Runs on any stack but those it frees or trims.
#include "stack/stack.h"

#include <algorithm>
#include <sys/mman.h>

#include "base/chaos.h"
#include "base/fatal.h"
#include "context/fiber.h"
#include "os/memory.h"
#include "os/mutex.h"
#include "stack/chunk.h"
#include "stack/guard.h"
#include "stack/size_class.h"
#include "stack/stack_testing.h"

namespace weft::rt {
namespace {

constexpr std::size_t carve_batch = 32;
constexpr std::size_t trim_batch = 32;
constexpr std::size_t huge_cache = 4;  // free huge stacks kept per size

// Doubly linked, so that one end is the newest and the other the oldest. Under pools_lock.
struct slot_list {
  std::uint32_t newest = no_slot;
  std::uint32_t oldest = no_slot;
  std::size_t n = 0;

  void push(std::uint32_t id) noexcept {
    slot_link& l = link_of(id);
    l.next = newest;
    l.prev = no_slot;
    (newest == no_slot ? oldest : link_of(newest).prev) = id;
    newest = id;
    ++n;
  }
  std::uint32_t pop_newest(std::uint32_t mark) noexcept {
    const std::uint32_t id = newest;
    slot_link& l = link_of(id);
    newest = l.next;
    (newest == no_slot ? oldest : link_of(newest).prev) = no_slot;
    l.next = mark;
    --n;
    return id;
  }
  std::uint32_t pop_oldest(std::uint32_t mark) noexcept {
    const std::uint32_t id = oldest;
    slot_link& l = link_of(id);
    oldest = l.prev;
    (oldest == no_slot ? newest : link_of(oldest).next) = no_slot;
    l.next = mark;
    --n;
    return id;
  }
};

struct pool {
  slot_list warm, trimmed, bare;
  chunk* current = nullptr;          // the chunk that slots are carved from
  std::uint32_t unmapped = no_slot;  // records of huge slots without memory, by own.prev

  std::size_t free() const noexcept { return warm.n + trimmed.n + bare.n; }
};

constinit mutex growth_lock{lock_rank::stack};
constinit mutex pools_lock{lock_rank::leaf};
constinit pool pools[class_count];  // under pools_lock, as all below
constinit stack_stats counts;  // chunks, bytes_reserved, slots and in_use; no more is kept here
constinit std::size_t warm_total = 0;
constinit std::size_t trimmed_total = 0;

class lock_scope {
 public:
  explicit lock_scope(mutex& m) noexcept : m_(m) { m_.lock(); }
  ~lock_scope() { m_.unlock(); }
  lock_scope(const lock_scope&) = delete;
  lock_scope& operator=(const lock_scope&) = delete;

 private:
  mutex& m_;
};

// A run of slots that only the caller knows.
struct run {
  chunk* from = nullptr;
  std::uint32_t first = 0;
  std::uint32_t n = 0;
};

std::size_t take_free(pool& p, stack* out, std::size_t n) noexcept {
  std::size_t got = 0;
  for (slot_list* l : {&p.warm, &p.trimmed, &p.bare}) {
    const std::size_t k = std::min(n - got, l->n);
    for (std::size_t i = 0; i < k; ++i) out[got++] = stack_of(l->pop_newest(slot_in_use));
    if (l == &p.warm) warm_total -= k;
    if (l == &p.trimmed) trimmed_total -= k;
  }
  counts.in_use += got;
  return got;
}

run claim(pool& p, std::size_t n) noexcept {
  chunk* c = p.current;
  if (c == nullptr) return {};
  const std::uint32_t first = c->carved.load(memory_order_relaxed);
  const std::size_t k = std::min<std::size_t>(std::max(n, carve_batch), c->slots - first);
  if (k == 0) return {};
  const auto m = static_cast<std::uint32_t>(k);
  c->carved.store(first + m, memory_order_relaxed);
  for (std::uint32_t i = 0; i < m; ++i) c->links[first + i].next = slot_in_hand;
  counts.slots += k;
  return {c, first, m};
}

// Adds a chunk to the pool, unless somebody else was faster, and claims from it. May return nothing
// if it was all claimed by others in between.
run grow(pool& p, std::size_t slot, std::size_t n) noexcept {
  lock_scope growing(growth_lock);
  chunk* recycled = nullptr;
  {
    lock_scope locked(pools_lock);
    if (const run r = claim(p, n); r.n > 0) return r;
    if (p.unmapped != no_slot) {
      recycled = chunk_of(p.unmapped);
      p.unmapped = recycled->own.prev;
    }
  }
  chunk* c = make_chunk(slot, static_cast<std::uint32_t>(&p - pools), recycled);
  lock_scope locked(pools_lock);
  ++counts.chunks;
  counts.bytes_reserved += c->slots * slot;
  p.current = c;
  return claim(p, n);
}

// Guards a run, hands out up to n of it and pools the rest.
std::size_t finish(pool& p, const run& r, stack* out, std::size_t n) noexcept {
  const std::uintptr_t lo = r.from->lo.load(memory_order_relaxed);
  const std::size_t split = install_guards(lo + r.first * r.from->slot, r.from->slot, r.n);
  if (is_huge(r.from->slot)) r.from->split_guards = static_cast<std::uint32_t>(split);
  const auto k = static_cast<std::uint32_t>(std::min<std::size_t>(n, r.n));
  for (std::uint32_t i = 0; i < r.n; ++i) {  // once: slots are recycled as the same stacks
    const stack s = stack_in(r.from, lo, r.first + i);
    register_stack(s.lo, s.hi);
  }
  lock_scope locked(pools_lock);
  for (std::uint32_t i = 0; i < k; ++i) {
    out[i] = stack_in(r.from, lo, r.first + i);
    r.from->links[r.first + i].next = slot_in_use;
  }
  for (std::uint32_t i = r.n; i-- > k;) p.bare.push(r.from->index << slot_bits | (r.first + i));
  counts.in_use += k;
  return k;
}

// Gives huge slots back to the kernel, chained by own.prev.
void unmap_huge(std::uint32_t id) noexcept {
  while (id != no_slot) {
    chunk* c = chunk_of(id);
    const std::uint32_t after = c->own.prev;
    const std::size_t split = c->split_guards;
    const bool gone = unmap_chunk(c);
    if (gone) forget_split_guards(split);
    lock_scope locked(pools_lock);
    pool& p = pools[c->size_class];
    if (gone) {
      c->carved.store(0, memory_order_relaxed);
      c->own.prev = p.unmapped;
      p.unmapped = id;
      --counts.chunks;
      --counts.slots;
      counts.bytes_reserved -= c->slot;
      if (p.current == c) p.current = nullptr;
    } else {
      p.warm.push(id);  // more than we wanted to keep; the monitor will trim it
      ++warm_total;
    }
    id = after;
  }
}

// Lets go of the pages of n ranges; locked memory (mlockall after the chunk was made) needs another
// advice.
void give_back(const memory_range* r, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n;) {
    std::size_t done = 0;
    if (advise_ranges(r + i, n - i, MADV_DONTNEED, &done) == 0) return;
    i += done;
    advise(r[i], advice_dontneed_locked);
    ++i;
  }
}

memory_range below_top_page(const stack& s) noexcept { return {s.lo, s.hi - s.lo - page_size()}; }

// The monitor's walk: takes up to `most` of the oldest stacks from one kind of list, lets go of
// `range` of each outside the lock, puts them into the next kind.
template <class Range>
std::size_t cool(std::size_t most, slot_list pool::*from, std::size_t& from_total,
                 slot_list pool::*to, std::size_t* to_total, Range range) noexcept {
  std::size_t looked_at = 0;
  std::size_t cls = 0;
  while (looked_at < most && cls < class_count) {
    std::uint32_t ids[trim_batch];
    memory_range ranges[trim_batch];
    std::size_t n = 0;
    {
      lock_scope locked(pools_lock);
      if (from_total == 0) return looked_at;
      while (cls < class_count && (pools[cls].*from).n == 0) ++cls;
      if (cls == class_count) return looked_at;
      n = std::min({most - looked_at, trim_batch, (pools[cls].*from).n});
      for (std::size_t i = 0; i < n; ++i) ids[i] = (pools[cls].*from).pop_oldest(slot_in_hand);
      from_total -= n;
    }
    std::size_t k = 0;
    for (std::size_t i = 0; i < n; ++i) {
      ranges[k] = range(stack_of(ids[i]));
      if (ranges[k].bytes != 0) ++k;
    }
    give_back(ranges, k);
    {
      lock_scope locked(pools_lock);
      for (std::size_t i = 0; i < n; ++i) (pools[cls].*to).push(ids[i]);
      if (to_total != nullptr) *to_total += n;
    }
    looked_at += n;
  }
  return looked_at;
}

}  // namespace

std::size_t stack_slot_size(std::size_t wanted) noexcept { return slot_size_for(wanted); }

std::size_t stack_alloc_batch(std::size_t slot, stack* out, std::size_t n) noexcept {
  const std::size_t cls = class_of(slot);
  if (cls == no_class) fatal("stack_alloc: not a size of stack_slot_size");
  pool& p = pools[cls];
  for (;;) {
    run r;
    {
      lock_scope locked(pools_lock);
      if (const std::size_t got = take_free(p, out, n); got > 0) return got;
      r = claim(p, n);
    }
    chaos::point("stack.alloc");
    if (r.n == 0) r = grow(p, slot, n);
    if (r.n > 0) return finish(p, r, out, n);
  }
}

stack stack_alloc(std::size_t slot) noexcept {
  stack s;
  stack_alloc_batch(slot, &s, 1);
  return s;
}

void stack_free_batch(const stack* s, std::size_t n) noexcept {
  std::uint32_t huge = no_slot;  // those to be unmapped
  {
    lock_scope locked(pools_lock);
    for (std::size_t i = 0; i < n; ++i) {
      chunk* c = chunk_of(s[i].id);
      if (link_of(s[i].id).next != slot_in_use) fatal("stack freed twice");
      pool& p = pools[c->size_class];
      if (is_huge(c->slot) && p.free() >= huge_cache) {
        c->own = {slot_in_hand, huge};
        huge = s[i].id;
      } else {
        p.warm.push(s[i].id);
        ++warm_total;
      }
    }
    counts.in_use -= n;
  }
  chaos::point("stack.free");
  unmap_huge(huge);
}

void stack_free(const stack& s) noexcept { stack_free_batch(&s, 1); }

std::size_t stack_trim(const stack& s) noexcept {
  const memory_range r = below_top_page(s);
  if (r.bytes == 0) return 0;
  constexpr std::size_t most = 64 * mib;  // counting takes time, and deeper stacks are rare
  if (r.bytes > most) {
    const std::size_t pages = resident_pages({r.addr + r.bytes - most, most});
    give_back(&r, 1);
    return pages;
  }
  const std::size_t pages = resident_pages(r);
  if (pages > 0) give_back(&r, 1);
  return pages;
}

// No mincore here: an empty MADV_DONTNEED is the cheaper call, and it finds swapped pages too.
void stack_trim_batch(const stack* s, std::size_t n) noexcept {
  memory_range ranges[trim_batch];
  std::size_t k = 0;
  for (std::size_t i = 0; i < n; ++i) {
    ranges[k] = below_top_page(s[i]);
    if (ranges[k].bytes != 0) ++k;
    if (k == trim_batch || i + 1 == n) {
      give_back(ranges, k);
      k = 0;
    }
  }
}

std::size_t stack_trim_pool(std::size_t max_stacks) noexcept {
  return cool(max_stacks, &pool::warm, warm_total, &pool::trimmed, &trimmed_total, below_top_page);
}

std::size_t stack_drop_pool(std::size_t max_stacks) noexcept {
  return cool(max_stacks, &pool::trimmed, trimmed_total, &pool::bare, nullptr, [](const stack& s) {
    return memory_range{s.lo, s.hi - s.lo};
  });
}

stack_stats get_stack_stats() noexcept {
  stack_stats st;
  {
    lock_scope locked(pools_lock);
    st = counts;
    for (const pool& p : pools) {
      st.free_warm += p.warm.n;
      st.free_trimmed += p.trimmed.n;
      st.free_bare += p.bare.n;
    }
  }
  st.free = st.free_warm + st.free_trimmed + st.free_bare;
  const guard_counts g = get_guard_counts();
  st.guards_madvise = g.madvise;
  st.guards_mprotect = g.mprotect;
  st.guards_missing = g.missing;
  return st;
}

namespace testing {

void forget_pools() noexcept {
  lock_scope locked(pools_lock);
  for (pool& p : pools) {
    counts.slots -= p.free();
    p = pool{};
  }
  warm_total = trimmed_total = 0;
}

}  // namespace testing
}  // namespace weft::rt
