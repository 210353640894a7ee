// SPDX-License-Identifier: Apache-2.0
// Waiting for a descriptor (netpoll.h). A goroutine parks, and whoever polls makes it ready. A
// plain thread sleeps in poll(2) on the descriptor itself and on an eventfd by which a deadline or
// a close reaches it: so it needs no runtime, before, during and after a run.
//
// The count of waiters. It says to idle Ms whether somebody must sit in the poller, so it is part
// of the wake protocol (core/idle.h): a goroutine that is about to wait raises it, full barrier,
// then reads whether somebody sits there and the idle word, and wakes an M if there is an idle P
// and nobody. An M that goes idle changes the idle word, full barrier, and reads the count
// (worker.cc). One of them sees the other.
//
// Runs on the caller's stack; the commit on the stack that is entered.
#include <cerrno>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/chaos.h"
#include "sched/netpoll.h"
#include "sched/park.h"
#include "sched/waiter.h"

namespace weft::rt {
namespace {

void wait_parked(poll_waiter& w) {
  if (netpoll.forked.load(memory_order_relaxed))
    fatal("weft used in the child of a fork: only exec is possible there");
  const std::uint32_t run = w.g->run_id;
  netpoll.waiters.add(run, 1);  // seq_cst; partner: stop_m's reading
  if (!netpoll.held.load(memory_order_seq_cst) && sched.idle.load().idle_ps != 0) wake();
  park(
      [](void* g, void* arg) {
        auto* me = static_cast<poll_waiter*>(arg);
        chaos::point("fd.publish");
        if (!me->slot->publish(me)) refuse(g);
      },
      &w, wait_reason::io_wait);
  netpoll.waiters.add(run, -1);
}

// Without an eventfd (the process has no descriptor left) the thread looks this often.
constexpr int look_ms = 5;

// Until our eventfd has been written to: whoever took us off the slot is about to.
void await_token(int fd) noexcept {
  pollfd p{fd, POLLIN, 0};
  std::uint64_t count = 0;
  while (::read(fd, &count, sizeof count) < 0) ::poll(&p, 1, -1);
}

[[gnu::noinline]] void wait_asleep(poll_waiter& w, int fd, poll_mode m) noexcept {
  __builtin_unwind_init();
  const standing_still here;
  const int saved = errno;
  w.wake_fd = chaos::fault("eventfd") != 0 ? -1 : ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  const short events = m == poll_mode::read ? POLLIN | POLLRDHUP : POLLOUT;
  pollfd p[2] = {{fd, events, 0}, {w.wake_fd, POLLIN, 0}};
  if (w.slot->publish(&w)) {
    for (;;) {
      const int n = ::poll(p, 2, w.wake_fd < 0 ? look_ms : -1);
      if (n < 0) continue;  // EINTR
      if (p[0].revents != 0 && w.slot->withdraw(&w)) break;
      if (w.wake_fd >= 0 && (p[0].revents | p[1].revents) != 0) {
        await_token(w.wake_fd);
        break;
      }
      if (w.taken.load(memory_order_acquire)) break;  // with poll_wake
    }
  }
  if (w.wake_fd >= 0) ::close(w.wake_fd);
  errno = saved;
}

}  // namespace

poll_result poll_wait(fd_desc* d, poll_mode m) {
  wait_slot& slot = d->slot[static_cast<int>(m)];
  for (;;) {
    if (const poll_result r = d->check(m); r != poll_result::ready) return r;
    if (!slot.begin()) return poll_result::ready;
    if (const poll_result r = d->check(m); r != poll_result::ready) {
      slot.finish();
      return r;
    }
    poll_waiter w;
    w.g = current_g();
    w.slot = &slot;
    if (w.g != nullptr) {
      wait_parked(w);
    } else {
      wait_asleep(w, d->fd, m);
      slot.finish();
      // It has waited by itself: the caller tries, whatever the slot says.
      return d->check(m);
    }
    chaos::point("fd.finish");
    if (slot.finish()) return poll_result::ready;
  }
}

}  // namespace weft::rt
