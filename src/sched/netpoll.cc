// SPDX-License-Identifier: Apache-2.0
// See netpoll.h: descriptors, deadlines and the looks at the kernel; and fd_wait.cc for the
// waiting.
//
// The deadline of a direction is a durable timer with a number. A firing that was under way when
// the deadline was changed finds another number and does nothing. Numbers are never reset, so they
// hold over the cell's next lives too.
//
// Runs on goroutine stacks, plain threads, g0 (fired, the looks), sysmon. Locks: the descriptor's
// (rank wait_queue), under it the timers'; the table's is a leaf.
#include "sched/netpoll.h"

#include <cerrno>
#include <pthread.h>
#include <unistd.h>

#include "base/chaos.h"
#include "base/slab.h"
#include "os/thread.h"
#include "poll/epoll.h"
#include "sched/bubble.h"
#include "sched/park.h"
#include "sched/tracing.h"

namespace weft::rt {

constinit poll_state netpoll;

namespace {

constinit epoll_poller poller_;
constinit slab<fd_desc> descs;  // under descs_lock; at() needs none
constinit mutex descs_lock{lock_rank::leaf};
constinit mutex open_lock{lock_rank::leaf};

constexpr std::int64_t overdue_ns = 10'000'000, overdue_busy_ns = 1'000'000;

std::uint64_t token_of(const fd_desc* d) noexcept {
  return static_cast<std::uint64_t>(descs.index_of(d)) << 32 |
         d->generation.load(memory_order_relaxed);
}

// The child of a fork shares the epoll instance with its parent until it closes its copy: what it
// registered or removed there would be the parent's too. It has one thread, and locks that others
// held at the fork stay held; so from here on nothing of the poller is used but this flag.
//
// But a program that has opened its sockets, forks to become a daemon and calls run there for the
// first time has no thread of ours to miss: it gets a poller of its own, with all that was in the
// other. Unless another thread of its own was just using it.
void leave_to_parent() noexcept {
  poller_.shut();
  bool free = started_threads() == 0 && !descs_lock.is_locked() && !open_lock.is_locked();
  descs.for_each([&free](const fd_desc& d) { free = free && !d.lock.is_locked(); });
  if (free && netpoll.open.load(memory_order_relaxed) && poller_.open() == 0) {
    descs.for_each([](fd_desc& d) {
      if (d.fd < 0) return;
      for (wait_slot& s : d.slot) s.reset();  // who waited was another thread
      poller_.add(d.fd, token_of(&d));
    });
    return;
  }
  netpoll.forked.store(true, memory_order_relaxed);
}

// Before the poller is opened, so that there is no fork that has it and not the hook. Twice does no
// harm. libc may sleep for its lock, or allocate: callers may be inside (wait_fd).
void hook_forks() noexcept {
  static constinit atomic<bool> hooked{false};
  if (hooked.load(memory_order_relaxed)) return;
  const p_lent lent;
  if (::pthread_atfork(nullptr, nullptr, leave_to_parent) == 0)
    hooked.store(true, memory_order_relaxed);
}

int open_poller() noexcept {
  if (netpoll.forked.load(memory_order_relaxed)) return ENOTSUP;
  if (netpoll.open.load(memory_order_acquire)) return 0;  // with the store below
  hook_forks();
  open_lock.lock();
  int err = 0;
  if (!netpoll.open.load(memory_order_relaxed)) {
    err = poller_.open();
    if (err == 0) netpoll.open.store(true, memory_order_release);
  }
  open_lock.unlock();
  return err;
}

wake_queue look(std::int64_t ns) noexcept {
  poll_event ev[epoll_poller::batch];
  const std::size_t n = poller_.wait(ev, epoll_poller::batch, ns);
  wake_queue q;
  // size() is an acquire: the kernel passes the token on, but not, as far as the language knows,
  // what was written when the cell was made.
  const std::size_t cells = n != 0 ? descs.size() : 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (ev[i].token >> 32 >= cells) fatal("netpoll: a report of nothing that was registered");
    fd_desc* d = descs.at(ev[i].token >> 32);
    if (d->generation.load(memory_order_acquire) != static_cast<std::uint32_t>(ev[i].token))
      continue;  // closed meanwhile; with poll_close
    if (ev[i].ended) d->ended.store(true, memory_order_seq_cst);
    if (ev[i].read || d->merged.load(memory_order_relaxed)) q.push(d->slot[0].notify(true));
    if (ev[i].write) q.push(d->slot[1].notify(true));
  }
  return q;
}

// The time of direction m is up.
void on_deadline(durable_timer* t, std::uint64_t number, std::int64_t) noexcept {
  auto* f = static_cast<fd_deadline*>(t);
  fd_desc* d = f->of;
  const auto m = static_cast<unsigned>(f - d->deadline);
  wake_queue q;
  const in_runtime in;  // until those who are in q have been woken
  chaos::point("fd.deadline");
  d->lock.lock();
  if (f->number == number) {
    d->info.fetch_or(1U << m, memory_order_seq_cst);
    q.push(d->slot[m].notify(false));
  }
  d->lock.unlock();
  poll_wake(q);
}

}  // namespace

