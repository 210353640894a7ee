// SPDX-License-Identifier: Apache-2.0
// Goroutines begin and end here.
//
// Spawn takes a dead G with a warm stack from the P's list (then the global list, then a fresh
// one), lends the top of its stack for the closure, lays the first switch frame below it, and puts
// it into runnext. No malloc, no lock, no system call as long as the lists have something.
//
// Exit destroys what the goroutine owns, raises its generation and switches away for good; the G
// goes back to the list in the commit, on the next goroutine's stack, when nobody stands on its
// stack any more.
//
// goexit is a forced unwind: destructors run, typed handlers are not entered. catch (...) is; if it
// does not rethrow, the end of its block deletes the exception object, and that callback starts the
// unwind again from there. The last frame, goroutine_main, knows the forced unwind by its type.
//
// Runs on the spawner's stack; goroutine_main on the new one. User code (copying the closure) runs
// between spawn_begin and spawn_commit and may itself park, throw or spawn: the ticket belongs to
// nobody's list meanwhile.
#include <algorithm>
#include <cstring>
#include <cxxabi.h>

#include "base/print.h"
#include "sched/locals.h"
#include "sched/park.h"
#include "sched/sched.h"
#include "sched/switch.h"
#include "sched/unwind.h"
#include "stack/stack.h"
#include "weft/detail/spawn.hpp"

namespace weft::rt {
namespace {

constexpr std::uint32_t goid_batch = 16;
constexpr std::uint32_t fresh_batch = 16;

// -- free lists

void give_stack(G* g, const stack& s) noexcept {
  g->stk = s;
  g->top = stack_top(s);
  register_stack(s.lo, s.hi);
}

G* shell() noexcept {  // under g_lock
  G* g = sched.bare_list;
  if (g != nullptr) {
    sched.bare_list = g->next;
    return g;
  }
  g = sched.gs.allocate();
  g->move_status(g_status::idle, g_status::dead);
  return g;
}

void put_shell(G* g) noexcept {  // under g_lock
  g->stk = stack{};
  g->next = sched.bare_list;
  sched.bare_list = g;
}

// A G with a stack of its own size; the stack goes back to its pool when it ends.
G* special_g(std::size_t slot) noexcept {
  const stack s = stack_alloc(slot);
  sched.g_lock.lock();
  G* g = shell();
  sched.g_lock.unlock();
  give_stack(g, s);
  g->special = true;
  return g;
}

// Up to n Gs with default stacks, from the global pool or fresh; at least one.
std::uint32_t take_batch(free_g* out, std::uint32_t n) noexcept {
  if (sched.free_gs.size_hint() != 0) {
    if (const std::uint32_t k = sched.free_gs.pop(out, n)) return k;
  }
  stack s[fresh_batch];
  const auto k = static_cast<std::uint32_t>(
      stack_alloc_batch(default_slot(), s, std::min<std::size_t>(n, fresh_batch)));
  sched.g_lock.lock();
  for (std::uint32_t i = 0; i < k; ++i) {
    G* g = shell();
    give_stack(g, s[i]);
    g->special = false;
    out[i] = {g, g->top};
  }
  sched.g_lock.unlock();
  return k;
}

P* own_p() noexcept {
  M* m = current_m();
  return m != nullptr ? m->p : nullptr;
}

G* take_g() noexcept {
  P* p = own_p();
  if (p == nullptr) {
    free_g f;
    take_batch(&f, 1);
    return f.g;
  }
  g_cache& c = p->free_gs;
  if (c.n == 0) c.n = take_batch(c.cells, g_cache::half);
  return c.pop();
}

void put_g(P* p, G* g) noexcept {
  const free_g f{g, g->top};
  if (g->special || (p == nullptr && g->stk.hi - g->stk.base != default_slot())) {
    strip_gs(&f, 1);
  } else if (p == nullptr) {
    sched.free_gs.push(&f, 1);
  } else {
    p->free_gs.push(g);
    if (p->free_gs.n == g_cache::capacity) flush_free_gs(p, g_cache::half);
  }
}

std::uint64_t new_goid(P* p) noexcept {
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
  g->exit_put_off = true;
}

// Inside a handler that has caught our forced unwind: the top of the caught exceptions is its
// object. (The Itanium ABI puts the unwind header last in the exception header, of which `caught`
// points to the beginning.)
bool in_its_handler(G* g) noexcept {
  constexpr std::size_t before = 96;
  return current_m()->ts.eh->caught == reinterpret_cast<char*>(&g->unwind) - before;
}

void goroutine_main(void* gp, void* run, void* closure) {
  G* g = static_cast<G*>(gp);
  g->fiber.entered();
  leave_sched();
  try {
    reinterpret_cast<closure_fn>(run)(closure);
  } catch (const abi::__forced_unwind&) {
    goroutine_exit(g);
  } catch (...) {
    report_uncaught(g);
  }
  goroutine_exit(g);
}

// The one way from dead to ready-to-start. `below`: the closure's lowest address, or the top of the
// stack.
void prepare(G* g, P* p, closure_fn run, void* closure, std::uintptr_t below) noexcept {
  g->goid = new_goid(p);
  g->eh = eh_state{};
  g->saved_errno = 0;
  g->exiting = false;
  g->run_id = sched.run_id.load(memory_order_relaxed);
  g->fiber.assign(g->stk.lo, g->stk.hi);
  g->sp = make_context(below & ~std::uintptr_t{15}, goroutine_main, g, reinterpret_cast<void*>(run),
                       closure);
}

weft::detail::spawn_ticket lend(G* g, std::size_t size, std::size_t align,
                                const void* at) noexcept {
  const std::uintptr_t a = (g->top - size) & ~(static_cast<std::uintptr_t>(align) - 1);
  G* parent = current_g();
  g->parent = parent != nullptr ? parent->goid : 0;
  g->created_at = at;
  return {reinterpret_cast<void*>(a), g};
}

}  // namespace

void strip_gs(const free_g* f, std::uint32_t n) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) stack_free(f[i].g->stk);
  sched.g_lock.lock();
  for (std::uint32_t i = 0; i < n; ++i) put_shell(f[i].g);
  sched.g_lock.unlock();
}

