// SPDX-License-Identifier: Apache-2.0
// Goroutines that nothing can ever wake.
//
// There is no garbage collector to ask, so we ask memory itself. With the world stopped, take all
// goroutines that wait on channels and sync objects: the suspects. A suspect can be woken only by
// somebody who gets at what it waits on, or at its stack, where its record lies and perhaps the
// object itself. So every aligned word that a program may have written is looked at: one that
// points to what a suspect waits on or into its stack clears it, and then its own stack is looked
// at too, until nobody else is cleared. Those that are left know only one another (C in DESIGN
// 7.3): whatever runs later cannot come by a way to any of them, because it could not have come
// from anywhere. The verdict is therefore for good.
//
// What is looked at: all mappings that can be read (heap, globals, thread-locals, stacks of
// threads, what our own tables hold), registers as handlers and switches have saved them, and what
// the kernel keeps for the program (kernel_words.h). The heap is not traced: a block that nobody
// uses any more clears like any other.
// What is not, because it says nothing about who can reach whom:
//   - stacks of goroutines below their stack pointer, and stacks that are free;
//   - the cells of the table of goroutines, but for those that live;
//   - the scheduler's own stacks, signal stacks that nobody stands on, our own memory and frames;
//   - the queues of our own io_uring, where nothing is under way (that would be an errand);
//   - the memory of a channel that suspects wait on, unless something points there. It points to
//     those who wait, and what lies in its buffer can be had only through it;
//   - the same for a sync object in the heap: the whole block of malloc's that it lies in, because
//     a pointer to any part of it, or to its end, leads to the object. Where the bounds of the
//     block are not known for certain (heap_blocks.h) it is memory like any other. And for the
//     state of a task, which has a cell of ours.
// All else that points to waiters needs no special care: sync objects in globals, timers,
// cancellations, blocks that only lead to others are memory, and so clear whoever waits for them.
//
// A pointer is an aligned word. It may carry a tag in the 16 bits that an address leaves, above it
// or, shifted, below, and may lie across two words, as in the records of epoll. What is kept in any
// other form (inverted, as the difference of two) nobody can see: DESIGN 7.3 does without it.
//
// When in doubt nobody is reported but those that no memory can help (a nil channel, a select
// without cases), and marks stay as they are. Doubt is: a thread that may hold in a register what
// no memory holds. A goroutine inside blocking(), or whose thread lost its P and runs on; a plain
// thread outside weft; a thread of the resolver, the timers, the signals or the files at work;
// memory that cannot be read. If that is only a thread of ours on its way, we look again. Plain
// threads inside weft stand still with their registers on their stacks (waiter.h), and have done so
// from before the look until after it. While there are any, objects in the heap are memory like any
// other: a thread may stand on a stack that is itself a block, and nothing need point there.
//
// Handles of channels are counted. A count that is not accounted for by words of the leaked ones
// means that there is a handle in a place that we do not know: it clears. It never convicts.
//
// Long because it is one search: who is suspected, what is looked at, who stays unreachable, all
// over the same few arrays.
//
// Runs on the caller's stack, a goroutine's or a plain thread's. Between stop and start neither
// malloc nor a lock of libc.
#include "debug/leaks.h"

#include <algorithm>
#include <csignal>
#include <ucontext.h>

#include "chan/wait.h"
#include "debug/heap_blocks.h"
#include "debug/kernel_words.h"
#include "debug/regions.h"
#include "file/uring.h"
#include "os/thread.h"
#include "sched/procs.h"
#include "sched/sched.h"
#include "sched/timers.h"
#include "stack/chunk.h"
#include "sync/wait_list.h"

#if defined(WEFT_ASAN)
extern "C" void __asan_get_shadow_mapping(std::size_t* scale, std::size_t* offset);
#endif

