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

constexpr std::uint32_t free_most = 64, free_keep = 32;  // a P's list: spill at, spill down to
constexpr std::uint32_t goid_batch = 16;
constexpr std::uint32_t fresh_batch = 16;

// -- free lists

void give_stack(G* g, const stack& s) noexcept {
  g->stk = s;
  g->top = stack_top(s);
  register_stack(s.lo, s.hi);
}

G* carve() noexcept {  // under g_lock
  G* g = sched.gs.allocate();
  g->move_status(g_status::idle, g_status::dead);
  return g;
}

// A G without a stack.
G* bare_g() noexcept {
  sched.free_lock.lock();
  G* g = sched.bare_list;
  if (g != nullptr) sched.bare_list = g->next;
  sched.free_lock.unlock();
  if (g != nullptr) return g;
  sched.g_lock.lock();
  g = carve();
  sched.g_lock.unlock();
  return g;
}

// Up to n Gs with default stacks from the global list, or fresh ones: a list by next, at least one.
G* take_batch(std::uint32_t n, std::uint32_t* got) noexcept {
  G* head = nullptr;
  std::uint32_t k = 0;
  if (sched.nfree.load(memory_order_relaxed) != 0) {
    sched.free_lock.lock();
    while (k < n && sched.free_list != nullptr) {
      G* g = sched.free_list;
      sched.free_list = g->next;
      g->next = head;
      head = g;
      ++k;
    }
    sched.nfree.store(sched.nfree.load(memory_order_relaxed) - k, memory_order_relaxed);
    sched.free_lock.unlock();
  }
  if (k == 0) {
    stack s[fresh_batch];
    const auto fresh = static_cast<std::uint32_t>(
        stack_alloc_batch(sched.stack_slot, s, std::min<std::size_t>(n, fresh_batch)));
    sched.g_lock.lock();
    for (; k < fresh; ++k) {
      G* g = carve();
      give_stack(g, s[k]);
      g->next = head;
      head = g;
    }
    sched.g_lock.unlock();
  }
  *got = k;
  return head;
}

void give_batch(G* head, G* tail, std::uint32_t n) noexcept {
  sched.free_lock.lock();
  tail->next = sched.free_list;
  sched.free_list = head;
  sched.nfree.store(sched.nfree.load(memory_order_relaxed) + n, memory_order_relaxed);
  sched.free_lock.unlock();
}

P* own_p() noexcept {
  M* m = current_m();
  return m != nullptr ? m->p : nullptr;
}

G* take_g() noexcept {
  P* p = own_p();
  std::uint32_t n = 0;
  if (p == nullptr) return take_batch(1, &n);
  G* g = p->free_gs;
  if (g == nullptr) {
    g = take_batch(free_keep, &n);
    p->nfree_gs = n;
  }
  p->free_gs = g->next;
  --p->nfree_gs;
  // The next one's lines, which another core may have written last, for a spawner that goes on
  // spawning.
  if (G* next = g->next) {
    __builtin_prefetch(next, 1);
    __builtin_prefetch(&next->goid, 1);
  }
  return g;
}

void put_g(P* p, G* g) noexcept {
  if (g->stk.hi - g->stk.base != sched.stack_slot) {  // not a default stack: only the shell is kept
    stack_free(g->stk);
    g->stk = stack{};
    sched.free_lock.lock();
    g->next = sched.bare_list;
    sched.bare_list = g;
    sched.free_lock.unlock();
    return;
  }
  if (p == nullptr) {
    give_batch(g, g, 1);
    return;
  }
  g->next = p->free_gs;
  p->free_gs = g;
  if (++p->nfree_gs >= free_most) flush_free_gs(p, free_keep);
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
                                _Unwind_Context* context, void* gp) {
  static_cast<G*>(gp)->unwind_cfa = _Unwind_GetCFA(context);
  return _URC_NO_REASON;
}

