// SPDX-License-Identifier: Apache-2.0
// weft::shared_mutex, the slow half: everything that happens while somebody waits.
//
// The word counts the readers inside; `writer` is set while one is inside, `waiters` while anybody
// queues. With `waiters` set no newcomer gets past the fast paths, so whoever leaves last decides,
// under the queues' lock, who comes next, and lets them in before it wakes them: after a writer all
// readers that wait, after the readers the first writer. Neither kind can keep the other out.
//
// A writer whose run is over bars nobody: whoever finds the way barred drops such ones first, and
// the end of the run does if a plain thread waits.
//
// **W1** `waiters` is set exactly while a queue is not empty; under the lock.
// **W2** somebody who waits implies somebody inside: the last to leave lets the next ones in.
// **W3** while `writer` is set, or while `waiters` is set and one reader is inside, only the one
// inside changes the word, but for `waiters` itself; so under the lock it may simply store.
//
// Runs on the caller's stack; has_left also on g0.
#include "base/fatal.h"
#include "sync/wait_list.h"
#include "weft/sync.hpp"

namespace weft {

using namespace detail;

struct shared_mutex::impl {
  struct waiter : waiting {
    explicit waiter(shared_mutex& of) noexcept : waiting(&of), m(of) {
      left = run_over = &has_left;
    }
    shared_mutex& m;
  };

  static std::uint64_t queued(shared_mutex& m) noexcept {
    return m.readers_.front() != nullptr || m.writers_.front() != nullptr ? waiters : 0;
  }
  static std::uint64_t take_readers(shared_mutex& m, wake_chain& go) noexcept {
    std::uint64_t n = 0;
    while (waiting* w = m.readers_.front()) {
      m.readers_.remove(w);
      w->granted = true;
      go.push(w);
      n += reader;
    }
    return n;
  }
  static std::uint64_t take_writer(shared_mutex& m, wake_chain& go) noexcept {
    waiting* w = m.writers_.front();
    if (w == nullptr) return 0;
    m.writers_.remove(w);
    w->granted = true;
    go.push(w);
    return writer;
  }

  // Under the lock. A writer that gives up, or is left behind, opens the way for the readers behind
  // it.
  static void has_left(waiting* me, wake_chain& go) noexcept {
    let_by(static_cast<waiter*>(me)->m, go);
  }
  // Under the lock: lets in those whom nobody bars any more.
  static void let_by(shared_mutex& m, wake_chain& go) noexcept {
    std::uint64_t w = m.word_.load(std::memory_order_relaxed);
    const std::uint64_t in =
        (w & writer) == 0 && m.writers_.front() == nullptr ? take_readers(m, go) : 0;
    const std::uint64_t rest = queued(m);
    // Relaxed: those who come in are behind a reader, whose coming in was ordered.
    while (!m.word_.compare_exchange_weak(w, ((w & ~waiters) | rest) + in,
                                          std::memory_order_relaxed)) {
    }
  }

  // Takes the lock, with no writer left in front whose run is over.
  static void lock_in_order(shared_mutex& m, rt::mutex& mu) noexcept {
    for (;;) {
      wake_chain go;
      mu.lock();
      if ((m.word_.load(std::memory_order_relaxed) & waiters) != 0) let_by(m, go);
      if (go.empty()) return;
      mu.unlock();
      go.wake_all();
    }
  }
  static bool may_read(std::uint64_t& w) noexcept {
    return (w & (writer | waiters)) == 0 && (w += reader) != 0;
  }

  // What both lock_slows do: free tells whether the word lets us in, and what it is then.
  template <class Free>
  static bool lock(shared_mutex& m, wait_list& queue, std::int64_t deadline, rt::wait_reason why,
                   Free free) {
    waiter me(m);
    alarm clock(me, deadline);
    clock.set();
    const bool late = deadline != no_deadline && rt::clock_now() >= deadline;
    lock_in_order(m, me.mu);
    std::uint64_t w = m.word_.load(std::memory_order_relaxed);
    for (;;) {
      std::uint64_t next = w;
      const bool in = free(next);
      if (!in) {
        if (me.expired || late) {
          me.mu.unlock();
          return false;
        }
        next = w | waiters;
      }
      // Acquire: with the unlocks' release.
      if (!m.word_.compare_exchange_weak(w, next, std::memory_order_acquire,
                                         std::memory_order_relaxed))
        continue;
      if (!in) break;
      me.mu.unlock();
      return true;
    }
    queue.push_back(&me);
    const std::int64_t since = rt::nanotime();
    me.block(why, deadline);
    rt::sched.mutex_wait_ns.fetch_add(static_cast<std::uint64_t>(rt::nanotime() - since),
                                      rt::memory_order_relaxed);
    return !me.thrown_out;  // else it was let in
  }
};

bool shared_mutex::lock_slow(std::int64_t deadline) {
  if (!impl::lock(*this, writers_, deadline, rt::wait_reason::sync_rwmutex_lock,
                  [](std::uint64_t& w) { return w == 0 && (w = writer) != 0; }))
    return false;
  owner_.store(lock_owner(), std::memory_order_relaxed);
  return true;
}

bool shared_mutex::lock_shared_slow(std::int64_t deadline) {
  return impl::lock(*this, readers_, deadline, rt::wait_reason::sync_rwmutex_rlock, impl::may_read);
}

bool shared_mutex::try_lock_shared_slow() noexcept {
  rt::mutex& mu = lock_of(this);
  impl::lock_in_order(*this, mu);
  std::uint64_t w = word_.load(std::memory_order_relaxed), next = w;
  bool in = impl::may_read(next);
  // Acquire: with the unlocks' release.
  while (in && !word_.compare_exchange_weak(w, next, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
    next = w;
    in = impl::may_read(next);
  }
  mu.unlock();
  return in;
}

void shared_mutex::unlock_slow() noexcept {
  wake_chain go;
  rt::mutex& mu = lock_of(this);
  mu.lock();
  if ((word_.load(std::memory_order_relaxed) & writer) == 0)
    rt::fatal("sync: Unlock of unlocked RWMutex");
  std::uint64_t in = impl::take_readers(*this, go);
  if (in == 0) in = impl::take_writer(*this, go);
  // Release: with the next one to lock; W3. The last touch.
  word_.store(in | impl::queued(*this), std::memory_order_release);
  mu.unlock();
  go.wake_all();
}

void shared_mutex::unlock_shared_slow() noexcept {
  wake_chain go;
  rt::mutex& mu = lock_of(this);
  mu.lock();
  // Acquire: with the release of the readers that left before us, for the writer that we let in.
  std::uint64_t w = word_.load(std::memory_order_acquire);
  for (;;) {
    if (w < reader) rt::fatal("sync: RUnlock of unlocked RWMutex");
    if (last_of_many(w)) break;
    if (word_.compare_exchange_weak(w, w - reader, std::memory_order_release,
                                    std::memory_order_acquire)) {
      mu.unlock();
      return;
    }
  }
  std::uint64_t in = impl::take_writer(*this, go);
  if (in == 0) in = impl::take_readers(*this, go);
  word_.store(in | impl::queued(*this), std::memory_order_release);
  mu.unlock();
  go.wake_all();
}

}  // namespace weft
