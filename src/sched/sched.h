// SPDX-License-Identifier: Apache-2.0
// The scheduler's shared state and the functions its files offer one another. Users of the
// scheduler (channels, sync, timers) include sched/park.h only.
//
// Which file does what:
//   schedule.cc   the loop of an M, yield, and with next.h: what runs next on a P that has work
//   find_work.cc  where work comes from when a P has none, and how an M gives up
//   park.cc       park, ready, the direct switch
//   spawn.cc      newproc: a goroutine from a closure; exit, goexit
//   worker.cc     Ms: idle list, start, stop, hand-off; the thread-maker
//   locked.cc     goroutines that only one M may run: lock_os_thread, and those that wait in place
//   syscall.cc    blocking(): P kept, taken back, given up
//   preempt.cc    the signal: a thread stopped in the middle of anything
//   detach.cc     the P of a thread that sleeps in the kernel and has told nobody
//   procs.cc      Ps: stop the world, start it, resize
//   sysmon.cc     the monitor thread
//   run.cc        run(): start and end
//   report.cc     uncaught exceptions
//   deadlock.cc   nobody can ever run again
//   tracing.cc    what the trace hears of all this
//   bubble.cc     one thread, an order by a seed, virtual time
#pragma once

#include <csignal>
#include <cstdint>

#include "base/atomic.h"
#include "base/chaos.h"
#include "base/slab.h"
#include "core/current.h"
#include "core/g.h"
#include "core/global_queue.h"
#include "core/idle.h"
#include "core/m.h"
#include "core/p.h"
#include "os/mutex.h"
#include "sched/kept.h"

namespace weft {
enum class traceback : std::uint8_t;  // run.hpp
}

namespace weft::rt {

struct sched_state {
  mutex lock{lock_rank::sched};

  // -- under lock; sizes may be read outside as hints.
  global_queue runq;
  P* idle_p_list = nullptr;
  kept_queue kept;
  M* idle_m_list = nullptr;
  std::uint32_t nmidle = 0;
  std::uint32_t locked_asleep = 0;              // Ms that wait for their locked goroutine
  std::uint32_t rests = 0;                      // how often an M has gone idle (deadlock.cc)
  std::uint64_t overflows = 0, overflowed = 0;  // R6: full rings, and what they sent here
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
  slab<chan_cell> chans;  // under g_lock
  chan_pool free_chans;
  slab<large_chan_cell> large_chans;  // under g_lock
  large_chan_pool free_large_chans;
  atomic<std::uint64_t> next_goid{2};        // 1 is main
  atomic<std::uint64_t> foreign_created{0};  // spawned without a P
  atomic<std::uint64_t> foreign_parks{0};    // parked without one
  atomic<std::uint64_t> foreign_exited{0};   // ended without one
  atomic<std::uint64_t> left_behind{0};      // neither finished nor alive: their run is over

  // -- timers.
  atomic<std::int64_t> watch_until{never};  // deadline of the idle M that watches (worker.cc)

  // -- stop the world.
  atomic<bool> stopping{true};                    // no run, no world: the world starts stopped
  std::uint32_t stop_wait = 0;                    // Ps still to stop; under lock
  atomic<std::uint64_t> stops{0}, stopped_ns{0};  // how often, and how long in all
  time_histogram pauses, stop_times;  // how long the world stood, how long it took to stop
  note stop_note;

  // -- time that goroutines and threads have spent waiting for mutexes.
  atomic<std::uint64_t> mutex_wait_ns{0};
  atomic<std::uint64_t> block_rate{0};  // not 0: waits are profiled, one in so many ns of them

  // -- deadlock detection.
  enum : std::uint32_t { m0_runs, m0_rests, m0_ends };
  atomic<std::uint32_t> m0{m0_runs};   // rests: only waits for the end of the run
  atomic<std::uint32_t> in_poller{0};  // Ms that sleep there: 0 or 1
  atomic<std::uint32_t> ms_gone{0};    // Ms that sleep for good: their run is over
  atomic<std::uint32_t> leaving{0};    // Ms that are on their way there
  note left_note;                      // the last of those has arrived
  atomic<bool> suspect{false};         // threads that are not ours have been seen: sysmon looks

