// SPDX-License-Identifier: Apache-2.0
// weft::mutex, the slow half.
//
// Normal mode: unlock frees the word and wakes the first in the queue, which then has to compete
// with whoever comes by; those are on a CPU already and mostly win, and that is where the
// throughput comes from. One that has been woken and loses goes back to the front. At most one is
// on its way at a time (woken): unlock wakes nobody else meanwhile.
// Starvation mode: one that has waited for more than 1 ms marks the word (starving). From then on
// the word is not freed any more: unlock hands the mutex itself to the first in the queue, until
// that one has waited for less than 1 ms or was the last.
//
// **X1** starving implies locked and a queue, so a set bit is all that a newcomer need look at:
// lock is one fetch_or in either mode.
// **X2** `waiters` is set exactly while the queue is not empty; both change under the queue's lock.
// **X3** `woken` is set while one who will look at the word before it sleeps again, a spinner or
// one that was woken, has claimed it. Whoever claimed it clears it; in one step with taking the
// mutex or with queueing, so that no unlock counts on one who has gone to sleep. A goroutine that
// its run leaves behind clears nothing; so a goroutine's claim has its run in it, whoever queues or
// unlocks drops one that is stale, and the end of the run wakes the next one if a plain thread
// waits.
// **X4** what unlock changes in the word is its last touch of the mutex.
//
// Rejected: Go's way of freeing the word first and looking at it again (X4), and yielding to the
// one that is handed the mutex: unlock must not move its caller to another thread.
//
// Runs on the caller's stack; unlock also on that of a destructor or a commit.
#include "base/chaos.h"
#include "base/fatal.h"
#include "sched/sched.h"
#include "sync/wait_list.h"
#include "weft/sync.hpp"

namespace weft {

using namespace detail;

struct mutex::impl {
  static constexpr std::int64_t starves_after = 1'000'000;  // ns

  struct waiter : waiting {
    explicit waiter(mutex& of) noexcept : waiting(&of), m(of) {
      left = &has_left;
      run_over = &pass_on;
    }
    mutex& m;
    std::int64_t since = 0;  // first queued
  };

  // keeps X2, X1. Under the queue's lock.
  static void has_left(waiting* me, wake_chain&) noexcept {
    mutex& m = static_cast<waiter*>(me)->m;
    if (m.queue_.empty()) m.word_.fetch_and(~(waiters | starving), std::memory_order_relaxed);
  }

  // `woken` with whose it is.
  static constexpr std::uint32_t claim = woken | ~(run_unit - 1);
  static std::uint32_t mark_of(std::uint32_t run) noexcept { return (run + 1) * run_unit; }
  static std::uint32_t claim_of(const rt::G* g) noexcept {
    return woken | (g != nullptr ? mark_of(g->run_id) : 0);
  }
  // A goroutine was woken, or spun, and its run ended before it could look: nobody will clear its
  // claim.
  static bool is_stale(std::uint32_t w) noexcept {
    const std::uint32_t run = w & ~(run_unit - 1);
    return run != 0 && run != mark_of(rt::sched.run_id.load(rt::memory_order_relaxed));
  }
  // Under the queue's lock, without which no stale claim goes; and nobody claims what is claimed.
  static void drop_stale_claim(mutex& m) noexcept {
    if (is_stale(m.word_.load(std::memory_order_relaxed)))
      m.word_.fetch_and(~claim, std::memory_order_relaxed);
  }

  // Under the queue's lock, at the end of a run; me is on the queue. If the mutex is free, and the
  // one on his way to it was left behind, nobody else will come; if it is locked, unlock will see
  // to it. Relaxed: as in unlock, whoever takes the mutex acquires what was done before.
  static void pass_on(waiting* me, wake_chain& go) noexcept {
    mutex& m = static_cast<waiter*>(me)->m;
    drop_stale_claim(m);
    std::uint32_t w = m.word_.load(std::memory_order_relaxed);
    while ((w & (locked | woken)) == 0) {
      waiting* first = m.queue_.front();
      const std::uint32_t emptied = first->next == first ? waiters : 0;
      if (!m.word_.compare_exchange_weak(w, (w & ~emptied) | claim_of(first->w.g),
                                         std::memory_order_relaxed))
        continue;
      m.queue_.remove(first);
      go.push(first);
      return;
    }
  }

