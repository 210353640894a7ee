// SPDX-License-Identifier: Apache-2.0
// The scheduler's shared state and the functions its files offer one another. Users of the
// scheduler (channels, sync, timers) include sched/park.h only.
//
// Which file does what:
//   schedule.cc   the loop of an M, pick_next, yield: what runs next on a P that has work
//   find_work.cc  where work comes from when a P has none, and how an M gives up
//   park.cc       park, ready, the direct switch
//   spawn.cc      newproc: a goroutine from a closure; exit, goexit
//   worker.cc     Ms: idle list, start, stop, hand-off; the thread-maker
//   procs.cc      Ps: stop the world, start it, resize
//   sysmon.cc     the monitor thread
//   run.cc        run(): start and end
//   report.cc     uncaught exceptions
#pragma once

#include <cstdint>

#include "base/atomic.h"
#include "base/slab.h"
#include "core/current.h"
#include "core/g.h"
#include "core/global_queue.h"
#include "core/idle.h"
#include "core/m.h"
#include "core/p.h"
#include "os/mutex.h"

namespace weft::rt {

struct sched_state {
  mutex lock{lock_rank::sched};

  // -- under lock; sizes may be read outside as hints.
  global_queue runq;
  P* idle_p_list = nullptr;
  M* idle_m_list = nullptr;
  std::uint32_t nmidle = 0;
  std::uint64_t overflows = 0, overflowed = 0;           // R6: full rings, and what they sent here
  atomic<std::uint64_t> idle_mask[max_procs / 64] = {};  // P6: bit i = P i is on the idle list

  // -- lock-free.
  idle_word idle;
  atomic<std::uint32_t> procs{0};   // changes only while the world is stopped
  atomic<P*> allp[max_procs] = {};  // made once, never freed
  atomic<M*> allm{nullptr};         // list by all_next, push only
  atomic<std::uint32_t> mcount{0};
  atomic<std::uint32_t> max_threads{10'000};

  // -- goroutines.
  mutex g_lock{lock_rank::g_table};
  slab<G> gs;                // under g_lock; iteration needs no lock
  g_pool free_gs;            // dead shells
  slab<small_block> blocks;  // under g_lock
  block_pool free_blocks;
  atomic<std::uint64_t> next_goid{2};        // 1 is main
  atomic<std::uint64_t> foreign_created{0};  // spawned without a P
  atomic<std::uint64_t> left_behind{0};      // neither finished nor alive: their run is over

  // -- timers.
  atomic<std::int64_t> watch_until{never};  // deadline of the idle M that watches (worker.cc)

  // -- stop the world.
  atomic<bool> stopping{true};  // no run, no world: the world starts stopped
  std::uint32_t stop_wait = 0;  // Ps still to stop; under lock
  note stop_note;

  // -- sysmon.
  atomic<bool> sysmon_waits{false};
  note sysmon_note;

  // -- the run.
  atomic<std::uint32_t> run_id{0};             // of the current run, or of the next one
  atomic<bool> active{false};                  // a run is on
  atomic<std::size_t> stack_slot{256 * 1024};  // slot size of the current run's goroutines
  atomic<std::int64_t> quantum_ns{10'000'000};
  atomic<bool> preempt{true};
  bool shuffle = false;                   // runnext or the ring, by coin
  bool forked = false;                    // we are the child of a fork
  atomic<std::uint32_t> wanted_procs{0};  // set_procs before a run; 0: automatic
  atomic<bool> procs_auto{true};
  atomic<std::uint32_t> ncpu{1};  // CPUs we may run on; kept up to date by sysmon
};

extern constinit sched_state sched;

inline std::size_t default_slot() noexcept { return sched.stack_slot.load(memory_order_relaxed); }
inline std::uint32_t nprocs() noexcept { return sched.procs.load(memory_order_relaxed); }
inline P* p_at(std::uint32_t i) noexcept {
  return sched.allp[i].load(memory_order_acquire);
}  // with procresize

// -- schedule.cc
[[noreturn]] void worker_main(M* m) noexcept;  // an M's life on g0, from its first P on
G* pick_next(M* m, P* p) noexcept;             // what is at hand on this P, or null: ask g0
void put_next(P* p, G* g) noexcept;            // runnext, and wakes (ready, spawn)
void put_local(P* p, G* g) noexcept;           // ring's tail, overflow to the global queue (R6)
void refill_from_global(P* p) noexcept;        // see yield
void leave(M* m, G* g, weft_commit commit, void* a,
           void* b) noexcept;  // switch away from g, wherever it goes next

// -- find_work.cc
G* find_work(M* m) noexcept;

// -- worker.cc
void acquire_p(M* m, P* p) noexcept;
P* release_p(M* m) noexcept;
void put_idle_p(P* p) noexcept;  // under lock; the idle word is already changed
P* take_idle_p() noexcept;       // under lock; changes nothing in the idle word
bool start_m(
    P* p,
    bool spinning) noexcept;  // gives p to an idle M (true) or has one made (false); under lock: no
void put_idle_m(M* m) noexcept;  // under lock; then sleep_idle
void sleep_idle(M* m) noexcept;  // until somebody brings a P
void stop_m(M* m) noexcept;      // sleeps until it has a P: brought, or taken by itself
void hand_off(P* p) noexcept;    // p has lost its M
void wake_slow() noexcept;
M* new_m() noexcept;
void bind_thread(M* m) noexcept;    // makes the calling thread m's
void unbind_thread(M* m) noexcept;  // the thread is as it was before
void start_service_threads();       // thread-maker and sysmon, once a process

// The wake rule, after an enqueue that was a full barrier (idle.h: the waker's side).
inline void wake() noexcept {
  const idle_counts c = sched.idle.load();
  if (c.spinning == 0 && (c.idle_ps != 0 || !c.need)) wake_slow();
}
inline void fence_and_wake() noexcept {
  // StoreLoad between the enqueue and the read of the idle word; partner: the fence in second_look
  // (find_work.cc).
  std::atomic_thread_fence(memory_order_seq_cst);
  wake();
}

// -- procs.cc
void stop_p(M* m) noexcept;  // the world is being stopped: give the P up, sleep
void set_preempt_all() noexcept;
std::uint32_t resize(std::uint32_t n) noexcept;  // world stopped
void start_ps(P* keep) noexcept;                 // lets the world go
// How long to wait for those that do not come to a stop: while they use less CPU time than this,
// and on the wall.
struct stop_limit {
  std::int64_t cpu_ns = -1, wall_ns = -1;  // < 0: for ever
};
bool wait_stopped(P* own, stop_limit limit = {}) noexcept;  // false: not within the limit

// -- sysmon.cc
[[noreturn]] void sysmon_main() noexcept;
void wake_sysmon() noexcept;  // a P is about to run after all were idle

// -- spawn.cc
[[noreturn]] void goroutine_exit(G* g) noexcept;
using closure_fn = void (*)(void*);
G* make_main(std::size_t stack_size, closure_fn fn, void* arg) noexcept;
std::uint64_t goroutine_count() noexcept;
void begin(P* p,
           G* g) noexcept;  // binds a stack to a goroutine that is switched to for the first time
void flush_free(P* p, std::uint32_t keep = 4) noexcept;  // shells and stacks to the global pools
void trim_free_stacks() noexcept;  // sysmon: gives back what deep calls have touched

// -- run.cc
void main_is_gone() noexcept;                      // main's goroutine ends
[[noreturn]] void report_uncaught(G* g) noexcept;  // report.cc; inside a catch block

}  // namespace weft::rt