namespace weft::rt {

bool waits_for_others(wait_reason r) noexcept {
  switch (r) {
    case wait_reason::task_wait:
    case wait_reason::scope_wait:
    case wait_reason::chan_receive:
    case wait_reason::chan_send:
    case wait_reason::select:
    case wait_reason::sync_mutex_lock:
    case wait_reason::sync_rwmutex_rlock:
    case wait_reason::sync_rwmutex_lock:
    case wait_reason::sync_cond_wait:
    case wait_reason::sync_wait_group_wait:
    case wait_reason::semacquire:
      return true;
    default:
      return false;
  }
}

namespace {

using detail::chan_core;
using detail::chan_view;

bool before(const span& a, const span& b) noexcept { return a.lo < b.lo; }

struct suspect {
  G* g;
  span stack;           // from its stack pointer on
  std::uint32_t edges;  // the first of its own, by edge::next
  bool reachable = false;
};

struct edge {  // a suspect and something that it waits on
  span memory;
  std::uintptr_t until;  // the last address that points there
  const chan_core* c;    // null: no channel
  std::uint32_t who;
  std::uint32_t thing;
  std::uint32_t next;
};

struct thing {  // what suspects wait on, with memory of its own
  span memory;
  std::uintptr_t until;
  const chan_core* c;
  std::uint32_t first, last;  // its edges
  std::uint64_t found = 0;    // words of unreachable ones that point to it
  bool reachable = false;
};

struct target {
  span memory;
  std::uint32_t id;  // of a suspect; of a thing, behind those
};

struct object {  // what a suspect waits on, and where
  std::uintptr_t at;
  std::uint32_t who;
};

constexpr std::uint32_t none = UINT32_MAX;

// Nothing can wake it, whoever knows it.
bool is_lost(const G& g) noexcept {
  switch (g.reason) {
    case wait_reason::chan_receive_nil:
    case wait_reason::chan_send_nil:
    case wait_reason::select_no_cases:
    case wait_reason::select_nil_cases:
      return sleeps_for_ever(&g);
    default:
      return false;
  }
}

bool waits(const G& g) noexcept {
  const g_status s = g.state();
  return (s == g_status::waiting || s == g_status::leaked) &&
         g.run_id == sched.run_id.load(memory_order_relaxed);
}

// One that stands on another stack than its own, because the program switches them, is none: what
// it knows lies there, in memory like any other.
bool is_suspect(const G& g) noexcept {
  const auto sp = reinterpret_cast<std::uintptr_t>(g.sp);
  return waits(g) && sp >= g.stk.lo && sp < g.stk.hi && (waits_for_others(g.reason) || is_lost(g));
}

// What is waited on, but for channels; its record lies on the stack.
WEFT_READS_STACKS const void* object_of(const G& g) noexcept {
  const void* on = g.waiting_on.load(memory_order_relaxed);
  switch (g.reason) {
    case wait_reason::task_wait:
      return detail::event_waited_for(on);
    case wait_reason::scope_wait:
      return on;
    case wait_reason::sync_mutex_lock:
    case wait_reason::sync_rwmutex_rlock:
    case wait_reason::sync_rwmutex_lock:
    case wait_reason::sync_cond_wait:
    case wait_reason::sync_wait_group_wait:
    case wait_reason::semacquire:
      return static_cast<const detail::waiting*>(on)->object;
    default:
      return nullptr;
  }
}

// One look at everything. Its arrays are in the arena; null: there is no memory, and no verdict.
class look {
 public:
  look(arena& memory, const void* own_frame) noexcept
      : memory_(memory), own_frame_(reinterpret_cast<std::uintptr_t>(own_frame)), reader_(memory) {}

  // False: in doubt.
  bool decide() noexcept;
  template <class F>
  void each_unreachable(F f) const {
    for (std::uint32_t i = 0; i < nsuspects_; ++i) {
      if (!suspects_[i].reachable) f(suspects_[i].g);
    }
  }