  // Who has it. unlock says 0 before it lets go, so that a stale name is never read: a cycle of
  // locks that is reported is one.
  static bool taken(mutex& m) noexcept {
    m.owner_.store(lock_owner(), std::memory_order_relaxed);
    return true;
  }
};

bool mutex::lock_slow(std::int64_t deadline) {
  impl::waiter me(*this);
  alarm clock(me, deadline);
  spinner spin;
  bool claimed = false;  // `woken` is ours (X3)
  bool waited = false, starves = false;
  std::int64_t slept_at = 0;
  std::uint32_t w = word_.load(std::memory_order_relaxed);
  for (;;) {
    if ((w & locked) == 0) {
      // Acquire: with unlock's release.
      if (word_.compare_exchange_weak(w, (w | locked) & ~(claimed ? impl::claim : 0U),
                                      std::memory_order_acquire, std::memory_order_relaxed))
        return impl::taken(*this);
      continue;
    }
    if ((w & starving) == 0 && !starves && spin.can()) {
      // Tell unlock that it need not wake anybody.
      if (!claimed && (w & (waiters | woken)) == waiters &&
          word_.compare_exchange_strong(w, w | impl::claim_of(me.w.g), std::memory_order_relaxed))
        claimed = true;
      spin.round();
      w = word_.load(std::memory_order_relaxed);
      continue;
    }
    if (!waited) {
      slept_at = rt::nanotime();
      me.since = rt::clock_at(slept_at);
      clock.set();
    }
    rt::chaos::point("mutex.queue");
    me.mu.lock();
    if (!waited && me.since >= deadline) me.expired = true;
    if (!claimed) impl::drop_stale_claim(*this);
    // In one step: on the queue (X2), and no longer counted on (X3). Relaxed: whoever acts on it
    // takes the queue's lock.
    w = word_.load(std::memory_order_relaxed);
    const std::uint32_t set = me.expired ? 0 : waiters | (starves ? starving : 0);
    const std::uint32_t clear = claimed ? impl::claim : 0;
    while ((w & locked) != 0 &&
           !word_.compare_exchange_weak(w, (w | set) & ~clear, std::memory_order_relaxed)) {
    }
    if ((w & locked) == 0) {  // free after all
      me.mu.unlock();
      continue;
    }
    if (me.expired) {
      me.mu.unlock();
      return false;
    }
    if (waited) {
      queue_.push_front(&me);  // it has waited longer than all the others
    } else {
      queue_.push_back(&me);
    }
    me.again();
    me.block(rt::wait_reason::sync_mutex_lock, deadline);
    const std::int64_t now = rt::nanotime();
    rt::sched.mutex_wait_ns.fetch_add(static_cast<std::uint64_t>(now - slept_at),
                                      std::memory_order_relaxed);
    slept_at = now;
    if (me.granted) return impl::taken(*this);
    if (me.thrown_out) return false;
    claimed = waited = true;
    starves = starves || rt::clock_at(now) - me.since > impl::starves_after;
    spin.reset();
    w = word_.load(std::memory_order_relaxed);
  }
}

void mutex::unlock_slow(std::uint32_t w) noexcept {
  const rt::in_runtime inside;  // as in wake_chain
  for (;;) {
    if ((w & locked) == 0) rt::fatal("sync: unlock of unlocked mutex");
    if (wakes_nobody(w) && !impl::is_stale(w)) {
      // Release: with the acquire of the next one to lock.
      if (word_.compare_exchange_weak(w, w & ~locked, std::memory_order_release,
                                      std::memory_order_relaxed))
        return;
      continue;
    }
    rt::mutex& mu = lock_of(this);
    mu.lock();
    impl::drop_stale_claim(*this);
    auto* first = static_cast<impl::waiter*>(queue_.front());
    w = word_.load(std::memory_order_relaxed);
    if (first == nullptr) {  // the last one has given up, or its run is over
      word_.fetch_and(~(waiters | starving), std::memory_order_relaxed);
      mu.unlock();
      w = word_.load(std::memory_order_relaxed);
      continue;
    }
    const std::uint32_t emptied = first->next == first ? waiters : 0;
    if ((w & starving) != 0) {
      const bool over = emptied != 0 || rt::clock_now() - first->since < impl::starves_after;
      queue_.remove(first);
      first->granted = true;
      // The mutex stays locked and is first's from here on; its wake-up orders what we did.
      word_.fetch_and(~(emptied | (over ? starving : 0)), std::memory_order_relaxed);
      mu.unlock();
      first->wake();
      return;
    }
    if ((w & woken) != 0) {  // a spinner was faster: no need to wake anybody
      mu.unlock();
      continue;
    }
    rt::chaos::point("mutex.locked");
    queue_.remove(first);
    if (!word_.compare_exchange_strong(w, (w & ~(locked | emptied)) | impl::claim_of(first->w.g),
                                       std::memory_order_release, std::memory_order_relaxed)) {
      queue_.push_front(first);  // look again
      mu.unlock();
      continue;
    }
    mu.unlock();
    rt::chaos::point("mutex.unlock");
    first->wake();
    return;
  }
}

}  // namespace weft
