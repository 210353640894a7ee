// SPDX-License-Identifier: Apache-2.0
// See thread.h. The start arguments travel in a small static-free way: they live on the creator's
// stack until the new thread has taken them over.
#include "os/thread.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/note.h"
#include "os/signal_stack.h"

namespace weft::rt {
namespace {

constinit atomic<std::uint32_t> started{0};
constinit atomic<std::uint32_t> starting{0};  // perhaps there already, but not in `started`
constinit atomic<std::uint32_t> moves{0};     // up with every change of these
constinit atomic<std::int64_t> last_end{-1'000'000'000};  // of one that is no longer in it

struct start_args {
  void (*fn)(void*);
  void* arg;
  const char* name;
  bool signal_stack;
  note taken;
};

void* trampoline(void* p) {
  auto* a = static_cast<start_args*>(p);
  const auto fn = a->fn;
  void* const arg = a->arg;
  pthread_setname_np(pthread_self(), a->name);
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0, 0,
          0);  // deadlines to the microsecond; the default is 50 µs late
  const bool with_stack = a->signal_stack;
  started.fetch_add(1, memory_order_relaxed);
  moves.fetch_add(1, memory_order_release);  // with thread_moves
  a->taken.wake();
  signal_stack signals;
  if (with_stack) signals.install();
  fn(arg);
  signals.restore();
  signals.release();
  last_end.store(nanotime(), memory_order_relaxed);
  started.fetch_sub(1, memory_order_relaxed);
  moves.fetch_add(1, memory_order_release);  // with thread_moves
  return nullptr;
}

int start(void (*fn)(void*), void* arg, const char* name, bool with_stack) noexcept {
  start_args a{fn, arg, name, with_stack, {}};
  sigset_t block, old;
  sigfillset(&block);
  for (int sig : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
    sigdelset(&block, sig);
  pthread_sigmask(SIG_SETMASK, &block, &old);
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_t t;
  starting.fetch_add(1, memory_order_seq_cst);
  moves.fetch_add(1, memory_order_seq_cst);
  const int err = pthread_create(&t, &attr, trampoline, &a);
  pthread_attr_destroy(&attr);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (err == 0) a.taken.sleep();
  starting.fetch_sub(1, memory_order_release);  // with threads_on_their_way: `started` is seen
  return err;
}

}  // namespace

int start_thread(void (*fn)(void*), void* arg, const char* name) noexcept {
  return start(fn, arg, name, false);
}

int start_service_thread(void (*fn)(void*), void* arg, const char* name) noexcept {
  return start(fn, arg, name, true);
}

// The kernel's encoding of 'the CPU clock of thread tid'; pthread_getcpuclockid wants a pthread_t.
clockid_t thread_cpu_clock(pid_t tid) noexcept {
  return static_cast<clockid_t>((~static_cast<unsigned>(tid) << 3) | 6U);
}

std::uint32_t started_threads() noexcept { return started.load(memory_order_relaxed); }

bool threads_on_their_way() noexcept {
  constexpr std::int64_t way_out = 100'000'000;  // what is left to do takes the kernel microseconds
  if (starting.load(memory_order_acquire) != 0) return true;
  return nanotime() - last_end.load(memory_order_relaxed) < way_out;
}

std::uint32_t thread_moves() noexcept { return moves.load(memory_order_seq_cst); }

std::int64_t thread_cpu_ns(pid_t tid) noexcept {
  timespec ts{};
  const int saved = errno;
  if (::clock_gettime(thread_cpu_clock(tid), &ts) != 0) ts = {};
  errno = saved;
  return static_cast<std::int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

pid_t thread_id() noexcept { return static_cast<pid_t>(::syscall(SYS_gettid)); }

void prefer_short_slices() noexcept {
  struct {  // sched_attr of the kernel, first version; libc has it from 2.41
    std::uint32_t size;
    std::uint32_t policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;
  } a{};
  a.size = sizeof a;
  const int saved = errno;
  if (::syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) == 0 && a.policy == SCHED_OTHER) {
    a.runtime = 100'000;  // the least it takes
    ::syscall(SYS_sched_setattr, 0, &a, 0);
  }
  errno = saved;
}

}  // namespace weft::rt
