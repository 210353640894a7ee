// SPDX-License-Identifier: Apache-2.0
// Preemption by signal (DESIGN 4): a thread that computes is stopped wherever it stands, and goes
// on there later.
//
// The handler does not switch stacks. It parks the thread on its signal stack and gives its P to
// another M; the goroutine is runnable and kept by its thread (locked.cc). So it may be stopped in
// malloc, under a std::mutex, in the loader or the unwinder: the thread holds what it held, and
// nobody can tell.
//
// Rules, each found by breaking it:
// 1. Inside the runtime (section.h) the handler only leaves a mark, and the thread stops on its way
//    out (attend).
// 2. It stops only if somebody is there to take the P: an idle M, or another kept thread if nobody
//    else wants to run. A new
//    thread is not asked for with the P in hand: making one needs malloc's lock, which a stopped
//    thread may hold. sysmon has spare Ms made before it sends a signal.
// 3. A signal may meet a thread that has just entered poll or nanosleep, which then returns EINTR
//    whatever the handler does. Where the number of the call can be read back from the code it is
//    issued again. Where it cannot (aarch64), no signal is sent but by the thread's own CPU-time
//    timer, which fires only while it computes.
// 4. A stopped thread keeps the locks of libc that it holds, and others may queue for them until it
//    has its next turn; the thread-maker too. So one that is met inside libc is let go on, and
//    asked again a moment later, a few times.
// 5. A thread that is stopped for good, because its run is over, keeps libc's locks. So it is only
//    where no frame of its is libc's, the loader's, libstdc++'s or libgcc's; until then it runs on,
//    without a P. Where return addresses can be exchanged (x86-64) the outermost of those frames
//    returns to weft_left_landing; elsewhere ticks look until they meet it outside.
//
// A process that ends with a report uses the same signal to make everybody stay where he is and
// show his registers (freeze_others): also those that sleep in a call, whose results matter no
// more.
//
// Rejected: switching to the scheduler from the handler (Go). It needs to know that the interrupted
// code is safe to leave, which no C++ compiler can say.
//
// The handler runs on the thread's signal stack with all signals blocked but the synchronous ones,
// so that nobody's handler runs on a stopped thread. attend runs on the goroutine's stack.
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <link.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "base/chaos.h"
#include "base/fatal.h"
#include "os/thread.h"
#include "sched/park.h"
#include "sched/sched.h"
#include "sched/timers.h"
#include "sched/tracing.h"

#if defined(__x86_64__)
extern "C" {
void weft_left_landing();  // switch_x86_64.S

[[noreturn]] void weft_left() noexcept {
  weft::rt::enter_rt();
  weft::rt::sleep_for_good();
}

// What an exception does that leaves the library on its way to code that never runs again.
_Unwind_Reason_Code weft_left_unwind(int version, _Unwind_Action actions, std::uint64_t,
                                     _Unwind_Exception*, _Unwind_Context* context) noexcept {
  if (version != 1) return _URC_FATAL_PHASE1_ERROR;
  if ((actions & _UA_SEARCH_PHASE) != 0) return _URC_HANDLER_FOUND;
  _Unwind_SetIP(context, reinterpret_cast<std::uintptr_t>(&weft_left_landing));
  return _URC_INSTALL_CONTEXT;
}
}
#endif

