// SPDX-License-Identifier: Apache-2.0
// SIGSEGV and SIGBUS: overflow of a goroutine's stack, of a thread's own (g0), of a signal stack,
// or somebody else's.
//
// A goroutine's overflow shows as a fault in the guard below its stack; or, if one frame was larger
// than the guard, as one near a stack pointer that has left the stack downwards and stands on no
// other that we know. The scheduler's own, on a thread of the runtime, shows as a fault just below
// the stack pointer. Everything else is passed on to whoever had the signal before us: to a handler
// with its own mask and flags, or by the default action, with the faulting instruction run again so
// that the core shows it.
//
// A null pointer in a goroutine may become an exception (weft/fault.hpp). It is not thrown here:
// the handler makes its thread go on in weft_fault_landing, on the goroutine's stack, which throws.
// Its frame tells the unwinder that it was entered in the middle of an instruction, as a signal's
// does. So the mask is restored by the kernel, and the thread is in user code again, where it may
// be stopped. Rejected: throwing out of the handler, with signals still blocked or, unblocked, on a
// stack that the next one would use.
//
// An overflow of the signal stack itself, by a handler of the program's, has left that stack by its
// lower end: so the kernel puts our frame at its upper one, over the oldest frames of the trace.
//
// Runs on the signal stack.
#include <cerrno>
#include <csignal>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/print.h"
#include "debug/report.h"
#include "os/memory.h"
#include "os/thread.h"
#include "sched/sched.h"
#include "weft/fault.hpp"

#if defined(__x86_64__)
extern "C" {
__attribute__((visibility("hidden"))) void weft_fault_landing();  // context/switch_x86_64.S
// Called by it, with what the handler has put into its registers.
[[noreturn]] __attribute__((visibility("hidden"))) void weft_fault_throw(std::uintptr_t addr,
                                                                         std::uintptr_t pc,
                                                                         int code) {
  throw weft::memory_fault(addr, pc, code);
}
}
#endif

