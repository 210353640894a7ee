// SPDX-License-Identifier: Apache-2.0
// Goroutines begin and end here.
//
// Spawn takes a dead G from the P's list (then the global pool, then a fresh one), lends its second
// cache line for the closure, and puts it into runnext. No malloc, no lock, no system call as long
// as the lists have something. There is no stack yet: the P that first runs the goroutine binds one
// of its own (bind_stack), the one used last and so the warmest. A closure too large for the line
// is built on a stack that is bound at once; one that fits and may be moved as bytes is handed over
// in one call (spawn_bytes).
//
// Exit destroys what the goroutine owns, raises its generation and switches away for good; stack
// and shell go back to the lists in the commit, on the next goroutine's stack, when nobody stands
// there any more. If the next goroutine has not begun yet there is no switch at all: it takes over
// the stack that is about to be left (take_over), so a batch of short goroutines runs as a loop.
//
// Rejected: binding the stack at the spawn. A burst of spawns then needs a stack each before the
// first one runs, and a first touch costs 1 to 3 microseconds; and the stack's lines travel from
// the spawner's core to the runner's.
//
// goexit is a forced unwind: destructors run, typed handlers are not entered. catch (...) is; if it
// does not rethrow, the end of its block deletes the exception object, and that callback starts the
// unwind again from there. The last frame, goroutine_main, knows the forced unwind by its type.
//
// Runs on the spawner's stack; goroutine_main on the new one. User code (copying the closure) runs
// between spawn_begin and spawn_commit and may itself park, throw or spawn: the ticket belongs to
// nobody's list meanwhile.
//
// Long because begin, end and goexit share the free lists, inlined into each of them.
#include <algorithm>
#include <cstring>
#include <cxxabi.h>

#include "base/chaos.h"
#include "base/print.h"
#include "sched/bubble.h"
#include "sched/locals.h"
#include "sched/next.h"
#include "sched/park.h"
#include "sched/switch.h"
#include "sched/tracing.h"
#include "sched/unwind.h"
#include "stack/stack.h"
#include "weft/detail/spawn.hpp"