namespace weft::rt {
namespace {

constexpr int preempt_signal = SIGURG;

// -- libraries that hold locks

struct range {
  std::uintptr_t lo, hi;
};
constexpr int max_ranges = 32;
constinit range libraries[max_ranges] = {};
constinit atomic<int> nlibraries{0};

}  // namespace

bool in_library(std::uintptr_t a) noexcept {
  const int n = nlibraries.load(memory_order_acquire);
  for (int i = 0; i < n; ++i) {
    if (a - libraries[i].lo < libraries[i].hi - libraries[i].lo) return true;
  }
  return false;
}

namespace {

// TSan calls handlers late, from its own code, with the registers of the moment when they were due.
#if defined(WEFT_TSAN)
constexpr bool frames_are_true = false;
#else
constexpr bool frames_are_true = true;
#endif

// Rule 5. By its frames if they can be followed; else no word of its stack may point into a
// library. The frames first: a frame that calls into a library again and again keeps old return
// addresses in what it does not use, and would never be let stop. Reads a stack that belongs to
// user code, as it is.
__attribute__((no_sanitize("address", "thread"))) bool may_stop_for_good(
    const M* m, const void* sp, std::uintptr_t pc) noexcept {
  if (in_library(pc)) return false;
  const G* g = m->curg;
  if (m->stopped_at != nullptr && frames_are_true) {
    const standing s = where_it_stands(g, m->stopped_at);
    if (s != standing::unknown) return s == standing::outside;
  }
  const auto from = (reinterpret_cast<std::uintptr_t>(sp) + 7) & ~std::uintptr_t{7};
  if (from < g->stk.lo || from > g->stk.hi) return true;  // on no stack that we know
  for (std::uintptr_t a = from; a + sizeof a <= g->stk.hi; a += sizeof a) {
    if (in_library(*reinterpret_cast<const std::uintptr_t*>(a))) return false;
  }
  return true;
}

// -- stopping

// Under the scheduler lock: who takes p over if we stop. Null: nobody can. Another kept thread goes
// on where it stood, and looks at no queue and no timer: those who wait there need an M that is
// free. If none can be made, it may be because of a lock that a kept thread holds.
M* taker(P* p) noexcept {
  if (M* m = take_idle_m(p)) return m;
  const bool others_wait =
      !p->rq.empty() || sched.runq.size_hint() != 0 || earliest_timer() <= nanotime();
  if (others_wait && spare_will_come()) return nullptr;
  M* m = sched.kept.pop_front();
  if (m != nullptr) bump(sched.kept_turns);
  return m;
}

// Rule 5: it stops when it comes out of the library. Ticks alone may find it inside for seconds, if
// it is there most of the time. Never undone: nobody goes back to where it was called from.
void divert([[maybe_unused]] const M* m) noexcept {
#if defined(__x86_64__)
  if (m->stopped_at == nullptr || !frames_are_true) return;
  if (std::uintptr_t* at = way_out(m->curg, m->stopped_at))
    *at = reinterpret_cast<std::uintptr_t>(&weft_left_landing);
#endif
}

// The run is over. Without a P until it stands where it may stop for good; then for ever.
void stop_for_good(M* m, const void* sp, std::uintptr_t pc) noexcept {
  m->hold.store(hold_state::left, memory_order_relaxed);
  if (may_stop_for_good(m, sp, pc)) sleep_for_good();
  divert(m);
  arm_cpu_timer(m, 1'000'000);
}

void stop_with_world(M* m, G* g, P* p, const void* sp, std::uintptr_t pc) noexcept {
  sched.lock.lock();
  if (!sched.stopping.load(memory_order_relaxed)) {  // it has started again
    sched.lock.unlock();
    return;
  }
  const bool over = sched.ending.load(memory_order_relaxed);
  trace_stop(m, g, trace_state::runnable);
  release_p(m);
  if (over) {
    start_leaving(m);
  } else {
    queue_kept(m, g, queue_end::back);
  }
  p->status.store(p_status::stopped, memory_order_relaxed);
  if (--sched.stop_wait == 0) sched.stop_note.wake();
  sched.lock.unlock();
  if (over || !sleep_kept(m, g)) stop_for_good(m, sp, pc);
}

// Rule 4. For longer if somebody does wait.
bool evades(M* m, std::uintptr_t pc) noexcept {
  const std::uint32_t n = m->evaded.load(memory_order_relaxed);
  const bool again = in_library(pc) && n < 16U;
  m->evaded.store(again ? n + 1 : 0, memory_order_relaxed);
  return again;
}

void stop_for_others(M* m, G* g, P* p, const void* sp, std::uintptr_t pc) noexcept {
  if (evades(m, pc)) return;  // sysmon asks again
  sched.lock.lock();
  M* next = taker(p);
  if (next == nullptr) {
    sched.lock.unlock();
    request_spares(1);
    return;  // sysmon asks again
  }
  // An idle M ends the slice for runnext too (find_work). Who goes on in place has one of its own.
  if (next->curg != nullptr) p->preempt.store(0, memory_order_relaxed);
  bump(p->count.preemptions);
  bump(p->count.gave_way);
  trace_stop(m, g, trace_state::runnable);
  release_p(m);
  queue_kept(m, g, queue_end::back);
  sched.lock.unlock();
  chaos::point("kept.queued");
  give_p(next, p);
  if (!sleep_kept(m, g)) stop_for_good(m, sp, pc);
}

}  // namespace

// Outside the runtime, in the goroutine that runs here.
void preempt_here(M* m, const void* sp, std::uintptr_t pc) noexcept {
  enter_rt();
  chaos::point("preempt.handler");
  G* g = m->curg;
  if (m->hold.load(memory_order_relaxed) == hold_state::syscall ||
      (g->state() == g_status::syscall && !left_behind(m))) {
    // It is asleep, or about to be, and its P is free to be taken, or was: the signal is late.
  } else if (!settle(m)) {  // not hold_p, which would stop it for good wherever it stands: rule 5
    stop_for_good(m, sp, pc);
  } else if (P* p = m->p; p == nullptr) {  // caught computing without a P
    if (left_behind(m)) {
      stop_for_good(m, sp, pc);
    } else if (evades(m, pc)) {
      arm_cpu_timer(m, 100'000);
    } else if (!wait_for_p(m, g)) {
      stop_for_good(m, sp, pc);
    }
  } else if (p->orphan.load(memory_order_relaxed)) {  // abandoned, and another run has begun
    stop_for_good(m, sp, pc);
  } else if (sched.stopping.load(memory_order_seq_cst)) {
    stop_with_world(m, g, p, sp, pc);
  } else if (const std::uint32_t why = p->preempt.load(memory_order_relaxed);
             why != 0 && why != preempt_leave_m0) {
    stop_for_others(m, g, p, sp, pc);
  }
  leave_rt();
}

int attend() noexcept {
  thread_words* t = own_words();
  if (t->in_rt.load(memory_order_relaxed) != 0) return 0;
  t->attention.store(0, memory_order_relaxed);
  M* m = t->m;
  if (m == nullptr || m->curg == nullptr) return 0;
  chaos::point("preempt.attend");
  preempt_here(m, __builtin_frame_address(0),
               reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)));
  return 0;
}

