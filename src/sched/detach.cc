// SPDX-License-Identifier: Apache-2.0
// The P of a thread that sleeps in the kernel and has told nobody (DESIGN 5).
//
// No signal: the sleeper must not notice. sysmon announces itself in the M's word, makes sure by
// membarrier(2) that the M either sees the announcement or has been seen inside the runtime, and
// then takes the P if it was outside:
//
//   M, entering the runtime:  in_rt = 1; compiler barrier; if hold != owned: CAS detaching -> owned
//   M, leaving it:            store-release in_rt = 0
//   sysmon:                   CAS owned -> detaching; membarrier;
//                             in_rt != 0 ? CAS detaching -> owned : CAS detaching -> taking
//
// The membarrier makes each thread of the process pass a full barrier between the first CAS and the
// read of in_rt. So if sysmon reads 0, the M's next entry comes after the CAS and sees `detaching`:
// both then CAS the same word and one wins. models/ has it under TSO and with reordered stores.
//
// p_lent is the same with another word: to lend is to leave, to end it is to enter. sysmon compares
// the two words. It reads them one after the other, and the M may go on in between; but whatever
// makes them look equal, the M has left or lent since the membarrier, or was outside then, and
// looks at `hold` before it next uses the P.
//
// Without membarrier (an old kernel, an emulator) nothing is ever detached.
//
// Runs on sysmon, and at the end of a run.
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/chaos.h"
#include "sched/sched.h"
#include "sched/tracing.h"

namespace weft::rt {
namespace {

long membarrier(int cmd) noexcept { return ::syscall(SYS_membarrier, cmd, 0, 0); }

// M::words points into the thread's own memory, which goes with it: held while that is read.
constinit mutex words_lock{lock_rank::leaf};

// One that has lent its P inside the runtime stops where it leaves: without a P it has no business
// in user code. The end of a run waits until it has, as for everybody inside.
bool may_be_inside(thread_words* words) noexcept {
  if (words->in_rt.load(memory_order_relaxed) == 0) return true;
  words->attention.store(1, memory_order_relaxed);
  return !sched.ending.load(memory_order_relaxed);
}

// The handshake as far as it reads the thread's words.
bool begins_to_take(M* m) noexcept {
  hold_state s = hold_state::owned;
  words_lock.lock();
  thread_words* words = m->words.load(memory_order_acquire);  // with bind_thread
  bool may = words != nullptr && !words->keeps_p() &&
             m->hold.compare_exchange_strong(s, hold_state::detaching, memory_order_acq_rel);
  if (may) {
    chaos::point("detach.announced");
    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    s = hold_state::detaching;
    may = !words->keeps_p() && may_be_inside(words);
    if (!may) m->hold.compare_exchange_strong(s, hold_state::owned, memory_order_acq_rel);
  }
  words_lock.unlock();
  return may && m->hold.compare_exchange_strong(s, hold_state::taking, memory_order_acq_rel);
}

}  // namespace

void forget_words(M* m) noexcept {
  words_lock.lock();
  m->words.store(nullptr, memory_order_relaxed);
  words_lock.unlock();
}

bool can_detach() noexcept {
  static const bool can =
      chaos::fault("membarrier") == 0 && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  return can;
}

P* take_from_sleeper(M* m) noexcept {
  if (!can_detach()) return nullptr;
  if (!begins_to_take(m)) return nullptr;
  chaos::point("detach.taking");
  P* p = m->p;
  if (p != nullptr) {
    p->m.store(nullptr, memory_order_relaxed);
    p->status.store(p_status::idle, memory_order_relaxed);
    trace_p_taken(p, m);
  }
  m->hold.store(hold_state::detached, memory_order_release);  // with settle_hold
  return p;
}

}  // namespace weft::rt