namespace weft::rt {
namespace {

constexpr std::uint32_t goid_batch = 16;

// -- free lists

// Up to n cells, from the global pool or fresh; at least one.
template <class T>
[[gnu::noinline]] std::uint32_t take_batch(cell_pool<T>& pool, slab<T>& cells, T** out,
                                           std::uint32_t n) noexcept {
  if (pool.size_hint() != 0) {
    if (const std::uint32_t k = pool.pop(out, n)) return k;
  }
  sched.g_lock.lock();
  for (std::uint32_t i = 0; i < n; ++i) out[i] = cells.allocate();
  sched.g_lock.unlock();
  return n;
}

template <class T>
[[gnu::always_inline]] inline T* take(cell_cache<T>* c, cell_pool<T>& pool,
                                      slab<T>& cells) noexcept {
  if (c == nullptr) {
    T* t = nullptr;
    take_batch(pool, cells, &t, 1);
    return t;
  }
  if (c->n == 0) [[unlikely]]
    c->n = take_batch(pool, cells, c->cells, c->half);
  return c->pop();
}

template <class T>
[[gnu::noinline]] void flush(cell_cache<T>& c, cell_pool<T>& pool, std::uint32_t keep) noexcept {
  if (c.n <= keep) return;
  const std::uint32_t n = c.n - keep;  // the oldest go: they are at the bottom of the array
  pool.push(c.cells, n);
  std::memmove(c.cells, c.cells + n, keep * sizeof *c.cells);
  std::fill(c.cells + keep, c.cells + keep + n, nullptr);
  c.n = keep;
}

template <class T>
[[gnu::always_inline]] inline void put(cell_cache<T>* c, cell_pool<T>& pool, T* t) noexcept {
  if (c == nullptr) {
    pool.push(&t, 1);
    return;
  }
  if (c->n == c->capacity) [[unlikely]]
    flush(*c, pool, c->half);
  c->push(t);
}

[[gnu::always_inline]] inline G* take_g(P* p) noexcept {
  G* g = take(p != nullptr ? &p->free_gs : nullptr, sched.free_gs, sched.gs);
  if (g->state() == g_status::idle) [[unlikely]]
    g->move_status(g_status::idle, g_status::dead);
  return g;
}

[[gnu::always_inline]] inline void put_g(P* p, G* g) noexcept {
  put(p != nullptr ? &p->free_gs : nullptr, sched.free_gs, g);
}

[[gnu::noinline]] void flush(stack_cache& c, std::uint32_t keep) noexcept {
  if (c.n <= keep) return;
  const std::uint32_t n = c.n - keep;
  stack_free_batch(c.cells, n);
  std::memmove(c.cells, c.cells + n, keep * sizeof *c.cells);
  c.n = keep;
}

bool is_default(const stack& s) noexcept { return s.hi - s.base == default_slot(); }

[[gnu::always_inline]] inline const stack& take_stack(
    P* p) noexcept {  // good until the P gets one back
  stack_cache& c = p->stacks;
  if (c.n == 0) [[unlikely]] {
    c.n = static_cast<std::uint32_t>(stack_alloc_batch(default_slot(), c.cells, stack_cache::half));
  }
  return c.cells[--c.n];
}

[[gnu::always_inline]] inline void put_stack(P* p, const stack& s) noexcept {
  if (p == nullptr || !is_default(s)) {
    stack_free(s);
    return;
  }
  stack_cache& c = p->stacks;
  if (c.n == stack_cache::capacity) [[unlikely]]
    flush(c, stack_cache::half);
  c.cells[c.n++] = s;
}

// Shell and stack, whichever it has.
[[gnu::always_inline]] inline void put_back(P* p, G* g) noexcept {
  if (g->stk) {
    g->fiber.retire();
    put_stack(p, g->stk);
    g->stk = stack{};
  }
  put_g(p, g);
}

[[gnu::always_inline]] inline std::uint64_t new_goid(P* p) noexcept {
  if (p == nullptr) return sched.next_goid.fetch_add(1, memory_order_relaxed);
  if (p->goid_next == p->goid_end) {
    p->goid_next = sched.next_goid.fetch_add(goid_batch, memory_order_relaxed);
    p->goid_end = p->goid_next + goid_batch;
  }
  return p->goid_next++;
}

// -- goexit

_Unwind_Reason_Code unwind_stop(int, _Unwind_Action, _Unwind_Exception_Class, _Unwind_Exception*,
                                _Unwind_Context*, void*) {
  return _URC_NO_REASON;
}

// The end of a catch (...) that did not rethrow. If it ends by throwing something else we stand in
// a clean-up, from which the ABI lets nothing unwind (the compiler marks it must-not-throw): then
// the goexit is put off until that exception has been caught, and resumed at the next call that may
// park, or by the goroutine's end.
void unwind_swallowed(_Unwind_Reason_Code, _Unwind_Exception*) {
  G* g = current_g();
  if (std::uncaught_exceptions() == 0) start_goexit(g);
  g->set_exiting(exit_state::put_off);
}

// Inside a handler that has caught our forced unwind: the top of the caught exceptions is its
// object. (The Itanium ABI puts the unwind header last in the exception header, of which `caught`
// points to the beginning.)
bool in_its_handler(G* g) noexcept {
  constexpr std::size_t before = 96;
  return current_m()->ts.eh->caught == reinterpret_cast<char*>(&g->unwind) - before;
}

void end_of_bound(G* g) noexcept {
  if (g->bubbled()) {
    leave_bubble(g);
  } else {
    // Its thread ends with it: nobody knows what the goroutine has done to it.
    M* m = g->locked_m();
    m->dying = true;
    m->locked_g = nullptr;
    g->tied.clear();
    g->locks = 0;
  }
}

// What is left of g when its closure has returned, on its own stack. From here on we are inside the
// runtime, with the P that is returned, if any. One whose run is over stops here, before it changes
// anything: its bubble may be another's by now, and its thread belongs to nobody.
[[gnu::always_inline]] inline P* end_of_life(G* g) noexcept {
  if (g->locals != nullptr) destroy_locals(g);
  enter_rt();
  P* p = hold_p(current_m());  // after user code: it may have parked
  if (p == nullptr) stop_if_left_behind();
  if (g->bound) [[unlikely]]
    end_of_bound(g);
  g->named.store(false, memory_order_relaxed);
  g->generation.store(g->generation.load(memory_order_relaxed) + 1,
                      memory_order_release);  // with late wakers
  g->move_status(g_status::running, g_status::dead);
  if (g->is_main) {
    g->is_main = false;
    main_is_gone();
  }
  return p;
}

void exit_commit(void* gp, void*) noexcept {
  G* g = static_cast<G*>(gp);
  if (g->bound) [[unlikely]] {
    g->bound = false;
    g->set_bubbled(false);
    g->tied.clear();
  }
  chaos::point("exit.free");
  put_back(current_m()->p, g);
}

// Without a P: lost in a call that blocked, and not needed any more. Release, with goroutine_count:
// whoever sees that it is gone sees all that it did.
void count_exit(P* p) noexcept {
  if (p != nullptr) [[likely]] {
    auto& n = p->count.exited;
    n.store(n.load(memory_order_relaxed) + 1, memory_order_release);
  } else {
    sched.foreign_exited.fetch_add(1, memory_order_release);
  }
}

// What runs after one that has ended, or null: ask g0.
[[gnu::always_inline]] inline G* next_after(M* m, P* p, const G* ended) noexcept {
  return p != nullptr && !ended->bound ? pick_next(m, p) : nullptr;
}

#if defined(WEFT_TSAN) || defined(WEFT_ASAN)
constexpr bool may_take_over = false;  // they know a goroutine by its stack
#else
constexpr bool may_take_over = true;
#endif

// g has ended and `next` has not begun: it goes on where g stood, without a switch.
void take_over(M* m, G* g, G* next) noexcept {
  enter_sched(m);
  trace_exit(m, g, next);
  chaos::point("exit.take_over");
  next->stk = g->stk;
  g->stk = stack{};
  g->m.store(nullptr, memory_order_relaxed);
  put_g(m->p, g);
  begin_running(m, next);
  m->ts.set(eh_state{}, 0);
  reset_fp_environment();
  leave_sched(m, 0);
}

WEFT_CATCHES_FORCED_UNWIND void run_closure(G* g) {
  try {
    weft_guarded_call(g->run, g->closure);
  } catch (const abi::__forced_unwind&) {
    goroutine_exit(g);
  } catch (...) {
    report_uncaught(g);
  }
}

}  // namespace

void goroutine_main(void* gp, void*, void*) {
  G* g = static_cast<G*>(gp);
  g->fiber.entered();
  leave_sched();
  for (;;) {
    leave_rt();
    // Else one that has left this thread was deeper inside than its switch says.
    WEFT_DEBUG_ASSERT(own_words()->in_rt.load(memory_order_relaxed) == 0);
    run_closure(g);
    P* p = end_of_life(g);
    M* m = current_m();
    count_exit(p);
    G* next = next_after(m, p, g);
    if (!may_take_over || next == nullptr || next->sp != nullptr || !is_default(g->stk))
      leave_for_good(m, g, next, exit_commit, g, nullptr);
    take_over(m, g, next);
    g = next;
  }
}

namespace {

// Lays the first frame at `top` of its stack.
[[gnu::always_inline]] inline void set_up(G* g, std::uintptr_t top) noexcept {
  g->fiber.assign(g->stk.lo, g->stk.hi);
  g->sp = make_context(top & ~std::uintptr_t{15}, goroutine_main, g);
}

// The one way from dead to ready-to-start. storage: where the closure is.
[[gnu::always_inline]] inline void prepare(G* g, P* p, closure_fn run, void* storage) noexcept {
  g->goid = new_goid(p);
  g->eh = eh_state{};
  g->saved_errno = 0;
  g->set_exiting(exit_state::none);
  g->run_id = sched.run_id.load(memory_order_relaxed);
  g->run = run;
  g->sp = nullptr;
  if (storage != g->closure) {
    std::memcpy(g->closure, &storage, sizeof storage);
    set_up(g, reinterpret_cast<std::uintptr_t>(storage));
  } else if (g->stk) {
    set_up(g, stack_top(g->stk));
  }
}

[[gnu::always_inline]] inline weft::detail::spawn_ticket lend(G* g, std::size_t size,
                                                              std::size_t align,
                                                              const void* at) noexcept {
  G* parent = current_g();
  g->parent = parent != nullptr ? parent->goid : 0;
  g->created_at = at;
  g->run = nullptr;  // dead, but its closure is being built (leaks.cc)
  static_assert(G::closure_size == weft::detail::largest_in_line);
  if (size <= G::closure_size && align <= alignof(std::max_align_t)) return {g->closure, g};
  if (!g->stk) {
    P* p = own_p();
    g->stk = p != nullptr ? take_stack(p) : stack_alloc(default_slot());
  }
  const std::uintptr_t a = (stack_top(g->stk) - size) & ~(static_cast<std::uintptr_t>(align) - 1);
  return {reinterpret_cast<void*>(a), g};
}

}  // namespace

std::uintptr_t bind_stack(P* p, G* g) noexcept {
  const stack& s = take_stack(p);
  g->stk = s;
  return stack_top(s) & ~std::uintptr_t{15};
}

void begin(P* p, G* g) noexcept { set_up(g, bind_stack(p, g)); }

void flush_free(P* p, std::uint32_t keep) noexcept {
  flush(p->free_gs, sched.free_gs, keep);
  flush(p->blocks, sched.free_blocks, keep);
  flush(p->chans, sched.free_chans, keep);
  flush(p->large_chans, sched.free_large_chans, keep);
  flush(p->stacks, keep);
}

namespace {

template <class T>
[[gnu::always_inline]] inline T* take_cell(cell_cache<T> P::*of_p, cell_pool<T>& pool,
                                           slab<T>& cells) noexcept {
  const in_runtime in;
  P* p = own_p();
  cell_cache<T>* cache = p != nullptr ? &(p->*of_p) : nullptr;
  T* c = take(cache, pool, cells);
  if (cache != nullptr) cache->cells[cache->n] = nullptr;  // nothing is to look like a handle
  return c;
}

template <class T>
[[gnu::always_inline]] inline void put_cell(cell_cache<T> P::*of_p, cell_pool<T>& pool,
                                            T* c) noexcept {
  const in_runtime in;
  P* p = own_p();
  put(p != nullptr ? &(p->*of_p) : nullptr, pool, c);
}

}  // namespace

chan_cell* take_chan_cell() noexcept { return take_cell(&P::chans, sched.free_chans, sched.chans); }
large_chan_cell* take_large_chan_cell() noexcept {
  return take_cell(&P::large_chans, sched.free_large_chans, sched.large_chans);
}
void put_cell(chan_cell* c) noexcept { put_cell(&P::chans, sched.free_chans, c); }
void put_cell(large_chan_cell* c) noexcept { put_cell(&P::large_chans, sched.free_large_chans, c); }

// Two things cost memory after a peak: pages that deep calls have touched, and more stacks than the
// program needs now. So what was freed since the last time is trimmed to one page, and of what has
// lain there since then all but `plenty` lose that too.
void trim_free_stacks() noexcept {
  constexpr std::size_t plenty = 4096, batch = 256;
  const std::size_t old = get_stack_stats().free_trimmed;
  for (std::size_t left = old > plenty ? old - plenty : 0; left > 0;) {
    const std::size_t n = stack_drop_pool(std::min(left, batch));
    if (n == 0) break;
    left -= std::min(left, n);
  }
  while (stack_trim_pool(batch) == batch) {
  }
}

void goroutine_exit(G* g) noexcept {
  P* p = end_of_life(g);
  M* m = current_m();
  count_exit(p);
  leave_for_good(m, g, next_after(m, p, g), exit_commit, g, nullptr);
}

void start_goexit(G* g) {
  // A destructor that runs because of an exception is a must-not-throw region for every unwind,
  // ours too.
  if (std::uncaught_exceptions() != 0)
    fatal("goexit called in a destructor while an exception unwinds");
  if (g->exiting() != exit_state::none && in_its_handler(g)) throw;  // catch (...) { goexit(); }
  g->set_exiting(exit_state::begun);
  g->unwind = _Unwind_Exception{};
  g->unwind.exception_class = 0x5745465445584954;  // "WEFTEXIT"
  g->unwind.exception_cleanup = unwind_swallowed;
  no_return_ahead();
  _Unwind_ForcedUnwind(&g->unwind, unwind_stop, g);
  fatal("goexit: cannot unwind");
}

void resume_goexit(G* g) {
  if (g->exiting() == exit_state::put_off && std::uncaught_exceptions() == 0) start_goexit(g);
}

void call_goexit(G* g) {
  if (g->exiting() == exit_state::begun && std::uncaught_exceptions() == 0 && !in_its_handler(g)) {
    fatal("goexit called in a destructor while goexit unwinds");
  }
  start_goexit(g);
}

G* make_main(std::size_t stack_size, closure_fn fn, void* arg) noexcept {
  G* g = take_g(nullptr);
  g->stk = stack_alloc(stack_slot_size(stack_size));
  std::memcpy(g->closure, &arg, sizeof arg);
  prepare(g, nullptr, fn, g->closure);
  g->goid = 1;
  g->parent = 0;
  g->created_at = nullptr;
  g->is_main = true;
  sched.foreign_created.fetch_add(1, memory_order_relaxed);
  g->move_status(g_status::dead, g_status::runnable);
  trace_spawn(g);
  return g;
}

std::uint64_t goroutine_count() noexcept {
  // Exits first: whoever is created and gone between the two sums must not count as -1.
  std::uint64_t gone = sched.left_behind.load(memory_order_relaxed) +
                       sched.foreign_exited.load(memory_order_acquire);  // with count_exit
  std::uint64_t made = 0;
  for (const auto& slot : sched.allp) {
    if (P* p = slot.load(memory_order_acquire)) gone += p->count.exited.load(memory_order_acquire);
  }
  for (const auto& slot : sched.allp) {
    if (P* p = slot.load(memory_order_acquire)) made += p->count.created.load(memory_order_acquire);
  }
  made += sched.foreign_created.load(memory_order_relaxed);
  return made > gone ? made - gone : 0;
}

}  // namespace weft::rt