// -- the signal

namespace {

struct interrupted {
  std::uintptr_t pc, sp;
};

#if defined(__x86_64__)
interrupted where(const ucontext_t* u) noexcept {
  return {static_cast<std::uintptr_t>(u->uc_mcontext.gregs[REG_RIP]),
          static_cast<std::uintptr_t>(u->uc_mcontext.gregs[REG_RSP])};
}

// Rule 3: `mov $nr, %eax; syscall` that came back with -EINTR.
__attribute__((no_sanitize("address", "thread"))) void issue_again(ucontext_t* u) noexcept {
  auto* r = u->uc_mcontext.gregs;
  if (r[REG_RAX] != -EINTR) return;
  const auto* pc = reinterpret_cast<const unsigned char*>(r[REG_RIP]);
  if (pc[-2] != 0x0f || pc[-1] != 0x05 || pc[-7] != 0xb8) return;
  std::uint32_t nr;
  std::memcpy(&nr, pc - 6, sizeof nr);
  if (nr == SYS_close) return;  // it has closed, and the number may be somebody else's by now
  r[REG_RAX] = nr;
  r[REG_RIP] -= 2;
}
constexpr bool can_repair_eintr = true;
#elif defined(__aarch64__)
interrupted where(const ucontext_t* u) noexcept { return {u->uc_mcontext.pc, u->uc_mcontext.sp}; }
void issue_again(ucontext_t*) noexcept {}
constexpr bool can_repair_eintr = false;
#endif

constinit struct sigaction before = {};  // the user's

void forward(int sig, siginfo_t* info, void* ctx) noexcept {
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    if (before.sa_sigaction != nullptr) before.sa_sigaction(sig, info, ctx);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(sig);
  }  // by default it is ignored
}

// What each signal of ours carries. A mark in the M will not do: of two who ask at a time the first
// signal would take the mark of both, and the second, nobody's, would end the call that it meets.
constinit char ours = 0;

bool is_ours(const siginfo_t* info) noexcept {
  return (info->si_code == SI_QUEUE || info->si_code == SI_TIMER) &&
         info->si_value.sival_ptr == &ours;
}

// So the kernel hands out one that it had no memory to describe: it may be anybody's.
bool is_anonymous(const siginfo_t* info) noexcept {
  return info->si_code == SI_USER && info->si_pid == 0;
}

constinit atomic<bool> dying{false};

// The process is being reported on and ends: where everybody stands is all that matters, what a
// call returns is not. In the middle of the runtime it may have a lock, or a list in hand that the
// report reads: it is asked again a moment later. On its system stack it may be for ever.
void freeze_here(M* m, const thread_words* t, const ucontext_t* u) noexcept {
  if (m->curg == nullptr) return;
  if (t->in_rt.load(memory_order_relaxed) != 0 && !m->on_system_stack) return;
  m->stopped_at = u;
  m->frozen.store(true, memory_order_release);  // with frozen_at (traces.cc)
  for (;;) ::pause();
}

void on_signal(int sig, siginfo_t* info, void* ctx) noexcept {
  if (!is_ours(info)) {
    forward(sig, info, ctx);
    if (!is_anonymous(info)) return;
  }
  thread_words* t = own_words();
  M* m = t->m;
  if (m == nullptr) return;  // it has left weft since, or has the number of one that ended
  const int saved = errno;
  auto* u = static_cast<ucontext_t*>(ctx);
  if (dying.load(memory_order_acquire)) freeze_here(m, t, u);  // with freeze_others
  issue_again(u);
  // What the one who asked had written before is seen here: the kernel's lock of the signals lies
  // between.
  if (t->in_rt.load(memory_order_relaxed) != 0 || m->curg == nullptr) {
    t->attention.store(1, memory_order_relaxed);
  } else {
    const interrupted at = where(u);
    m->stopped_at = u;
    preempt_here(m, reinterpret_cast<const void*>(at.sp), at.pc);
    m->stopped_at = nullptr;
  }
  errno = saved;
}

}  // namespace

