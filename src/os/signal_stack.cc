// SPDX-License-Identifier: Apache-2.0
// See signal_stack.h. The size is what we promise plus the largest signal frame of this CPU
// (AT_MINSIGSTKSZ: 3 KiB with AVX-512, 11 KiB with AMX), so that a handler has `usable` for itself.
//
// Runs on the thread's own stack, at its start and end. No allocation but by mmap.
#include "os/signal_stack.h"

#include <cerrno>
#include <sys/auxv.h>

#include "base/chaos.h"
#include "base/fatal.h"
#include "os/memory.h"

namespace weft::rt {
namespace {

#if !defined(AT_MINSIGSTKSZ)
#define AT_MINSIGSTKSZ 51
#endif

std::size_t wanted_size() noexcept {
  const std::size_t page = page_size();
  const std::size_t frame = ::getauxval(AT_MINSIGSTKSZ);
  return signal_stack::guard +
         (signal_stack::usable + frame + static_cast<std::size_t>(MINSIGSTKSZ) + page - 1) / page *
             page;
}

}  // namespace

void signal_stack::install() noexcept {
  if (installed_) return;
  if (base_ == 0) {
    bytes_ = wanted_size();
    const int refused = chaos::fault("signal_stack");
    const mapping m = refused == 0 ? map_memory(bytes_) : mapping{0, refused};
    if (!m) fatal_errno("runtime: no memory for a signal stack", m.err);
    base_ = m.addr;
    if (const int err = forbid_access({base_, guard}); err != 0)
      fatal_errno("runtime: no guard for a signal stack", err);
  }
  stack_t ours{};
  ours.ss_sp = reinterpret_cast<void*>(base_ + guard);
  ours.ss_size = bytes_ - guard;
  if (::sigaltstack(&ours, &before_) != 0)
    fatal_errno("runtime: cannot set the signal stack", errno);
  installed_ = true;
}

void signal_stack::restore() noexcept {
  if (!installed_) return;
  installed_ = false;
  stack_t now{};
  ::sigaltstack(nullptr, &now);
  // Somebody has set another one since: that is the thread's own now.
  if (now.ss_sp != reinterpret_cast<void*>(base_ + guard)) return;
  before_.ss_flags &= ~SS_ONSTACK;
  ::sigaltstack(&before_, nullptr);
}

void signal_stack::release() noexcept {
  if (base_ != 0) unmap({base_, bytes_});
  base_ = 0;
  bytes_ = 0;
}

}  // namespace weft::rt
