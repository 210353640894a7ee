// SPDX-License-Identifier: Apache-2.0
// The runtime's poller: descriptors that goroutines and plain threads wait for, with deadlines; and
// who looks at the kernel when.
//
// Who polls:
//   - an M in find_work that has found nothing in the queues, without blocking;
//   - an M that has given its P up, blocking, until the next timer ('in the poller', worker.cc):
//   one
//     at a time, and there is one while goroutines wait for descriptors and an M is idle;
//   - sysmon, if nobody has for 10 ms (1 ms while every P is busy).
// Plain threads wait in poll(2) for their descriptor and do not depend on any of them.
//
// fd_desc: cells are type-stable. Tokens are index and generation, so a report that comes late
// finds another generation, or at worst wakes somebody who tries in vain and waits again.
#pragma once

#include <cstdint>

#include "poll/desc.h"
#include "sched/timers.h"

namespace weft::rt {

// What a wait ended with.
enum class poll_result : std::uint8_t { ready, expired, closed };

struct fd_desc;

struct fd_deadline : durable_timer {
  fd_desc* of = nullptr;
  std::uint64_t number = 0;  // of the last arming or stopping; under the descriptor's lock
};

struct alignas(64) fd_desc {
  wait_slot slot[2];  // by poll_mode
  // Written under lock, read anywhere.
  static constexpr std::uint32_t closing = 4;  // 1 << poll_mode: its time is up
  atomic<std::uint32_t> info{0};
  atomic<std::uint32_t> generation{0};  // one up at each close
  int fd = -1;
  // Both directions are reported to the reader. Relaxed: set before it is registered, and a report
  // of the cell's last life at worst wakes somebody in vain.
  atomic<bool> merged{false};
  // An end, an error or urgent data has been reported: a read that gives less than was asked for
  // does not mean that a report will come before there is more (net/socket.h). Written before
  // notify(), read after forget() or begin(), all seq_cst: a report that finds the slot `ready`
  // writes nothing else that its reader could see.
  atomic<bool> ended{false};
  // Who has a direction to itself, if it is a goroutine (net/fd_mutex.h), and how it is taken from
  // one that will never run again (poll_leave). The latter two are set before anybody is in.
  atomic<G*> holder[2] = {};
  void (*give_back)(void* of, poll_mode m) noexcept = nullptr;
  void* of = nullptr;
  // -- under lock.
  mutex lock{lock_rank::wait_queue};
  fd_deadline deadline[2];

  poll_result check(poll_mode m) const noexcept {
    // seq_cst: after `preparing` was written (desc.h).
    const std::uint32_t i = info.load(memory_order_seq_cst);
    if ((i & closing) != 0) return poll_result::closed;
    return (i >> static_cast<unsigned>(m) & 1) != 0 ? poll_result::expired : poll_result::ready;
  }
};

// The child of a fork has no poller: it may close what it has inherited, and nothing more. Only one
// that is made before any thread of ours has a poller of its own (leave_to_parent).
//
// Registers fd with the poller. 0 or an errno value (EPERM: cannot be watched; ENOTSUP: in the
// child of a fork). merged: who waits to read wakes when it can be written to as well.
int poll_open(int fd, fd_desc** out, bool merged = false) noexcept;
// Wakes all who wait; they and those who come later find `closed`. Once.
void poll_evict(fd_desc* d) noexcept;
// Takes fd out of the poller and frees d. Nobody uses d any more; before fd is closed.
void poll_close(fd_desc* d) noexcept;

// Before a call that may find the descriptor not ready: `ready` is 'go on'.
inline poll_result poll_prepare(fd_desc* d, poll_mode m) noexcept {
  d->slot[static_cast<int>(m)].forget();
  return d->check(m);
}
// After a call that found it not ready. May be `ready` in vain. From goroutines and plain threads.
poll_result poll_wait(fd_desc* d, poll_mode m);

// when: nanoseconds of the clock, `never` for none; what is past is past at once. modes: 1 << mode.
// False: closing, or in the child of a fork.
bool poll_set_deadline(fd_desc* d, unsigned modes, std::int64_t when) noexcept;

// -- for the scheduler (find_work.cc, worker.cc, sysmon.cc)

// A count of goroutines of one run, with the run's number in the same word: one that runs on
// without a P while its run ends must not change the next one's.
class run_count {
 public:
  std::int32_t load() const noexcept {
    return static_cast<std::int32_t>(word_.load(memory_order_seq_cst));
  }
  // Acquire: with add's release. Whoever is counted has opened the poller before.
  std::int32_t hint() const noexcept {
    return static_cast<std::int32_t>(word_.load(memory_order_acquire));
  }
  void add(std::uint32_t run, std::int32_t n) noexcept {
    std::uint64_t w = word_.load(memory_order_relaxed);
    while (w >> 32 == run &&
           !word_.compare_exchange_weak(w, w + static_cast<std::uint64_t>(std::int64_t{n}),
                                        memory_order_seq_cst, memory_order_relaxed)) {
    }
  }
  void begin(std::uint32_t run) noexcept {
    word_.store(std::uint64_t{run} << 32, memory_order_seq_cst);
  }

 private:
  atomic<std::uint64_t> word_{0};
};

struct poll_state {
  atomic<bool> open{false};
  // We are the child of a fork, and the poller is the parent's. Relaxed: set while there is one
  // thread.
  atomic<bool> forked{false};
  run_count waiters;                  // goroutines of this run that wait for a descriptor
  atomic<bool> held{false};           // an M is in the poller, or on its way in or out
  atomic<bool> looking{false};        // somebody looks without blocking: one is enough
  atomic<std::int64_t> last_look{0};  // when somebody last did
};
extern constinit poll_state netpoll;

inline bool is_fork_child() noexcept {
  return sched.forked || netpoll.forked.load(memory_order_relaxed);
}

inline bool anybody_polls_for() noexcept { return netpoll.waiters.load() > 0; }
// Goroutines wait for descriptors and nobody sits in the poller: an M that goes idle must.
inline bool poller_wanted() noexcept {
  return anybody_polls_for() && !netpoll.held.load(memory_order_seq_cst);
}
// Makes ready whom the kernel says is; onto the caller's P, else into the global queue. How many.
std::uint32_t poll_now() noexcept;
// The same for one that finds nothing else to do: not if nobody waits or somebody looks already.
std::uint32_t poll_if_any() noexcept;
// For sysmon: goroutines made ready because nobody had looked for too long.
std::uint32_t poll_overdue(std::int64_t now) noexcept;
// How long sysmon may sleep at most, for descriptors' sake.
std::int64_t poll_patience() noexcept;

// The place in the poller. claim: false if it is taken or nobody waits.
bool poll_claim() noexcept;
void poll_unclaim() noexcept;
// Blocks until something is ready, until the deadline, or until interrupted.
wake_queue poll_block(std::int64_t deadline) noexcept;
// Wakes them all: goroutines onto the caller's P if it has one. How many goroutines.
std::uint32_t poll_wake(wake_queue& q) noexcept;
void poll_interrupt() noexcept;  // the M in the poller looks at the timers again
// World stopped: its goroutines do not wait any more; those of `next` may.
void poll_end_run(std::uint32_t next) noexcept;
// What that one holds of descriptors is given back: it has stopped for good. Null: what all hold
// that stand in no thread and whose run is over. Without a lock.
void poll_leave(const G* only) noexcept;

}  // namespace weft::rt
