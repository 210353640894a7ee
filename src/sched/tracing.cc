// SPDX-License-Identifier: Apache-2.0
// The hooks of tracing.h when the trace is on, and its beginning and end.
//
// A record goes to the ring of the M that makes it (trace/ring.h). With a P that needs no lock: a
// trace begins and ends in a stopped world. Without a P it is made under traces.lock, and then one
// more thing is to be settled: such a thread goes its own way while the world is stopped, so the
// picture that a trace begins with may already show what it is about to record. It changes its
// goroutine's status first and reads the flag then; start_tracing sets the flag, has every thread
// pass a barrier (membarrier) and reads the statuses then. So a change is in the picture or is
// recorded, or both, and in that case the goroutine is already in the state that the record takes
// it to, and the record is dropped.
//
// Goroutines of an ended run are not recorded: their numbers are used again.
//
// Runs on goroutine stacks, g0, signal stacks, sysmon, plain threads: no malloc.
#include "sched/tracing.h"

#include <cstring>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sched/bubble.h"

namespace weft::rt {
namespace {

constexpr std::uint64_t stamp_of(std::uint64_t traced) noexcept { return traced >> 3; }
constexpr trace_state state_of(std::uint64_t traced) noexcept {
  return static_cast<trace_state>(traced & 7);
}
constexpr std::uint64_t traced_as(std::uint64_t stamp, trace_state s) noexcept {
  return stamp << 3 | static_cast<std::uint64_t>(s);
}
constexpr std::uint64_t head(std::uint64_t stamp, trace_kind k) noexcept {
  return stamp << 8 | static_cast<std::uint64_t>(k);
}

// Goroutines of a bubble count from 1 of their own: in a trace its number comes before theirs.
constexpr std::uint64_t ids_of_a_bubble = 100'000'000;
std::uint64_t id_of(const G* g, std::uint64_t goid) noexcept {
  const bubble* b = g->its_bubble();
  return b == nullptr ? goid : b->id * ids_of_a_bubble + goid;
}
std::uint64_t id_of(const G* g) noexcept { return id_of(g, g->goid); }
std::uint64_t id_of_parent(const G* g) noexcept {  // f's is outside; nobody's: a timer's
  return g->parent != 0 && g->goid != 1 ? id_of(g, g->parent) : g->parent;
}

bool is_current(const G* g) noexcept {
  return g->run_id == sched.run_id.load(memory_order_relaxed);
}
std::uint32_t p_id(const M* m) noexcept { return m->p != nullptr ? m->p->id : 0; }

// The ring of the calling thread, with the lock where it is needed.
class ring_access {
 public:
  explicit ring_access(M* m) noexcept
      : locked_(m == nullptr || m->p == nullptr), ring_(m != nullptr ? m->trace : traces.common) {
    if (locked_) traces.lock.lock();
    // The trace may have ended while we waited; with a P it cannot.
    off_ = locked_ && !tracing();
  }
  ~ring_access() {
    if (locked_) traces.lock.unlock();
  }
  ring_access(const ring_access&) = delete;
  ring_access& operator=(const ring_access&) = delete;

  bool off() const noexcept { return off_; }
  bool locked() const noexcept { return locked_; }
  trace_ring& ring() noexcept { return ring_; }

  // Stamps it and makes it visible. One that becomes two events takes two steps.
  [[gnu::always_inline]] std::uint64_t put(trace_kind k, std::uint64_t after,
                                           const std::uint64_t* w, unsigned n,
                                           unsigned steps = 1) noexcept {
    if (stamped(k, after, w, n, steps, 0) != nullptr) trace_commit(ring_, n + 1);
    return ring_.last;
  }
  // The same with the stack of the caller behind it, if stacks are wanted. Both become visible at
  // once and lie in one chunk: whoever reads the record finds its stack.
  [[gnu::always_inline]] std::uint64_t put_with_stack(trace_kind k, std::uint64_t after,
                                                      const std::uint64_t* w, unsigned n,
                                                      unsigned steps = 1) noexcept {
    if (!traces.stacks) return put(k, after, w, n, steps);
    std::uint64_t* to = stamped(k, after, w, n, steps, 2 + max_frames);
    if (to == nullptr) return ring_.last;
    const unsigned frames = trace_walk(to + 2, max_frames);
    to[0] = head(ring_.last, trace_kind::stack);
    to[1] = frames;
    trace_commit(ring_, n + 1 + (frames != 0 ? 2 + frames : 0));
    return ring_.last;
  }

