// SPDX-License-Identifier: Apache-2.0
// Moves the calling goroutine to another thread, for certain.
//
// A helper goroutine must first show up while the caller spins without giving way, so it is on
// another thread. The caller leaves goroutines that keep all other threads busy, its old one too,
// and parks; the helper makes it ready, which puts it into the runnext of the helper's P, and ends.
//
// Otherwise an idle old thread may be faster than the helper's, and not by chance: while both have
// one CPU between them, the kernel lets the thread that ready() wakes go before the one that woke
// it, so it stole its goroutine back a thousand times running. Should it be free at the wrong
// moment all the same (one of those others has taken two of them), try again.
#pragma once

#include <atomic>
#include <memory>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sched/park.h"
#include "support/runtime.h"
#include "weft/go.hpp"

namespace weft::test {

// By system call: nothing for a compiler or libc to remember over a switch.
[[gnu::noinline]] inline pid_t thread_id() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

namespace migrate_detail {

struct meeting {
  std::atomic<int> helper{0};  // 1: it is there; -1: the caller has given up
  std::atomic<bool> parked{false};
  std::atomic<bool> over{false};  // the caller runs again
  rt::G* g = nullptr;

  static void commit(void*, void* self) {
    static_cast<meeting*>(self)->parked.store(true, std::memory_order_release);  // last touch
  }
  static void help(meeting& m) {
    int nobody = 0;
    if (!m.helper.compare_exchange_strong(nobody, 1)) return;
    while (!m.parked.load(std::memory_order_acquire)) rt::cpu_relax();
    rt::ready(m.g);
  }
  static void keep_busy(const meeting& m) {
    while (!m.over.load(std::memory_order_acquire)) ::sched_yield();
  }
};

// False if no other thread took the helper within the limit.
inline bool once() {
  auto m = std::make_shared<meeting>();
  m->g = rt::current_g();
  weft::go([m] { meeting::help(*m); });
  if (!spin_until([&] { return m->helper.load() == 1; })) {
    int nobody = 0;
    if (m->helper.compare_exchange_strong(nobody, -1)) return false;
  }
  for (int i = 1; i < weft::procs(); ++i) weft::go([m] { meeting::keep_busy(*m); });
  rt::park(meeting::commit, m.get(), rt::wait_reason::internal);
  m->over.store(true, std::memory_order_release);
  return true;
}

}  // namespace migrate_detail

// True once the caller runs on another thread than it did. False: that never happened. Needs two
// Ps.
[[gnu::noinline]] inline bool migrate() {
  constexpr int tries = 1000;
  for (int i = 0; i < tries; ++i) {
    const pid_t before = thread_id();
    if (!migrate_detail::once()) return false;
    if (thread_id() != before) return true;
  }
  return false;
}

}  // namespace weft::test