 private:
  // -- who is there
  bool gather() noexcept;
  void add_edge(std::uint32_t who, span memory, std::uintptr_t until, const chan_core* c) noexcept;
  void add_channel(std::uint32_t who, const chan_core* c) noexcept;
  bool gather_blocks(object* objects, std::uint32_t n) noexcept;
  bool blocks_are_the_same() noexcept;
  bool sort_things() noexcept;
  bool sort_targets() noexcept;
  std::uint32_t find(std::uintptr_t address) const noexcept;
  // -- who is reachable
  void see(std::uintptr_t word) noexcept;
  void see_span(span s) noexcept;
  static void see_words(void* self, const std::uintptr_t* words, std::size_t n) noexcept {
    auto* me = static_cast<look*>(self);
    const std::uintptr_t lo = me->lowest_, reach = me->highest_ - lo, mask = me->untagged_;
    std::uintptr_t before = me->before_;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uintptr_t w = words[i], half = before >> 32 | w << 32;
      if ((w & mask) - lo <= reach || (w >> tag_bits) - lo <= reach || half - lo <= reach)
          [[unlikely]] {
        me->see(w);
        me->see(half);
      }
      before = w;
    }
    me->before_ = before;
  }
  void see_cell(const G& g) noexcept;
  bool see_pages(span s) noexcept;
  bool see_goroutines() noexcept;
  bool see_goroutine(const G& g) noexcept;
  bool see_regions() noexcept;
  void hide(std::uintptr_t lo, std::uintptr_t hi) noexcept;
  void hide_stack_below(std::uintptr_t top) noexcept;
  bool hide_ours() noexcept;
  void reach(std::uint32_t id) noexcept;
  void follow() noexcept;
  // -- handles
  void count_handles() noexcept;
  bool clear_by_handles() noexcept;

  template <class F>
  static void words_in(span s, F f) noexcept;

  arena& memory_;
  std::uintptr_t own_frame_;  // what lies below it on this stack is ours
  region_reader reader_;
  bool complete_ = true;

  suspect* suspects_ = nullptr;
  std::uint32_t nsuspects_ = 0;
  edge* edges_ = nullptr;
  std::uint32_t nedges_ = 0, room_for_edges_ = 0;
  thing* things_ = nullptr;
  std::uint32_t nthings_ = 0;
  heap_block* blocks_ = nullptr;
  std::uint32_t nblocks_ = 0;
  arena_list<region> regions_;
  arena_list<span> mallocs_;  // its own words
  target* targets_ = nullptr;
  std::uint32_t ntargets_ = 0;
  std::uint32_t* work_ = nullptr;  // reachable, and not yet looked at
  std::uint32_t nwork_ = 0;
  span* hidden_ = nullptr;
  std::size_t nhidden_ = 0, room_for_hidden_ = 0;

