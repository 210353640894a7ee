// SPDX-License-Identifier: Apache-2.0
// The P of a thread that sleeps in the kernel and has told nobody (DESIGN 5).
//
// No signal: the sleeper must not notice. sysmon announces itself in the M's word, makes sure by
// membarrier(2) that the M either sees the announcement or has been seen inside the runtime, and
// then takes the P if it was outside:
//
//   M, entering the runtime:  in_rt = 1; compiler barrier; if hold != owned: CAS detaching -> owned
//   M, leaving it:            store-release in_rt = 0
//   sysmon:                   CAS owned -> detaching; membarrier; in_rt != 0 ? CAS detaching ->
//   owned
//                                                                 : CAS detaching -> taking
//
// The membarrier makes each thread of the process pass a full barrier between the first CAS and the
// read of in_rt. So if sysmon reads 0, the M's next entry comes after the CAS and sees `detaching`:
// both then CAS the same word and one wins. models/ has it under TSO and with reordered stores.
//
// Without membarrier (an old kernel, an emulator) nothing is ever detached.
//
// Runs on sysmon, and at the end of a run.
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sched/sched.h"
#include "sched/tracing.h"

namespace weft::rt {
namespace {

long membarrier(int cmd) noexcept { return ::syscall(SYS_membarrier, cmd, 0, 0); }

}  // namespace

bool can_detach() noexcept {
  static const bool can = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  return can;
}

P* take_from_sleeper(M* m) noexcept {
  if (!can_detach()) return nullptr;
  hold_state s = hold_state::owned;
  const atomic<std::uint32_t>* in_rt = m->in_rt.load(memory_order_acquire);  // with bind_thread
  if (in_rt == nullptr || in_rt->load(memory_order_relaxed) != 0 ||
      !m->hold.compare_exchange_strong(s, hold_state::detaching, memory_order_acq_rel))
    return nullptr;
  membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  s = hold_state::detaching;
  if (in_rt->load(memory_order_acquire) != 0) {  // with leave_rt's release
    m->hold.compare_exchange_strong(s, hold_state::owned, memory_order_acq_rel);
    return nullptr;
  }
  if (!m->hold.compare_exchange_strong(s, hold_state::taking, memory_order_acq_rel)) return nullptr;
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
