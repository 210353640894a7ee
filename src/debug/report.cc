// SPDX-License-Identifier: Apache-2.0
// What a dying process says beside its first line: the trace of the goroutine that fails, or of all
// of them; and SIGQUIT.
//
// Reports are written by a thread of their own, started with the first run. The one that fails may
// stand at the end of its stack, on a signal stack, or inside malloc: it leaves its registers and
// sleeps for good. The dump thread has a large stack, holds no lock of anybody, and uses none: no
// malloc, no stdio, no loader lock; symbols are read by our own means. If reporting itself fails it
// says so by the exit status, 4.
//
// Before any run there is no such thread, and the failing one reports itself.
#include "debug/report.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/print.h"
#include "debug/attach.h"
#include "debug/lock_cycles.h"
#include "debug/trace.h"
#include "debug/traces.h"
#include "os/thread.h"
#include "sched/last_words.h"
#include "sched/procs.h"
#include "sched/sched.h"
#include "weft/run.hpp"

namespace weft::rt {
namespace {

enum class request : std::uint32_t { none, fatal, quit };

struct {
  atomic<std::uint32_t> posted{0};
  atomic<pid_t> thread{0};
  // -- written before posted.
  request what = request::none;
  bool all = false;
  bool exact = false;
  const G* g = nullptr;  // who fails; null: nobody's goroutine
  registers regs;
} constinit report;

// See keep_trace.
struct thrown {
  trace stack;
  std::uintptr_t pcs[trace::inner + trace::outer];
};
constinit last_words<thrown> kept;

void put_fd(void* to, const char* text, std::size_t n) {
  *static_cast<printer*>(to) << std::string_view(text, n);
}

// As still as it gets without waiting for anybody, or for a lock that the failing one may hold.
// Those who call the runtime stop there; the others are made to stay where they are.
void freeze() noexcept {
  if (!sched.active.load(memory_order_acquire)) return;
  sched.stopping.store(true, memory_order_seq_cst);
  for (int round = 0; round < 40; ++round) {
    set_preempt_all();
    if (round >= 2 && freeze_others(report.g)) return;
    ::usleep(1000);
  }
}

// Nobody reads standard input any more. If the descriptors have run out, this is the one by which
// the names of functions are read.
void make_room_for_files() noexcept { ::close(0); }

// The kernel's way to leave a core behind, and status 134 to a shell.
[[noreturn]] void die_with_core() noexcept {
  struct sigaction dfl {};
  dfl.sa_handler = SIG_DFL;
  ::sigaction(SIGABRT, &dfl, nullptr);
  sigset_t abort_only;
  sigemptyset(&abort_only);
  sigaddset(&abort_only, SIGABRT);
  ::pthread_sigmask(SIG_UNBLOCK, &abort_only, nullptr);
  ::syscall(SYS_tgkill, ::getpid(), thread_id(), SIGABRT);
  ::_exit(2);
}

void write_report() noexcept {
  arena memory;
  trace_collector collector(memory);
  arena_list<g_record> others;
  arena_list<lock_wait> cycles;
  g_record own;
  trace system;
  const traceback level = sched.traceback.load(memory_order_relaxed);
  make_room_for_files();
  if (level >= traceback::all) report.all = true;
  show_runtime_frames = level >= traceback::system;
  if (report.all) freeze();
  if (report.g != nullptr) {
    own = collector.record(*report.g, &report.regs, report.exact);
    if (const thrown* t = kept.of(report.g)) own.stack = t->stack;
  } else if (!report.all) {
    system = collector.of_thread(report.regs, report.exact);
  }
  if (report.all) {
    collector.all(others, report.g);
    find_lock_cycles(memory, cycles);
  }
  symbols names(memory, false);
  printer out(2);
  const text_sink sink{put_fd, &out};
  if (level == traceback::none) {
    // The first line has been said.
  } else if (report.g != nullptr) {
    sink << "\n";
    write(sink, own, names);
  } else if (!report.all) {
    sink << "\nruntime stack:\n";
    write(sink, system, names);
  }
  if (level != traceback::none) {
    oldest_first(memory, others).for_each([&](const g_record& g) {
      sink << "\n";
      write(sink, g, names);
    });
    write(sink, cycles);
  }
  out.flush();
  flush_trace_on_fatal();
  remove_attach_socket();
  if (level == traceback::crash) die_with_core();
}

void dump_thread(void*) noexcept {
  report.thread.store(thread_id(), memory_order_relaxed);
  while (report.posted.load(memory_order_acquire) == 0) futex_wait(report.posted, 0);
  if (report.what == request::quit) {
    begin_fatal();
    printer(2) << "SIGQUIT: quit\n";
  }
  write_report();
  ::_exit(2);
}

[[noreturn]] void post() noexcept {
  report.posted.store(1, memory_order_release);  // with dump_thread
  futex_wake(report.posted, 1);
  for (;;) futex_wait(report.posted, 1);  // not pause(): see fatal
}

// end_fatal's hook, on the stack of the one that fails.
void on_fatal(bool all) noexcept {
  report.what = request::fatal;
  report.all = all;
  if (report.regs.pc() == 0) {  // else the fault handler has been here
    report.regs = registers_here();
    report.g = current_g();
  }
  if (report.thread.load(memory_order_relaxed) == 0 || sched.forked) {
    write_report();
    return;
  }
  post();
}

void on_quit(int) {
  const int saved = errno;
  if (sched.forked) {  // nobody is there to report: as if we had never been asked
    struct sigaction dfl {};
    dfl.sa_handler = SIG_DFL;
    ::sigaction(SIGQUIT, &dfl, nullptr);
    ::syscall(SYS_tgkill, ::getpid(), thread_id(), SIGQUIT);
    return;
  }
  static constinit atomic<bool> once{false};
  if (!once.exchange(true, memory_order_acq_rel)) {
    report.what = request::quit;
    report.all = true;
    report.posted.store(1, memory_order_release);  // with dump_thread
    futex_wake(report.posted, 1);
  }
  errno = saved;
}

}  // namespace

void keep_trace(const G* g) noexcept {
  arena memory;
  const registers here = registers_here();
  const trace stack = trace_collector(memory).of_running(*g, here, false);
  if (stack.n == 0) return;
  kept.keep(g, [&](thrown& t) {
    std::memcpy(t.pcs, stack.pcs, stack.n * sizeof *stack.pcs);
    t.stack = stack;
    t.stack.pcs = t.pcs;
  });
}

void set_fault(const registers& at, const G* g) noexcept {
  report.regs = at;
  report.exact = true;
  report.g = g;
}

bool on_dump_thread() noexcept { return report.thread.load(memory_order_relaxed) == thread_id(); }

void install_reports() noexcept {
  static constinit atomic<bool> done{false};
  if (done.exchange(true, memory_order_acq_rel)) return;
  [[maybe_unused]] volatile int known = errno;  // who fails does not look it up first: see fatal
  if (const int err = start_service_thread(dump_thread, nullptr, "weft-dump"); err != 0)
    no_new_thread(err);
  set_fatal_hook(on_fatal);
  install_fault_handlers();
  // Only where nobody else has a say: a handler, or 'ignore', stays as it is.
  struct sigaction now {};
  if (::sigaction(SIGQUIT, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
      now.sa_handler == SIG_DFL) {
    struct sigaction sa {};
    sa.sa_handler = on_quit;
    sa.sa_flags = SA_ONSTACK | SA_RESTART;
    sigfillset(&sa.sa_mask);
    ::sigaction(SIGQUIT, &sa, nullptr);
  }
}

}  // namespace weft::rt