int poll_open(int fd, fd_desc** out, bool merged) noexcept {
  if (const int err = open_poller(); err != 0) return err;
  descs_lock.lock();
  fd_desc* d = descs.allocate();
  descs_lock.unlock();
  for (fd_deadline& f : d->deadline) {
    if (f.of != nullptr) continue;  // once a cell: a late firing may be reading them
    f.of = d;
    f.keep = [](durable_timer*) noexcept { return true; };  // cells are type-stable
    f.fired = on_deadline;
  }
  d->fd = fd;
  d->merged.store(merged, memory_order_relaxed);
  d->ended.store(false, memory_order_relaxed);
  d->slot[0].reset();
  d->slot[1].reset();
  d->give_back = nullptr;
  d->info.store(0, memory_order_seq_cst);
  const int err = poller_.add(fd, token_of(d));
  if (err != 0) {
    d->fd = -1;
    descs_lock.lock();
    descs.release(d);
    descs_lock.unlock();
    return err;
  }
  *out = d;
  return 0;
}

void poll_evict(fd_desc* d) noexcept {
  if (netpoll.forked.load(memory_order_relaxed)) return;  // those who wait are the parent's
  wake_queue q;
  const in_runtime in;
  d->lock.lock();
  d->info.fetch_or(fd_desc::closing, memory_order_seq_cst);
  for (int m = 0; m < 2; ++m) {
    ++d->deadline[m].number;
    disarm(&d->deadline[m]);
    q.push(d->slot[m].notify(false));
  }
  d->lock.unlock();
  poll_wake(q);
}

void poll_close(fd_desc* d) noexcept {
  if (netpoll.forked.load(memory_order_relaxed)) return;
  poller_.remove(d->fd);
  d->fd = -1;
  chaos::point("fd.close");
  // Release: with look()'s acquire. A report that is under way is dropped from now on.
  d->generation.store(d->generation.load(memory_order_relaxed) + 1, memory_order_release);
  descs_lock.lock();
  descs.release(d);
  descs_lock.unlock();
}

bool poll_set_deadline(fd_desc* d, unsigned modes, std::int64_t when) noexcept {
  if (netpoll.forked.load(memory_order_relaxed)) return false;
  wake_queue q;
  const in_runtime in;
  when = real_deadline(when);
  d->lock.lock();
  const bool open = (d->info.load(memory_order_relaxed) & fd_desc::closing) == 0;
  const bool past = open && when != never && when <= nanotime();
  for (unsigned m = 0; open && m < 2; ++m) {
    if ((modes >> m & 1) == 0) continue;
    fd_deadline& f = d->deadline[m];
    ++f.number;
    disarm(&f);
    if (past) {
      d->info.fetch_or(1U << m, memory_order_seq_cst);
      q.push(d->slot[m].notify(false));
      continue;
    }
    d->info.fetch_and(~(1U << m), memory_order_seq_cst);
    if (when != never) arm(&f, when, f.number);
  }
  d->lock.unlock();
  poll_wake(q);
  return open;
}

