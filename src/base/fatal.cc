// SPDX-License-Identifier: Apache-2.0
// See fatal.h. The order is: claim the right to report, print, let the hook add what it knows,
// _exit(2). _exit and not exit: static destructors and atexit handlers of a process in this state
// may hang.
#include "base/fatal.h"

#include <cerrno>
#include <csignal>
#include <unistd.h>

#include "base/atomic.h"
#include "base/print.h"

namespace weft::rt {
namespace {
atomic<int> reporting{0};
atomic<fatal_hook> hook{nullptr};
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

void begin_fatal() noexcept {
  if (reporting.exchange(1, memory_order_acq_rel) != 0) {
    for (;;) ::pause();  // the first reporter ends the process
  }
  // Nobody may be reading any more: the status is to be ours all the same.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

void end_fatal(bool all) noexcept {
  if (fatal_hook h = hook.exchange(nullptr, memory_order_acq_rel)) h(all);
  ::_exit(2);
}

void fatal(std::string_view what) noexcept {
  begin_fatal();
  printer(2) << "fatal error: " << what << '\n';
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