  // Which pages have a target, roughly: most words are told by this alone.
  static constexpr std::size_t filter_bits = std::size_t{1} << 20;
  std::uint64_t* filter_ = nullptr;
  std::uintptr_t lowest_ = UINTPTR_MAX, highest_ = 0;
  static std::size_t filter_of(std::uintptr_t address) noexcept {
    return (address >> 12) % filter_bits;
  }
  static constexpr unsigned tag_bits = 16;
  std::uintptr_t untagged_ = ~std::uintptr_t{0};  // all of an address
  std::uintptr_t before_ = 0;                     // the last word that was seen
};

// Whoever else runs is stopped; what we read may still be poisoned by a sanitizer.
template <class F>
WEFT_READS_STACKS void look::words_in(span s, F f) noexcept {
  constexpr std::uintptr_t mask = sizeof(std::uintptr_t) - 1;
  const auto* at = reinterpret_cast<const std::uintptr_t*>((s.lo + mask) & ~mask);
  const auto* end = reinterpret_cast<const std::uintptr_t*>(s.hi & ~mask);
  for (; at < end; ++at) f(*at);
}

void look::add_edge(std::uint32_t who, span memory, std::uintptr_t until,
                    const chan_core* c) noexcept {
  if (nedges_ == room_for_edges_) {
    complete_ = false;
    return;
  }
  edges_[nedges_++] = {memory, until, c, who, none, none};
}

// The last word of a channel does not count: malloc uses it as the beginning of the next block, and
// points there. Whoever works on the channel at that word, its count of handles, has a handle that
// is in the count (clear_by_handles).
void look::add_channel(std::uint32_t who, const chan_core* c) noexcept {
  span s;
  if (!chan_view{c}.memory(&s.lo, &s.hi)) return;
  const std::uintptr_t core = reinterpret_cast<std::uintptr_t>(c) + sizeof *c;
  add_edge(who, s, std::min(core, s.hi) - sizeof(std::uintptr_t) - 1, c);
}

bool look::gather() noexcept {
  std::uint32_t n = 0, edges = 0;
  sched.gs.for_each([&](G& g) {
    if (!is_suspect(g)) return;
    ++n;
    if (g.reason == wait_reason::select) {
      detail::each_channel(
          g.waiting_on.load(memory_order_relaxed),
          [](void* to, const chan_core*) { ++*static_cast<std::uint32_t*>(to); }, &edges);
    } else {
      ++edges;
    }
  });
  if (n == 0) return true;
  suspects_ = memory_.array<suspect>(n);
  edges_ = memory_.array<edge>(edges);
  auto* objects = memory_.array<object>(n);
  std::uint32_t nobjects = 0;
  if (suspects_ == nullptr || edges_ == nullptr || objects == nullptr) return false;
  room_for_edges_ = edges;
  sched.gs.for_each([&](G& g) {
    if (!is_suspect(g) || nsuspects_ == n) return;
    const std::uint32_t who = nsuspects_++;
    suspects_[who] = {&g, {reinterpret_cast<std::uintptr_t>(g.sp), g.stk.hi}, none};
    struct owner {
      look* self;
      std::uint32_t who;
    } me{this, who};
    if (g.reason == wait_reason::select) {
      detail::each_channel(
          g.waiting_on.load(memory_order_relaxed),
          [](void* to, const chan_core* c) {
            static_cast<owner*>(to)->self->add_channel(static_cast<owner*>(to)->who, c);
          },
          &me);
    } else if (g.reason == wait_reason::chan_receive || g.reason == wait_reason::chan_send) {
      add_channel(who, static_cast<const chan_core*>(g.waiting_on.load(memory_order_relaxed)));
    } else if (const void* o = object_of(g); o != nullptr) {
      objects[nobjects++] = {reinterpret_cast<std::uintptr_t>(o), who};
    }
  });
  return complete_ && gather_blocks(objects, nobjects) && sort_things() && sort_targets();
}

bool look::gather_blocks(object* objects, std::uint32_t n) noexcept {
  std::sort(objects, objects + n, [](const object& a, const object& b) { return a.at < b.at; });
  // What a goroutine shares with its starter has a cell of ours.
  sched.blocks.for_each_block([&](const small_block* first, std::size_t count) {
    const auto lo = reinterpret_cast<std::uintptr_t>(first);
    const object* o = std::lower_bound(
        objects, objects + n, lo, [](const object& a, std::uintptr_t at) { return a.at < at; });
    for (; o != objects + n && o->at < lo + count * sizeof *first; ++o) {
      const std::uintptr_t cell = o->at - (o->at - lo) % sizeof *first;
      add_edge(o->who, {cell, cell + sizeof *first}, cell + sizeof *first - 1, nullptr);
    }
  });
  if (static_cast<std::uint32_t>(threads_still.load(memory_order_seq_cst)) != 0) return complete_;
  blocks_ = memory_.array<heap_block>(n);
  if (blocks_ == nullptr) return false;
  for (std::uint32_t i = 0; i < n; ++i) blocks_[i].at = objects[i].at;
  nblocks_ = n;
  find_blocks(memory_, reader_, regions_, blocks_, n, mallocs_);
  for (std::uint32_t i = 0; i < n; ++i) {
    const heap_block& b = blocks_[i];
    if (b.lo != 0) add_edge(objects[i].who, {b.lo, b.hi}, b.hi, nullptr);  // or to its very end
  }
  return complete_;
}

bool look::blocks_are_the_same() noexcept {
  if (nblocks_ == 0) return true;
  auto* now = memory_.array<heap_block>(nblocks_);
  arena_list<span> ignored;
  if (now == nullptr) return false;
  for (std::uint32_t i = 0; i < nblocks_; ++i) now[i].at = blocks_[i].at;
  find_blocks(memory_, reader_, regions_, now, nblocks_, ignored);
  return std::equal(now, now + nblocks_, blocks_, [](const heap_block& a, const heap_block& b) {
    return a.lo == b.lo && a.hi == b.hi;
  });
}

bool look::sort_things() noexcept {
  std::sort(edges_, edges_ + nedges_,
            [](const edge& a, const edge& b) { return before(a.memory, b.memory); });
  things_ = memory_.array<thing>(nedges_);
  if (things_ == nullptr) return false;
  for (std::uint32_t i = 0; i < nedges_; ++i) {
    edge& e = edges_[i];
    if (nthings_ == 0 || things_[nthings_ - 1].memory.lo != e.memory.lo) {
      if (nthings_ != 0 && things_[nthings_ - 1].memory.hi > e.memory.lo) return false;
      things_[nthings_++] = {e.memory, e.until, e.c, i, i};
    }
    things_[nthings_ - 1].last = i + 1;
    e.thing = nthings_ - 1;
    e.next = suspects_[e.who].edges;
    suspects_[e.who].edges = i;
  }
  return true;
}

bool look::sort_targets() noexcept {
  targets_ = memory_.array<target>(nsuspects_ + nthings_);
  work_ = memory_.array<std::uint32_t>(nsuspects_ + nthings_);
  filter_ = memory_.array<std::uint64_t>(filter_bits / 64);
  if (targets_ == nullptr || work_ == nullptr || filter_ == nullptr) return false;
  for (std::uint32_t i = 0; i < nsuspects_; ++i)
    targets_[ntargets_++] = {{suspects_[i].stack.lo, suspects_[i].stack.hi - 1}, i};
  for (std::uint32_t i = 0; i < nthings_; ++i)
    targets_[ntargets_++] = {{things_[i].memory.lo, things_[i].until}, nsuspects_ + i};
  std::sort(targets_, targets_ + ntargets_,
            [](const target& a, const target& b) { return before(a.memory, b.memory); });
  for (std::uint32_t i = 0; i < ntargets_; ++i) {
    const span s = targets_[i].memory;
    lowest_ = std::min(lowest_, s.lo);
    highest_ = std::max(highest_, s.hi);
    for (std::uintptr_t page = s.lo >> 12; page <= s.hi >> 12; ++page)
      filter_[page % filter_bits / 64] |= std::uint64_t{1} << page % 64;
  }
  // Some take the highest bit of what the kernel gives too.
  if (highest_ >> (64 - tag_bits) == 0) untagged_ >>= tag_bits;
  if (highest_ >> (63 - tag_bits) == 0) untagged_ >>= 1;
  return true;
}

std::uint32_t look::find(std::uintptr_t address) const noexcept {
  if (address < lowest_ || address > highest_) return none;
  const std::size_t bit = filter_of(address);
  if ((filter_[bit / 64] >> bit % 64 & 1) == 0) return none;
  const target* t =
      std::upper_bound(targets_, targets_ + ntargets_, address,
                       [](std::uintptr_t a, const target& x) { return a < x.memory.lo; });
  return t != targets_ && address <= t[-1].memory.hi ? t[-1].id : none;
}

void look::reach(std::uint32_t id) noexcept {
  bool& reachable = id < nsuspects_ ? suspects_[id].reachable : things_[id - nsuspects_].reachable;
  if (reachable) return;
  reachable = true;
  work_[nwork_++] = id;
}

inline void look::see(std::uintptr_t word) noexcept {
  for (const std::uintptr_t w : {word & untagged_, word >> tag_bits}) {
    if (const std::uint32_t id = find(w); id != none) reach(id);
  }
}

void look::see_span(span s) noexcept {
  words_in(s, [this](std::uintptr_t w) { see_words(this, &w, 1); });
}

// Its closure, what it has caught, its locals, and where it stands: not always on its own stack.
void look::see_cell(const G& g) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(&g);
  see_span({at, at + sizeof g});
}

