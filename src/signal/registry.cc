// SPDX-License-Identifier: Apache-2.0
// From a signal to those who want it.
//
// The handler counts the signal and wakes the service thread, which hands what was counted to the
// subscribers, under the lock. So a subscriber that has left the list, under the lock, gets nothing
// more.
//
// No signal is lost when the last one who wants it leaves:
//   leaving   puts the old disposition back; wanted = 0; waits until no handler is under way; hands
//             out what was counted, to itself too; goes
//   handler   under way + 1; wanted? counts it : sends it anew to its own thread, where it takes
//             the old disposition when the handler returns; under way - 1
// Both write, then read what the other wrote, hence seq_cst. The disposition goes first: the other
// way round a signal sent anew would come back to the handler, on the thread that leaves for ever.
//
// The service thread also takes the signals that are wanted: every other thread may have blocked
// them, or be stopped by preemption, whose handler blocks all. It unblocks them while it sleeps and
// at no other time: the handler would meet it in the middle of an access to `shared`, for which
// TSan holds a lock of its own.
//
// Rejected: signalfd, which needs the signals blocked in all threads, those of others too. A
// registration with the poller instead of a thread: nobody polls outside a run.
//
// The handler runs on the signal stack of any thread, with all signals blocked; it takes no lock.
// The rest runs on the caller's stack or on the service thread's. Signals are blocked while the
// lock is held: a handler never meets its own thread there.
#include "signal/registry.h"

#include <cerrno>
#include <csignal>
#include <pthread.h>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "os/futex.h"
#include "os/mutex.h"
#include "os/thread.h"
#include "sched/waiter.h"

#if defined(WEFT_TSAN)
// TSan's sigaction defers handlers to the next call that it knows; a thread asleep makes none.
extern "C" int __sigaction(int, const struct sigaction*, struct sigaction*) noexcept;  // NOLINT
#endif

namespace weft::detail {
namespace {

constexpr int last_signal = 64;
constexpr int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};

constexpr signal_set bit(int sig) noexcept { return signal_set{1} << (sig - 1); }

// What the handler and the others share.
struct {
  rt::atomic<signal_set> wanted{0};
  rt::atomic<std::uint32_t> under_way{0};  // handlers
  rt::atomic<std::uint32_t> counts[last_signal + 1]{};
  rt::atomic<std::uint32_t> news{0};  // changes when there is something to do; the thread's futex
} constinit shared;

void tell_service() noexcept {
  shared.news.fetch_add(1, rt::memory_order_release);  // with serve's acquire
  rt::futex_wake(shared.news, 1);
}

void on_signal(int sig, siginfo_t* info, void*) noexcept {
  const int saved = errno;
  shared.under_way.fetch_add(1, rt::memory_order_seq_cst);  // partner: stop_catching
  const bool wanted = (shared.wanted.load(rt::memory_order_seq_cst) & bit(sig)) != 0;
  if (wanted) {
    shared.counts[sig].fetch_add(1, rt::memory_order_relaxed);
    tell_service();
  } else {
    ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), rt::thread_id(), sig, info);
  }
  shared.under_way.fetch_sub(1, rt::memory_order_release);  // with stop_catching: the count
  errno = saved;
}

#if defined(WEFT_TSAN)
// A signal may meet a thread that pthread_create has made and TSan does not know yet, where nothing
// that is instrumented may run. So the service thread takes them all, once it is there.
constinit volatile pid_t service = 0;
__attribute__((no_sanitize("thread"))) void pass_on(int sig, siginfo_t* info, void* c) noexcept {
  const int saved = errno;
  if (service == 0 || service == static_cast<pid_t>(::syscall(SYS_gettid))) {
    on_signal(sig, info, c);
  } else {
    ::syscall(SYS_tgkill, ::getpid(), service, sig);
  }
  errno = saved;
}
constexpr auto handler = pass_on;
#else
constexpr auto handler = on_signal;
#endif

int set_action(int sig, const struct sigaction* now, struct sigaction* before) noexcept {
#if defined(WEFT_TSAN)
  return ::__sigaction(sig, now, before);
#else
  return ::sigaction(sig, now, before);
#endif
}

sigset_t all_but_synchronous() noexcept {
  sigset_t s;
  sigfillset(&s);
  for (const int sig : synchronous) sigdelset(&s, sig);
  return s;
}

}  // namespace

// What the lock guards.
struct signal_registry {
  rt::mutex lock{rt::lock_rank::signals};
  signal_subscriber* first = nullptr;
  signal_subscriber* due = nullptr;
  std::uint32_t users[last_signal + 1] = {};
  struct sigaction before[last_signal + 1] = {};
  rt::atomic<bool> served{false};  // the service thread is there; not under the lock

  class section {
   public:
    explicit section(signal_registry& r) noexcept : r_(r) {
      const sigset_t all = all_but_synchronous();
      ::pthread_sigmask(SIG_BLOCK, &all, &old_);
      r_.lock.lock();
    }
    section(const section&) = delete;
    section& operator=(const section&) = delete;
    ~section() {
      r_.lock.unlock();
      ::pthread_sigmask(SIG_SETMASK, &old_, nullptr);
    }

   private:
    signal_registry& r_;
    sigset_t old_;
  };

  void catch_signal(int sig) noexcept {
    if (users[sig]++ != 0) return;
    shared.wanted.fetch_or(bit(sig), rt::memory_order_seq_cst);
    struct sigaction sa {};
    sa.sa_sigaction = handler;
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sa.sa_mask = all_but_synchronous();
    set_action(sig, &sa, &before[sig]);
  }

