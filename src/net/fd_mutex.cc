// SPDX-License-Identifier: Apache-2.0
// See fd_mutex.h. Every change is a compare-and-swap of the one word: acquire when entering, so
// that what the last one in this direction did is seen, release when leaving, its partner.
#include "net/fd_mutex.h"

#include <stdexcept>

#include "os/section.h"

namespace weft::detail {
namespace {

[[noreturn]] void overflow() {
  throw std::length_error(
      "too many concurrent operations on a single file or socket (max 1048575)");
}
[[noreturn]] void unbalanced() {
  throw std::logic_error("inconsistent use of a descriptor's lock");
}

}  // namespace

bool fd_mutex::enter() {
  std::uint64_t w = word_.load(rt::memory_order_relaxed);
  for (;;) {
    if ((w & closed_bit) != 0) return false;
    if ((w & users) == full) overflow();
    if (word_.compare_exchange_weak(w, w + user, rt::memory_order_acquire,
                                    rt::memory_order_relaxed))
      return true;
  }
}

bool fd_mutex::close(line l) noexcept {
  const rt::in_runtime inside;  // until those taken out of the line are awake
  std::uint64_t w = word_.load(rt::memory_order_relaxed);
  for (;;) {
    if ((w & closed_bit) != 0) return false;
    std::uint64_t next = (w | closed_bit) + user;
    if (rt::is_fork_child()) {
      next = closed_bit | user;  // the others are the parent's threads
      l = line::stays;
    }
    if (l == line::wakes) next &= ~sides[0].line & ~sides[1].line;  // taken out of it here
    if (!word_.compare_exchange_weak(w, next, rt::memory_order_acq_rel, rt::memory_order_relaxed))
      continue;
    for (int i = 0; i < 2 && l == line::wakes; ++i) {
      const auto waiting = static_cast<std::ptrdiff_t>((w & sides[i].line) / sides[i].one);
      if (waiting != 0) in_[i].release(waiting);
    }
    return true;
  }
}

bool fd_mutex::leave() {
  std::uint64_t w = word_.load(rt::memory_order_relaxed);
  for (;;) {
    if ((w & users) == 0) unbalanced();
    const std::uint64_t next = w - user;
    // Acquire too: the last one sees what all the others did before it destroys.
    if (word_.compare_exchange_weak(w, next, rt::memory_order_acq_rel, rt::memory_order_relaxed))
      return (next & (closed_bit | users)) == closed_bit;
  }
}

bool fd_mutex::lock(rt::poll_mode m, rt::fd_desc* d) {
  const side& s = sides[static_cast<int>(m)];
  std::uint64_t w = word_.load(rt::memory_order_relaxed);
  for (;;) {
    if ((w & closed_bit) != 0) return false;
    const bool in = (w & s.held) == 0;
    if (in ? (w & users) == full : (w & s.line) == s.line) overflow();
    const std::uint64_t next = in ? (w | s.held) + user : w + s.one;
    {
      const rt::in_runtime
          inside;  // nobody is stopped for good while he has it and does not say so
      if (!word_.compare_exchange_weak(w, next, rt::memory_order_acquire, rt::memory_order_relaxed))
        continue;
      if (in && d != nullptr)  // release: with poll_leave
        d->holder[static_cast<int>(m)].store(rt::current_g(), rt::memory_order_release);
    }
    if (in) return true;
    in_[static_cast<int>(m)].acquire();
    w = word_.load(rt::memory_order_relaxed);
  }
}

bool fd_mutex::unlock(rt::poll_mode m, rt::fd_desc* d) {
  const rt::in_runtime inside;  // as in close
  if (d != nullptr) d->holder[static_cast<int>(m)].store(nullptr, rt::memory_order_relaxed);
  const side& s = sides[static_cast<int>(m)];
  std::uint64_t w = word_.load(rt::memory_order_relaxed);
  for (;;) {
    if ((w & s.held) == 0 || (w & users) == 0) unbalanced();
    std::uint64_t next = (w & ~s.held) - user;
    // After a close that has woken nobody all of them find it closed, and nobody wakes the next.
    const std::uint64_t wake = (w & closed_bit) != 0 ? (w & s.line) / s.one
                               : (w & s.line) != 0   ? 1
                                                     : 0;
    next -= wake * s.one;
    if (!word_.compare_exchange_weak(w, next, rt::memory_order_acq_rel, rt::memory_order_relaxed))
      continue;
    if (wake != 0) in_[static_cast<int>(m)].release(static_cast<std::ptrdiff_t>(wake));
    return (next & (closed_bit | users)) == closed_bit;
  }
}

}  // namespace weft::detail
