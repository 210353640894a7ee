// SPDX-License-Identifier: Apache-2.0
// See fatal.h. The order is: claim the right to report, print, let the hook add what it knows,
// _exit(2). _exit and not exit: static destructors and atexit handlers of a process in this state
// may hang.
#include "base/fatal.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/print.h"

namespace weft::rt {
namespace {
atomic<pid_t> reporter{0};
atomic<fatal_hook> hook{nullptr};
constinit int attempts = 0;  // the reporter's
}  // namespace

void printer::flush() noexcept {
  const int saved = errno;
  const char* p = buf_;
  while (n_ > 0) {
    const ssize_t k = ::write(fd_, p, n_);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) break;  // nowhere left to complain to
    p += k;
    n_ -= static_cast<std::size_t>(k);
  }
  n_ = 0;
  errno = saved;
}

void set_fatal_hook(fatal_hook h) noexcept { hook.store(h, memory_order_release); }

// The reporter itself may come again: what it says may have been too much for the end of its stack,
// and the handler of that fault says so.
void begin_fatal() noexcept {
  const auto self = static_cast<pid_t>(::syscall(SYS_gettid));
  pid_t first = 0;
  if (!reporter.compare_exchange_strong(first, self, memory_order_acq_rel) && first != self) {
    for (;;) ::pause();  // the first reporter ends the process
  }
  // Nobody may be reading any more: the status is to be ours all the same.
  const std::uint64_t pipe = std::uint64_t{1} << (SIGPIPE - 1);
  ::syscall(SYS_rt_sigprocmask, SIG_BLOCK, &pipe, nullptr, sizeof pipe);
}

void wait_for_report() noexcept {
  const pid_t who = reporter.load(memory_order_acquire);
  if (who == 0 || who == static_cast<pid_t>(::syscall(SYS_gettid))) return;
  for (;;) ::pause();
}

void end_fatal(bool all) noexcept {
  // A hook that fails is tried once more, from where its failure was noticed.
  if (fatal_hook h = hook.load(memory_order_acquire); h != nullptr && attempts++ < 2) h(all);
  ::_exit(2);
}

// Without a printer, whose buffer may be more than is left of the stack. Nor does it, or
// begin_fatal, call a function of libc for the first time: the loader takes 3 KiB of stack to find
// one.
void fatal(std::string_view what) noexcept {
  begin_fatal();
  constexpr std::string_view head = "fatal error: ";
  iovec text[] = {{const_cast<char*>(head.data()), head.size()},
                  {const_cast<char*>(what.data()), what.size()},
                  {const_cast<char*>("\n"), 1}};
  ::syscall(SYS_writev, 2, text, 3);
  end_fatal();
}

void fatal_errno(std::string_view what, int err) noexcept {
  begin_fatal();
  printer(2) << "fatal error: " << what << ": errno " << err << '\n';
  end_fatal();
}

#if defined(WEFT_DEV)
void assert_failed(const char* expr, const char* file, int line) noexcept {
  begin_fatal();
  printer(2) << "fatal error: assertion failed: " << expr << " (" << file << ':' << line << ")\n";
  end_fatal();
}
#endif

}  // namespace weft::rt