// The end of a catch (...) that did not rethrow. If it ends by throwing something else we stand in
// a clean-up, from which the ABI lets nothing unwind (the compiler marks it must-not-throw): then
// the goexit is resumed at the next call that may park, or by the goroutine's end.
void unwind_swallowed(_Unwind_Reason_Code, _Unwind_Exception*) {
  if (std::uncaught_exceptions() == 0) start_goexit(current_g());
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
  g->run_id =
      sched.run_id.load(memory_order_relaxed) + (sched.active.load(memory_order_acquire) ? 0 : 1);
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

void flush_free_gs(P* p, std::uint32_t keep) noexcept {
  if (p->nfree_gs <= keep) return;
  // The oldest go: the list is last in, first out, so they are its end.
  G** at = &p->free_gs;
  for (std::uint32_t i = 0; i < keep; ++i) at = &(*at)->next;
  G* head = *at;
  *at = nullptr;
  G* tail = head;
  std::uint32_t n = 1;
  for (; tail->next != nullptr; tail = tail->next) ++n;
  p->nfree_gs = keep;
  give_batch(head, tail, n);
}

void trim_free_stacks() noexcept {
  stack_trim_pool(64);
  for (int rounds = 0; rounds < 64; ++rounds) {
    // Those freed since the last time are at the top. Off the list while we look, so that nobody
    // starts on them.
    constexpr std::uint32_t batch = 16;
    G* head = nullptr;
    G* tail = nullptr;
    std::uint32_t n = 0;
    sched.free_lock.lock();
    while (n < batch && sched.free_list != nullptr && !sched.free_list->trimmed) {
      G* g = sched.free_list;
      sched.free_list = g->next;
      g->next = head;
      if (head == nullptr) tail = g;
      head = g;
      ++n;
    }
    sched.nfree.store(sched.nfree.load(memory_order_relaxed) - n, memory_order_relaxed);
    sched.free_lock.unlock();
    if (n == 0) return;
    for (G* g = head; g != nullptr; g = g->next) {
      stack_trim(g->stk);
      g->trimmed = true;
    }
    give_batch(head, tail, n);
  }
}

void exit_commit(void* gp, void*) noexcept {
  G* g = static_cast<G*>(gp);
  put_g(current_m()->p, g);
}

void goroutine_exit(G* g) noexcept {
  if (g->locals != nullptr) destroy_locals(g);
  M* m = current_m();  // after user code: destructors may have parked
  g->name[0] = '\0';
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
  g->exiting = true;
  g->unwind = _Unwind_Exception{};
  g->unwind.exception_class = 0x5745465445584954;  // "WEFTEXIT"
  g->unwind.exception_cleanup = unwind_swallowed;
  // A destructor that runs because of an exception is a must-not-throw region for every unwind,
  // ours too.
  if (std::uncaught_exceptions() != 0)
    fatal("goexit called in a destructor while an exception unwinds");
  _Unwind_ForcedUnwind(&g->unwind, unwind_stop, g);
  fatal("goexit: cannot unwind");
}

void resume_goexit(G* g) {
  // Clean-ups run below the frame that the unwind has reached. Standing above it, somebody has
  // caught it.
  if (reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) > g->unwind_cfa) start_goexit(g);
}

G* make_main(std::size_t stack_size, closure_fn fn, void* arg) noexcept {
  G* g = bare_g();
  give_stack(g, stack_alloc(stack_slot_size(stack_size)));
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
  const std::size_t slot = stack_size == 0 ? sched.stack_slot : stack_slot_size(stack_size);
  if (slot == 0) throw std::bad_alloc();
  if (slot == sched.stack_slot) {
    g = take_g();
  } else {
    const stack s = stack_alloc(slot);
    g = bare_g();
    give_stack(g, s);
  }
  const std::size_t n = std::min(name.size(), sizeof g->name - 1);
  name.copy(g->name, n);
  g->name[n] = '\0';
  return lend(g, size, align, __builtin_return_address(0));
}

void spawn_commit(spawn_ticket t, void (*run)(void*)) noexcept {
  G* g = static_cast<G*>(t.goroutine);
  P* p = own_p();
  prepare(g, p, run, t.storage, reinterpret_cast<std::uintptr_t>(t.storage));
  if (p == nullptr) {  // as in ready_foreign
    sched.foreign_created.fetch_add(1, memory_order_relaxed);
    sched.lock.lock();
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
  g->name[0] = '\0';
  put_g(own_p(), g);
}

void go_of_nil() noexcept { fatal("go of nil func value"); }

}  // namespace weft::detail