 private:
  // Room for the record and `more` words, the record in it; null: lost, with its time. To the words
  // after it.
  [[gnu::always_inline]] std::uint64_t* stamped(trace_kind k, std::uint64_t after,
                                                const std::uint64_t* w, unsigned n, unsigned steps,
                                                unsigned more) noexcept {
    std::uint64_t* to =
        trace_reserve(ring_, n + 1 + more, locked_);  // may record a loss, with last's time
    const std::uint64_t t = trace_stamp(ring_.last, after);
    ring_.last = t + (steps - 1) * traces.step;
    if (to == nullptr) return nullptr;
    to[0] = head(t, k);
    for (unsigned i = 0; i < n; ++i) to[i + 1] = w[i];
    return to + n + 1;
  }

  bool locked_, off_ = false;
  trace_ring& ring_;
};

// What a thread without a P has to ask (see above): is the goroutine there already?
bool is_known(const ring_access& r, const G* g, trace_state to) noexcept {
  return r.off() || (r.locked() && state_of(g->traced) == to);
}

// Whoever records something from now on does it later than t. In a stopped world, under the lock.
void nothing_before(std::uint64_t t) noexcept {
  for (M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next)
    m->trace.last = t;
  for (std::uint32_t i = 0; i < nprocs(); ++i) {
    if (P* p = p_at(i)) p->traced = t;
  }
}

// Later than everything that has been recorded.
std::uint64_t latest() noexcept {
  std::uint64_t t = traces.common.last;
  for (M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next)
    t = m->trace.last > t ? m->trace.last : t;
  return t;
}

bool is_named(const G* g) noexcept { return g->named.load(memory_order_relaxed); }

unsigned with_name(const G* g, bool named, std::uint64_t* w) noexcept {
  if (!named) return 0;
  static_assert(sizeof g->name == name_words * sizeof *w);
  std::memcpy(w, g->name, sizeof g->name);
  return name_words;
}

void put_run(ring_access& r, const M* m, G* g, trace_state from) noexcept {
  std::uint64_t w[1 + name_words];
  const auto to = trace_state::running;
  w[0] = g_word::make(id_of(g), p_id(m), 0, to, is_named(g) && from == trace_state::runnable);
  const bool back = from == trace_state::syscall;
  const unsigned n = back ? 1 : 1 + with_name(g, is_named(g), w + 1);
  const std::uint64_t t =
      r.put(back ? trace_kind::g_back : trace_kind::g_run, stamp_of(g->traced), w, n, back ? 2 : 1);
  g->traced = traced_as(t, to);
}

// An end has no stack of its own worth showing.
void put_stop(ring_access& r, const M* m, G* g, trace_state to) noexcept {
  const bool had_p = m->p != nullptr;
  const std::uint64_t w = g_word::make(
      id_of(g), p_id(m), to == trace_state::waiting ? static_cast<unsigned>(g->reason) : 0, to);
  const trace_kind k = had_p ? trace_kind::g_stop : trace_kind::g_back;
  const std::uint64_t after = stamp_of(g->traced);
  g->traced = traced_as(to == trace_state::dead
                            ? r.put(k, after, &w, 1)
                            : r.put_with_stack(k, after, &w, 1, to == trace_state::syscall ? 2 : 1),
                        to);
}

}  // namespace

namespace on {

void g_switch(M* m, G* g, G* next) noexcept {
  if (!is_current(g)) return;
  ring_access r(m);  // there is a P
  const trace_state to =
      g->state() == g_status::waiting ? trace_state::waiting : trace_state::runnable;
  if (is_named(next) || traces.stacks) {
    put_stop(r, m, g, to);
    put_run(r, m, next, trace_state::runnable);
    return;
  }
  const std::uint64_t after =
      stamp_of(g->traced) > stamp_of(next->traced) ? stamp_of(g->traced) : stamp_of(next->traced);
  const std::uint64_t w[] = {
      g_word::make(id_of(g), m->p->id,
                   to == trace_state::waiting ? static_cast<unsigned>(g->reason) : 0, to),
      g_word::make(id_of(next), m->p->id, 0, trace_state::running)};
  const std::uint64_t t = r.put(trace_kind::g_switch, after, w, 2, 2);
  g->traced = traced_as(t, to);
  next->traced = traced_as(t, trace_state::running);
}

// One that comes back from a system call without a P is recorded by its commit, when its status has
// changed.
void g_leave(M* m, G* g) noexcept {
  const g_status s = g->state();
  if (m->p == nullptr && s != g_status::waiting) return;
  g_stop(m, g, s == g_status::waiting ? trace_state::waiting : trace_state::runnable);
}

void g_stop(M* m, G* g, trace_state to) noexcept {
  if (!is_current(g)) return;
  ring_access r(m);
  if (is_known(r, g, to)) return;
  put_stop(r, m, g, to);
}

void g_exit(M* m, G* g, G* next) noexcept {
  if (!is_current(g)) return;
  ring_access r(m);
  // Dead already when the trace began: not in the picture, so not to be recorded.
  const bool unseen = r.locked() && state_of(g->traced) == trace_state::none;
  if (!is_known(r, g, trace_state::dead) && !unseen) put_stop(r, m, g, trace_state::dead);
  if (next != nullptr) put_run(r, m, next, trace_state::runnable);
}

void g_run(M* m, G* g, trace_state from) noexcept {
  if (!is_current(g)) return;
  ring_access r(m);
  if (!r.off()) put_run(r, m, g, from);
}

void g_ready(G* g) noexcept {
  M* m = current_m();
  ring_access r(m);
  if (is_known(r, g, trace_state::runnable)) return;
  const std::uint64_t w =
      g_word::make(id_of(g), m != nullptr ? p_id(m) : 0, 0, trace_state::runnable);
  const std::uint64_t t = r.put_with_stack(trace_kind::g_ready, stamp_of(g->traced), &w, 1);
  g->traced = traced_as(t, trace_state::runnable);
}

void g_spawn(G* g) noexcept {
  M* m = current_m();
  ring_access r(m);
  if (is_known(r, g, trace_state::runnable)) return;
  const std::uint64_t w[] = {
      g_word::make(id_of(g), m != nullptr ? p_id(m) : 0, 0, trace_state::runnable),
      id_of_parent(g)};
  const std::uint64_t t = r.put_with_stack(trace_kind::g_spawn, stamp_of(g->traced), w, 2);
  g->traced = traced_as(t, trace_state::runnable);
}

void p_start(M* m, P* p) noexcept {
  ring_access r(m);
  if (r.off()) return;
  const std::uint64_t w[] = {p->id, m->id};
  p->traced = r.put(trace_kind::p_start, p->traced, w, 2);
}

void p_stop(M* m, P* p) noexcept {
  ring_access r(m);
  if (r.off()) return;
  const std::uint64_t w = p->id;
  p->traced = r.put(trace_kind::p_stop, p->traced, &w, 1);
}

// m stands still in `taking`: what is its own is ours for the moment.
void p_taken(P* p, M* m) noexcept {
  ring_access r(nullptr);
  if (r.off()) return;
  G* g = m->curg;
  const bool runs = g != nullptr && is_current(g) && state_of(g->traced) == trace_state::running;
  std::uint64_t after = p->traced > m->trace.last ? p->traced : m->trace.last;
  if (g != nullptr && stamp_of(g->traced) > after) after = stamp_of(g->traced);
  const std::uint64_t w[] = {p->id, runs ? id_of(g) : 0, m->id};
  const std::uint64_t t = r.put(trace_kind::p_taken, after, w, 3, 3);
  p->traced = t;
  m->trace.last = t;
  if (runs) g->traced = traced_as(t, trace_state::syscall);
}

void m_begin(M* m, m_doing what) noexcept {
  ring_access r(m);
  if (r.off() || m->trace.doing) return;
  m->trace.doing = true;
  const auto w = static_cast<std::uint64_t>(what);
  r.put(trace_kind::m_begin, 0, &w, 1);
}

void m_end(M* m) noexcept {
  ring_access r(m);
  if (r.off() || !m->trace.doing) return;
  m->trace.doing = false;
  r.put(trace_kind::m_end, 0, nullptr, 0);
}

void event(trace_kind k, std::uint64_t a, std::uint64_t b) noexcept {
  ring_access r(current_m());
  if (r.off()) return;
  const std::uint64_t w[] = {a, b};
  const std::uint64_t shape[3] = {static_cast<std::uint64_t>(k), a, b};
  const unsigned n = record_words(shape) - 1;
  if (k == trace_kind::procs)
    r.put_with_stack(k, 0, w, n);
  else
    r.put(k, 0, w, n);
}

void run_end() noexcept {
  ring_access r(nullptr);
  if (r.off()) return;
  const std::uint64_t t = r.put(trace_kind::run_end, latest(), nullptr, 0);
  nothing_before(t);
}

}  // namespace on

bool trace_text(trace_kind k, std::string_view text) noexcept {
  if (!tracing()) return false;
  const in_runtime in;
  M* m = current_m();
  if (m != nullptr) hold_p(m);
  const G* g = m != nullptr ? m->curg : nullptr;
  if (g != nullptr && !is_current(g)) return false;
  ring_access r(m);
  if (r.off()) return false;
  std::uint64_t w[2 + max_text / 8] = {};
  w[0] = g != nullptr ? id_of(g) : 0;
  if (k == trace_kind::end_region) {
    r.put(k, g != nullptr ? stamp_of(g->traced) : 0, w, 1);
    return true;
  }
  const std::size_t n = text.size() < max_text ? text.size() : max_text;
  w[1] = n;
  text.copy(reinterpret_cast<char*>(w + 2), n);
  r.put(k, g != nullptr ? stamp_of(g->traced) : 0, w, 2 + static_cast<unsigned>((n + 7) / 8));
  return true;
}

// -- beginning and end

namespace {

trace_state seen_as(const G& g, const G* self) noexcept {
  switch (g.state()) {
    case g_status::runnable:
      return trace_state::runnable;
    case g_status::running:  // in a stopped world only the caller has a P
      return &g == self ? trace_state::running : trace_state::syscall;
    case g_status::syscall:
      return trace_state::syscall;
    case g_status::waiting:
    case g_status::leaked:
      return trace_state::waiting;
    case g_status::dead: {
      // Without a P it says so only after the change of status: it waits for our lock, or is about
      // to. Until it has, it is in the trace.
      const trace_state s = state_of(g.traced);
      return s == trace_state::none || s == trace_state::dead ? trace_state::none
                                                              : trace_state::syscall;
    }
    default:
      return trace_state::none;
  }
}

// Under both locks.
std::uint64_t picture() noexcept {
  static constinit std::uint64_t number = 0;
  trace_ring& to = traces.common;
  const auto put = [&](trace_kind k, const std::uint64_t* w, unsigned n) noexcept {
    std::uint64_t* at = trace_reserve(to, n + 1, true);
    const std::uint64_t t = trace_stamp(to.last);
    to.last = t + traces.step;  // two steps: it may begin a slice besides
    if (at != nullptr) {
      at[0] = head(t, k);
      for (unsigned i = 0; i < n; ++i) at[i + 1] = w[i];
      trace_commit(to, n + 1);
    }
    return t;
  };
  to.last = latest();
  // What was lost until now is behind us: the picture makes up for it.
  for (M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next) {
    if (m->trace.lost == 0) continue;
    const std::uint64_t w[] = {m->trace.lost, m->trace.lost_since};
    put(trace_kind::lost, w, 2);
    m->trace.lost = 0;
  }
  ++number;
  const std::uint64_t began = put(trace_kind::sync_begin, &number, 1);
  const M* self = current_m();
  for (std::uint32_t i = 0; i < nprocs(); ++i) {
    P* p = p_at(i);
    const bool own = self != nullptr && self->p == p;
    const std::uint64_t w[] = {i, own ? self->id + 1 : 0};
    put(trace_kind::p_status, w, 2);
  }
  const std::size_t n = sched.gs.size();
  for (std::size_t i = 0; i < n; ++i) {
    G& g = *sched.gs.at(i);
    if (!is_current(&g)) continue;
    const trace_state s = seen_as(g, self != nullptr ? self->curg : nullptr);
    if (s == trace_state::none) continue;
    const M* m = g.m.load(memory_order_relaxed);
    std::uint64_t w[2 + name_words];
    const bool waits = s == trace_state::waiting;
    const bool named = is_named(&g);  // once: one without a P may end here, and the name says how
                                      // long the record is
    w[0] = g_word::make(id_of(&g), self != nullptr ? p_id(self) : 0,
                        waits ? static_cast<unsigned>(g.reason) : 0, s, named);
    w[1] = m != nullptr ? m->id + 1 : 0;
    g.traced = traced_as(put(trace_kind::g_status, w, 2 + with_name(&g, named, w + 2)), s);
  }
  put(trace_kind::sync_end, nullptr, 0);
  nothing_before(to.last);
  return began;
}

void wait_for_everybody() noexcept {
  if (can_detach()) ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

}  // namespace

std::uint64_t sync_trace() noexcept {
  sched.lock.lock();
  traces.lock.lock();
  traces.gap.store(false, memory_order_relaxed);
  const std::uint64_t t = picture();
  traces.lock.unlock();
  sched.lock.unlock();
  return t;
}

void start_tracing(std::size_t max_chunks, bool stacks) noexcept {
  sched.lock.lock();
  traces.lock.lock();
  traces.stacks = stacks;
  traces.max_chunks = max_chunks;
#if defined(__x86_64__)
  traces.step = 8;  // no CPU counts faster than 8 GHz
#else
  std::uint64_t hz;
  asm volatile("mrs %0, cntfrq_el0" : "=r"(hz));
  traces.step = hz / 1'000'000'000 + 1;
#endif
  traces.base = trace_clock();
  traces.full.store(false, memory_order_relaxed);
  trace_reset(traces.common);
  for (M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next)
    trace_reset(m->trace);
  for (std::size_t i = 0, n = sched.gs.size(); i < n; ++i) sched.gs.at(i)->traced = 0;
  sched.tracing.store(true, memory_order_seq_cst);
  wait_for_everybody();  // partner: status first, then the flag, in threads without a P
  traces.gap.store(false, memory_order_relaxed);
  picture();
  traces.lock.unlock();
  sched.lock.unlock();
}

void stop_tracing() noexcept {
  sched.lock.lock();
  traces.lock.lock();
  picture();
  sched.tracing.store(false, memory_order_seq_cst);
  traces.lock.unlock();
  sched.lock.unlock();
}

}  // namespace weft::rt