// A suspect that somebody can get at may go on, and use all that it knows. Somebody who can get at
// a channel can wake all who wait there, and take what lies in it.
void look::follow() noexcept {
  while (nwork_ != 0) {
    const std::uint32_t id = work_[--nwork_];
    if (id < nsuspects_) {
      const suspect& s = suspects_[id];
      see_span(s.stack);
      see_cell(*s.g);
      for (std::uint32_t e = s.edges; e != none; e = edges_[e].next)
        reach(nsuspects_ + edges_[e].thing);
    } else {
      const thing& t = things_[id - nsuspects_];
      see_span(t.memory);
      for (std::uint32_t e = t.first; e != t.last; ++e) reach(edges_[e].who);
    }
  }
}

// Through the kernel, and only what was ever touched.
bool look::see_pages(span s) noexcept {
  const region r{s.lo, s.hi, true, false};
  return reader_.read(r, s.lo, s.hi, see_words, this);
}

// The stack pointer of a goroutine that a signal has stopped; 0: it waits in a call.
std::uintptr_t interrupted_at(const G& g) noexcept {
  std::uintptr_t sp = 0;
  sched.kept.for_each([&](const M* m) {
    if (m->curg == &g && m->stopped_at != nullptr) sp = registers_in_signal(m->stopped_at).sp();
  });
  return sp;
}