void start_preemption() noexcept {
  struct sigaction sa = {};
  sa.sa_sigaction = on_signal;
  sa.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigfillset(&sa.sa_mask);
  for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
    sigdelset(&sa.sa_mask, s);
  if (::sigaction(preempt_signal, &sa, &before) != 0)
    fatal_errno("cannot install the preemption signal", errno);
}

void allow_preemption(sigset_t* before_mask) noexcept {
  sigset_t s = sched.mask;
  sigdelset(&s, preempt_signal);
  pthread_sigmask(SIG_SETMASK, &s, before_mask);
}

void restore_mask(const sigset_t& before_mask) noexcept {
  pthread_sigmask(SIG_SETMASK, &before_mask, nullptr);
}

// At the start of each run. It only adds: threads that an earlier run has left behind are looking.
void know_libraries() noexcept {
  ::dl_iterate_phdr(
      [](dl_phdr_info* i, std::size_t, void*) {
        const char* n = i->dlpi_name;
        bool holds_locks = false;
        for (const char* name : {"libc.so", "ld-linux", "libstdc++", "libgcc", "libc++",
                                 "libunwind", "libasan", "libtsan", "libubsan"})
          holds_locks = holds_locks || std::strstr(n, name) != nullptr;
        if (!holds_locks) return 0;
        for (int k = 0; k < i->dlpi_phnum; ++k) {
          const auto& h = i->dlpi_phdr[k];
          const int at = nlibraries.load(memory_order_relaxed);
          if (h.p_type != PT_LOAD || (h.p_flags & PF_X) == 0 || at == max_ranges) continue;
          if (in_library(i->dlpi_addr + h.p_vaddr)) continue;  // known
          libraries[at] = {i->dlpi_addr + h.p_vaddr, i->dlpi_addr + h.p_vaddr + h.p_memsz};
          nlibraries.store(at + 1, memory_order_release);  // with in_library
        }
        return 0;
      },
      nullptr);
}

static bool send_to(pid_t tid) noexcept {
  siginfo_t info = {};
  info.si_signo = preempt_signal;
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  info.si_value.sival_ptr = &ours;
  return ::syscall(SYS_rt_tgsigqueueinfo, info.si_pid, tid, preempt_signal, &info) == 0;
}

bool ask_to_stop(M* m) noexcept {
  const pid_t tid = m->tid.load(memory_order_relaxed);
  if (tid == 0) return false;
  if (!can_repair_eintr) {
    arm_cpu_timer(m, 1);
    return true;
  }
  chaos::point("preempt.post");
  return send_to(tid);
}

// Looks at what others are writing: nobody waits for anybody any more.
__attribute__((no_sanitize("thread"))) bool freeze_others(const G* except) noexcept {
  dying.store(true, memory_order_release);  // with on_signal
  bool all = true;
  for (M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next) {
    const pid_t tid = m->tid.load(memory_order_relaxed);
    const bool stands = m->kept || m->frozen.load(memory_order_relaxed);
    if (tid == 0 || m->curg == nullptr || m->curg == except || stands) continue;
    all = false;
    send_to(tid);
  }
  return all;
}

// Raw: libc's timer_create allocates.
void arm_cpu_timer(M* m, std::int64_t cpu_ns) noexcept {
  const int saved = errno;
  if (m->cpu_timer.load(memory_order_acquire) < 0) {
    struct sigevent ev = {};
    ev.sigev_notify = SIGEV_THREAD_ID;
    ev.sigev_signo = preempt_signal;
    ev.sigev_value.sival_ptr = &ours;
    ev._sigev_un._tid = m->tid.load(memory_order_relaxed);
    int id = -1;
    if (chaos::fault("timer_create") != 0 ||
        ::syscall(SYS_timer_create, thread_cpu_clock(ev._sigev_un._tid), &ev, &id) != 0) {
      errno = saved;
      return;  // out of timers: it is one runner too many until its next call
    }
    int none = -1;
    if (!m->cpu_timer.compare_exchange_strong(none, id, memory_order_acq_rel))
      ::syscall(SYS_timer_delete, id);  // somebody was faster
  }
  const itimerspec in{{0, 0}, {cpu_ns / 1'000'000'000, cpu_ns % 1'000'000'000}};
  ::syscall(SYS_timer_settime, m->cpu_timer.load(memory_order_acquire), 0, &in, nullptr);
  errno = saved;
}

void forget_cpu_timer(M* m) noexcept {
  const int id = m->cpu_timer.exchange(-1, memory_order_acq_rel);
  if (id >= 0) ::syscall(SYS_timer_delete, id);
}

}  // namespace weft::rt
