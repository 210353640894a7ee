// SPDX-License-Identifier: Apache-2.0
// See thread.h. Nobody waits for a new thread to come up: the process would start with one such
// wait for each service thread. So the arguments belong to the new thread. They are not malloc's:
// the first thing that a thread frees makes it take an arena, 64 MB of addresses, and a lock that
// one who was stopped may hold (DESIGN 4.1).
#include "os/thread.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/chaos.h"
#include "base/fatal.h"
#include "base/print.h"
#include "base/slab.h"
#include "os/clock.h"
#include "os/mutex.h"
#include "os/signal_stack.h"

namespace weft::rt {
namespace {

constinit atomic<std::uint32_t> started{0};
constinit atomic<std::uint32_t> starting{0};  // perhaps there already, but not in `started`
constinit atomic<std::uint32_t> moves{0};     // up with every change of these
constinit atomic<std::int64_t> last_end{-1'000'000'000};  // of one that is no longer in it

struct start_args {
  void (*fn)(void*) = nullptr;
  void* arg = nullptr;
  const char* name = nullptr;
  bool signal_stack = false;
};
constinit mutex args_lock{lock_rank::leaf};
constinit slab<start_args> args_of_new;  // under args_lock

start_args* keep(const start_args& a) noexcept {
  args_lock.lock();
  start_args* kept = args_of_new.allocate();
  args_lock.unlock();
  *kept = a;
  return kept;
}
start_args take(start_args* kept) noexcept {
  const start_args a = *kept;
  args_lock.lock();
  args_of_new.release(kept);
  args_lock.unlock();
  return a;
}

void* trampoline(void* p) {
  const start_args a = take(static_cast<start_args*>(p));
  pthread_setname_np(pthread_self(), a.name);
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0, 0,
          0);  // deadlines to the microsecond; the default is 50 µs late
  signal_stack signals;
  if (a.signal_stack) signals.install();
  a.fn(a.arg);
  signals.restore();
  signals.release();
  last_end.store(nanotime(), memory_order_relaxed);
  started.fetch_sub(1, memory_order_relaxed);
  moves.fetch_add(1, memory_order_release);  // with thread_moves
  return nullptr;
}

int start(void (*fn)(void*), void* arg, const char* name, bool with_stack) noexcept {
  start_args* a = keep({fn, arg, name, with_stack});
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
  int err = chaos::fault("pthread_create");
  if (err == 0) err = pthread_create(&t, &attr, trampoline, a);
  chaos::point("thread.made");
  pthread_attr_destroy(&attr);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (err == 0) {
    // Counted here, and not by itself: who made it must not take it for somebody else's
    // (check_dead). One that has ended by now was too few for a moment, which is on the safe side.
    started.fetch_add(1, memory_order_relaxed);
    moves.fetch_add(1, memory_order_release);  // with thread_moves
  } else {
    (void)take(a);
  }
  starting.fetch_sub(1, memory_order_release);  // with threads_on_their_way: `started` is seen
  return err;
}

// EAGAIN may pass: others' threads end. After 0.2 s it has not.
int start_patiently(void (*fn)(void*), void* arg, const char* name, bool with_stack) noexcept {
  constexpr int tries = 20;
  int err = start(fn, arg, name, with_stack);
  for (int i = 1; err == EAGAIN && i <= tries; ++i) {
    const timespec ts{0, i * 1'000'000};
    ::clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, nullptr);
    err = start(fn, arg, name, with_stack);
  }
  return err;
}

}  // namespace

int start_thread(void (*fn)(void*), void* arg, const char* name) noexcept {
  return start_patiently(fn, arg, name, false);
}

int start_service_thread(void (*fn)(void*), void* arg, const char* name) noexcept {
  return start_patiently(fn, arg, name, true);
}

void no_new_thread(int err) noexcept {
  begin_fatal();
  printer(2) << "runtime: failed to create new OS thread (have " << started_threads()
             << " already; errno=" << err << ")\n"
             << (err == EAGAIN ? "runtime: may need to increase max user processes (ulimit -u)\n"
                               : "")
             << "fatal error: newosproc\n";
  end_fatal();
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

// "0 0x3 0x7ffd... ... 0x<sp> 0x<pc>\n" or "running\n"; "-1 ..." is one that waits for a page.
asleep_in where_asleep(pid_t tid) noexcept {
  char path[64] = "/proc/self/task/";
  char* end = path + std::strlen(path);
  char digits[12];
  int n = 0;
  for (auto t = static_cast<std::uint32_t>(tid); t != 0; t /= 10)
    digits[n++] = static_cast<char>('0' + t % 10);
  while (n > 0) *end++ = digits[--n];
  std::memcpy(end, "/syscall", sizeof "/syscall");
  const int saved = errno;
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  char text[256];
  const ssize_t k = fd >= 0 ? ::read(fd, text, sizeof text - 1) : -1;
  if (fd >= 0) ::close(fd);
  errno = saved;
  asleep_in a;
  if (k <= 0) return a;
  text[k] = '\0';
  a.call = asleep_in::runs;
  if (text[0] < '0' || text[0] > '9') return a;
  const char* at = text;
  for (a.call = 0; *at >= '0' && *at <= '9'; ++at) a.call = a.call * 10 + (*at - '0');
  // The last two of the numbers behind it.
  while (std::strncmp(at, " 0x", 3) == 0) {
    std::uintptr_t v = 0;
    for (at += 3; (*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'f'); ++at)
      v = v << 4 | static_cast<std::uintptr_t>(*at <= '9' ? *at - '0' : *at - 'a' + 10);
    a.sp = a.pc;
    a.pc = v;
  }
  return a;
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