// One that is no suspect.
bool look::see_goroutine(const G& g) noexcept {
  constexpr std::uintptr_t red_zone = 128;  // below the stack pointer, and in use
  const g_status s = g.state();
  if (s == g_status::idle || s == g_status::deadextra) return true;
  if (s == g_status::dead) {
    if (g.run != nullptr) return true;
    see_cell(g);  // somebody is about to start it
    return !g.stk || see_pages({g.stk.lo, g.stk.hi});
  }
  see_cell(g);
  if (!g.stk) return true;  // not begun
  if (&g == current_g()) {
    see_span({own_frame_, g.stk.hi});
    return true;
  }
  const bool saved = s == g_status::waiting || s == g_status::leaked ||
                     (s == g_status::runnable && !g.kept);  // in this order, see traces.cc
  std::uintptr_t sp = saved ? reinterpret_cast<std::uintptr_t>(g.sp) : interrupted_at(g) - red_zone;
  if (sp < g.stk.lo || sp > g.stk.hi) return see_pages({g.stk.lo, g.stk.hi});
  see_span({sp, g.stk.hi});
  return true;
}

bool look::see_goroutines() noexcept {
  bool ok = true;
  sched.gs.for_each([&](const G& g) {
    if (!is_suspect(g)) ok = see_goroutine(g) && ok;
  });
  return ok;
}

void look::hide(std::uintptr_t lo, std::uintptr_t hi) noexcept {
  if (lo >= hi) return;
  if (nhidden_ < room_for_hidden_) {
    hidden_[nhidden_++] = {lo, hi};
  } else {
    complete_ = false;
  }
}

// What we use of a thread's stack, and old words below. A stack that somebody has made of his own
// memory may be smaller and end at his data: nothing of that is hidden.
void look::hide_stack_below(std::uintptr_t top) noexcept {
  constexpr std::uintptr_t scheduler_stack = 64 * 1024;
  regions_.for_each([&](const region& r) {
    if (r.stack && top > r.lo && top <= r.hi) hide(std::max(r.lo, top - scheduler_stack), top);
  });
}