namespace weft::rt {
namespace {

constinit atomic<bool> throws{false};
constinit struct sigaction before_segv {};
constinit struct sigaction before_bus {};

struct sigaction& before(int sig) noexcept {
  return sig == SIGSEGV ? before_segv : before_bus;
}

void pass_on(int sig, siginfo_t* info, void* context) noexcept {
  struct sigaction& old = before(sig);
  const bool wants_info = (old.sa_flags & SA_SIGINFO) != 0;
  if (!wants_info && (old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN)) {
    // A fault comes again by itself when we return; what somebody has sent must be sent again.
    struct sigaction dfl {};
    dfl.sa_handler = info->si_code <= 0 && old.sa_handler == SIG_IGN ? SIG_IGN : SIG_DFL;
    if (dfl.sa_handler == SIG_IGN) return;
    ::sigaction(sig, &dfl, nullptr);
    if (info->si_code <= 0) ::syscall(SYS_tgkill, ::getpid(), thread_id(), sig);
    return;
  }
  const struct sigaction use = old;
  if ((use.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) {
    old = {};
    old.sa_handler = SIG_DFL;
  }
  sigset_t was;
  pthread_sigmask(SIG_BLOCK, &use.sa_mask, &was);
  if ((use.sa_flags & SA_NODEFER) != 0) {
    sigset_t self;
    sigemptyset(&self);
    sigaddset(&self, sig);
    pthread_sigmask(SIG_UNBLOCK, &self, nullptr);
  }
  if (wants_info) {
    use.sa_sigaction(sig, info, context);
  } else {
    use.sa_handler(sig);
  }
  pthread_sigmask(SIG_SETMASK, &was, nullptr);
}

std::size_t limit_of(const G& g) noexcept {
  if (g.is_main) return sched.main_stack_wanted;
  return g.stk.hi - g.stk.base == default_slot() ? sched.stack_wanted : g.stk.hi - g.stk.lo;
}

[[noreturn]] void goroutine_overflow(const G& g, const registers& at) noexcept {
  begin_fatal();
  {
    printer out(2);
    out << "runtime: goroutine stack exceeds " << limit_of(g) << "-byte limit\nruntime: sp=";
    out.hex(at.sp()) << " stack=[";
    out.hex(g.stk.lo) << ", ";
    out.hex(g.stk.hi) << "]\nfatal error: stack overflow\n";
  }
  set_fault(at, &g);
  end_fatal();
}

[[noreturn]] void system_overflow(const registers& at) noexcept {
  begin_fatal();
  printer(2) << "fatal error: morestack on g0\n";
  set_fault(at, nullptr);
  end_fatal();
}

[[noreturn]] void signal_overflow(const M& m, const registers& at) noexcept {
  begin_fatal();
  {
    printer out(2);
    out << "runtime: signal stack exceeds " << m.signals.hi() - m.signals.lo() - signal_stack::guard
        << "-byte limit\nruntime: sp=";
    out.hex(at.sp()) << " stack=[";
    out.hex(m.signals.lo() + signal_stack::guard) << ", ";
    out.hex(m.signals.hi()) << "]\nfatal error: stack overflow\n";
  }
  set_fault(at, nullptr);
  end_fatal();
}

constexpr std::uintptr_t large_frame = 64 * 1024, close_by = 256;

// Both stacks end in memory that cannot be touched; what is touched is at most a large frame away.
bool below_the_stack(std::uintptr_t addr, std::uintptr_t sp) noexcept {
  return addr + large_frame >= sp && addr < sp + close_by && !is_readable(addr);
}

// On its thread's own stack, or a large frame below its end. Where it ends is not known: there is
// no hole between here and its top.
bool on_g0(const M& m, std::uintptr_t sp) noexcept {
  constexpr std::uintptr_t most = 1UL << 30;
  if (m.curg == nullptr || m.on_system_stack) return true;
  const auto top = reinterpret_cast<std::uintptr_t>(m.g0_top);
  if (sp > top || top - sp > most) return false;
  for (std::uintptr_t at = top; at > sp + large_frame; at -= page_size()) {
    if (!is_readable(at)) return false;
  }
  return true;
}

// sp has left g's stack by a frame that is larger than the guard, and what was touched lies in that
// frame or just below it. If sp can be read it may be that of a stack which the program has made
// itself; then only what we know for the end of a stack tells.
bool stepped_over_guard(const G& g, std::uintptr_t addr, std::uintptr_t sp) noexcept {
  if (sp >= g.stk.base || addr + large_frame < sp || addr >= g.stk.lo) return false;
  if (is_readable(addr)) return false;
  if (addr < sp + close_by || !is_readable(sp)) return true;
  stack other;
  bool in_guard = false;
  return find_stack(addr, &other, &in_guard) && in_guard;
}

#if defined(__x86_64__)
constexpr bool can_throw = true;

// The interrupted goroutine goes on in weft_fault_landing. False: it cannot, or should not.
bool throw_there(int sig, const siginfo_t* info, const G& g, void* context) noexcept {
  constexpr std::uintptr_t first_page = 4096, red_zone = 128, room = 16 * 1024;
  auto* regs = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto addr = reinterpret_cast<std::uintptr_t>(info->si_addr);
  auto sp = static_cast<std::uintptr_t>(regs[REG_RSP]);
  auto pc = static_cast<std::uintptr_t>(regs[REG_RIP]);
  if (sig != SIGSEGV || !throws.load(memory_order_relaxed) || addr >= first_page) return false;
  if (sp < g.stk.lo + room || sp >= g.stk.hi) return false;
  if (own_words()->in_rt.load(memory_order_relaxed) != 0) return false;
  if (pc == addr) {  // a call of null: as if it had come from behind the call
    pc = *reinterpret_cast<const std::uintptr_t*>(sp) - 1;
    sp += sizeof pc;
  }
  auto* frame = reinterpret_cast<std::uintptr_t*>((sp - red_zone - 2 * sizeof pc) & ~15UL);
  frame[0] = pc;
  frame[1] = sp;
  regs[REG_RSP] = reinterpret_cast<greg_t>(frame);
  regs[REG_RIP] = reinterpret_cast<greg_t>(&weft_fault_landing);
  regs[REG_RDI] = static_cast<greg_t>(addr);
  regs[REG_RSI] = static_cast<greg_t>(pc);
  regs[REG_RDX] = info->si_code;
  regs[REG_EFL] &= ~0x400;  // the direction flag, as the ABI wants it
  return true;
}
#else
constexpr bool can_throw = false;
bool throw_there(int, const siginfo_t*, const G&, void*) noexcept { return false; }
#endif

void on_fault(int sig, siginfo_t* info, void* context) {
  const int saved = errno;
  if (on_dump_thread()) ::_exit(4);
  if (info->si_code > 0) {  // by the kernel, not by somebody's kill
    const registers at = registers_in_signal(context);
    const auto addr = reinterpret_cast<std::uintptr_t>(info->si_addr);
    const M* m = current_m();
    const G* g = m != nullptr ? m->curg : nullptr;
    if (g != nullptr && addr >= g->stk.base && addr < g->stk.lo) goroutine_overflow(*g, at);
    if (m != nullptr && m->signals.in_guard(addr)) signal_overflow(*m, at);
    const bool outside =
        m != nullptr && (g == nullptr || at.sp() < g->stk.base || at.sp() > g->stk.hi);
    if (outside && !m->signals.contains(at.sp())) {
      const bool g0s = on_g0(*m, at.sp());
      if (g0s && below_the_stack(addr, at.sp())) system_overflow(at);
      if (!g0s && stepped_over_guard(*g, addr, at.sp())) goroutine_overflow(*g, at);
    }
    if (g != nullptr && !outside && throw_there(sig, info, *g, context)) {
      errno = saved;
      return;
    }
  }
  errno = saved;
  pass_on(sig, info, context);
}

}  // namespace

void install_fault_handlers() noexcept {
  struct sigaction sa {};
  sa.sa_sigaction = on_fault;
  sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&sa.sa_mask);
  sigaddset(&sa.sa_mask, SIGURG);  // preemption must not park a thread that is in here
  sigaddset(&sa.sa_mask, SIGQUIT);
  ::sigaction(SIGSEGV, &sa, &before_segv);
  ::sigaction(SIGBUS, &sa, &before_bus);
}

}  // namespace weft::rt

namespace weft {

memory_fault::memory_fault(std::uintptr_t address, std::uintptr_t pc, int code)
    : std::runtime_error("runtime error: invalid memory address or nil pointer dereference"),
      address_(address),
      pc_(pc),
      code_(code) {}
memory_fault::~memory_fault() = default;

bool throw_on_fault(bool on) noexcept {
  return rt::throws.exchange(on && rt::can_throw, rt::memory_order_relaxed);
}

}  // namespace weft
