// SPDX-License-Identifier: Apache-2.0
// run(): the start and the end of a world.
//
// The calling thread becomes m0. It runs main and nothing else, until main first leaves it (parks,
// yields to somebody, or makes a call that may park); then its P is handed on, with main in the
// first place if it did not wait, and m0 only waits for the end (DESIGN 4.3): so it can never be
// caught inside a goroutine that is left behind. Its P carries a preempt flag all the while, which
// sends every switch to g0.
//
// The end: when main has returned the world is stopped, and stays stopped. Goroutines that are left
// are forgotten: their stacks are not touched again, because somebody may still point into them;
// ready() knows them by their run_id. A thread that is in one of them stops for good where it holds
// no lock of libc, and until then computes on without a P (preempt.cc), for which run waits a
// while; one that is asleep in the kernel is not waited for, but has a signal before it (aarch64: a
// tick of its CPU timer) when it wakes. Only if its P can be got by none of these ways (no signals,
// no membarrier) it is abandoned with its P.
//
// main may lock itself to its thread (LCK-08): then m0 serves it like any other M.
//
// Threads, Ps, Gs and stacks are kept for the next run.
#include "weft/run.hpp"
#include "base/chaos.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cxxabi.h>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "os/cpu.h"
#include "os/thread.h"
#include "sched/bubble.h"
#include "sched/exit_hooks.h"
#include "sched/netpoll.h"
#include "sched/procs.h"
#include "sched/sched.h"
#include "sched/switch.h"
#include "sched/timers.h"
#include "sched/tracing.h"
#include "sched/unwind.h"
#include "stack/stack.h"