  // Restores, unless somebody has put his own handler there meanwhile. True: it was the last.
  bool stop_catching(int sig) noexcept {
    if (--users[sig] != 0) return false;
    struct sigaction now {};
    set_action(sig, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == handler)
      set_action(sig, &before[sig], nullptr);
    shared.wanted.fetch_and(~bit(sig), rt::memory_order_seq_cst);  // partner: on_signal
    return true;
  }

  // Handlers are short and cannot be stopped.
  static void await_handlers() noexcept {
    for (int i = 0; shared.under_way.load(rt::memory_order_seq_cst) != 0; ++i) {
      if (i < 100) {
        rt::cpu_relax();
      } else {
        ::sched_yield();
      }
    }
  }

  void hand_out() noexcept {
    for (int sig = 1; sig <= last_signal; ++sig) {
      if (shared.counts[sig].load(rt::memory_order_relaxed) == 0) continue;
      const std::uint32_t n = shared.counts[sig].exchange(0, rt::memory_order_relaxed);
      for (signal_subscriber* s = first; s != nullptr; s = s->next_) {
        if ((s->wanted_ & bit(sig)) != 0) s->deliver_(s, sig, n);
      }
    }
  }

  void add(signal_subscriber* s, signal_set wanted) noexcept {
    s->wanted_ = wanted;
    s->next_ = first;
    s->back_ = &first;
    if (first != nullptr) first->back_ = &s->next_;
    first = s;
    for (int sig = 1; sig <= last_signal; ++sig) {
      if ((wanted & bit(sig)) != 0) catch_signal(sig);
    }
  }

  void remove(signal_subscriber* s) noexcept {
    bool last = false;
    for (int sig = 1; sig <= last_signal; ++sig) {
      if ((s->wanted_ & bit(sig)) != 0 && stop_catching(sig)) last = true;
    }
    if (last) await_handlers();
    hand_out();
    s->wanted_ = 0;
    *s->back_ = s->next_;
    if (s->next_ != nullptr) s->next_->back_ = s->back_;
  }

  void put_off(signal_subscriber* s) noexcept {
    s->due_next_ = std::exchange(due, s);
    tell_service();
  }

  // The service thread's, with what is wanted unblocked meanwhile. One that comes before it sleeps
  // changes `news`.
  static void sleep(std::uint32_t seen) noexcept {
    const sigset_t all = all_but_synchronous();
    sigset_t mask = all;
    const signal_set wanted = shared.wanted.load(rt::memory_order_relaxed);
    for (int sig = 1; sig <= last_signal; ++sig) {
      if ((wanted & bit(sig)) != 0) sigdelset(&mask, sig);
    }
    ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    rt::futex_wait(shared.news, seen);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  }

  void serve() noexcept {
    if (served.exchange(true, rt::memory_order_acq_rel)) return;  // another was faster
#if defined(WEFT_TSAN)
    service = rt::thread_id();
#endif
    for (;;) {
      const std::uint32_t seen = shared.news.load(rt::memory_order_acquire);
      rt::begin_errand();
      signal_subscriber* list = nullptr;
      {
        const section hold(*this);
        hand_out();
        list = std::exchange(due, nullptr);
      }
      while (list != nullptr) {
        signal_subscriber* s = list;
        list = s->due_next_;  // s may go
        s->later_(s);
      }
      rt::end_errand();
      sleep(seen);
    }
  }

  // Whoever finds none starts one, and one too many ends at once: there is no lock to be held over
  // pthread_create, and nobody to wait for.
  void ensure_served() {
    if (served.load(rt::memory_order_acquire)) return;
    const int err = rt::start_service_thread(
        [](void* self) { static_cast<signal_registry*>(self)->serve(); }, this, "weft-signal");
    if (err != 0) throw std::system_error(err, std::system_category(), "weft::signals");
  }
};

namespace {
constinit signal_registry registry;  // trivially destructible: used after main too
}  // namespace

namespace {

bool can_be_caught(int sig) noexcept {
  const bool ours = sig == SIGURG || sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE ||
                    sig == SIGILL || sig == SIGKILL || sig == SIGSTOP;
  const bool libcs = sig > 31 && sig < SIGRTMIN;
  return sig >= 1 && sig <= last_signal && !ours && !libcs;
}

// Not what a thread does to itself: abort() is no message, nor is a breakpoint.
signal_set every_signal() noexcept {
  signal_set set = 0;
  for (int sig = 1; sig <= last_signal; ++sig) {
    if (can_be_caught(sig)) set |= bit(sig);
  }
  for (const int sig : synchronous) set &= ~bit(sig);
  return set;
}

}  // namespace

signal_set signal_set_of(std::initializer_list<int> list) {
  if (list.size() == 0) return every_signal();
  signal_set set = 0;
  for (const int sig : list) {
    if (!can_be_caught(sig))
      throw std::invalid_argument("weft::signals: signal " + std::to_string(sig) +
                                  " cannot be caught");
    set |= bit(sig);
  }
  return set;
}

void signal_subscriber::subscribe(signal_set wanted) {
  registry.ensure_served();
  {
    const signal_registry::section hold(registry);
    rt::awaited.fetch_add(1, rt::memory_order_seq_cst);  // a signal may come: nobody waits in vain
    registry.add(this, wanted);
  }
  tell_service();  // its mask
}

void signal_subscriber::unsubscribe() noexcept {
  {
    const signal_registry::section hold(registry);
    if (wanted_ == 0) return;
    registry.remove(this);
    // Inside, as in subscribe: nobody is stopped for good between the two.
    rt::awaited.fetch_sub(1, rt::memory_order_seq_cst);
  }
  tell_service();  // its mask; and it looks whether anybody is left who can run
}

void signal_subscriber::call_later(signal_subscriber* s) noexcept { registry.put_off(s); }

}  // namespace weft::detail