void flush_free_gs(P* p, std::uint32_t keep) noexcept {
  g_cache& c = p->free_gs;
  if (c.n <= keep) return;
  // The oldest go: they are at the bottom of the array.
  const std::uint32_t n = c.n - keep;
  sched.free_gs.push(c.cells, n);
  std::memmove(c.cells, c.cells + n, keep * sizeof *c.cells);
  c.n = keep;
}

// Two things cost memory after a peak: pages that deep calls have touched, and more stacks than the
// program needs now. So what was freed since the last time is trimmed to one page and goes to the
// bottom of the pool; and of more than `plenty` free goroutines the rest give their stacks back
// altogether.
void trim_free_stacks() noexcept {
  constexpr std::uint32_t plenty = 4096;
  free_g f[g_pool::block_size];
  stack s[g_pool::block_size];
  // Off the pool while we look, so that nobody starts on them. Each goes to the bottom, so one
  // round is enough.
  for (std::uint32_t left = sched.free_gs.size_hint(); left > 0;) {
    const std::uint32_t n = sched.free_gs.pop(f, std::min(left, g_pool::block_size));
    if (n == 0) break;
    left -= std::min(left, n);
    std::uint32_t k = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (f[i].g->trimmed) continue;
      f[i].g->trimmed = true;
      s[k++] = f[i].g->stk;
    }
    if (k == 0) {  // trimmed ones have come up to the top: nothing was freed since
      sched.free_gs.push(f, n);
      break;
    }
    stack_trim_batch(s, k);
    sched.free_gs.push_bottom(f, n);
  }
  while (sched.free_gs.size_hint() > plenty) {
    const std::uint32_t n = sched.free_gs.pop_bottom(f);
    if (n == 0) break;
    strip_gs(f, n);
  }
  while (stack_trim_pool(256) == 256) {
  }
  while (stack_drop_pool(256) == 256) {
  }
}

void exit_commit(void* gp, void*) noexcept {
  G* g = static_cast<G*>(gp);
  put_g(current_m()->p, g);
}