// What the search through all mappings leaves out; sorted.
bool look::hide_ours() noexcept {
  std::size_t n = nthings_ + mallocs_.size() + chunk_registry.size() + nprocs() + 64;
  for (const M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next) n += 2;
  n += sched.gs.size() / slab<G>::per_block + 1;
  memory_.for_each_block([&](std::uintptr_t, std::size_t) { ++n; });
  hidden_ = memory_.array<span>(n);
  if (hidden_ == nullptr) return false;
  room_for_hidden_ = n;

  for (std::uint32_t i = 0; i < nthings_; ++i) hide(things_[i].memory.lo, things_[i].memory.hi);
  mallocs_.for_each([&](const span& s) { hide(s.lo, s.hi); });
  chunk_registry.for_each([&](const chunk& c) {
    const std::uintptr_t lo = c.lo.load(memory_order_acquire);
    if (lo != 0) hide(lo, lo + c.slots * c.slot);
  });
  sched.gs.for_each_block([&](const G* first, std::size_t count) {
    hide(reinterpret_cast<std::uintptr_t>(first), reinterpret_cast<std::uintptr_t>(first + count));
  });
  memory_.for_each_block([&](std::uintptr_t lo, std::size_t bytes) { hide(lo, lo + bytes); });
  for (const M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next) {
    if (m->tid.load(memory_order_relaxed) == 0) continue;
    const auto top = reinterpret_cast<std::uintptr_t>(m->g0_top);
    if (!m->on_system_stack && top != 0) hide_stack_below(top);
    if (m->stopped_at == nullptr) hide(m->signals.lo(), m->signals.hi());
  }
  detail::each_uring_mapping([&](std::uintptr_t lo, std::uintptr_t hi) { hide(lo, hi); });
  for (std::uint32_t i = 0; i < nprocs(); ++i) {  // cells that are free, and that were
    const auto at = reinterpret_cast<std::uintptr_t>(&p_at(i)->blocks);
    hide(at, at + sizeof(block_cache));
  }
  if (current_g() == nullptr) hide_stack_below(own_frame_);
#if defined(WEFT_ASAN)
  std::size_t scale = 0, offset = 0;
  __asan_get_shadow_mapping(&scale, &offset);
  hide(offset, offset + (std::uintptr_t{1} << (48 - scale)));
#endif
  std::sort(hidden_, hidden_ + nhidden_, before);
  return complete_;
}

bool look::see_regions() noexcept {
  if (!hide_ours()) return false;
  bool ok = true;
  const span* next = hidden_;
  const span* const end = hidden_ + nhidden_;
  regions_.for_each([&](const region& r) {
    std::uintptr_t at = r.lo;
    while (at < r.hi && ok) {
      while (next != end && next->hi <= at) ++next;
      const std::uintptr_t until = next == end || next->lo >= r.hi ? r.hi : std::max(next->lo, at);
      ok = reader_.read(r, at, until, see_words, this);
      at = until < r.hi ? std::min(next->hi, r.hi) : r.hi;
    }
  });
  return ok;
}

// Words of those that nobody can reach, and that point to channels.
void look::count_handles() noexcept {
  const auto count = [this](std::uintptr_t w) {
    const std::uint32_t id = find(w);
    if (id != none && id >= nsuspects_) ++things_[id - nsuspects_].found;
  };
  for (std::uint32_t i = 0; i < nthings_; ++i) things_[i].found = 0;
  for (std::uint32_t i = 0; i < nsuspects_; ++i) {
    if (suspects_[i].reachable) continue;
    words_in(suspects_[i].stack, count);
    const auto at = reinterpret_cast<std::uintptr_t>(suspects_[i].g->closure);
    words_in({at, at + G::closure_size}, count);
  }
  for (std::uint32_t i = 0; i < nthings_; ++i) {
    if (!things_[i].reachable) words_in(things_[i].memory, count);
  }
}

bool look::clear_by_handles() noexcept {
  count_handles();
  bool any = false;
  for (std::uint32_t i = 0; i < nthings_; ++i) {
    thing& t = things_[i];
    if (t.reachable || t.c == nullptr || chan_view{t.c}.handles() <= t.found) continue;
    reach(nsuspects_ + i);
    any = true;
  }
  follow();
  return any;
}

bool look::decide() noexcept {
  if (!list_regions(memory_, regions_) || !gather()) return false;
  if (nsuspects_ == 0) return true;
  see(own_frame_);
  if (!see_goroutines() || !see_regions()) return false;
  follow();
  bool any = false;
  each_unreachable([&](const G* g) { any = any || !is_lost(*g); });
  if (!any) return true;
  if (!see_kernel_words(memory_, see_words, this)) return false;
  follow();
  while (clear_by_handles()) {
  }
  return blocks_are_the_same();
}

// Whether somebody may know what no memory tells: for the moment, or for longer. The world is
// stopped.
enum class unseen { nobody, passing, somebody };