namespace weft::rt {
namespace {

struct main_call {
  int (*fn)(void*);
  void* arg;
  int status = 0;
  std::exception_ptr error;
  bool returned = false;
  note gone;
};
constinit main_call* volatile current_main = nullptr;  // one run at a time

// For goroutines that do not come to a stop at the end of a run: a real hog shows itself by the CPU
// time it uses.
constexpr stop_limit patience{20'000'000, 1'000'000'000};
constexpr std::int64_t nudge_ns = 100'000;

WEFT_CATCHES_FORCED_UNWIND void main_entry(void* closure) {
  auto* c = *static_cast<main_call**>(closure);
  try {
    c->status = c->fn(c->arg);
    let_failing_report();
    if (sched.leakcheck) report_leaks();
    run_exit_hooks(c->status);
  } catch (const abi::__forced_unwind&) {
    throw;  // goexit: the others run on, run() does not return
  } catch (...) {
    c->error = std::current_exception();
  }
  let_failing_report();  // during the hooks, perhaps
  c->returned = true;
}

void start_world(const config& c, M* m) {
  static const bool once = [] {
    start_preemption();
    return true;
  }();
  (void)once;
  know_libraries();
  const bool automatic = c.procs <= 0 && sched.wanted_procs.load(memory_order_relaxed) == 0;
  const int n = c.procs > 0 ? c.procs : automatic ? automatic_procs() : get_procs();
  sched.procs_auto.store(automatic, memory_order_relaxed);
  sched.ncpu.store(static_cast<std::uint32_t>(online_cpus_allowed()), memory_order_relaxed);
  sched.quantum_ns.store(c.quantum.count(), memory_order_relaxed);
  sched.preempt.store(c.preempt, memory_order_relaxed);
  sched.shuffle = c.shuffle != 0;
  sched.leakcheck = c.leakcheck;
  sched.embedded.store(c.embedded, memory_order_relaxed);
  sched.traceback.store(c.level, memory_order_relaxed);
  sched.trace_ns.store(std::int64_t{c.schedtrace} * 1'000'000, memory_order_relaxed);
  sched.trace_detail.store(c.scheddetail, memory_order_relaxed);
  sched.max_threads.store(
      static_cast<std::uint32_t>(c.max_threads < UINT32_MAX ? c.max_threads : UINT32_MAX),
      memory_order_relaxed);
  resize(static_cast<std::uint32_t>(n) < max_procs ? static_cast<std::uint32_t>(n) : max_procs);
  // The Ps' caches of stacks are empty between runs, so they hold one size only.
  sched.stack_slot.store(stack_slot_size(c.stack_size), memory_order_relaxed);
  sched.stack_wanted = c.stack_size;
  sched.main_stack_wanted = c.main_stack_size;
  sched.idle.forget_note();
  if (c.shuffle != 0) {
    for (std::uint32_t i = 0; i < nprocs(); ++i) p_at(i)->rng = random(c.shuffle + i);
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &sched.mask);
  sched.m0.store(sched_state::m0_runs, memory_order_relaxed);
  sched.suspect.store(false, memory_order_relaxed);
  // Before anybody parks; sysmon may not have had its first round by then.
  sched.seconds.store(static_cast<std::uint32_t>(nanotime() / 1'000'000'000), memory_order_relaxed);
  bind_thread(m);
  acquire_p(m, p_at(0));
  sched.lock.lock();
  sched.ending.store(false, memory_order_relaxed);
  sched.active.store(true, memory_order_release);
  sched.lock.unlock();
  start_ps(m->p);
}

// Its M computes and has not heard us. It keeps this P, which nobody else will ever use.
void abandon(P* p) noexcept {
  p->orphan.store(true, memory_order_release);  // with find_work
  p->preempt.store(1, memory_order_relaxed);
  sched.allp[p->id].store(nullptr, memory_order_release);
  sched.foreign_created.fetch_add(p->count.created.load(memory_order_relaxed),
                                  memory_order_relaxed);
  sched.left_behind.fetch_add(p->count.exited.load(memory_order_relaxed), memory_order_relaxed);
}

// Under lock. One whose P was taken while it slept, in a call or for a lock of libc. It may have
// woken since, or wakes later.
bool runs_without_p(const M* m) noexcept {
  const hold_state h = m->hold.load(memory_order_acquire);
  return !m->on_idle_list && h != hold_state::left &&
         (h == hold_state::detached || m->strays.load(memory_order_relaxed));
}

// Under lock. Those that wait for a P in place wake without one, and stop for good where they may;
// threads that belong to a locked goroutine end.
void leave_threads() noexcept {
  while (M* m = sched.kept.pop_front()) {
    start_leaving(m);
    give_p(m, nullptr);
  }
  for (M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next) {
    if (runs_without_p(m)) start_leaving(m);
    if (!m->waits_locked) continue;
    m->locked_g = nullptr;
    m->dying = true;
    wake_locked(m, nullptr);
  }
}

// The world is stopped, or as good as: empties it. All under the lock, under which plain threads
// enqueue: what they start or wake belongs wholly to this run, and is dropped with it, or wholly to
// the next.
void clear_world() noexcept {
  G* gs[runq::capacity];
  const std::uint32_t n = nprocs();
  sched.lock.lock();
  for (std::uint32_t i = 0; i < n; ++i) {
    P* p = p_at(i);
    if (p->status.load(memory_order_relaxed) != p_status::stopped) {
      M* m = p->m.load(memory_order_acquire);  // with acquire_p
      if (m == nullptr || take_from_sleeper(m) != p) {
        abandon(p);
        continue;
      }
      if (sched.preempt.load(memory_order_relaxed)) arm_cpu_timer(m, 1'000'000);
    }
    p->owner().take_next();
    p->owner().take_all(gs);
    p->preempt.store(0, memory_order_relaxed);
    p->goid_next = p->goid_end = 0;
    p->last_m = nullptr;
    p->status.store(p_status::dead, memory_order_relaxed);
  }
  while (sched.runq.pop(gs, runq::capacity) != 0) {
  }
  leave_threads();
  end_bubbles();
  trace_run_end();
  sched.left_behind.fetch_add(goroutine_count(), memory_order_relaxed);
  const std::uint32_t next = sched.run_id.load(memory_order_relaxed) + 1;
  poll_end_run(next);
  sched.active.store(false, memory_order_release);
  sched.run_id.store(next, memory_order_relaxed);
  sched.next_goid.store(2, memory_order_relaxed);
  sched.procs.store(0, memory_order_relaxed);
  sched.lock.unlock();
  for (std::uint32_t i = 0; i < n; ++i) {
    if (P* p = p_at(i)) {
      flush_free(p, 0);
      drop_timers(p);
    }
  }
}

void ask_leaving() noexcept {
  if (!sched.preempt.load(memory_order_relaxed)) return;
  for (M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next) {
    if (m->leaving.load(memory_order_relaxed)) ask_to_stop(m);
  }
}

// Those that are stopped inside libc come out of it soon, and stop there. Until they have, what
// run's caller does next could pull the ground from under them: so run waits. Not for one that the
// kernel keeps asleep, which has been asked too and takes the signal before anything else when it
// wakes; nor for ever.
void wait_until_left() noexcept {
  ask_leaving();
  const std::int64_t began = nanotime();
  for (;;) {
    sched.left_note.clear();
    if (sched.leaving.load(memory_order_acquire) == 0) return;  // with sleep_for_good
    const std::int64_t now = nanotime();
    if (sched.left_note.sleep_until(now + nudge_ns)) continue;
    bool computes = false;
    for (M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next) {
      if (!m->leaving.load(memory_order_relaxed) || asleep_in_kernel(m) ||
          thread_cpu_ns(m->tid.load(memory_order_relaxed)) - m->leaving_cpu >= patience.cpu_ns)
        continue;
      computes = true;
      if (sched.preempt.load(memory_order_relaxed)) ask_to_stop(m);
    }
    if (!computes || now - began >= patience.wall_ns) break;
  }
  for (M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next) {
    if (m->leaving.exchange(false, memory_order_relaxed))
      sched.leaving.fetch_sub(1, memory_order_relaxed);
  }
}

// main has left m0. If it has ended already, m0 does not rest.
void rest_m0() noexcept {
  std::uint32_t was = sched_state::m0_runs;
  sched.m0.compare_exchange_strong(was, sched_state::m0_rests, memory_order_seq_cst);
}

M* m0() noexcept {
  static M* m = new_m();  // kept; one run at a time
  m->is_m0 = true;
  return m;
}

}  // namespace

void main_is_gone() noexcept {
  main_call* c = current_main;
  if (!c->returned) return;
  sched.m0.store(sched_state::m0_ends, memory_order_seq_cst);  // before it wakes (deadlock.cc)
  c->gone.wake();
}

}  // namespace weft::rt

namespace weft::detail {

using namespace rt;

namespace {

// Held by the thread whose run is there for its bubble, from before it begins until it is over.
constinit parking_lock bubbles_run{lock_rank::run};
constinit atomic<bool> bubbles_run_on{false};

// for_bubble: the caller has bubbles_run.
int run_world(const config& c, int (*fn)(void*), void* arg, bool for_bubble) {
  if (sched.forked) throw std::logic_error("weft::run called in the child of a fork");
  if (current_m() != nullptr) throw std::logic_error("weft::run called inside a run");
  if (stack_slot_size(c.stack_size) == 0 || stack_slot_size(c.main_stack_size) == 0) {
    throw std::invalid_argument("weft::run: stack size out of range");
  }
  if (c.max_threads == 0) throw std::invalid_argument("weft::run: max_threads is 0");
  // What our caller keeps in registers is on the stack from here on, where the leak finder sees it.
  __builtin_unwind_init();
  // Before our first thread: of a process with more than one the kernel makes the registration wait
  // until every CPU has passed through the scheduler, some 10 ms.
  can_detach();
  if (c.attach) attach_or_warn();
  main_call call{fn, arg, 0, nullptr, false, {}};

  world_sem.lock(wait_reason::world);
  while (sched.active.load(memory_order_relaxed)) {
    world_sem.unlock();
    if (for_bubble || !bubbles_run_on.load(memory_order_acquire)) throw beside_another_run();
    bubbles_run.lock(wait_reason::world);
    bubbles_run.unlock();
    world_sem.lock(wait_reason::world);
  }
  start_service_threads();
  install_reports();
  current_main = &call;
  M* m = m0();
  m->g0_top = stack_below();
  start_world(c, m);
  G* g = make_main(c.main_stack_size, main_entry, &call);
  world_sem.unlock();

  m->p->preempt.store(preempt_leave_m0, memory_order_relaxed);
  run_on(m, g);  // until main leaves this thread
  while (m->locked_g != nullptr && wait_locked(m)) run_on(m, g);
  rest_m0();
  if (m->p != nullptr) hand_off(release_p(m));
  check_dead();
  call.gone.sleep();
  chaos::point("run.end");

  world_sem.lock(wait_reason::world);
  sched.ending.store(true, memory_order_seq_cst);
  wait_stopped(nullptr, patience);
  chaos::point("run.clear");
  world_sem.forget_goroutines();
  clear_world();
  wait_until_left();
  sync_end_run();
  poll_leave(nullptr);
  current_main = nullptr;
  m->dying = false;
  m->handed = nullptr;
  unbind_thread(m);
  world_sem.unlock();
  if (call.error) std::rethrow_exception(call.error);
  return call.status;
}

}  // namespace

int run_main(const config& c, int (*fn)(void*), void* arg) { return run_world(c, fn, arg, false); }

}  // namespace weft::detail

int weft::rt::run_for_bubble(int (*fn)(void*), void* arg) {
  struct one_at_a_time {
    one_at_a_time() {
      detail::bubbles_run.lock(wait_reason::world);
      detail::bubbles_run_on.store(true, memory_order_release);
    }
    ~one_at_a_time() {
      open_to_joiners();
      detail::bubbles_run_on.store(false, memory_order_relaxed);
      detail::bubbles_run.unlock();
    }
  } const held;
  return detail::run_world(config::from_env(), fn, arg, true);
}

namespace weft {
namespace {

// A whole number, with K, M or G behind it where `units` allows.
std::size_t parse(const char* var, const char* text, bool units) {
  const std::string s(text);
  std::size_t v = 0;
  const auto [end, err] = std::from_chars(s.data(), s.data() + s.size(), v);
  std::size_t shift = 0;
  const char* rest = end;
  if (units && *rest != '\0') {
    shift = *rest == 'K' || *rest == 'k'   ? 10
            : *rest == 'M' || *rest == 'm' ? 20
            : *rest == 'G' || *rest == 'g' ? 30
                                           : 0;
    if (shift != 0) ++rest;
  }
  if (err != std::errc() || *rest != '\0' || s.empty() || (v << shift) >> shift != v) {
    throw std::invalid_argument(std::string(var) + "=" + s + ": expected a whole number" +
                                (units ? ", with K, M or G behind it if you like" : ""));
  }
  return v << shift;
}

traceback parse_level(std::string_view text) {
  constexpr std::string_view names[] = {"none", "single", "all", "system", "crash"};
  for (std::size_t i = 0; i < std::size(names); ++i) {
    if (text == names[i]) return static_cast<traceback>(i);
  }
  // Go's numbers.
  for (const auto& [number, level] :
       {std::pair("0", traceback::none), {"1", traceback::all}, {"2", traceback::system}}) {
    if (text == number) return level;
  }
  throw std::invalid_argument("WEFT_TRACEBACK=" + std::string(text) +
                              ": expected none, single, all, system or crash");
}

// name=value,name=value
void parse_debug(config& c, std::string_view text) {
  while (!text.empty()) {
    const std::string item(text.substr(0, text.find(',')));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::size_t eq = item.find('=');
    if (item.substr(0, eq) == "shuffle" && eq != std::string::npos) {
      c.shuffle = parse("WEFT_DEBUG: shuffle", item.c_str() + eq + 1, false);
    } else if (item.substr(0, eq) == "schedtrace" && eq != std::string::npos) {
      const std::size_t ms = parse("WEFT_DEBUG: schedtrace", item.c_str() + eq + 1, false);
      c.schedtrace = static_cast<std::uint32_t>(std::min<std::size_t>(ms, UINT32_MAX));
    } else if (item.substr(0, eq) == "scheddetail" && eq != std::string::npos) {
      c.scheddetail = parse("WEFT_DEBUG: scheddetail", item.c_str() + eq + 1, false) != 0;
    } else if (item.substr(0, eq) == "leakcheck" && eq != std::string::npos) {
      c.leakcheck = parse("WEFT_DEBUG: leakcheck", item.c_str() + eq + 1, false) != 0;
    } else if (item.substr(0, eq) == "attach" && eq != std::string::npos) {
      c.attach = parse("WEFT_DEBUG: attach", item.c_str() + eq + 1, false) != 0;
    } else if (item.substr(0, eq) == "embedded" && eq != std::string::npos) {
      c.embedded = parse("WEFT_DEBUG: embedded", item.c_str() + eq + 1, false) != 0;
    } else if (!item.empty()) {
      throw std::invalid_argument("WEFT_DEBUG: unknown setting '" + item +
                                  "'; there are: shuffle=SEED, schedtrace=MS, scheddetail=1, "
                                  "leakcheck=1, attach=1, embedded=1");
    }
  }
}

}  // namespace

config config::from_env() {
  config c;
  if (const char* v = std::getenv("WEFT_PROCS"); v != nullptr && *v != '\0') {
    const std::size_t n = parse("WEFT_PROCS", v, false);
    if (n < 1 || n > rt::max_procs) {
      throw std::invalid_argument(std::string("WEFT_PROCS=") + v + ": expected 1 to " +
                                  std::to_string(rt::max_procs));
    }
    c.procs = static_cast<int>(n);
  }
  if (const char* v = std::getenv("WEFT_STACK"); v != nullptr && *v != '\0')
    c.stack_size = parse("WEFT_STACK", v, true);
  if (const char* v = std::getenv("WEFT_MAX_THREADS"); v != nullptr && *v != '\0') {
    c.max_threads = parse("WEFT_MAX_THREADS", v, false);
  }
  if (const char* v = std::getenv("WEFT_PREEMPT"); v != nullptr && *v != '\0') {
    c.preempt = parse("WEFT_PREEMPT", v, false) != 0;
  }
  if (const char* v = std::getenv("WEFT_TRACEBACK"); v != nullptr && *v != '\0')
    c.level = parse_level(v);
  if (const char* v = std::getenv("WEFT_DEBUG"); v != nullptr) parse_debug(c, v);
  return c;
}

}  // namespace weft