std::uint32_t poll_wake(wake_queue& q) noexcept {
  constexpr std::uint32_t batch = 64;
  G* gs[batch];
  std::uint32_t n = 0, all = 0;
  while (poll_waiter* w = q.pop()) {
    chaos::point("fd.wake");
    if (w->g != nullptr) {
      gs[n++] = w->g;
      if (n == batch) {
        ready(gs, n);
        all += n;
        n = 0;
      }
    } else if (const int fd = w->wake_fd; fd >= 0) {
      const int saved = errno;
      const std::uint64_t one = 1;
      while (::write(fd, &one, sizeof one) < 0 && errno == EINTR) {
      }
      errno = saved;
    } else {
      w->taken.store(true, memory_order_release);  // with poll_wait's look
    }
  }
  if (n != 0) ready(gs, n);
  if (all + n != 0) trace_event(trace_kind::polled, all + n);
  return all + n;
}

std::uint32_t poll_now() noexcept {
  netpoll.last_look.store(nanotime(), memory_order_relaxed);
  wake_queue q = look(0);
  return poll_wake(q);
}

std::uint32_t poll_if_any() noexcept {
  if (netpoll.waiters.hint() <= 0) return 0;
  if (netpoll.looking.load(memory_order_relaxed) ||
      netpoll.looking.exchange(true, memory_order_acquire))
    return 0;
  const std::uint32_t n = poll_now();
  netpoll.looking.store(false, memory_order_release);
  return n;
}

std::uint32_t poll_overdue(std::int64_t now) noexcept {
  if (!poller_wanted()) return 0;
  const bool busy = sched.idle.load().idle_ps == 0;
  if (now - netpoll.last_look.load(memory_order_relaxed) < (busy ? overdue_busy_ns : overdue_ns))
    return 0;
  return poll_now();
}

std::int64_t poll_patience() noexcept {
  return poller_wanted() && sched.idle.load().idle_ps == 0 ? overdue_busy_ns : overdue_ns;
}

bool poll_claim() noexcept {
  return anybody_polls_for() && !netpoll.held.exchange(true, memory_order_seq_cst);
}
void poll_unclaim() noexcept { netpoll.held.store(false, memory_order_seq_cst); }

wake_queue poll_block(std::int64_t deadline) noexcept {
  std::int64_t ns = -1;
  if (deadline != never) {
    ns = deadline - nanotime();
    if (ns < 0) ns = 0;
  }
  wake_queue q = look(ns);
  netpoll.last_look.store(nanotime(), memory_order_relaxed);
  return q;
}

void poll_interrupt() noexcept {
  if (!netpoll.forked.load(memory_order_relaxed)) poller_.interrupt();
}

void poll_end_run(std::uint32_t next) noexcept { netpoll.waiters.begin(next); }

// A descriptor outlives the run that a goroutine read from it in, with the reader's lock and its
// place among the users: without this nobody else could read from it, and close() would wait for
// the last user for ever. Whoever still stands in a thread gives back its own when that stops
// (sleep_for_good): until then it may be on its way into a system call with the number.
void poll_leave(const G* only) noexcept {
  if (!netpoll.open.load(memory_order_acquire) || netpoll.forked.load(memory_order_relaxed)) return;
  const in_runtime in;
  const std::uint32_t run = sched.run_id.load(memory_order_relaxed);
  const auto has_stopped = [only, run](const G* g) noexcept {
    if (only != nullptr) return g == only;
    if (g->run_id == run) return false;
    const g_status s = g->state();
    return s == g_status::waiting || s == g_status::leaked || (s == g_status::runnable && !g->kept);
  };
  descs.for_each([&](fd_desc& d) {
    for (int m = 0; m < 2; ++m) {
      // Acquire: with the release in fd_mutex::lock, for `of`. It stays: the holder alone lets go.
      const G* g = d.holder[m].load(memory_order_acquire);
      if (g == nullptr || !has_stopped(g)) continue;
      d.slot[m].finish();
      d.give_back(d.of, static_cast<poll_mode>(m));
    }
  });
}

}  // namespace weft::rt