void goroutine_exit(G* g) noexcept {
  if (g->locals != nullptr) destroy_locals(g);
  g->named = false;
  M* m = current_m();  // after user code: destructors may have parked
  g->trimmed = false;
  g->generation.store(g->generation.load(memory_order_relaxed) + 1,
                      memory_order_release);  // with late wakers
  g->move_status(g_status::running, g_status::dead);
  if (g->is_main) {
    g->is_main = false;
    main_is_gone();
  }
  bump(m->p->count.exited);
  leave_for_good(m, g, exit_commit, g, nullptr);
}

void start_goexit(G* g) {
  // A destructor that runs because of an exception is a must-not-throw region for every unwind,
  // ours too.
  if (std::uncaught_exceptions() != 0)
    fatal("goexit called in a destructor while an exception unwinds");
  if (g->exiting && in_its_handler(g)) throw;  // catch (...) { goexit(); }
  g->exiting = true;
  g->exit_put_off = false;
  g->unwind = _Unwind_Exception{};
  g->unwind.exception_class = 0x5745465445584954;  // "WEFTEXIT"
  g->unwind.exception_cleanup = unwind_swallowed;
  _Unwind_ForcedUnwind(&g->unwind, unwind_stop, g);
  fatal("goexit: cannot unwind");
}

void resume_goexit(G* g) {
  if (g->exit_put_off && std::uncaught_exceptions() == 0) start_goexit(g);
}

void call_goexit(G* g) {
  if (g->exiting && !g->exit_put_off && std::uncaught_exceptions() == 0 && !in_its_handler(g)) {
    fatal("goexit called in a destructor while goexit unwinds");
  }
  start_goexit(g);
}

G* make_main(std::size_t stack_size, closure_fn fn, void* arg) noexcept {
  G* g = special_g(stack_slot_size(stack_size));
  prepare(g, nullptr, fn, arg, g->top);
  g->goid = 1;
  g->parent = 0;
  g->created_at = nullptr;
  g->is_main = true;
  sched.foreign_created.fetch_add(1, memory_order_relaxed);
  g->move_status(g_status::dead, g_status::runnable);
  return g;
}

std::uint64_t goroutine_count() noexcept {
  // Exits first: whoever is created and gone between the two sums must not count as -1.
  std::uint64_t gone = sched.left_behind.load(memory_order_relaxed), made = 0;
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

spawn_ticket spawn_begin(std::size_t size, std::size_t align) {
  G* g = take_g();
  return lend(g, size, align, __builtin_return_address(0));
}

spawn_ticket spawn_begin(std::size_t size, std::size_t align, std::size_t stack_size,
                         std::string_view name) {
  G* g = nullptr;
  const std::size_t slot = stack_size == 0 ? default_slot() : stack_slot_size(stack_size);
  if (slot == 0) throw std::bad_alloc();
  if (slot == default_slot()) {
    g = take_g();
  } else {
    g = special_g(slot);
  }
  const std::size_t n = std::min(name.size(), sizeof g->name - 1);
  name.copy(g->name, n);
  g->name[n] = '\0';
  g->named = n != 0;
  return lend(g, size, align, __builtin_return_address(0));
}

void spawn_commit(spawn_ticket t, void (*run)(void*)) noexcept {
  G* g = static_cast<G*>(t.goroutine);
  P* p = own_p();
  prepare(g, p, run, t.storage, reinterpret_cast<std::uintptr_t>(t.storage));
  if (p == nullptr) {  // as in ready_foreign
    sched.lock.lock();
    g->run_id = sched.run_id.load(memory_order_relaxed);  // this run, or the next (clear_world)
    sched.foreign_created.fetch_add(1, memory_order_relaxed);
    g->move_status(g_status::dead, g_status::runnable);
    sched.runq.push(g);
    sched.lock.unlock();
    fence_and_wake();
    return;
  }
  g->move_status(g_status::dead, g_status::runnable);
  bump(p->count.created);
  put_next(p, g);
}

void spawn_cancel(spawn_ticket t) noexcept {
  G* g = static_cast<G*>(t.goroutine);
  g->named = false;
  put_g(own_p(), g);
}

void go_of_nil() noexcept { fatal("go of nil func value"); }

}  // namespace weft::detail
