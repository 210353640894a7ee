// SPDX-License-Identifier: Apache-2.0
// The lock of a descriptor: users are counted, readers exclude readers, writers exclude writers,
// and after close() the last user does the real close. So a number is never given back to the
// kernel while somebody may still pass it to a system call.
//
// One word: closed, a reader is in, a writer is in, and three counts: users, readers in line,
// writers in line. Those in line wait on a semaphore each; whoever leaves lets one in, which then
// tries again; close lets them all in, and they find it closed. The counts go up to max_users; that
// of users has a bit more, so that there is always room for close, which must not fail.
//
// Runs on the caller's stack, goroutine or plain thread.
#pragma once

#include <cstdint>

#include "base/atomic.h"
#include "sched/netpoll.h"
#include "weft/sync.hpp"

namespace weft::detail {

class fd_mutex {
 public:
  static constexpr std::uint64_t max_users = (1U << 20) - 1;

  bool enter();  // one user more; false: closed
  // One user more, and closed from now on; false: it was already. Those in line wake and find it
  // closed; if not told to, when the one who is in leaves. In the child of a fork there is nobody
  // else: the caller is the last one.
  enum class line : bool { stays, wakes };
  bool close(line l = line::wakes) noexcept;
  bool leave();  // true: the last one after close; the caller destroys
  // A user, alone in its direction; false: closed. The goroutine that is in stands in `d`, if there
  // is one, so that the end of its run finds it (rt::poll_leave).
  bool lock(rt::poll_mode m, rt::fd_desc* d = nullptr);
  bool unlock(rt::poll_mode m, rt::fd_desc* d = nullptr);  // true: as leave()
  bool closed() const noexcept {                           // acquire: with close()
    return (word_.load(rt::memory_order_acquire) & closed_bit) != 0;
  }

 private:
  static constexpr std::uint64_t closed_bit = 1, user = 8, users = (2 * max_users + 1) * user,
                                 full = max_users * user;
  struct side {
    std::uint64_t held;  // the bit
    std::uint64_t one;   // one in line
    std::uint64_t line;  // the count of them
  };
  static constexpr side sides[2] = {{2, user << 21, full << 21}, {4, user << 41, full << 41}};

  rt::atomic<std::uint64_t> word_{0};
  semaphore in_[2] = {semaphore(0), semaphore(0)};
};

}  // namespace weft::detail