unseen look_for_unseen(bool caller_is_thread) noexcept {
#if defined(WEFT_TSAN)
  return unseen::somebody;  // its fibers keep what we cannot see
#endif
  if (sched.leaving.load(memory_order_acquire) != 0 || !sched.active.load(memory_order_acquire))
    return unseen::somebody;
  const std::uint32_t run = sched.run_id.load(memory_order_relaxed);
  const G* self = current_g();
  for (const M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next) {
    const G* g = m->curg;
    if (m->tid.load(memory_order_relaxed) == 0 || g == nullptr) continue;
    if (g == self) {
      if (m->on_system_stack) return unseen::somebody;
    } else if (g->run_id == run && !(g->state() == g_status::runnable && g->kept)) {
      return unseen::somebody;  // in a system call, or it has lost its P and computes on
    }
  }
  if (errands.load(memory_order_seq_cst) != 0 || service_firings() % 2 != 0) return unseen::passing;
  const std::uint32_t moves = thread_moves();
  const bool all = knows_all_threads(caller_is_thread ? 1 : 0);
  if (thread_moves() != moves) return unseen::passing;  // an end may have made up for a stranger
  if (all) return unseen::nobody;
  return threads_on_their_way() ? unseen::passing : unseen::somebody;
}

// Marks whom the look has found, or in doubt only those that are lost. For good: nothing could wake
// it then, and nobody can get hold of it since; a word that looks like it now is an accident.
void mark(const look* seen) noexcept {
  sched.lock.lock();  // plain threads wake goroutines under it
  if (seen != nullptr)
    seen->each_unreachable([](G* g) { g->try_status(g_status::waiting, g_status::leaked); });
  sched.gs.for_each([](G& g) {
    if (waits(g) && is_lost(g)) g.try_status(g_status::waiting, g_status::leaked);
  });
  sched.lock.unlock();
}

// False: in doubt, but only for the moment; nothing is done then unless it is the last look.
[[gnu::noinline]] bool look_in_stopped_world(arena& memory, arena_list<g_record>& out,
                                             arena_list<lock_wait>& cycles, const void* own_frame,
                                             bool is_last) noexcept {
  const bool is_thread = current_g() == nullptr;
  const std::uint64_t still = threads_still.load(memory_order_seq_cst);
  const std::uint32_t firings = service_firings(), begun = errands_begun.load(memory_order_seq_cst);
  unseen who = look_for_unseen(is_thread);
  {
    arena scratch;  // full of what the next look searches for: gone before the world starts
    look l(scratch, own_frame);
    bool sure = who == unseen::nobody && l.decide();
    if (sure) {
      who = look_for_unseen(is_thread);
      if (who == unseen::nobody &&
          (threads_still.load(memory_order_seq_cst) != still || service_firings() != firings ||
           errands_begun.load(memory_order_seq_cst) != begun))
        who = unseen::passing;
      sure = who == unseen::nobody;
    }
    if (who == unseen::passing && !is_last) return false;
    mark(sure ? &l : nullptr);
  }
  trace_collector collector(memory);
  const std::size_t n = sched.gs.size();
  for (std::size_t i = 0; i < n; ++i) {
    const G& g = *sched.gs.at(i);
    if (waits(g) && g.state() == g_status::leaked)
      out.push(memory, collector.record(g, nullptr, false));
  }
  find_lock_cycles(memory, cycles);
  return true;
}

}  // namespace

void look_for_leaks(arena& memory, arena_list<g_record>& out, arena_list<lock_wait>& cycles,
                    const void* own_frame) {
  constexpr std::int64_t most = 1'000'000'000;
  const std::int64_t begin = nanotime();
  for (std::int64_t wait = 100'000;; wait *= 2) {
    {
      stopped_world w;
      const bool done =
          look_in_stopped_world(memory, out, cycles, own_frame, nanotime() + wait - begin > most);
      wipe_stack();
      if (done) return;
    }
    sleep_until(nanotime() + wait, wait_reason::sleep);
  }
}

}  // namespace weft::rt