namespace weft::detail {

using namespace rt;

[[gnu::noinline]] static spawn_ticket spawn_begin_rare(std::size_t size, std::size_t align,
                                                       const void* at) {
  const in_runtime in;
  return lend(take_g(own_p()), size, align, at);
}

// From the P's list, which has one.
[[gnu::always_inline]] static inline G* take_at_hand(M* m, P* p, const void* at) noexcept {
  G* g = p->free_gs.pop();
  if (g->state() == g_status::idle) [[unlikely]]
    g->move_status(g_status::idle, g_status::dead);
  g->parent = m->curg != nullptr ? m->curg->goid : 0;
  g->created_at = at;
  return g;
}

spawn_ticket spawn_begin(std::size_t size, std::size_t align) {
  const void* at = __builtin_return_address(0);
  if (size > G::closure_size || align > alignof(std::max_align_t)) [[unlikely]]
    return spawn_begin_rare(size, align, at);
  enter_rt();
  M* m = current_m();
  P* p = p_at_hand(m);
  if (p == nullptr || p->free_gs.n == 0) [[unlikely]] {
    leave_rt();
    return spawn_begin_rare(size, align, at);
  }
  G* g = take_at_hand(m, p, at);
  g->run = nullptr;
  leave_rt();
  return {g->closure, g};
}

spawn_ticket spawn_begin(std::size_t size, std::size_t align, std::size_t stack_size,
                         std::string_view name) {
  const std::size_t slot = stack_size == 0 ? default_slot() : stack_slot_size(stack_size);
  if (slot == 0) throw std::bad_alloc();
  const in_runtime in;
  G* g = take_g(own_p());
  if (slot != default_slot()) g->stk = stack_alloc(slot);
  const std::size_t n = std::min(name.size(), sizeof g->name - 1);
  name.copy(g->name, n);
  g->name[n] = '\0';
  g->named.store(n != 0, memory_order_relaxed);
  return lend(g, size, align, __builtin_return_address(0));
}

[[gnu::noinline]] static void spawn_commit_rare(spawn_ticket t, void (*run)(void*)) noexcept {
  G* g = static_cast<G*>(t.goroutine);
  M* m = current_m();
  P* p = m != nullptr ? hold_p(m) : nullptr;
  prepare(g, p, run, t.storage);
  if (p == nullptr) {
    stop_if_left_behind();
  } else {
    bump(p->count.created);
  }
  if (bubble* b = bubble_of(m)) {
    if (p == nullptr) sched.foreign_created.fetch_add(1, memory_order_relaxed);
    join_bubble(b, g);
  } else if (p == nullptr) {  // as in ready_foreign
    sched.lock.lock();
    g->run_id = sched.run_id.load(memory_order_relaxed);  // this run, or the next (clear_world)
    sched.foreign_created.fetch_add(1, memory_order_relaxed);
    g->move_status(g_status::dead, g_status::runnable);
    trace_spawn(g);
    sched.runq.push(g);
    sched.lock.unlock();
    fence_and_wake();
  } else {
    g->move_status(g_status::dead, g_status::runnable);
    trace_spawn(g);
    put_next(p, g);
  }
  leave_rt();
}

// g's closure is in place and small.
[[gnu::always_inline]] static inline void start(P* p, G* g, void (*run)(void*)) noexcept {
  prepare(g, p, run, g->closure);
  g->move_status(g_status::dead, g_status::runnable);
  bump(p->count.created);
  chaos::point("spawn.publish");
  put_next(p, g);
}

void spawn_commit(spawn_ticket t, void (*run)(void*)) noexcept {
  enter_rt();
  G* g = static_cast<G*>(t.goroutine);
  M* m = current_m();
  P* p = p_at_hand(m);
  if (p == nullptr || m->drives != nullptr || p->goid_next == p->goid_end ||
      t.storage != g->closure || g->stk || tracing()) [[unlikely]] {
    spawn_commit_rare(t, run);
    return;
  }
  start(p, g, run);
  leave_rt();
}

[[gnu::noinline]] static void spawn_bytes_rare(const void* closure, void (*run)(void*),
                                               const void* at) {
  const spawn_ticket t = spawn_begin_rare(G::closure_size, alignof(std::max_align_t), at);
  std::memcpy(t.storage, closure, G::closure_size);
  spawn_commit(t, run);
}

void spawn_bytes(void* closure, void (*run)(void*)) {
  const void* at = __builtin_return_address(0);
  enter_rt();
  M* m = current_m();
  P* p = p_at_hand(m);
  if (p == nullptr || p->free_gs.n == 0 || p->goid_next == p->goid_end || m->drives != nullptr ||
      tracing()) [[unlikely]] {
    leave_rt();
    spawn_bytes_rare(closure, run, at);
    return;
  }
  G* g = take_at_hand(m, p, at);
  // Word by word: wider loads would wait for the narrower stores that have just built it.
  for (std::size_t i = 0; i < G::closure_size; i += sizeof(void*)) {
    void* word;
    std::memcpy(&word, static_cast<const char*>(closure) + i, sizeof word);
    asm("" : "+r"(word));
    std::memcpy(g->closure + i, &word, sizeof word);
  }
  start(p, g, run);
  leave_rt();
}

void spawn_cancel(spawn_ticket t) noexcept {
  const in_runtime in;
  G* g = static_cast<G*>(t.goroutine);
  g->named.store(false, memory_order_relaxed);
  put_back(own_p(), g);
}

[[gnu::noinline]] static void* block_alloc_rare() {
  const in_runtime in;
  P* p = own_p();
  return take(p != nullptr ? &p->blocks : nullptr, sched.free_blocks, sched.blocks);
}

void* block_alloc() {
  static_assert(sizeof(small_block) == block_size);
  enter_rt();
  P* p = p_at_hand(current_m());
  if (p == nullptr || p->blocks.n == 0) [[unlikely]] {
    leave_rt();
    return block_alloc_rare();
  }
  void* b = p->blocks.pop();
  leave_rt();
  return b;
}

[[gnu::noinline]] static void block_free_rare(small_block* b) noexcept {
  const in_runtime in;
  P* p = own_p();
  put(p != nullptr ? &p->blocks : nullptr, sched.free_blocks, b);
}

void block_free(void* b) noexcept {
  enter_rt();
  P* p = p_at_hand(current_m());
  if (p == nullptr || p->blocks.n == block_cache::capacity) [[unlikely]] {
    leave_rt();
    block_free_rare(static_cast<small_block*>(b));
    return;
  }
  p->blocks.push(static_cast<small_block*>(b));
  leave_rt();
}

void go_of_nil() noexcept { fatal("go of nil func value"); }

}  // namespace weft::detail