  // -- sysmon.
  atomic<bool> sysmon_waits{false};
  atomic<std::int64_t> sysmon_until{0};  // then it wakes by itself
  atomic<bool> sysmon_naps{false};       // for long, because nobody waits for a P
  note sysmon_note;
  atomic<std::int64_t> trace_ns{0};  // not 0: print_sched so often
  atomic<bool> trace_detail{false};
  atomic<std::uint64_t> kept_turns{0};  // Ps that went from one in place to another; under the lock

  // -- the run.
  atomic<std::uint32_t> run_id{0};             // of the current run, or of the next one
  atomic<bool> tracing{false};                 // read by every hook of tracing.h; see start_tracing
  atomic<bool> active{false};                  // a run is on
  atomic<bool> ending{false};                  // and about to be over: who is stopped now stays so
  atomic<std::size_t> stack_slot{256 * 1024};  // slot size of the current run's goroutines
  std::size_t stack_wanted = 0, main_stack_wanted = 0;  // as configured, for reports
  atomic<std::int64_t> quantum_ns{10'000'000};
  atomic<std::uint32_t> seconds{0};  // the clock, coarse: kept by sysmon while anybody runs
  atomic<bool> preempt{true};
  sigset_t
      mask{};  // of the thread that called run, and so of every M: children inherit it (SYS-05)
  bool shuffle = false;                                   // runnext or the ring, by coin
  bool leakcheck = false;                                 // report_leaks when main has returned
  atomic<bool> embedded{false};                           // check_dead looks for nothing
  atomic<weft::traceback> traceback{weft::traceback{1}};  // what a report shows
  bool forked = false;                                    // we are the child of a fork
  atomic<std::uint32_t> wanted_procs{0};                  // set_procs before a run; 0: automatic
  atomic<bool> procs_auto{true};
  atomic<std::uint32_t> ncpu{1};  // CPUs we may run on; kept up to date by sysmon
};

extern constinit sched_state sched;

inline std::size_t default_slot() noexcept { return sched.stack_slot.load(memory_order_relaxed); }
inline std::uint32_t nprocs() noexcept { return sched.procs.load(memory_order_relaxed); }
inline P* p_at(std::uint32_t i) noexcept {
  return sched.allp[i].load(memory_order_acquire);
}  // with procresize
// On the idle list (P6), or was a moment ago: without the lock a hint.
inline bool is_idle(std::uint32_t p) noexcept {
  return (sched.idle_mask[p / 64].load(memory_order_relaxed) >> (p % 64) & 1) != 0;
}

// -- schedule.cc
void worker_main(M* m) noexcept;  // an M's life on g0; returns when its thread must end
void put_overflow(P* p, G* g) noexcept;
inline void put_local(P* p, G* g) noexcept {  // ring's tail, overflow to the global queue (R6)
  if (!p->owner().put(g)) [[unlikely]]
    put_overflow(p, g);
}
void refill_from_global(P* p) noexcept;  // see yield
void leave(M* m, G* g, weft_commit commit, void* a,
           void* b) noexcept;         // switch away from g, wherever it goes next
inline bool work_queued() noexcept {  // in the global queue or waiting in place; a hint
  return sched.runq.size_hint() != 0 || sched.kept.size_hint() != 0;
}

// -- find_work.cc
G* find_work(M* m) noexcept;  // null: m has lost its P

// -- worker.cc
void acquire_p(M* m, P* p) noexcept;
P* release_p(M* m) noexcept;
void put_idle_p(P* p) noexcept;  // under lock; the idle word is already changed
P* take_idle_p() noexcept;       // under lock; changes nothing in the idle word
P* take_free_p() noexcept;       // under lock: idle or promised, for one that does not spin
// Gives p to an idle M, to one that waits for a P in place, or has a thread made for it. Without
// the lock. spinning: p's M is counted as a spinner; one in place looks for nothing, so that the
// caller has to wake somebody else.
enum class start_result : std::uint8_t { idle_m, in_place, new_thread };
start_result start_m(P* p, bool spinning) noexcept;
void put_idle_m(M* m) noexcept;  // under lock; then sleep_idle
void sleep_idle(M* m) noexcept;  // until somebody brings a P
void stop_m(M* m) noexcept;      // sleeps until it has a P: brought, or taken by itself
void hand_off(P* p) noexcept;    // p has lost its M
void wake_slow() noexcept;
M* take_idle_m(P* p) noexcept;                  // under lock; or null
void give_p(M* m, P* p) noexcept;               // to one that sleeps without, wherever it does
void request_spares(std::uint32_t n) noexcept;  // so many Ms more, without a P
bool threads_are_out() noexcept;                // there may not be more Ms
[[noreturn]] void thread_exhaustion() noexcept;
bool spare_will_come() noexcept;  // before long
bool spare_is_stuck() noexcept;   // it should have come by now
bool p_is_promised() noexcept;    // to a thread that does not exist yet
P* take_promised_p() noexcept;    // one that waits for its thread to be made, or null
M* new_m() noexcept;
void let_idle_go(std::int64_t now) noexcept;
void end_m(M* m) noexcept;                             // on its own thread, which is about to end
[[gnu::noinline]] const void* stack_below() noexcept;  // what the caller calls has its frames there
void bind_thread(M* m) noexcept;                       // makes the calling thread m's
void unbind_thread(M* m) noexcept;                     // the thread is as it was before
void have_timers_made(void (*main)(void*)) noexcept;   // the thread of timers without a P
void start_service_threads();                          // thread-maker and sysmon, once a process

// The wake rule, after an enqueue that was a full barrier (idle.h: the waker's side).
inline void wake() noexcept {
  if (sched.idle.wants_waker()) [[unlikely]]
    wake_slow();
}
inline void fence_and_wake() noexcept {
  // StoreLoad between the enqueue and the read of the idle word; partner: the fence in second_look
  // (find_work.cc).
  fence(memory_order_seq_cst);
  chaos::point("wake.look");
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

// -- locked.cc
bool wait_locked(M* m) noexcept;        // on g0: until m's locked goroutine may run; false: never
void wake_locked(M* m, P* p) noexcept;  // under lock; null: the run is over
// On the goroutine's own stack or the thread's signal stack, inside the runtime, without a P:
// returns with one, on the same thread.
bool wait_for_p(M* m, G* g) noexcept;  // false: never, the run is over
enum class queue_end { front, back };
void queue_kept(M* m, G* g, queue_end where) noexcept;  // under lock: g is runnable, in place
bool sleep_kept(M* m, G* g) noexcept;  // after queue_kept, without the lock; false: the run is over
[[noreturn]] void sleep_for_good() noexcept;
void start_leaving(M* m) noexcept;  // under lock: its run is over, and ends only when m has stopped
// The goroutine that runs here belongs to a run that is over.
inline bool left_behind(const M* m) noexcept {
  return m != nullptr && m->curg != nullptr &&
         m->curg->run_id != sched.run_id.load(memory_order_relaxed);
}
// Without a P, and only inside the caller's own section: if the goroutine that runs here belongs to
// a run that is over it goes no further. Not while a lock is held: others would wait for it for
// ever.
void stop_if_left_behind() noexcept;

// -- syscall.cc, detach.cc
void settle_hold(M* m) noexcept;      // hold_p's other half
bool settle(M* m) noexcept;           // the same; false: the run is over, go no further
P* take_from_syscall(M* m) noexcept;  // its P, or null: it was not in one (any more)
P* take_from_sleeper(M* m) noexcept;  // the handshake of DESIGN 5; null: it is awake
bool can_detach() noexcept;
void forget_words(M* m) noexcept;  // its thread leaves it: nobody reads the thread's words any more

// The P of the calling M, or null if it has none or has lost it. Inside the runtime only: it stays
// ours until we leave.
[[gnu::always_inline]] inline P* hold_p(M* m) noexcept {
  // Acquire: with the store of `detached`. Partner of the membarrier in detach.cc: our count
  // (in_rt) was written before this load.
  if (m->hold.load(memory_order_acquire) != hold_state::owned) [[unlikely]]
    settle_hold(m);
  return m->p;
}
// The same for a hot path, which leaves what is not so simple to its rare one: null there.
[[gnu::always_inline]] inline P* p_at_hand(M* m) noexcept {
  return m != nullptr && m->hold.load(memory_order_acquire) == hold_state::owned ? m->p : nullptr;
}
inline P* own_p() noexcept {
  M* m = current_m();
  return m != nullptr ? hold_p(m) : nullptr;
}
// A stretch inside the runtime that may sleep in the kernel, on a goroutine's behalf: its P is free
// to be taken meanwhile (os/section.h). Nobody who stands on the stack above it keeps a P in hand.
// On g0, and for who drives a bubble, it is nothing: they have a P in hand.
class p_lent {
 public:
  p_lent() noexcept {
    const M* m = current_m();
    if (m == nullptr || m->curg == nullptr || m->drives != nullptr) return;
    thread_words* t = own_words();
    was_ = t->lent.load(memory_order_relaxed);
    t->lent.store(t->in_rt.load(memory_order_relaxed), memory_order_release);  // with keeps_p
    lent_ = true;
  }
  p_lent(const p_lent&) = delete;
  p_lent& operator=(const p_lent&) = delete;
  ~p_lent() {
    if (!lent_) return;
    own_words()->lent.store(was_, memory_order_relaxed);
    compiler_barrier();  // as in enter_rt: before the next look at `hold`
  }

 private:
  std::uint32_t was_ = 0;
  bool lent_ = false;
};

// -- preempt.cc
void start_preemption() noexcept;  // once a process
bool ask_to_stop(M* m) noexcept;   // a signal, if it may have one
// In a process that ends: every thread with a goroutine, wherever it is, is made to stay there and
// show its registers. One round; true: all do.
bool freeze_others(const G* except) noexcept;
void arm_cpu_timer(M* m,
                   std::int64_t cpu_ns) noexcept;  // the same signal, after that much computing
void forget_cpu_timer(M* m) noexcept;
void preempt_here(M* m, const void* sp, std::uintptr_t pc) noexcept;
void allow_preemption(sigset_t* before) noexcept;  // the calling thread's mask
void restore_mask(const sigset_t& before) noexcept;
void know_libraries() noexcept;              // where a thread must not be stopped for good
bool in_library(std::uintptr_t a) noexcept;  // it is one of those

// -- sysmon.cc
[[noreturn]] void sysmon_main() noexcept;
void wake_sysmon() noexcept;                 // a P is about to run after all were idle
bool asleep_in_kernel(const M* m) noexcept;  // false where nobody can tell

// -- deadlock.cc
void check_dead() noexcept;    // nobody runs any more, as far as the caller knows; takes the lock
void look_if_idle() noexcept;  // for one who may have been the last that could do anything

// -- debug/schedtrace.cc
void print_sched(std::int64_t now, bool detail) noexcept;
// -- debug/report.cc: traces in fatal reports, stack overflow, SIGQUIT. Once a process.
void install_reports() noexcept;
void keep_trace(const G* g) noexcept;  // of here: g fails, once its clean-ups have run

// -- debug/cfi.cc: whether one of g's frames, interrupted at `context`, is a library's
// (in_library); unknown: they could not be followed to the last one.
enum class standing : std::uint8_t { outside, inside, unknown };
standing where_it_stands(const G* g, const void* context) noexcept;
// Where the outermost of those frames keeps its return address; null if that is not certain.
std::uintptr_t* way_out(const G* g, const void* context) noexcept;

// -- debug/attach.cc: the tool `weft` may look at this process; a failure is said on standard error
void attach_or_warn() noexcept;

// -- debug/profiles.cc: the caller has waited since then. On a goroutine.
void note_blocked(wait_reason why, std::int64_t since) noexcept;
// -- debug/find_leaks.cc: to standard error, if there are any. On a goroutine; allocates.
void report_leaks();

// -- sync/wait_list.cc: the run is over; lets plain threads by that wait behind its goroutines
void sync_end_run() noexcept;

// -- spawn.cc
chan_cell* take_chan_cell() noexcept;
large_chan_cell* take_large_chan_cell() noexcept;
void put_cell(chan_cell* c) noexcept;
void put_cell(large_chan_cell* c) noexcept;
[[noreturn]] void goroutine_exit(G* g) noexcept;
using closure_fn = void (*)(void*);
G* make_main(std::size_t stack_size, closure_fn fn, void* arg) noexcept;
std::uint64_t goroutine_count() noexcept;
// The first switch to g, on the M that will run it. bind_stack: what it gets, and where
// goroutine_main begins; begin: with a frame for weft_switch.
std::uintptr_t bind_stack(P* p, G* g) noexcept;
void begin(P* p, G* g) noexcept;
[[noreturn]] void goroutine_main(void* g, void*, void*);
void flush_free(P* p, std::uint32_t keep = 4) noexcept;  // shells and stacks to the global pools
void trim_free_stacks() noexcept;  // sysmon: gives back what deep calls have touched

// -- run.cc
void main_is_gone() noexcept;                      // main's goroutine ends
[[noreturn]] void report_uncaught(G* g) noexcept;  // report.cc; inside a catch block
// Main is done, and on its goroutine. Does not return if somebody else is about to end the process
// with a report: that is how it ends.
void let_failing_report();

}  // namespace weft::rt
